"""Installed packages that the code and the tests may import although their processes see none."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Numerical libraries start a thread for each CPU, each with memory of its own, and the memory is limited."""


def locate(names: Iterable[str]) -> list[dict[str, Any]]:
    """Say where packages are, for `make_importable` in another process.

    Raises:
        ModuleNotFoundError: one is not installed.
    """
    found = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the package {name} is not installed here", name=name)
        folders = list(spec.submodule_search_locations or [])
        # Wheels keep their own shared libraries beside the package.
        libraries = os.path.join(os.path.dirname(folders[0]), f"{name}.libs") if folders else ""  # noqa: PTH118, PTH120
        readable = [*(folders or [spec.origin]), *([libraries] if os.path.isdir(libraries) else [])]  # noqa: PTH112
        found.append({"name": name, "file": spec.origin, "folders": folders, "readable": readable})
    return found


class _Finder:
    """Finds the named packages and no other in their folders, which cannot be listed."""

    def __init__(self, packages: Iterable[dict[str, Any]]) -> None:
        self._packages = {package["name"]: package for package in packages}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a package; what is inside it is found by the interpreter's own finder."""
        package = self._packages.get(fullname)
        if package is None:
            return None
        folders = package["folders"] or None
        return importlib.util.spec_from_file_location(fullname, package["file"], submodule_search_locations=folders)


def make_importable(packages: Sequence[dict[str, Any]]) -> None:
    """Let this process import the packages, and import each of them, so that one that cannot be is told apart.

    Raises:
        ImportError: a package cannot be imported, often for want of memory.
        MemoryError: likewise.
    """
    if packages:
        os.environ.update(dict.fromkeys(_THREADS, "1"))
        sys.meta_path.append(_Finder(packages))
    for package in packages:
        importlib.import_module(package["name"])
