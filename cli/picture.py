"""Draws a graph as a PNG, on this machine: LangGraph's own way sends it to a public web service."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from langchain_core.runnables.graph import Edge, Graph
from PIL import Image, ImageDraw, ImageFont

SCALE = 2
BOX_W, BOX_H, GAP_X, GAP_Y, MARGIN = 150 * SCALE, 38 * SCALE, 50 * SCALE, 44 * SCALE, 40 * SCALE
"""Pixels."""
INK, PAPER, FILL, ENDS = "#333333", "#ffffff", "#eef2ff", "#e7e7e7"


def save_png(graph: Graph, path: Path) -> None:
    """Write the picture of a graph: layers from the top down, edges that lead back on the left, choices dashed.

    Raises:
        OSError: the file cannot be written.
    """
    levels = _levels(graph)
    rows: defaultdict[int, list[str]] = defaultdict(list)
    for node in graph.nodes:
        rows[levels[node]].append(node)
    returning = [edge for edge in graph.edges if levels[edge.target] <= levels[edge.source]]
    lane = GAP_X // 2 * (len(returning) + 1)
    widest = max(len(row) for row in rows.values())
    width = 2 * MARGIN + lane + widest * BOX_W + (widest - 1) * GAP_X
    height = 2 * MARGIN + len(rows) * BOX_H + (len(rows) - 1) * GAP_Y
    image = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(image)
    places = _places(rows, left=MARGIN + lane, width=width - MARGIN)
    for edge in graph.edges:
        if edge not in returning:
            _line(draw, [_bottom(places[edge.source]), _top(places[edge.target])], edge)
    for number, edge in enumerate(returning, start=1):
        x = MARGIN + lane - GAP_X // 2 * number
        start, end = _left(places[edge.source]), _left(places[edge.target])
        _line(draw, [start, (x, start[1]), (x, end[1]), end], edge)
    small = ImageFont.load_default(size=12 * SCALE)
    for edge in graph.edges:
        if edge.data and edge not in returning:
            middle = _between(_bottom(places[edge.source]), _top(places[edge.target]), 0.5)
            area = draw.textbbox(middle, str(edge.data), font=small, anchor="mm")
            draw.rectangle((area[0] - SCALE, area[1] - SCALE, area[2] + SCALE, area[3] + SCALE), fill=PAPER)
            draw.text(middle, str(edge.data), fill=INK, font=small, anchor="mm")
    font = ImageFont.load_default(size=15 * SCALE)
    for node, (x, y) in places.items():
        box = (x, y, x + BOX_W, y + BOX_H)
        fill = ENDS if node.startswith("__") else FILL
        draw.rounded_rectangle(box, radius=8 * SCALE, fill=fill, outline=INK, width=SCALE)
        draw.text((x + BOX_W / 2, y + BOX_H / 2), node.strip("_"), fill=INK, font=font, anchor="mm")
    image.save(path, format="PNG")


def _levels(graph: Graph) -> dict[str, int]:
    """The layer of each node: its longest way from the first one, not counting edges that close a loop."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        following[edge.source].append(edge.target)
    levels: dict[str, int] = {}

    def visit(node: str, level: int, above: frozenset[str]) -> None:
        if node in above or levels.get(node, -1) >= level:
            return
        levels[node] = level
        for target in following[node]:
            visit(target, level + 1, above | {node})

    visit(next(iter(graph.nodes)), 0, frozenset())
    return levels


def _places(rows: dict[int, list[str]], *, left: int, width: int) -> dict[str, tuple[int, int]]:
    places = {}
    for level, row in rows.items():
        row_width = len(row) * BOX_W + (len(row) - 1) * GAP_X
        x = left + (width - left - row_width) // 2
        for number, node in enumerate(row):
            places[node] = (x + number * (BOX_W + GAP_X), MARGIN + level * (BOX_H + GAP_Y))
    return places


def _top(place: tuple[int, int]) -> tuple[int, int]:
    return place[0] + BOX_W // 2, place[1]


def _bottom(place: tuple[int, int]) -> tuple[int, int]:
    return place[0] + BOX_W // 2, place[1] + BOX_H


def _left(place: tuple[int, int]) -> tuple[int, int]:
    return place[0], place[1] + BOX_H // 2


def _line(draw: ImageDraw.ImageDraw, points: list[tuple[int, int]], edge: Edge) -> None:
    """A line with an arrowhead; dashed where the edge is one of several choices."""
    for start, end in pairwise(points):
        if edge.conditional:
            _dashes(draw, start, end)
        else:
            draw.line([start, end], fill=INK, width=SCALE)
    _arrowhead(draw, points[-2], points[-1])


def _dashes(draw: ImageDraw.ImageDraw, start: tuple[int, int], end: tuple[int, int]) -> None:
    length = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    dash = 5 * SCALE
    for position in range(0, length, 2 * dash):
        a, b = position / length, min(position + dash, length) / length
        draw.line([_between(start, end, a), _between(start, end, b)], fill=INK, width=SCALE)


def _between(start: tuple[int, int], end: tuple[int, int], share: float) -> tuple[float, float]:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _arrowhead(draw: ImageDraw.ImageDraw, start: tuple[int, int], end: tuple[int, int]) -> None:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    ux, uy, size = dx / length, dy / length, 8 * SCALE
    back = (end[0] - ux * size, end[1] - uy * size)
    wing = (uy * size / 2, -ux * size / 2)
    draw.polygon([end, (back[0] + wing[0], back[1] + wing[1]), (back[0] - wing[0], back[1] - wing[1])], fill=INK)
