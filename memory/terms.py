"""The words of a text as numbers, for an index that takes no other words: nothing that a user writes is ever syntax."""

import hashlib
import re
import unicodedata
from typing import Final

MOST_TERMS: Final = 256
"""Different words of a text that are indexed and asked for: its first ones."""

_WORD: Final = re.compile(r"[^\W_]+")
# Thai, Lao, Burmese, Khmer, kana, Chinese, Korean: no spaces between words, or endings that stick to them.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def terms(scope: str, text: str) -> list[int]:
    """What a text is found by in a scope: each of its words, and the text as a whole, as signed 64-bit hashes.

    The scope is hashed, too: no scope meets the words of another one. Letters differ neither in case nor in form;
    words are as written, since what is stemmed right in one language is stemmed wrong in the next. Where words are
    not set apart by spaces, pairs of characters stand for them.
    """
    words = _words(unicodedata.normalize("NFKC", text).casefold())
    found = [*dict.fromkeys(words)]
    whole = f" {' '.join(words)}"  # no word begins with a space
    return [_hash(scope, each) for each in [whole, *found[:MOST_TERMS]]] if words else []


def _words(text: str) -> list[str]:
    words: list[str] = []
    for word in _WORD.findall(text):
        unspaced = _UNSPACED.findall(word)
        words += [run[i : i + 2] for run in unspaced for i in range(max(1, len(run) - 1))]
        words += [rest for rest in _UNSPACED.split(word) if rest] if unspaced else [word]
    return words


def _hash(scope: str, word: str) -> int:
    digest = hashlib.blake2b(f"{scope}\0{word}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
