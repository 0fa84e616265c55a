"""Pages nested so deep that a tree of them would take minutes: made flat before they are parsed.

Rule: linear in the text. HTML5's tree construction is not: it walks up the open elements, so its
time is the number of tags times their depth (lexbor: 80 kB of nested <div> a second, a megabyte
minutes). Browsers stop at a depth of 512 too.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

MAX_DEPTH: Final = 512  # Chrome's (HTMLParserOptions::maximumDOMTreeDepth)
# With so few tags the worst tree takes 0.2 s, and looking for it is not worth its time (as
# long as the parsing itself); an ordinary page of 30 kB has 600.
FEW_TAGS: Final = 8_000
_VOID: Final = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
)

_tags = re.compile(r"<(/?)([A-Za-z][^\s/>]*)").findall
# What is read of a page stays; possessive, so that a tag that never ends is read over once.
_KEPT: Final = "a|area|base|frame|iframe|meta|title|script|style|textarea|noscript"
_without_structure = re.compile(rf"</?+(?!(?:{_KEPT})[\s/>])[A-Za-z][^>]*+(?:>|\Z)", re.I).sub


def flat(text: str) -> str:
    """*text* as it is; or, of a page nested too deep, without the tags that only nest."""
    return _without_structure("", text) if _is_deep(text) else text


def _is_deep(text: str) -> bool:
    if text.count("<") <= FEW_TAGS:
        return False
    # An end tag closes what is open under its name, or nothing: "<b></p>" nests for ever.
    # Elements that close by themselves count as open: more depth than there is does no harm.
    open_tags: Counter[str] = Counter()
    depth = 0
    for end, written in _tags(text):
        name = written.lower()
        if not end and name not in _VOID:
            open_tags[name] += 1
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif end and open_tags[name]:
            open_tags[name] -= 1
            depth -= 1
    return False
