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

FOREIGN: Final = frozenset(("svg", "math"))
"""In them the rules of XML hold: a tag may close itself, and no element is RAW."""

HTML_WITHIN: Final = {
    "svg": frozenset(("foreignobject", "desc", "title")),
    "math": frozenset(("mi", "mo", "mn", "ms", "mtext", "annotation-xml")),
}
"""In these of their elements HTML's rules hold again (WHATWG HTML, "integration points")."""

NEVER_FOREIGN: Final = frozenset(
    (
        *("b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em"),
        *("embed", "h1", "h2", "h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing"),
        *("menu", "meta", "nobr", "ol", "p", "pre", "ruby", "s", "small", "span", "strong"),
        *("strike", "sub", "sup", "table", "tt", "u", "ul", "var"),
    )
)
"""They end a drawing or formula that was not closed (WHATWG HTML, 13.2.6.5)."""

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
