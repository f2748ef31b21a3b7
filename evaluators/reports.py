"""Reads what test runners report: TAP and JUnit XML."""

import re
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.parsers import expat

_TEST = re.compile(r"^(?P<not>not )?ok\b[ \t]*(?P<number>\d*)[ \t]*(?:-[ \t]+)?(?P<name>[^\n]*)$")
_DIRECTIVE = re.compile(r"(?<!\\)#\s*(?P<kind>skip|todo)", re.IGNORECASE)
_PLAN = re.compile(r"^1\.\.(\d+)")
_BAIL = re.compile(r"^Bail out!\s*(.*)", re.IGNORECASE)
_MOST_MISSING = 1000


class ReportError(ValueError):
    """A report that cannot be read; says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test went."""

    name: str
    passed: bool
    message: str = ""


def read_tap(text: str) -> list[Outcome]:
    """The tests of a TAP stream (versions 12 to 14), without those that were skipped or are still to do.

    Only the outermost level counts: a subtest's result is its parent's. Tests of the plan that did not report have
    not passed, and neither has a stream without a plan, which broke off.
    """
    results: list[Outcome] = []
    planned: int | None = None
    seen = 0
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if plan := _PLAN.match(line):
            planned = int(plan[1])
        elif bail := _BAIL.match(line):
            results.append(Outcome("Bail out!", passed=False, message=bail[1]))
        elif test := _TEST.match(line):
            seen += 1
            directive = _DIRECTIVE.search(test["name"])
            name = test["name"][: directive.start() if directive else None].strip() or f"test {test['number'] or seen}"
            if directive is None:
                passed = test["not"] is None
                results.append(Outcome(name, passed, "" if passed else _diagnostics(lines[at + 1 :])))
    if planned is None and seen:
        results.append(Outcome("plan", passed=False, message="the report has no plan (1..N): the run broke off"))
    missing = range(seen + 1, min(planned or 0, seen + _MOST_MISSING) + 1)
    return [*results, *(Outcome(f"test {number}", passed=False, message="did not run") for number in missing)]


def _diagnostics(lines: Iterable[str]) -> str:
    """What follows a test: its YAML block, or comments."""
    told = []
    for line in lines:
        if line[:1] not in {" ", "#"}:
            break
        told.append(line.removeprefix("#"))
    block = textwrap.dedent("\n".join(told)).strip()
    return block.removeprefix("---").removesuffix("...").strip()


def read_junit(data: bytes) -> list[Outcome]:
    """The test cases of a JUnit XML report, without the skipped ones.

    Raises:
        ReportError: it is no XML, or declares a document type, which could make a small file expand without end.
    """
    try:
        _refuse_document_types(data)
        tree = ET.fromstring(data)  # noqa: S314 - without a document type there are no entities to expand
    except (ET.ParseError, expat.ExpatError, ValueError) as error:
        raise ReportError(f"the JUnit report cannot be read: {error}") from error
    return list(_cases(tree))


def _refuse_document_types(data: bytes) -> None:
    def refuse(*_: object) -> None:
        raise ReportError("it declares a document type")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(data, True)


def _cases(tree: ET.Element) -> Iterator[Outcome]:
    for case in tree.iter():
        if _tag(case) != "testcase":
            continue
        parts = {_tag(part): part for part in case}
        if "skipped" in parts:
            continue
        wrong = parts.get("failure", parts.get("error"))
        told = "" if wrong is None else wrong.get("message") or "".join(wrong.itertext()).strip()
        names = [case.get("classname"), case.get("name")]
        yield Outcome(".".join(filter(None, names)) or "test", wrong is None, told)


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
