"""Which pages are given to a browser: those whose scripts bring text or links.

Rule: pure. What is learned is counted by host and by pattern of URLs, in bounded memory, and is
learned anew after a start: that costs some pages of each host, a record of it would cost a write a
page.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import xxhash

from crawler.model.choices import RenderChoice
from crawler.model.types import HostKey
from crawler.page.script_signs import ScriptSigns, added_links, may_be_shell
from crawler.policy.patterns import pattern_of

TRIED_FIRST: Final = 5
"""Pages of a pattern that are tried before it is decided whether rendering is worth it."""
SAMPLE: Final = 50
"""Then one page in so many is tried."""
_FIRST_UNSUSPECTED: Final = 2  # pages of a host without signs that are tried at once
_MOST_HOSTS: Final = 20_000  # that are remembered, some 1 kB each, and 3 kB of links at most
_MOST_PATTERNS: Final = 32  # of a host; all others count as one
_FREE_PAGES: Final = 20  # that the bound of a share begins with
_THIN_SHARE: Final = 0.2  # of the text of pages like it; guess
_MOST_ADDED: Final = 256  # links of a host that are looked at, whether they are on each page
_MOST_AGAIN: Final = 10_000  # URLs that come again, some 150 B each
_OTHERS: Final = "<others>"


class RenderReason(StrEnum):
    """Why a page is rendered."""

    ALWAYS = "always"  # the settings, a rule or its request say so
    SIGNS = "signs"  # it seems to be made by scripts
    PAYS = "pays"  # rendering has brought something for pages like it
    SAMPLE = "sample"  # to see whether it brings something
    AGAIN = "again"  # when it was rendered before, it failed or lacked something


class LeftOut(StrEnum):
    """Why something that a page asks for is not fetched."""

    KIND = "kind"  # an image, a medium, a font, a stream: they bring no text and no links
    METHOD = "method"  # it would send something
    URL = "url"  # no http or https, or one that the crawl never fetches
    REQUESTS = "requests"  # over the number that a page may have
    BYTES = "bytes"  # over the bytes that a page may have, or that an answer may have
    ROBOTS = "robots"
    INSIDE = "inside"  # an address that must not be contacted
    HOST = "host"  # another host that lends no turn in time
    TROUBLE = "trouble"  # its host has just failed, or asked to wait
    REDIRECTS = "redirects"  # one too many
    ERROR = "error"  # there was no whole answer
    LEASE = "lease"  # the lease of the page has ended


MOMENTARY: Final = frozenset({LeftOut.HOST, LeftOut.TROUBLE, LeftOut.ERROR, LeftOut.LEASE})
"""Why something is left out that may be had at another time."""
_KINDS: Final = frozenset({"script", "stylesheet", "fetch", "xhr"})
_SHOWN: Final = frozenset({"image", "media", "font", "manifest"})


def refused_kind(kind: str, method: str, *, with_requisites: bool) -> LeftOut | None:
    """Return why a request of *kind*, in Playwright's words, is not sent; None: it may be."""
    if method != "GET":
        return LeftOut.METHOD
    is_wanted = kind in _KINDS or (with_requisites and kind in _SHOWN)
    return None if is_wanted else LeftOut.KIND


@dataclass(slots=True)
class _Tries:
    seen: int = 0  # pages with scripts
    tried: int = 0  # of these, rendered
    paid: int = 0  # of these, with more text or links than before
    unclear: int = 0  # in a row, of which that is not known
    passed: int = 0  # by, since the last that was tried, as so many were unclear
    chars: float = 0.0  # of text of those that were not rendered, in the mean
    plain: int = 0  # how many these are

    @property
    def pays(self) -> bool:
        return self.paid * 2 >= self.tried > 0

    def try_next(self) -> bool:
        """Return whether its next page is tried. One is until five in a row are unclear, fifty
        where it has paid; then 1, 2, 4... are passed by between two. So a moment of trouble does
        not decide, and one without an end costs one page in fifty."""
        over = self.unclear - (SAMPLE if self.pays else TRIED_FIRST)
        if over >= 0 and self.passed < min(2 ** min(over, 6), SAMPLE - 1):
            self.passed += 1
            return False
        self.passed = 0
        return True


@dataclass(slots=True)
class _AddedLinks:
    """How often scripts have added which links to pages of a host. Those that are on most pages
    (menus, versions, languages) are new only once."""

    pages: int = 0
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    times: array[int] = field(default_factory=lambda: array("I"))

    def add(self, links: frozenset[str]) -> int:
        """Note the *links* that were added to the next page, and return how many of them were not
        on most pages before it."""
        times, new = dict(zip(self.hashes, self.times, strict=True)), 0
        for link in sorted(links):
            key = xxhash.xxh3_64_intdigest(link.encode(errors="replace"))
            seen = times.get(key, 0)
            new += seen * 2 <= self.pages
            if seen or len(times) < _MOST_ADDED:
                times[key] = seen + 1
        self.pages += 1
        kept = {key: seen for key, seen in times.items() if seen * 4 >= self.pages}
        self.hashes, self.times = array("Q", kept), array("I", kept.values())
        return new


@dataclass(slots=True)
class _HostTries:
    tried: int = 0
    paid: int = 0
    unsuspected: int = 0  # pages without signs, since the last that was tried
    tried_unsuspected: int = 0
    shells: int = 0  # that were tried after it was over
    patterns: dict[str, _Tries] = field(default_factory=dict)
    added: _AddedLinks = field(default_factory=_AddedLinks)

    @property
    def is_over(self) -> bool:
        """Whether it is known that rendering brings nothing for pages of this host."""
        return self.tried >= TRIED_FIRST and not self.paid


class RenderPolicy:
    """Decides page by page. O(1)."""

    def __init__(self, choice: RenderChoice, share: float = 1.0) -> None:
        """*share*: most pages that are rendered, of those with scripts."""
        self._choice = choice
        self._share = share
        self._hosts: OrderedDict[HostKey, _HostTries] = OrderedDict()
        self._again: OrderedDict[str, None] = OrderedDict()  # URLs, the oldest first
        self._pages = 0  # with scripts
        self._rendered = 0

    def choice_for(self, by_rule: RenderChoice | None, by_request: bool | None) -> RenderChoice:
        """Return what holds for a page, by its request, a rule or else the settings."""
        if by_request is not None:
            return RenderChoice.ALWAYS if by_request else RenderChoice.NEVER
        return self._choice if by_rule is None else by_rule

    def is_settled(self, host: HostKey, url: str, body: bytes) -> bool:
        """Return whether the page at *url* with this *body* will not be rendered by its signs, so
        that these are not looked for."""
        known = self._hosts.get(host)
        if known is None or not known.is_over or url in self._again:
            return False
        return known.shells >= TRIED_FIRST or not may_be_shell(body)

    def pays(self, host: HostKey) -> bool:
        """Return whether rendering has brought something for a page of *host*."""
        known = self._hosts.get(host)
        return known is not None and known.paid > 0

    def pass_by(self) -> None:
        """Count a page with scripts that is not decided about, as its host is settled."""
        self._pages += 1

    def decide(
        self,
        host: HostKey,
        url: str,
        signs: ScriptSigns,
        choice: RenderChoice,
        *,
        is_asked: bool = False,
    ) -> RenderReason | None:
        """Return why the page at *url* with these *signs* is rendered, or None: it is not.
        *is_asked*: its own request asks for it, whatever the share."""
        if choice is RenderChoice.NEVER or not signs.has_scripts:
            return None
        self._pages += 1
        is_full = self._rendered >= max(_FREE_PAGES, self._share * self._pages)
        if is_full and not is_asked:
            return None
        if choice is RenderChoice.ALWAYS:
            reason: RenderReason | None = RenderReason.ALWAYS
        elif url in self._again:
            del self._again[url]
            reason = RenderReason.AGAIN
        else:
            reason = self._by_tries(self._host(host), url, signs)
        self._rendered += reason is not None
        return reason

    def _by_tries(self, host: _HostTries, url: str, signs: ScriptSigns) -> RenderReason | None:
        tries = _tries_of(host, url)
        if host.is_over:
            return _try_shell(host, tries, signs)
        tries.seen += 1
        if tries.pays and tries.tried >= TRIED_FIRST:
            return RenderReason.PAYS if tries.try_next() else None
        is_suspect = signs.asks or signs.is_thin or _is_thin_beside(signs, tries)
        if not is_suspect:
            tries.plain += 1
            tries.chars += (signs.chars - tries.chars) / tries.plain
            if tries.pays and tries.paid > 1:
                return RenderReason.PAYS if tries.try_next() else None
            return self._unsuspected(host, is_promising=tries.paid == tries.tried == 1)
        if tries.tried < TRIED_FIRST or tries.pays:
            return RenderReason.SIGNS if tries.try_next() else None
        return RenderReason.SAMPLE if tries.seen % SAMPLE == 0 else None

    def _unsuspected(self, host: _HostTries, *, is_promising: bool) -> RenderReason | None:
        """*is_promising*: the first page like it has paid, which says little of the others."""
        host.unsuspected += 1
        is_first = host.tried_unsuspected < _FIRST_UNSUSPECTED
        if not (is_first or is_promising or host.unsuspected >= SAMPLE):
            return None
        host.unsuspected = 0
        host.tried_unsuspected += 1
        return RenderReason.SAMPLE

    def new_links(self, host: HostKey, url: str, before: ScriptSigns, after: ScriptSigns) -> int:
        """Note what links rendering has added to the page at *url*, and return how many of them
        count: all of a shell, else those to its own domain that are not on most pages of *host*."""
        new = self._host(host).added.add(added_links(before, after, url))
        return len(after.links - before.links) if before.is_shell else new

    def learn(
        self, host: HostKey, url: str, *, paid: bool | None, comes_again: bool = False
    ) -> None:
        """Note whether rendering the page at *url* has brought something. None: that is not known,
        as it failed, or lacked what could not be had at the moment. *comes_again*: then it is
        fetched once more, and is rendered that time, too."""
        known = self._host(host)
        tries = _tries_of(known, url)
        if paid is None:
            tries.unclear += 1
            if comes_again:
                self._again[url] = None
                if len(self._again) > _MOST_AGAIN:
                    self._again.popitem(last=False)
            return
        tries.unclear = tries.passed = 0
        for counted in (known, tries):
            counted.tried += 1
            counted.paid += paid

    def _host(self, host: HostKey) -> _HostTries:
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _HostTries()
            if len(self._hosts) > _MOST_HOSTS:
                self._hosts.popitem(last=False)
        else:
            self._hosts.move_to_end(host)
        return known


def _try_shell(host: _HostTries, tries: _Tries, signs: ScriptSigns) -> RenderReason | None:
    """Try some empty pages of a host of which it is known that thin ones bring nothing, as an
    application may be in one of its folders."""
    if not signs.is_shell or tries.tried >= TRIED_FIRST or host.shells >= TRIED_FIRST:
        return None
    host.shells += 1
    return RenderReason.SIGNS


def _tries_of(host: _HostTries, url: str) -> _Tries:
    pattern = render_pattern(url)
    if pattern not in host.patterns and len(host.patterns) >= _MOST_PATTERNS:
        pattern = _OTHERS
    return host.patterns.setdefault(pattern, _Tries())


def render_pattern(url: str) -> str:
    """Return the pattern of *url*, a fetch form; of one in which nothing is folded its folder:
    names, too, are of pages that one program has made."""
    folded = pattern_of(url)
    if folded:
        return folded
    path = url[url.index("/", 8) :]
    return f"{path[: path.rindex('/') + 1]}*"


def _is_thin_beside(signs: ScriptSigns, tries: _Tries) -> bool:
    """Return whether a page has much less text than those like it."""
    return tries.plain >= TRIED_FIRST and signs.chars < _THIN_SHARE * tries.chars
