import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from reflexion.models.embedded import EmbeddedModelError
from reflexion.models.embedded.weights import MODELS, Weights, by_name, check_gguf, ensure, is_present

PIECES = (b"GGUF" + b"a" * 1000, b"b" * 2000, b"c" * 500)
CONTENT = b"".join(PIECES)
MISSING = Weights(
    name="tiny",
    file="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    parts=(("no_such_tiny_part", "data/part01.bin"),),
    hub_repo="nobody/tiny",
)


def part(site: Path, weights: Weights, number: int) -> Path:
    module, file = weights.parts[number]
    return site / module / file


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder for packages that Python finds."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def tiny(site) -> Weights:
    """Weights in three part packages whose code fails when it is run."""
    weights = replace(MISSING, parts=tuple((f"tiny_part{n}", f"data/part{n:02d}.bin") for n in range(3)))
    for number, piece in enumerate(PIECES):
        path = part(site, weights, number)
        path.parent.mkdir(parents=True)
        path.write_bytes(piece)
        (site / weights.parts[number][0] / "__init__.py").write_text("raise AssertionError('code was run')")
    importlib.invalidate_caches()
    return weights


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of one file needs."""

    content = CONTENT
    paths: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.do_HEAD()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        pass


def point_hub_at(monkeypatch, url: str) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="extra local is not installed")
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture
def hub(monkeypatch):
    """A hub on loopback."""
    monkeypatch.setattr(Hub, "paths", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        point_hub_at(monkeypatch, f"http://127.0.0.1:{server.server_port}")
        yield Hub
        server.shutdown()


@pytest.fixture
def no_hub(monkeypatch, closed_port):
    """A hub that nothing listens for."""
    point_hub_at(monkeypatch, f"http://127.0.0.1:{closed_port}")


def test_parts_are_joined_without_running_their_code(tiny, cache):
    assert ensure(tiny, cache).read_bytes() == CONTENT
    assert not [name for name in sys.modules if name.startswith("tiny_part")]


def test_a_joined_file_needs_its_parts_no_more(tiny, cache, site):
    first = ensure(tiny, cache)
    part(site, tiny, 0).unlink()
    assert is_present(tiny, cache)
    assert ensure(tiny, cache) == first


def test_weights_are_present_when_every_part_is(tiny, cache, site):
    assert is_present(tiny, cache)
    part(site, tiny, 2).unlink()
    assert not is_present(tiny, cache)


def test_a_file_is_not_hashed_again_while_its_size_and_time_stay(tiny, cache):
    file = ensure(tiny, cache)
    before = file.stat()
    file.write_bytes(CONTENT[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ensure(tiny, cache).read_bytes() == CONTENT[::-1]


def test_a_file_that_changed_in_the_cache_is_joined_anew(tiny, cache):
    file = ensure(tiny, cache)
    file.write_bytes(CONTENT[::-1])
    os.utime(file, ns=(1, 1))
    assert ensure(tiny, cache).read_bytes() == CONTENT


def test_a_right_file_without_a_stamp_is_kept(tiny, cache, site):
    file = ensure(tiny, cache)
    inode = file.stat().st_ino
    for path in cache.glob("*.json"):
        path.write_text("{ cut off")
    part(site, tiny, 0).unlink()
    assert ensure(tiny, cache).stat().st_ino == inode
    assert is_present(tiny, cache)


def test_what_a_killed_join_left_is_written_over(tiny, cache):
    cache.mkdir()
    (cache / "tiny.gguf.part").write_bytes(b"z" * 9000)
    assert ensure(tiny, cache).read_bytes() == CONTENT
    assert not (cache / "tiny.gguf.part").exists()


@pytest.mark.parametrize("damage", [b"GGUF", b"GGUF" + b"x" * 1000, b""], ids=["cut", "changed", "empty"])
def test_a_damaged_part_is_an_error_that_leaves_nothing_behind(tiny, cache, site, damage):
    part(site, tiny, 0).write_bytes(damage)
    with pytest.raises(EmbeddedModelError, match=r"tiny\.gguf from .*tiny_part0.*SHA-256.*reinstall"):
        ensure(tiny, cache)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


def test_the_hub_is_asked_when_parts_are_missing(tiny, cache, site, hub):
    part(site, tiny, 1).unlink()
    assert ensure(tiny, cache).read_bytes() == CONTENT
    assert "/nobody/tiny/resolve/main/tiny.gguf" in hub.paths
    assert {path.name for path in cache.iterdir()} <= {"tiny.gguf", "tiny.gguf.json", "tiny.gguf.lock"}


def test_another_file_from_the_hub_is_refused(cache, hub, monkeypatch):
    monkeypatch.setattr(hub, "content", CONTENT + b"more")
    with pytest.raises(EmbeddedModelError, match="nobody/tiny"):
        ensure(MISSING, cache)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.usefixtures("no_hub")
def test_without_parts_and_hub_the_error_says_what_to_install(cache):
    with pytest.raises(EmbeddedModelError, match=r"reflexion-graph\[local\].*REFLEXION_BASE_URL"):
        ensure(MISSING, cache)


def test_without_the_hub_client_the_error_says_what_to_install(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(EmbeddedModelError, match=r"reflexion-graph\[local\]"):
        ensure(MISSING, cache)


def test_a_cache_that_cannot_be_written_is_named(tiny, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(EmbeddedModelError, match=r"cannot put tiny\.gguf .*file"):
        ensure(tiny, tmp_path / "file" / "cache")


RACER = """
import json, logging, sys
from pathlib import Path
from reflexion.models.embedded.weights import Weights, ensure
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
weights = Weights(**json.loads(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print("sha256", __import__("hashlib").sha256(ensure(weights, Path(sys.argv[2])).read_bytes()).hexdigest())
"""


def test_of_several_processes_only_one_joins(tiny, cache, site):
    record = {**{name: getattr(tiny, name) for name in Weights.__slots__}}
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, json.dumps(record), str(cache)],
            env={**os.environ, "PYTHONPATH": str(site)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    replies = "".join(racer.communicate(timeout=60)[0] for racer in racers)
    assert replies.count("joining") == 1
    assert replies.count(f"sha256 {tiny.sha256}") == 3


def test_a_users_own_gguf_is_taken_as_it_is(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF and the rest")
    assert check_gguf(path) == path


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04"])
def test_a_file_that_is_no_gguf_is_refused(tmp_path, content):
    path = tmp_path / "own.gguf"
    path.write_bytes(content)
    with pytest.raises(EmbeddedModelError, match=r"own\.gguf is not a GGUF file"):
        check_gguf(path)


def test_a_missing_gguf_and_a_folder_are_named(tmp_path):
    with pytest.raises(EmbeddedModelError, match=r"cannot read .*gone\.gguf"):
        check_gguf(tmp_path / "gone.gguf")
    with pytest.raises(EmbeddedModelError, match="cannot read"):
        check_gguf(tmp_path)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(EmbeddedModelError, match=r"qwen2\.5-coder-1\.5b, qwen2\.5-coder-0\.5b"):
        by_name("gpt")


def test_the_largest_model_comes_first():
    assert [by_name(weights.name).size for weights in MODELS] == sorted(
        (weights.size for weights in MODELS), reverse=True
    )
