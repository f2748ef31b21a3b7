"""Loads the prompt files and fills them.

A file has sections, each opened by a heading such as `# system` or `# user`. `{{name}}` stands for a value.
A paragraph whose value is empty is left out, so one file serves the first attempt and all later ones.
Values are put in once and never read as a template again.
"""

import re
from collections.abc import Iterable, Mapping
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
    "tester": frozenset({"task", "function"}),
    "consolidator": frozenset({"lessons"}),
}
"""The prompts there are, and the values without which each would be blind."""

NEEDED_BY_SYSTEM: Mapping[str, Mapping[str, str]] = {
    "actor": {"rules": "nothing that was learned would reach the model"},
    "critic": {"criteria": "the model would not know by what to judge"},
    "reflector": {},
    "planner": {},
}
"""What a system text of the caller's own has to hold, and why."""

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
                language. A role that has no file there keeps ours, and so does a snippet (any section but
                `system` and `user`) that a file there leaves out.

        Raises:
            PromptError: the folder is missing, or a file lacks a section or a value that it needs.
        """
        if folder is not None and not folder.is_dir():
            raise PromptError(f"prompt folder {folder} does not exist")
        return cls({(role, lang): _read(role, lang, folder) for role in NEEDED for lang in LANGUAGES})

    def get(self, role: str, lang: Language) -> Prompt:
        """The prompt of a role."""
        return self.prompts[role, lang]

    def instructed(self, systems: Mapping[str, str]) -> "PromptBook":
        """The book with other system texts, in every language: by role, templates like those that they replace."""
        if not systems:
            return self
        return PromptBook(
            {
                (role, lang): Prompt({**prompt.sections, "system": systems[role]}) if role in systems else prompt
                for (role, lang), prompt in self.prompts.items()
            }
        )


def check_system(role: str, text: str) -> None:
    """Refuse a system text that leaves out what the role cannot do without.

    Raises:
        PromptError: says what is missing, and what would come of it.
    """
    missing = {name: why for name, why in NEEDED_BY_SYSTEM[role].items() if name not in _NAME.findall(text)}
    for name, why in missing.items():
        raise PromptError(f"lacks {{{{{name}}}}}, without which {why}")


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
    ours = _sections(_BUILT_IN / lang / f"{role}.md", None)
    own = [place / f"{role}.md" for place in ([folder / lang, folder] if folder else [])]
    path = next((path for path in own if path.is_file()), None)
    if path is None:
        return Prompt(ours)
    theirs = _sections(path, ours)
    if not theirs.get("user"):
        raise PromptError(f"{path}: has no section '# user'")
    missing = sorted(NEEDED[role] - set(_NAME.findall(theirs.get("system", "") + theirs["user"])))
    if missing:
        wanted = ", ".join(f"{{{{{name}}}}}" for name in missing)
        raise PromptError(f"{path}: lacks {wanted}, without which the model cannot see what it works on")
    snippets = {name: text for name, text in ours.items() if name not in {"system", "user"}}
    return Prompt(snippets | theirs)


def _sections(path: Path, known: Iterable[str] | None) -> dict[str, str]:
    """A file's sections. Only headings that are `known` open one (None: all do); others belong to the text."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path}: cannot be read: {error}") from error
    title = ".+?" if known is None else "|".join(map(re.escape, known))
    parts = re.split(rf"^# ({title})[ \t]*$", text, flags=re.MULTILINE)
    names = parts[1::2]
    if len(names) != len(set(names)):
        raise PromptError(f"{path}: has a section twice; its sections are {', '.join(names)}")
    return dict(zip(names, (body.strip() for body in parts[2::2]), strict=True))
