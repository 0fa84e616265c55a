"""The start tags that a page is read by, as HTML's tokenizer finds them (WHATWG HTML, 13.2.5):
what looks like a tag in a comment, a script or an attribute is none.

Rule: one pass and no tree, so that time and memory are linear in the text, whatever it holds.
HTML5's tree is not: in lexbor 50 kB of `<p><b a=1><p><b a=2>...` take 2.9 GB and 14 s, and 170 kB
of attributes in one tag 3 s (docs/decisions/0011-pages-are-read-by-their-tags.md).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5
from typing import Final

RAW: Final = ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
"""Elements that hold text only: up to their end tag nothing is a tag."""

_FOUND: Final = "|".join(("a", "area", "base", "frame", "meta", "plaintext", *RAW))

_WS: Final = r"\t\n\f\r\x20"
_NAME: Final = rf"[^{_WS}/>][^{_WS}/>=]*+"
_IS: Final = rf"[{_WS}]*+=[{_WS}]*+"
_BARE: Final = rf"""(?!["'])[^{_WS}>]*+"""
# A name with "=" has a value: a tag in which a quote never ends does not end either.
_ATTRIBUTE: Final = rf"""{_NAME}(?:{_IS}(?:"[^"]*+"|'[^']*+'|{_BARE})|(?!{_IS}))"""
_ATTRIBUTES: Final = rf"(?:[{_WS}/]++|{_ATTRIBUTE})*+"
_COMMENT: Final = r"!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))"
_BOGUS: Final = r"(?!!--)(?:[!?]|/(?![A-Za-z]))[^>]*+(?:>|\Z)"  # a doctype, </>, <?php ... >
_OTHER: Final = rf"(?!(?i:{_FOUND})[{_WS}/>])"
_LOOSE: Final = r"(?![A-Za-z/!?])"  # a "<" that begins nothing

# Nine tags in ten look like this, and are known in half the time.
_PLAIN_END: Final = r"/[A-Za-z][A-Za-z0-9]*+>"
_PLAIN: Final = (
    rf"(?:[cdeghjkloqruvwyz]|{_OTHER}[A-Za-z])"  # no name of _FOUND begins with these letters
    r'[A-Za-z0-9]*+(?:\x20[A-Za-z\-]++="[^"]*+")*+>'
)
_ANY: Final = rf"{_OTHER}/?[A-Za-z][^{_WS}/>]*+{_ATTRIBUTES}>"

# All before it is passed over in the same match: a loop in C, not in Python.
_next_tag = re.compile(
    rf"(?:[^<]*+<(?:{_PLAIN_END}|{_PLAIN}|{_ANY}|{_COMMENT}|{_BOGUS}|{_LOOSE}))*+"
    rf"[^<]*+<([A-Za-z]++)({_ATTRIBUTES})>"
).match
_each_attribute = re.compile(
    rf"""({_NAME})(?:{_IS}(?:"([^"]*+)"|'([^']*+)'|({_BARE})))?+"""
).findall
_ENDS: Final = {name: re.compile(rf"</{name}(?=[{_WS}/>])", re.I).search for name in RAW}

# Without its semicolon and before "=" a name is no reference: "&copy=1" is part of a query.
_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))"
).sub

# No character has a number so long, and beyond 4,300 digits Python refuses to read it.
_absurd_number = re.compile(r"&#[0-9]{100,};?").sub


Tag = tuple[str, str, str]
"""Its name in lower case; its attributes as written, for `attributes`; of a title its text."""


def start_tags(text: str) -> Iterator[Tag]:
    """Those of _FOUND, in the order of *text*."""
    text = text.replace("\0", "\ufffd")  # as the tokenizer does wherever we look
    position = 0
    while found := _next_tag(text, position):
        name, written = found[1].lower(), found[2]
        position = found.end()
        if name not in _ENDS:
            yield name, written, ""
            if name == "plaintext":
                return
            continue
        end = _ENDS[name](text, position)
        start, position = position, end.start() if end else len(text)
        held = _unescape(text[start:position]) if name == "title" else ""
        yield name, written, held


def attributes(written: str) -> dict[str, str]:
    """By name, in lower case. Of two with the same name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _each_attribute(written):
        value = double or single or bare
        found.setdefault(name.lower(), _reference(_meant, value) if "&" in value else value)
    return found


def _meant(reference: re.Match[str]) -> str:
    name = reference[0][1:]
    return _unescape(reference[0]) if name[0] == "#" else html5.get(name, reference[0])


def _unescape(text: str) -> str:
    return html.unescape(_absurd_number("\ufffd", text))
