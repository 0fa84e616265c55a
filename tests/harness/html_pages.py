"""What in a page would run code or ask a server, by the tree that a browser's parser makes."""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser

_ELEMENTS: Final = {"script", "iframe", "object", "embed", "link", "base", "form", "portal"}
_ATTRIBUTES: Final = re.compile(
    r"on.*|src|srcset|srcdoc|href|xlink:href|action|formaction|data|poster|background|ping|style"
)
_CSS: Final = re.compile(r"@import|url\s*\(|image-set", re.I)


def requests_and_scripts(page: str) -> list[str]:
    """Name the elements and attributes of *page* that would run code or ask a server."""
    found = []
    for node in LexborHTMLParser(page).css("*"):
        tag = node.tag or ""
        if tag in _ELEMENTS:
            found.append(f"<{tag}>")
        if tag == "meta" and node.attributes.get("http-equiv", "").lower() == "refresh":
            found.append("<meta refresh>")
        if tag == "style" and _CSS.search(node.text()):
            found.append("a style that asks")
        found += [f"{tag} {name}" for name in node.attributes if _ATTRIBUTES.fullmatch(name)]
    return found


# What pages of random tags are made of.
PIECES = (
    *(
        "<style>",
        "@import 'x'",
        "a{src:url(x)}",
        "</style>",
        "<p style='a:url(x)'>",
        "<td background=x>",
    ),
    *("<p>", "</p>", "<a href=x>", '<a href="#">', "</a>", "<a rel=y href='&amp;'>", "<nav>"),
    *("</nav>", "<main>", "</main>", "<div role=main>", "<div hidden>", "</div>", "<table><tr>"),
    *("<td>", "</td>", "</table>", "<pre>", "</pre>", "<br>", "<li>", "<ul>", "<h1>", "</h1>"),
    *(
        "<svg>",
        "</svg>",
        "<title>",
        "</title>",
        "<script>",
        "<!--",
        "-->",
        "</script>",
        "<img alt=",
    ),
    *(
        "<img alt=",
        "<![CDATA[",
        "]]>",
        "<math>",
        "<mi>",
        "<font color=x>",
        "<textarea>",
        "<plaintext>",
    ),
    *("'", '"', ">", "<", "/", "=", " ", "\n", "\r\n", "\t", "&", "&lt", "&nGt;", "&#x41;", "&#1;"),
    *("word", "\xb6", "\xa0", "\u6f22", "\U0001f600", "x" * 120, "</", "<!", "<?", "-", "!", "]"),
)
