"""The grammar of a tag (WHATWG HTML, 13.2.5), and what its attributes and references mean.

Rule: every expression is linear in what it reads, whatever that is: no part of it can be read in
two ways, and none gives back what it has read.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from html.entities import html5
from typing import Final

SPACE: Final = " \t\n\f\r"
"""HTML's white space: what stands around a URL in an attribute is not part of it."""

_WS: Final = r"\t\n\f\r\x20"
_NAME: Final = rf"[^{_WS}/>][^{_WS}/>=]*+"
_IS: Final = rf"[{_WS}]*+=[{_WS}]*+"
_BARE: Final = rf"""(?!["'])[^{_WS}>]*+"""
# A name with "=" has a value: a tag in which a quote never ends does not end either.
_ATTRIBUTE: Final = rf"""{_NAME}(?:{_IS}(?:"[^"]*+"|'[^']*+'|{_BARE})|(?!{_IS}))"""
_TAG: Final = rf"/?[A-Za-z][^{_WS}/>]*+(?:[{_WS}/]++|{_ATTRIBUTE})*+"

tag_at = re.compile(rf"{_TAG}>").match
"""A whole tag, without the "<" before it. Not every ">" ends one: some stand in quotes."""
_last_gap = re.compile(rf"/?[A-Za-z][^{_WS}/>]*+(?:([{_WS}/]++)|{_ATTRIBUTE})*+>").match
_name = re.compile(rf"/?([A-Za-z][^{_WS}/>]*+)").match

each_attribute = re.compile(rf"""({_NAME})(?:{_IS}(?:"([^"]*+)"|'([^']*+)'|({_BARE})))?+""").findall
"""Of each attribute of a tag: its name, and its value in double, single or no quotes."""

# Without its semicolon and before "=" a name is no reference: "&copy=1" is part of a query.
_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))"
).sub
_text_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{0,31}+;?)"
).sub

# No character has a number so long, and beyond 4,300 digits Python refuses to read it.
_LONGEST: Final = 40


def named(tag: str) -> tuple[str, str]:
    """Its name in lower case, and its attributes as written."""
    found = _name(tag)
    return (found[1].lower(), tag[found.end() :]) if found else ("", "")


def is_self_closing(tag: str) -> bool:
    """Whether a whole tag ends in "/>", and the slash is not the end of a bare value."""
    found = _last_gap(tag) if tag.endswith("/>") else None
    return found is not None and found.end(1) == len(tag) - 1


def attributes(written: str) -> dict[str, str]:
    """By name, in lower case. Of two with the same name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in each_attribute(written):
        found.setdefault(name.lower(), value(double or single or bare))
    return found


def value(written: str) -> str:
    """That of an attribute, its references read."""
    return _reference(_meant, written) if "&" in written else written


def in_text(written: str) -> str:
    """Text with its references read."""
    return _text_reference(_meant_in_text, written)


def _meant(reference: re.Match[str]) -> str:
    name = reference[0][1:]
    return _read(reference[0]) if name[0] == "#" else html5.get(name, reference[0])


def _meant_in_text(reference: re.Match[str]) -> str:
    return _read(reference[0])


def _read(reference: str) -> str:
    return _unescape(reference) if len(reference) < _LONGEST else "\ufffd"


# A page has the same few again and again.
_unescape = lru_cache(maxsize=4096)(html.unescape)
