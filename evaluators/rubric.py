"""What a critic judges by: criteria, each with a name and a weight."""

import math
import re
from collections.abc import Iterable

_FORM = re.compile(r"(?P<name>.+?)\s*\(weight\s+(?P<weight>[^()]*)\)(?:\s*:\s*(?P<text>\S.*))?\s*", re.DOTALL)


class CriterionError(ValueError):
    """A criterion that cannot be read; says what form it has to have."""


class Criterion(str):
    """One criterion. It is a text, so that it passes through state, files and the command line as it is.

    A plain sentence is its own name and has weight 1. Everything else is written `NAME (weight WEIGHT): TEXT`, of
    which `: TEXT` may be left out: `correct (weight 3): The result is right.`
    """

    __slots__ = ("name", "text", "weight")

    name: str
    """What feedback and results call it."""
    text: str
    """What it asks for, where the name does not say it already."""
    weight: float
    """How much it counts beside the others, more than 0."""

    def __new__(cls, name: str, text: str = "", weight: float = 1.0) -> "Criterion":
        """Make a criterion of its parts.

        Raises:
            CriterionError: it has no name, or a weight that is no number above 0.
        """
        name, text = name.strip(), text.strip()
        if not _key(name):
            raise CriterionError(f"criterion {name!r} has no name; write a sentence, or {_HOW}")
        if not (weight > 0 and math.isfinite(weight)):
            raise CriterionError(f"criterion {name!r} has weight {weight!r}; a number above 0 is needed")
        form = f"{name} (weight {weight:g})" if text or weight != 1 else name
        made = super().__new__(cls, f"{form}: {text}" if text else form)
        made.name, made.text, made.weight = name, text, weight
        return made

    @classmethod
    def read(cls, given: str) -> "Criterion":
        """The criterion that a text is.

        Raises:
            CriterionError: the text is empty, or names a weight that is no number above 0.
        """
        if isinstance(given, Criterion):
            return given
        parts = _FORM.fullmatch(given)
        if parts is None:
            return cls(given)
        try:
            weight = float(parts["weight"])
        except ValueError:
            raise CriterionError(f"criterion {given!r} has no number as its weight; write {_HOW}") from None
        return cls(parts["name"], parts["text"] or "", weight)


_HOW = "NAME (weight 2): TEXT"


def _key(name: str) -> str:
    """What is left of a name when case, punctuation and spaces do not count."""
    return " ".join(re.findall(r"\w+", name.casefold()))


class Rubric(tuple[Criterion, ...]):
    """The criteria of a task, each once."""

    __slots__ = ()

    @classmethod
    def read(cls, criteria: Iterable[str]) -> "Rubric":
        """The rubric that a task's criteria make.

        Raises:
            CriterionError: one of them cannot be read, or two have the same name.
        """
        rubric = cls(Criterion.read(given) for given in criteria)
        names = [_key(criterion.name) for criterion in rubric]
        twice = next((criterion.name for criterion in rubric if names.count(_key(criterion.name)) > 1), None)
        if twice is not None:
            raise CriterionError(f"two criteria are called {twice!r}; give each its own name")
        return rubric

    def listed(self) -> str:
        """The criteria as numbered lines, with their weights where these differ."""
        weighted = len({criterion.weight for criterion in self}) > 1
        return "\n".join(
            f"{number}. {criterion.name}"
            + (f": {criterion.text}" if criterion.text else "")
            + (f" (weight {criterion.weight:g})" if weighted else "")
            for number, criterion in enumerate(self, start=1)
        )

    def find(self, name: str) -> Criterion | None:
        """The criterion that a critic means: by its number, its name, its text, or several of these."""
        wanted = _key(name)
        for number, criterion in enumerate(self, start=1):
            known = [criterion.name, criterion.text, f"{criterion.name} {criterion.text}"]
            if wanted in {
                str(number),
                *(_key(f"{before}{one}") for one in known if one for before in ("", f"{number} ")),
            }:
                return criterion
        return None

    def mean(self, scores: Iterable[float]) -> float:
        """The weighted mean of the criteria's scores, given in their order."""
        return math.fsum(c.weight * s for c, s in zip(self, scores, strict=True)) / math.fsum(c.weight for c in self)
