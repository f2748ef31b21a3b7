"""Text that every database and every endpoint takes."""

from typing import Any


def plain(value: Any) -> Any:
    """The value without the characters that PostgreSQL (NUL) or UTF-8 (half a surrogate pair) cannot hold.

    Models do write them. Looks into lists and dicts; what else there is stays as it is.
    """
    match value:
        case str():
            return value.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
        case list():
            return [plain(item) for item in value]
        case dict():
            return {plain(key): plain(item) for key, item in value.items()}
    return value
