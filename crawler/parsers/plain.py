"""Plain text: itself, and the URLs written out in it.

Rule: linear in its length. A list of URLs that is named like a sitemap is one (sitemaps.org
allows text): its URLs are listed, not merely written out.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from crawler.core.parsed import Link, LinkKind, Parsed, Source
from crawler.parsers.bounds import MAX_LINKS
from crawler.policy.charset import read_text

# What stands between two URLs in prose and in source code, and is part of neither.
_URL: Final = re.compile(
    r"https?://[^\s\x00-\x1f<>\"'`{}|\\^\u2018-\u201f\u00ab\u00bb]+", re.IGNORECASE
)
_CLOSING: Final = {")": "(", "]": "["}
_STOPS: Final = ".,;:!?*_~"


class PlainParser:
    """Implements core.parsed.Parser."""

    name = "text"
    types = frozenset({"text/plain", "text/*"})
    inline_max_bytes = 128 * 1024  # 2 ms; of nothing but URLs, 6

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
    """The http and https URLs in *text*, each once; without the stop that ends their sentence."""
    found = (_bare(one[0]) for one in islice(_URL.finditer(text), MAX_LINKS + 1))
    return list(dict.fromkeys(url for url in found if not url.endswith("://")))


def _bare(url: str) -> str:
    """A bracket at its end is its own only if it was opened in it, as in wiki/Gossamer_(film)."""
    while url:
        last = url[-1]
        opening = _CLOSING.get(last)
        if last not in _STOPS and (opening is None or url.count(opening) >= url.count(last)):
            break
        url = url[:-1]
    return url


def _is_sitemap(url: str) -> bool:
    path = url.partition("?")[0].partition("#")[0]
    return "sitemap" in path.rpartition("/")[2].lower()
