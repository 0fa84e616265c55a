"""What a sitemap lists where its XML is broken: a bare & in a URL, letters of another encoding.

Rule: linear; an entry that is not whole says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Final

_ENTRY_END: Final = re.compile(rb"</(?:\w+:)?(url|sitemap)\s*>", re.IGNORECASE)
_FIELD: Final = re.compile(
    rb"<(?:\w+:)?(loc|lastmod|priority)\s*>\s*(?:<!\[CDATA\[)?([^<>\]]*)", re.IGNORECASE
)
_LONGEST_BYTES: Final = 64 * 1024  # guess: an entry with a thousand images


def loose_entries(pieces: Iterable[bytes]) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of each entry, and its fields."""
    rest = b""
    for piece in pieces:
        *entries, rest = _ENTRY_END.split(rest + piece)
        rest = rest[-_LONGEST_BYTES:]
        for held, name in zip(entries[::2], entries[1::2], strict=True):
            yield name.decode().lower(), _fields(held)


def _fields(held: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(held):
        fields.setdefault(name.decode().lower(), unescape(value.decode("utf-8", "replace")).strip())
    return fields
