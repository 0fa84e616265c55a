"""The digest that a store itself worked out of what it holds, compared with a file of ours.

Rule: a digest that agrees proves that the bytes are the same. One that does not proves nothing:
of what is encrypted with a key of its own, S3's ETag is no digest at all.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import Any, Final

from crawler.storage.delivery.store import Moved

BLOCK_BYTES: Final = 1024 * 1024
# S3 and what speaks like it: the MD5 of what was put in one piece; else the MD5 of the MD5s of
# its parts, and how many there were.
WHOLE: Final = re.compile(r'"?([0-9a-f]{32})"?')
IN_PARTS: Final = re.compile(r'"?([0-9a-f]{32}-[0-9]+)"?')
GOOGLES: Final = "md5Hash"


def agrees(file: Path, info: Mapping[str, Any], part_bytes: int, moved: Moved) -> bool:
    """*part_bytes*: in parts of this size it was put, if it was put in parts."""
    tag = str(info.get("ETag", ""))
    if whole := WHOLE.fullmatch(tag):
        return _whole_digest(file, moved).hex() == whole[1]
    if in_parts := IN_PARTS.fullmatch(tag):
        return _digest_of_parts(file, part_bytes, moved) == in_parts[1]
    if told := str(info.get(GOOGLES, "")):
        return b64encode(_whole_digest(file, moved)).decode() == told
    return False


def _whole_digest(file: Path, moved: Moved) -> bytes:
    digest = md5(usedforsecurity=False)
    for block in _blocks(file, BLOCK_BYTES):
        digest.update(block)
        moved()
    return digest.digest()


def _digest_of_parts(file: Path, part_bytes: int, moved: Moved) -> str:
    digest, parts = md5(usedforsecurity=False), 0
    for part in _blocks(file, part_bytes):
        digest.update(md5(part, usedforsecurity=False).digest())
        parts += 1
        moved()
    return f"{digest.hexdigest()}-{parts}"


def _blocks(file: Path, size_bytes: int) -> Iterator[bytes]:
    with file.open("rb") as source:
        while block := source.read(size_bytes):
            yield block
