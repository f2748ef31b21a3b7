"""How much a folder holds, counted no further than a limit; no resource limit bounds the number of files."""

import os
from contextlib import suppress

_ENTRIES = 5_000
"""Files and folders beyond which the count stops, as too many in themselves."""


def holds_more_than(folder: str, limit_bytes: int) -> bool:
    """Whether a folder holds more bytes than the limit, or too many files to count."""
    pending, entries, size = [folder], 0, 0
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as listed:
            for entry in listed:
                entries += 1
                with suppress(OSError):
                    # Blocks, not length: a file with a hole in it takes no space.
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entries > _ENTRIES or size > limit_bytes:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return False
