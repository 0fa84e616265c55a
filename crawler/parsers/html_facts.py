"""What a page declares about itself: title, base, language, dates, and words for crawlers.

Rule: of what is said twice the first counts, but words for crawlers count all. What makes no
sense was not said.
"""

from __future__ import annotations

import re
from typing import Final

from crawler.parsers.html_dates import epoch
from crawler.parsers.html_tags import SPACE, in_text
from crawler.policy.following import robots_words

DECLARING: Final = frozenset(("html", "base", "meta"))

_MAX_TITLE_CHARS: Final = 1_000
# The names that state a date, the most telling first.
_PUBLISHED: Final = (
    *("article:published_time", "datepublished", "dc.date.issued", "dcterms.issued"),
    *("dcterms.created", "dc.date", "dcterms.date", "date"),
)
_MODIFIED: Final = (
    *("article:modified_time", "og:updated_time", "datemodified", "dcterms.modified"),
    *("dc.date.modified", "last-modified"),
)
_READ: Final = frozenset((*_PUBLISHED, *_MODIFIED, "content-language"))
_language = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}").match
_date_in_data = re.compile(r'"(datePublished|dateModified)"\s{0,9}:\s{0,9}"([^"]{4,40})"').findall


class Facts:
    def __init__(self) -> None:
        self.title = ""
        self.base = ""
        self._language = ""
        self._robots: list[str] = []
        self._said: dict[str, str] = {}

    def take(self, name: str, given: dict[str, str]) -> None:
        if name == "html":
            self._language = self._language or given.get("lang", "") or given.get("xml:lang", "")
        elif name == "meta":
            self._meta(given)
        elif not self.base:
            self.base = given.get("href", "").strip(SPACE)

    def titled(self, text: str) -> None:
        if not self.title:
            self.title = " ".join(in_text(text).split())[:_MAX_TITLE_CHARS]

    def data(self, text: str) -> None:
        """JSON for search engines (schema.org): its dates, without reading it all."""
        for name, date in _date_in_data(text):
            self._said.setdefault(name.lower(), date)

    @property
    def language(self) -> str:
        for told in (self._language, self._said.get("content-language", "")):
            if found := _language(told.strip(SPACE)):
                return found[0].replace("_", "-")
        return ""

    @property
    def robots(self) -> frozenset[str]:
        return robots_words(self._robots) - {""} if self._robots else frozenset()

    @property
    def published(self) -> float | None:
        return self._date(_PUBLISHED)

    @property
    def modified(self) -> float | None:
        return self._date(_MODIFIED)

    def _meta(self, given: dict[str, str]) -> None:
        content = given.get("content", "")
        for attribute in ("name", "property", "itemprop", "http-equiv"):
            name = given.get(attribute, "").strip(SPACE).lower()
            if name == "robots" and attribute == "name":
                self._robots.append(content)
            elif name in _READ:
                self._said.setdefault(name, content)

    def _date(self, names: tuple[str, ...]) -> float | None:
        if not self._said:
            return None
        dates = (epoch(self._said[name]) for name in names if name in self._said)
        return next((date for date in dates if date is not None), None)
