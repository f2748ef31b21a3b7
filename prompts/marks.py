"""Puts text from users, tasks and models between marks that it cannot forge."""

import secrets


class Marks:
    """A fresh pair of them for each quoted part of one prompt."""

    def __init__(self, *, nonce: str | None = None) -> None:
        self._nonce = nonce or secrets.token_hex(4)

    def around(self, label: str, text: str) -> str:
        """The text between an opening and a closing mark; empty stays empty.

        The text cannot close the marks: it would have to know the nonce, and one that happens to hold it
        gets a longer one.
        """
        if not text:
            return ""
        while self._nonce in text:
            self._nonce += secrets.token_hex(4)
        return f"<{label} {self._nonce}>\n{text}\n</{label} {self._nonce}>"


def one_line(text: str, limit: int) -> str:
    """The text as a single line of at most `limit` characters, so that it can stand as one item of a list."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"
