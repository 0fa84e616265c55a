"""Parses plain text: the text itself, and the URLs in it.

Rule: the time is linear in the length. A text named as a sitemap, or like one, is a sitemap, as
sitemaps.org allows: its URLs count as listed.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from crawler.content.parsers.loading import MAX_LINKS, MAX_WORD_CHARS
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
)
from crawler.page.encodings import read_text

# Excludes the characters that end a URL in prose and in source code.
_URL: Final = re.compile(
    r"https?://[^\s\x00-\x1f<>\"'`{}|\\^\u2018-\u201f\u00ab\u00bb]+", re.IGNORECASE
)
_LINE: Final = re.compile(r"[^\r\n]+")
_is_url = re.compile(r"https?://[^\s\x00-\x1f]+", re.IGNORECASE).fullmatch
_CLOSING: Final = {")": "(", "]": "["}
_ENDS: Final = frozenset(".,;:!?*_~").union(_CLOSING)


class PlainParser:
    """Implements crawler.model.page.Parser."""

    name = "text"
    types = frozenset({"text/plain", "text/*"})
    inline_max_bytes = 128 * 1024  # 2 ms; 13 ms if it is all URLs, 20 ms if all brackets

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type, marked_up=False)
        if is_sitemap(source):
            links = tuple(Link(url, LinkKind.LISTED) for url in _listed(text))
        else:
            links = tuple(Link(url, LinkKind.TEXT) for url in urls(text))
        return Parsed(parser=self.name, text=text.strip(), links=links, charset=charset)


def _listed(text: str) -> list[str]:
    """Return like `urls`, but a line that is a URL whole, whatever it holds."""
    found: dict[str, None] = {}
    for line in _LINE.finditer(text):
        word = line[0].strip()
        if _is_url(word) and len(word) <= MAX_WORD_CHARS:
            found[word] = None
        else:
            found.update(dict.fromkeys(urls(word)))
        if len(found) > MAX_LINKS:
            break
    return list(found)


def urls(text: str) -> list[str]:
    """Return the http and https URLs in *text*, each once, without the punctuation behind them. At
    most MAX_LINKS + 1 matches are read; URLs too long to be fetched are left out."""
    found = (_without_punctuation(one[0]) for one in islice(_URL.finditer(text), MAX_LINKS + 1))
    fitting = (url for url in found if len(url) <= MAX_WORD_CHARS and not url.endswith("://"))
    return list(dict.fromkeys(fitting))


def _without_punctuation(url: str) -> str:
    """Return *url* without punctuation at its end. A closing bracket stays if it was opened in the
    URL, as in wiki/Gossamer_(film)."""
    if url[-1] not in _ENDS:
        return url
    # Counted once: text without spaces may end in a hundred thousand brackets.
    unopened = {last: url.count(last) - url.count(first) for last, first in _CLOSING.items()}
    end = len(url)
    while (last := url[end - 1]) in _ENDS:
        if last in unopened:
            if unopened[last] <= 0:
                break
            unopened[last] -= 1
        end -= 1
    return url[:end]


def is_sitemap(source: Source) -> bool:
    """Return whether *source* is named as a sitemap, or like one."""
    path = source.url.partition("?")[0].partition("#")[0]
    return source.is_sitemap or "sitemap" in path.rpartition("/")[2].lower()
