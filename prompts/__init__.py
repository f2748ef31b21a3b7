"""The text that models read: one Markdown file per role and language, and the one function that fills it."""

from reflexion.prompts.book import LANGUAGES, Language, Prompt, PromptBook, PromptError, check_system
from reflexion.prompts.marks import Marks

__all__ = ["LANGUAGES", "Language", "Marks", "Prompt", "PromptBook", "PromptError", "check_system"]
