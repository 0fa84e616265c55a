"""What robots.txt, answers, pages, licences and tdmrep.json files say of the use of pages.

Rule: nothing is fetched here: `named` says which files are needed, and `note` keeps what they say,
in bounded memory. A file that could not be had says nothing; but where a use is required, a page
whose licence it is may not be stored.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import unescape
from typing import Final, NamedTuple
from urllib.parse import urljoin

from crawler.content.rsl import read_licence
from crawler.model.choices import Preference, PreferenceFiles, Use
from crawler.model.page import Exchange, Preferences, Unreadable
from crawler.model.types import HTTP_OK
from crawler.model.url import authority_of, fetch_form
from crawler.policy.preferences import (
    TDMREP_FILE,
    Licence,
    Statement,
    TdmRule,
    combined,
    licence_links,
    licence_says,
    of_answer,
    read_tdmrep,
    robots_usages,
    stated,
    tdmrep,
)
from crawler.policy.robots import RobotsRules
from crawler.policy.robots_cache import RobotsCache

_DISALLOW: Final = Preference.DISALLOW
_MOST_BYTES: Final = 32 << 20
_ENTRY_BYTES: Final = 500
_PART_BYTES: Final = 1_000  # of a rule, a content or a licence, beside its words; measured
_KEPT_S: Final = 86_400.0  # as a robots.txt
_MISSING_S: Final = 600.0  # guess: a host that rests, or fails, may answer then
_RETRIED_S: Final = 10.0  # where a page comes again for it, which is later
MOST_FILES: Final = 4  # of one page
_HEAD_BYTES: Final = 65_536  # in which a page names its licence
_RSL_TYPE: Final = b"application/rsl+xml"
_TAG_BYTES: Final = 4_096
_MOST_TAGS: Final = 10  # that may name one
_href: Final = re.compile(rb"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.I)
_base: Final = re.compile(rb"<base\s[^>]{0,4096}>", re.I)


class _KnownFile(NamedTuple):
    """What is known of a file: its licence, its rules, or that it says nothing."""

    until: float  # epoch seconds
    size_bytes: int
    says: Licence | tuple[TdmRule, ...] | None
    is_missing: bool = False  # it could not be had, but may be at another time


class PreferenceSources:
    """All that says what pages may be used for, but what their own texts say."""

    def __init__(
        self,
        robots: RobotsCache,
        agent: str,
        files: PreferenceFiles,
        required: Sequence[Use] = (),
    ) -> None:
        """*agent*: the product token of which robots.txt and headers speak. What disallows one of
        the uses *required* is not stored."""
        self._robots = robots
        self._agent = agent
        self._files = files
        self._required = required
        self._missing_s = _RETRIED_S if required else _MISSING_S
        self._known: OrderedDict[str, _KnownFile] = OrderedDict()  # by URL
        self.size_bytes = 0

    def named(
        self, url: str, headers: Sequence[tuple[bytes, bytes]], in_page: str = ""
    ) -> Collection[str]:
        """Return the URLs of files that say what the page at *url* may be used for, in most cases
        none. *headers*: those that are called Link are needed. *in_page*: the licence that the page
        names; "": none."""
        url = _with_path(url)
        authority = authority_of(url)
        return self._named(url, authority, self._robots.rules(authority), headers, in_page)

    def _named(
        self,
        url: str,
        authority: str,
        rules: RobotsRules,
        headers: Sequence[tuple[bytes, bytes]],
        in_page: str,
    ) -> Collection[str]:
        if self._files is PreferenceFiles.NONE:
            return ()
        links = licence_links(headers)
        if not (rules.licences or links or in_page) and self._files is PreferenceFiles.NAMED:
            return ()
        written = (*rules.licences, *links, in_page) if in_page else (*rules.licences, *links)
        found = dict.fromkeys(filter(None, (fetch_form(each, url) for each in written)))
        if self._files is PreferenceFiles.ALL:
            found[tdmrep_url(authority)] = None
        return found

    def is_known(self, url: str, now: float) -> bool:
        known = self._known.get(url)
        return known is not None and known.until > now

    def note(self, url: str, status: int, body: bytes, now: float) -> str:
        """Note the answer to a request for the file *url*. Returns why it cannot be read; "": it
        can, or is not there."""
        if status not in HTTP_OK:
            is_gone = 400 <= status < 500 and status != 429
            self.note_missing(url, now, for_now=not is_gone)
            return ""
        if url == tdmrep_url(authority_of(url)):
            rules = read_tdmrep(body)
            size_bytes = len(body) + _PART_BYTES * len(rules)
            self._keep(url, _KnownFile(now + _KEPT_S, size_bytes, rules))
            return ""
        licence, wrong = None, ""
        try:
            licence = read_licence(body)
        except Unreadable as error:
            wrong = str(error)
        parts = sum(1 + len(each.terms) for each in licence.contents) if licence else 0
        self._keep(url, _KnownFile(now + _KEPT_S, len(body) + _PART_BYTES * parts, licence))
        return wrong

    def note_missing(self, url: str, now: float, *, for_now: bool) -> None:
        """Note that the file *url* could not be had, so that it is not asked for at each page. *for
        now*: it may be at another time; until then what it said before counts."""
        before = self._known.get(url)
        if for_now and before is not None and before.says is not None:
            self._keep(url, before._replace(until=now + self._missing_s))
            return
        until = now + (self._missing_s if for_now else _KEPT_S)
        self._keep(url, _KnownFile(until, 0, None, is_missing=for_now))

    def lacks(self, named: Iterable[str]) -> bool:
        """Return whether a licence among the files *named* could not be had, but may be at another
        time, so that a page may not be stored now. A tdmrep.json is none: nothing says that its
        host has one."""
        return bool(self._required) and any(
            (known := self._known.get(each)) is None or known.is_missing
            for each in named
            if not each.endswith(_TDMREP_PATH)
        )

    def _keep(self, url: str, known: _KnownFile) -> None:
        before = self._known.pop(url, None)
        if before is not None:
            self.size_bytes -= before.size_bytes + _ENTRY_BYTES
        self._known[url] = known
        self.size_bytes += known.size_bytes + _ENTRY_BYTES
        while self.size_bytes > _MOST_BYTES and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self.size_bytes -= oldest.size_bytes + _ENTRY_BYTES

    def statements(
        self, url: str, headers: Sequence[tuple[bytes, bytes]], in_page: str = ""
    ) -> Iterator[Statement]:
        """Yield what is said of the page at *url* by its robots.txt, *headers*, and the files that
        are known. *in_page*: as of `named`."""
        url = _with_path(url)
        authority = authority_of(url)
        rules = self._robots.rules(authority)
        yield from robots_usages(rules, url)
        yield from of_answer(headers, self._agent)
        for each in self._named(url, authority, rules, headers, in_page):
            known = self._known.get(each)
            if known is None or known.says is None:
                continue
            self._known.move_to_end(each)
            if isinstance(known.says, Licence):  # which is a tuple, too
                yield from licence_says(known.says, url)
            else:
                training = tdmrep(known.says, url)
                yield from stated(((Use.TRAIN_AI, training),), TDMREP_FILE)

    def refused(self, preferences: Preferences, named: Iterable[str] = ()) -> Use | None:
        """Return the first use that is required and disallowed, or may be by a licence among the
        files *named*; None: it may be stored."""
        lacks = self.lacks(named)
        said = (use for use in self._required if lacks or preferences.of(use) is _DISALLOW)
        return next(said, None)

    def storable(self, exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
        """Return those of *exchanges*, none of which is a page, that may be stored."""
        if not self._required:
            return exchanges
        return [
            each
            for each in exchanges
            if self.refused(combined(self.statements(each.url, each.headers))) is None
        ]


_has_path = re.compile(r"https?://[^/?#]+/").match


def _with_path(url: str) -> str:
    """Return *url*, perhaps one that a spider has written without a path, as a fetch form."""
    return url if _has_path(url) else fetch_form(url) or f"{url}/"


_TDMREP_PATH: Final = "/.well-known/tdmrep.json"


def tdmrep_url(authority: str) -> str:
    return authority + _TDMREP_PATH


def licence_in(body: bytes, url: str) -> str:
    """Return the URL of the licence that the first tag names that is one of RSL, in the page at
    *url*, which is not parsed yet; "": none does. 7 us for 30 KB."""
    at = -1
    for _ in range(_MOST_TAGS):
        at = body.find(_RSL_TYPE, at + 1, _HEAD_BYTES)
        if at < 0:
            break
        begin, end = body.rfind(b"<", 0, at), body.find(b">", at, at + _TAG_BYTES)
        tag = body[max(begin, 0) : min(end, begin + _TAG_BYTES) if end >= 0 else 0]
        if tag[:5].lower() != b"<link" or b"license" not in tag.lower():
            continue
        if written := _href_of(tag):
            base = _base.search(body, 0, _HEAD_BYTES)
            return fetch_form(written, urljoin(url, _href_of(base[0]) if base else "")) or ""
    return ""


def _href_of(tag: bytes) -> str:
    found = _href.search(tag)
    if found is None:
        return ""
    return unescape((found[1] or found[2] or found[3] or b"").decode(errors="replace")).strip()
