"""Plain text: itself, and the URLs written out in it.

Rule: linear in its length. A list of URLs that is named like a sitemap is one (sitemaps.org
allows text): its URLs are listed, not merely written out.
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
from crawler.policy.encodings import read_text

# What stands between two URLs in prose and in source code, and is part of neither.
_URL: Final = re.compile(
    r"https?://[^\s\x00-\x1f<>\"'`{}|\\^\u2018-\u201f\u00ab\u00bb]+", re.IGNORECASE
)
_CLOSING: Final = {")": "(", "]": "["}
_ENDS: Final = frozenset(".,;:!?*_~").union(_CLOSING)


class PlainParser:
    """Implements core.parsed.Parser."""

    name = "text"
    types = frozenset({"text/plain", "text/*"})
    inline_max_bytes = 128 * 1024  # 2 ms; of nothing but URLs, 13; of brackets, 20

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type, marked_up=False)
        kind = LinkKind.LISTED if _is_sitemap(source.url) else LinkKind.TEXT
        return Parsed(
            parser=self.name,
            text=text.strip(),
            links=tuple(Link(url, kind) for url in urls(text)),
            charset=charset,
        )


def urls(text: str) -> list[str]:
    """The http and https URLs in *text*, each once; without the stop that ends their sentence.
    Of the first MAX_LINKS and one more; a URL too long to be fetched says nothing."""
    found = (_bare(one[0]) for one in islice(_URL.finditer(text), MAX_LINKS + 1))
    fitting = (url for url in found if len(url) <= MAX_WORD_CHARS and not url.endswith("://"))
    return list(dict.fromkeys(fitting))


def _bare(url: str) -> str:
    """A bracket at its end is its own only if it was opened in it, as in wiki/Gossamer_(film)."""
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


def _is_sitemap(url: str) -> bool:
    path = url.partition("?")[0].partition("#")[0]
    return "sitemap" in path.rpartition("/")[2].lower()
