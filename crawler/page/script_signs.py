"""How much of a page is there before its scripts have run, and what says that they make the rest.

Rule: pure, and in time that grows with the bytes alone: each tag is looked at once, whatever is
left open.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from crawler.model.page import LinkKind, Parsed
from crawler.model.url import registered_domain

_MOST_ATTRIBUTES: Final = 4096  # bytes of a tag

_TAGS: Final = re.compile(
    rb"<(div|main|section|body|script|[a-z]++-(?:root|app|shell))\b([^>]*+)(?:>|\Z)", re.I
)
_DATA: Final = re.compile(
    rb"\btype\s*+=\s*+[\"']?(?:application/(?:ld\+)?json|importmap|speculationrules"
    rb"|text/(?:template|html|x-))",
    re.I,
)
_MOUNT_POINT: Final = re.compile(
    rb"\bid\s*+=\s*+[\"']?(?:root|app|__next|__nuxt|___gatsby|svelte|react-root|app-root"
    rb"|application|main-app|q-app|ember-app|elm|page-root|spa)(?![\w-])",
    re.I,
)
_ANY_SCRIPT: Final = re.compile(b"<\0?s\0?c\0?r\0?i\0?p\0?t", re.I)  # in UTF-16, too
_EMPTY: Final = re.compile(rb"(?:\s|<!--[^>]{0,100}+>)*+</")
_NOSCRIPT: Final = re.compile(rb"<noscript\b[^>]*+>([^<]*+(?:<(?!/noscript)[^<]*+)*+)", re.I)
_BROKEN: Final = b"<parsererror"  # what a browser writes into XHTML that is not well-formed
_TAG: Final = re.compile(rb"<[^>]*+>?")
_ASKS_FOR_SCRIPTS: Final = re.compile(rb"java-?script|\bjs\b", re.I)

FEW_CHARS: Final = 200
"""A page with less text than that, beside scripts, is taken to be made by these. (Some 100 in
crawl4ai; the pages of frameworks have none before their scripts.)"""
_NO_CHARS: Final = 20  # "Loading..."
_SHELL_BYTES: Final = 8192  # guess: a shell without a mount point is small
_FEW_LINKS: Final = 2
_SOME_LINKS: Final = 10  # guess: that make a page, also without text
_SOME_CHARS: Final = 1000  # guess: a page of so little text and no links leads nowhere without them


class ScriptSigns(msgspec.Struct, frozen=True, gc=False):
    """What a page is without its scripts. Arrow: answer -> rendering."""

    has_scripts: bool
    chars: int = 0  # of its main text
    links: frozenset[str] = frozenset()  # the targets of its <a>, as written
    asks: bool = False  # an empty mount point of a framework, or a noscript that asks for scripts
    is_mounted: bool = False  # such a mount point
    is_broken: bool = False  # a browser has stopped at an error in it

    @property
    def is_thin(self) -> bool:
        """Whether there is little on it for a page."""
        few_links = len(self.links) <= _FEW_LINKS
        return self.chars < FEW_CHARS or (few_links and self.chars < _SOME_CHARS)

    @property
    def is_shell(self) -> bool:
        """Whether there is nothing on it at all: the strongest sign."""
        is_empty = self.chars <= _NO_CHARS and not self.links
        return is_empty or (self.is_mounted and self.is_thin)


def may_have_scripts(body: bytes) -> bool:
    """Return whether it is worth it to parse *body* for `signs_of`."""
    return _ANY_SCRIPT.search(body) is not None


def signs_of(body: bytes, parsed: Parsed) -> ScriptSigns:
    """Return the signs of the HTML *body*, as sent or as a browser has made it, and as *parsed*."""
    has_scripts = is_mounted = False
    for tag in _TAGS.finditer(body):
        name, attributes = tag[1].lower(), tag[2][:_MOST_ATTRIBUTES]
        if name == b"script":
            has_scripts = has_scripts or _DATA.search(attributes) is None
        else:
            is_mounted = is_mounted or _is_empty_mount(body, tag)
    asks = is_mounted or any(
        _ASKS_FOR_SCRIPTS.search(_TAG.sub(b" ", inside)) for inside in _NOSCRIPT.findall(body)
    )
    links = frozenset(link.url for link in parsed.links if link.kind is LinkKind.A)
    return ScriptSigns(has_scripts, len(parsed.text), links, asks, is_mounted, _BROKEN in body)


def _is_empty_mount(body: bytes, tag: re.Match[bytes]) -> bool:
    is_mount = b"-" in tag[1] or _MOUNT_POINT.search(tag[2][:_MOST_ATTRIBUTES])
    return bool(is_mount) and _EMPTY.match(body, tag.end(), tag.end() + 300) is not None


def may_be_shell(body: bytes) -> bool:
    """Return whether it is worth it to parse *body* to see whether it is a shell."""
    is_small = len(body) < _SHELL_BYTES
    return is_small or any(_is_empty_mount(body, tag) for tag in _TAGS.finditer(body))


def added_links(before: ScriptSigns, after: ScriptSigns, url: str) -> frozenset[str]:
    """Return the links that the scripts of the page at *url* have brought, and that lead to its own
    registered domain: those that share it elsewhere say nothing new."""
    domain = registered_domain(urlsplit(url).hostname or "")
    known = {link.partition("#")[0] for link in before.links}
    added = {link.partition("#")[0] for link in after.links} - known
    return frozenset(link for link in added if link and _leads_to(link, domain))


def _leads_to(link: str, domain: str) -> bool:
    scheme, colon, _ = link.partition(":")
    if not link.startswith("//") and not (colon and scheme.isalnum()):
        return True  # relative, as most are
    try:
        return registered_domain(urlsplit(link).hostname or "") == domain
    except ValueError:
        return False


def brings_more(before: ScriptSigns, after: ScriptSigns, new_links: int) -> bool:
    """Return whether a page has text or links *after* its scripts have run that it had not
    *before*: *new_links* of a tenth of its links, two at least, or a quarter more text, 100
    characters at least. Less is what menus, counters and search boxes bring."""
    return new_links >= max(2, len(before.links) // 10) or _has_more_text(before, after)


def _has_more_text(before: ScriptSigns, after: ScriptSigns) -> bool:
    return after.chars - before.chars >= max(FEW_CHARS // 2, before.chars // 4)


def brings_less(before: ScriptSigns, after: ScriptSigns) -> bool:
    """Return whether the scripts of a page that was sent with text or links have taken away more
    than half of either, and brought nothing in its place: they failed, or put up a wall."""
    has_content = before.chars >= FEW_CHARS or len(before.links) >= _SOME_LINKS
    if not has_content or (before.asks and before.is_thin):
        return False
    lost, new = len(before.links - after.links), len(after.links - before.links)
    if after.is_broken:
        return True
    if before.chars >= FEW_CHARS and after.chars * 2 < before.chars:
        return new < lost + _SOME_LINKS
    has_lost = len(before.links) > _FEW_LINKS and lost * 2 > len(before.links)
    return has_lost and new < lost and not _has_more_text(before, after)
