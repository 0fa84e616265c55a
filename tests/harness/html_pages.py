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
