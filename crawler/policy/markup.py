"""What a text that begins with markup is: its document type and its first element.

Rule: a look at the first bytes, linear; whether the rest is well-formed is for its parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from crawler.policy.charset import unicode_mark

HEAD_BYTES: Final = 8192  # guess: room for the licence that some put before the first element

# What may stand before the first element; the name of a document type is kept.
# Possessive: what does not end is given up at once, not tried again from each of its letters.
_BEFORE: Final = re.compile(
    rb"""\s++ | <\?.*?> | <!--.*?-->
    | <!doctype\s++([^\s>\[]++)[^\[>]*+(?:\[(?:[^\]]++|\](?!\s*+>))*+\]\s*+)?+>""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ELEMENT: Final = re.compile(rb"<(?:[a-z_][\w.-]*+:)?+([a-z_][\w.-]*+)(?=[\s/>])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Markup:
    """How a text begins. Names in lower case, without prefix; empty: none."""

    doctype: str = ""
    element: str = ""
    declared: bool = False  # <?xml comes first


def markup(body: bytes) -> Markup:
    head = head_of(body)
    at, doctype = 0, b""
    while before := _BEFORE.match(head, at):
        doctype = doctype or before[1] or b""
        at = before.end()
    element = _ELEMENT.match(head, at)
    return Markup(
        doctype.lower().decode("latin-1"),
        element[1].lower().decode("latin-1") if element else "",
        head.startswith(b"<?xml"),
    )


def head_of(body: bytes) -> bytes:
    """Its first bytes as UTF-8 or what is like it, without byte order mark and space before."""
    head = body[:HEAD_BYTES]
    encoding, bom = unicode_mark(head)
    if encoding is not None and bom is not None:
        head = head[len(bom) :]
        if encoding != "utf-8":
            head = head.decode(encoding, "ignore").encode()
    return head.lstrip()
