"""What the elements of HTML are to a reader.

Rule: tables only. An element that stands in none begins a line of its own.
"""

from __future__ import annotations

from typing import Final

INLINE: Final = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "blink", "cite", "code", "data"),
        *("del", "dfn", "em", "font", "i", "ins", "kbd", "label", "mark", "nobr", "q", "rb"),
        *("rp", "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub"),
        *("sup", "time", "tt", "u", "var", "wbr"),
    )
)
"""Their text goes on in the line, and in the word: H<sub>2</sub>O."""

RAW: Final = frozenset(
    (
        *("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"),
        "plaintext",
    )
)
"""They hold text only: up to their end tag nothing is a tag."""

UNSEEN: Final = frozenset(
    (
        *("audio", "canvas", "datalist", "dialog", "math", "noscript", "object", "select", "svg"),
        *("template", "video"),
    )
)
"""What a reader does not see, or not as text."""

AROUND: Final = frozenset(("aside", "footer", "header", "menu", "nav"))
"""What stands around the content, by its name."""

CONTENT: Final = frozenset(("article", "main"))
"""In here a header or footer is a part of the content."""

AROUND_BY_ROLE: Final = frozenset(
    (
        *("alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu"),
        *("menubar", "navigation", "search", "toolbar"),
    )
)

CLOSED: Final = frozenset(
    (
        *("div", "section", "span", "ul", "ol", "dl", "table", "form", "article", "details"),
        *("center", "fieldset", "figure", "blockquote", "main", "p"),
    )
)
"""They end with an end tag, so that a role or `hidden` of theirs has an end."""
