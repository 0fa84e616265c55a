"""The start tags that a page is read by, as HTML's tokenizer finds them (WHATWG HTML, 13.2.5):
what looks like a tag in a comment, a script or an attribute is none.

Rule: one pass and no tree, so that time and memory are linear in the text, whatever it holds.
HTML5's tree is not: in lexbor 80 kB of nested <div> take a second, and a megabyte minutes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5
from typing import Final, NamedTuple

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
_OTHER_TAG: Final = rf"(?!(?i:{_FOUND})[{_WS}/>])/?[A-Za-z][^{_WS}/>]*+{_ATTRIBUTES}>"
_LOOSE: Final = r"(?![A-Za-z/!?])"  # a "<" that begins nothing

# All before it is passed over in the same match: a loop in C, not in Python.
_next_tag = re.compile(
    rf"(?:[^<]++|<(?:{_OTHER_TAG}|{_COMMENT}|{_BOGUS}|{_LOOSE}))*+<([A-Za-z]++)({_ATTRIBUTES})>"
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
_absurd_number = re.compile(r"&#[0-9]{100,}").sub


class Tag(NamedTuple):
    """One start tag."""

    name: str  # in lower case
    written: str  # its attributes, to be read by `attributes`
    text: str = ""  # of a title


def start_tags(text: str) -> Iterator[Tag]:
    """Those of _FOUND, in the order of *text*."""
    text = text.replace("\0", "\ufffd")  # as the tokenizer does wherever we look
    position = 0
    while found := _next_tag(text, position):
        name, written = found[1].lower(), found[2]
        position = found.end()
        if name not in _ENDS or _closes_itself(written):
            yield Tag(name, written)
            if name == "plaintext":
                return
            continue
        end = _ENDS[name](text, position)
        start, position = position, end.start() if end else len(text)
        held = _unescape(text[start:position]) if name == "title" else ""
        yield Tag(name, written, held)


def attributes(written: str) -> dict[str, str]:
    """By name, in lower case. Of two with the same name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _each_attribute(written):
        value = double or single or bare
        found.setdefault(name.lower(), _reference(_meant, value) if "&" in value else value)
    return found


def _closes_itself(written: str) -> bool:
    """As in XML. HTML knows no such thing, but whoever writes it means it."""
    if not written.endswith("/"):
        return False
    *_, last = _each_attribute(written) or [("",) * 4]
    return not (last[3] and written.endswith(last[3]))  # src=/scripts/ is no slash of the tag


def _meant(reference: re.Match[str]) -> str:
    name = reference[0][1:]
    return _unescape(reference[0]) if name[0] == "#" else html5.get(name, reference[0])


def _unescape(text: str) -> str:
    return html.unescape(_absurd_number("\ufffd", text))
