"""Link headers (RFC 8288): the canonical form of what was answered, and its other forms.

Rule: pure; whatever a server sends, time and memory are linear in it, and it has an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from crawler.core.parsed import Link, LinkKind

KINDS: Final = {"canonical": LinkKind.CANONICAL, "alternate": LinkKind.ALTERNATE}
# guess: a page in a hundred languages names each of them; headers are 64 KiB at most anyway
MAX_LINKS: Final = 200

_QUOTED: Final = r'"((?:[^"\\]|\\.)*+)"?'
# Always found, so that no comma is passed over twice.
_next_link = re.compile(r"[\s,]*+(?:<([^>]*+)>)?+").match
_next_parameter = re.compile(
    rf"\s*+;\s*+(?:([^\s;,=]++)\s*+(?:=\s*+(?:{_QUOTED}|([^\s;,]*+)))?+)?+", re.DOTALL
).match
# Up to the comma after a link that could not be read; one in quotes is none.
_rest = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*+"?)*+', re.DOTALL).match
_escaped = re.compile(r"\\(.)", re.DOTALL).sub


def link_headers(headers: Sequence[tuple[bytes, bytes]]) -> list[Link]:
    """The links of all Link headers that say canonical or alternate, as written, in their order."""
    found: list[Link] = []
    for name, value in headers:
        if name.lower() == b"link":
            for link in _links(_text(value)):
                if len(found) == MAX_LINKS:
                    return found
                found.append(link)
    return found


def _text(value: bytes) -> str:
    """A header is Latin-1; servers write UTF-8 into it, unescaped."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _links(value: str) -> Iterator[Link]:
    position, last = 0, value.rfind(">")  # behind that, a bracket closes no more
    while position <= last and (found := _next_link(value, position)):
        given, position = _parameters(value, found.end())
        yield from _link((found[1] or "").strip(), given)
        skipped = _rest(value, position)
        position = (skipped.end() if skipped else position) + 1


def _parameters(value: str, position: int) -> tuple[dict[str, str], int]:
    """By name, in lower case. Of two with the same name the first counts."""
    given: dict[str, str] = {}
    while found := _next_parameter(value, position):
        position = found.end()
        name, quoted, bare = found.groups()
        if name:
            meant = bare or "" if quoted is None else _escaped(r"\1", quoted)
            given.setdefault(name.lower(), meant)
    return given, position


def _link(target: str, given: dict[str, str]) -> Iterator[Link]:
    """One of each kind at most. With an anchor it is about something else than this answer."""
    words = given.get("rel", "").lower().split()
    if not target or "anchor" in given or "stylesheet" in words:
        return
    for word, kind in KINDS.items():
        if word in words:
            yield Link(target, kind, " ".join(words))
