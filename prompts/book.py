"""Loads the prompt files and fills them.

A file has sections, each opened by a heading such as `# system` or `# user`. `{{name}}` stands for a value.
A paragraph whose value is empty is left out, so one file serves the first attempt and all later ones.
Values are put in once and never read as a template again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

Language = Literal["en", "de"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

NEEDED: Mapping[str, frozenset[str]] = {
    "actor": frozenset({"task"}),
    "reviser": frozenset({"task", "answer", "feedback"}),
    "critic": frozenset({"task", "answer"}),
    "reflector": frozenset({"task", "answer", "feedback"}),
    "planner": frozenset({"task", "lesson"}),
}
"""The prompts there are, and the values without which each would be blind."""

_HEADING = re.compile(r"^# (.+?)\s*$", re.MULTILINE)
_NAME = re.compile(r"\{\{(\w+)\}\}")
_BUILT_IN = Path(__file__).parent


class PromptError(ValueError):
    """A prompt file that is missing or cannot work; says which and why."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One role's prompt in one language."""

    sections: Mapping[str, str]

    def messages(self, **values: str) -> list[BaseMessage]:
        """The chat messages with the values filled in."""
        filled = [
            (kind, fill(self.sections.get(name, ""), values))
            for name, kind in (("system", SystemMessage), ("user", HumanMessage))
        ]
        return [kind(content=text) for kind, text in filled if text]


@dataclass(frozen=True, slots=True)
class PromptBook:
    """All prompts in all languages."""

    prompts: Mapping[tuple[str, Language], Prompt]

    @classmethod
    def load(cls, folder: Path | None = None) -> "PromptBook":
        """Read the prompt files.

        Args:
            folder: the user's own files, which go before ours: `LANG/ROLE.md`, or `ROLE.md` for every
                language. A role that has no file there keeps ours.

        Raises:
            PromptError: the folder is missing, or a file lacks a section or a value that it needs.
        """
        if folder is not None and not folder.is_dir():
            raise PromptError(f"prompt folder {folder} does not exist")
        return cls({(role, lang): _read(role, lang, folder) for role in NEEDED for lang in LANGUAGES})

    def get(self, role: str, lang: Language) -> Prompt:
        """The prompt of a role."""
        return self.prompts[role, lang]


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its values; names without a value are left as they stand."""
    paragraphs = []
    for paragraph in re.split(r"\n{2,}", template.strip()):
        names = [name for name in _NAME.findall(paragraph) if name in values]
        if names and not any(values[name] for name in names):
            continue
        paragraphs.append(_NAME.sub(lambda match: values.get(match[1], match[0]), paragraph))
    return "\n\n".join(paragraphs)


def _read(role: str, lang: Language, folder: Path | None) -> Prompt:
    places = [folder / lang, folder] if folder else []
    path = next(
        (place / f"{role}.md" for place in [*places, _BUILT_IN / lang] if (place / f"{role}.md").is_file()),
        None,
    )
    if path is None:
        raise PromptError(f"there is no prompt {role}.md for language {lang!r}")
    text = path.read_text(encoding="utf-8")
    parts = _HEADING.split(text)
    sections = dict(zip(parts[1::2], (body.strip() for body in parts[2::2]), strict=True))
    if not sections.get("user"):
        raise PromptError(f"{path}: has no section '# user'")
    missing = sorted(NEEDED[role] - set(_NAME.findall(sections.get("system", "") + sections["user"])))
    if missing:
        wanted = ", ".join(f"{{{{{name}}}}}" for name in missing)
        raise PromptError(f"{path}: lacks {wanted}, without which the model cannot see what it works on")
    return Prompt(sections)
