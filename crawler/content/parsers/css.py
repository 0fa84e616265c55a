"""Finds what style sheets fetch: other sheets, fonts and pictures (CSS Syntax Level 3, roughly).

Rule: time is linear in the sheet, whatever it holds. Nothing is parsed, since only four things
count: comments, strings, blocks of @font-face, and url(). One expression finds them six times as
fast as a parser reads the sheet (docs/decisions/0046).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from crawler.content.parsers.loading import MAX_LINKS
from crawler.model.page import Link, LinkKind, Parsed, Source
from crawler.page.encodings import read_text
from crawler.page.media_type import CSS

_STRING: Final = r"\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?"
# @namespace and @document name URLs that are not fetched.
_token = re.compile(
    rf"/\*(?:[^*]|\*(?!/))*+|@(?:namespace|(?:-moz-)?document)\b(?:{_STRING}|[^;{{\"'])*+"
    rf"|(?P<font>@font-face\b)|(?P<end>}})"
    rf"|(?:(?P<imports>@import\b)\s*+)?+(?:\burl\(\s*+(?P<url>{_STRING}|[^\s\"'()]*+)|(?P<text>{_STRING}))",
    re.IGNORECASE | re.DOTALL,
).finditer
_escape = re.compile(r"\\(?:([0-9a-fA-F]{1,6}+)\s?|(.))", re.DOTALL).sub
_LAST: Final = 0x10FFFF


def css_links(text: str) -> Iterator[Link]:
    """Yield the links of a style sheet, as written."""
    in_font = False
    for found in _token(text):
        if found["font"]:
            in_font = True
        elif found["end"]:
            in_font = False
        elif written := found["url"] or (found["imports"] and found["text"]) or "":
            kind = LinkKind.FONT if in_font else LinkKind.IMAGE
            url = _unescaped(written).strip()
            if url and url[0] != "#" and url[:5].lower() != "data:":
                yield Link(url, LinkKind.STYLE if found["imports"] else kind)


def _unescaped(written: str) -> str:
    if written[0] in "\"'":
        written = written[1:].removesuffix(written[0])
    return _escape(_character, written) if "\\" in written else written


def _character(escape: re.Match[str]) -> str:
    if not escape[1]:
        return "" if escape[2] == "\n" else escape[2]
    code = int(escape[1], 16)
    return "\ufffd" if not 0 < code <= _LAST or 0xD800 <= code < 0xE000 else chr(code)


class CssParser:
    """Implements crawler.model.page.Parser. A style sheet has links, and no text for readers."""

    name: Final = "css"
    types: Final = frozenset({CSS})
    inline_max_bytes: Final = 128 * 1024  # 10 ms

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type, marked_up=False)
        links = dict.fromkeys(islice(css_links(text), MAX_LINKS + 1))
        return Parsed(parser=self.name, links=tuple(links), charset=charset)
