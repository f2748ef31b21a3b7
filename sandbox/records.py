"""What the sandbox is allowed and what a judgement looks like."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ran", "no_tests", "tests_invalid", "candidate_failed", "timeout", "crashed", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one judgement may use; each of its two processes has these for itself, the wall clock is shared."""

    wall_s: float = 10.0
    """Seconds from start to verdict, after which everything is killed."""

    cpu_s: float = 10.0
    """Seconds of CPU time, rounded up to whole ones."""

    memory_mb: int = 512
    """MiB of address space; the interpreter alone needs about 50."""

    output_bytes: int = 65_536
    """Bytes of output kept, the first and the last half."""

    file_mb: int = 16
    """MiB that a single file may grow to."""

    processes: int = 32
    """Processes that may be started where the platform cannot forbid it altogether."""

    packages: tuple[str, ...] = ()
    """Installed packages that code and tests may import, such as `numpy`, and those that these need."""

    strict: bool = False
    """Run nothing where the platform lacks a protection, instead of running with those it has."""

    def __post_init__(self) -> None:
        """Refuse limits under which nothing can run.

        Raises:
            ValueError: a limit is not positive, the memory too small for an interpreter, or a package no name.
        """
        for name in ("wall_s", "cpu_s", "output_bytes", "file_mb", "processes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)!r}")
        if self.memory_mb < 64:
            raise ValueError(f"memory_mb must be at least 64 for an interpreter to start, not {self.memory_mb!r}")
        if not isinstance(self.packages, tuple) or not all(name.isidentifier() for name in self.packages):
            raise ValueError(f"packages must be names of top-level packages in a tuple, not {self.packages!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """How one test went."""

    __test__ = False  # for pytest, which would take the name for a test class

    name: str
    """Source text of the assert, or the function's name."""

    passed: bool
    got: str = ""
    """repr of what came out, shortened; empty where the test is no comparison."""

    wanted: str = ""
    """repr of what was wanted, or what it was to be, such as `a true value`."""

    message: str = ""
    """The exception or the assert's own message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of judging a candidate."""

    state: State
    """`ran`: every test was reached or failed on the way. `no_tests`, `tests_invalid`: nothing to run.
    `candidate_failed`: the code could not be loaded. `timeout`: wall clock or CPU time. `crashed`: a process ended
    before the tests did. `unavailable`: the sandbox itself did not work, which says nothing about the candidate."""

    results: tuple[TestResult, ...] = ()
    collected: int = 0
    """Tests found in the text before anything ran."""

    message: str = ""
    """What happened, for every state but `ran`."""

    output: str = ""
    """What the candidate printed, stdout and stderr, shortened in the middle."""

    layers: tuple[str, ...] = ()
    """The protections that were in force."""

    wall_s: float = 0.0
    """Seconds from start to end of the processes."""

    @property
    def passed(self) -> bool:
        """Whether every collected test ran and passed, and there was one."""
        return (
            self.state == "ran"
            and self.collected > 0
            and len(self.results) == self.collected
            and all(result.passed for result in self.results)
        )
