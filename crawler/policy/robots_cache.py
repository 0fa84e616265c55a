"""The robots.txt verdict on a URL at this moment, from memory, else from a store.

Rule: the verdict is requested when a URL is fetched, not when a link is found. Only `RobotsAllowed`
lets a page through; `RobotsUnknown` names what to fetch, and `store_result` takes the result.

Memory: the records used last, within a budget of bytes. Of 4,231 real files the median takes 2.4 KB
parsed, the mean 7 KB, and 512 KB of hostile ones 8 MB, so a limit on entries would not bound
memory. The budget holds some 9,000 real files, or 2^17 hosts without one; an evicted one costs a
read of the store and 0.3 ms of parsing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self

import msgspec
from msgspec.structs import replace

from crawler.config.settings import RobotsSettings
from crawler.model.page import Flag, Truncated, incomplete_error
from crawler.model.url import authority_of, fetch_form
from crawler.page.challenge import Challenge, is_html
from crawler.policy.redirects import location_text
from crawler.policy.robots import ALLOW_ALL, RobotsRules

# The record of an authority after a fetch of its robots.txt (RFC 9309, 2.3.1): a file is obeyed,
# its absence (4xx) allows everything, trouble (5xx, no answer) forbids everything until it is over.
# 429 counts as trouble: the RFC allows a crawl after any 4xx (2.3.1.3: MAY), but an overloaded host
# sends it, not one without a robots.txt. A redirect to an address that may not be contacted,
# literally or by name, is trouble too: its rules are unknown, and another try changes nothing.

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


MAX_REDIRECTS: Final = 5
"""RFC 9309, 2.3.1.2: at least five are followed."""


ADDRESS_REFUSED: Final = "refused"
"""The error of a fetch that was not made: its address may not be contacted."""

UNREACHABLE: Final = "robots.txt unreachable: "
"""Begins the reason of what is not fetched because the file could not be."""

HOST_FAILED: Final = "its host has failed for hours"
"""Begins the reason of an authority that is given up until its host answers."""


class RobotsState(StrEnum):
    """The states of an authority's record."""

    RULES = "rules"  # its file, in `body`
    ALLOW_ALL = "allow_all"
    UNREACHABLE = "unreachable"  # forbid all
    PENDING = "pending"  # undecided: fetch `next_url`


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The stored record of one authority ("scheme://host[:port]")."""

    authority: str
    kind: RobotsState
    fetched_at: float  # epoch seconds
    expires_at: float
    body: bytes | None = None  # the last good copy, capped
    tries: int = 0  # failures in a row
    next_url: str = ""  # PENDING: what to fetch, perhaps on another host
    hops: int = 0  # PENDING: redirects that led to next_url
    reason: str = ""  # in words


@dataclass(frozen=True, slots=True)
class RobotsFetchResult:
    """The result of one request for a robots.txt. Arrow: fetch -> robots."""

    url: str  # of the request: the file itself, or a redirect's target
    status: int | None = None
    error: str = ""  # as in Answer, or ADDRESS_REFUSED; its words if is_fault
    target: str | None = None  # of a redirect, a fetch form; None if it is not followed
    body: bytes = b""
    detail: str = ""  # of the error, in words
    is_fault: bool = False  # the error is one of code on our side, such as a middleware

    @classmethod
    def of_answer(
        cls,
        url: str,
        status: int,
        location: bytes | None,
        body: bytes,
        flags: Collection[str],
        challenge: Challenge | None = None,
    ) -> Self:
        """Return the result of the request for *url* by its answer. *flags* are those of Scrapy's
        response; *challenge*: what it is instead, if it is no robots.txt."""
        if status < 300 and (error := _incomplete(flags)):
            # The missing part may hold a rule that forbids, so it counts as no answer.
            return cls(url, error=error)
        if challenge is not None and challenge.closes_host:
            # The opposite of leave to fetch everything, which RFC 9309 would give for a 403.
            return cls(url, status, error="challenge", detail=challenge.name)
        leads_to = fetch_form(location_text(location), url) if location else None
        return cls(url, status, target=leads_to, body=body)


def _incomplete(flags: Collection[str]) -> str:
    """Return why the file is incomplete, as an error of `Answer`. Empty if it is complete, or cut
    at our own limit, which is above the size that RFC 9309 requires to be read."""
    if Truncated.TIME.flag in flags:
        return "timeout"
    if Flag.DECODED_BROKEN in flags or Flag.UNDECODED in flags:
        return "protocol"
    return incomplete_error(flags)


class RobotsAnswer(StrEnum):
    """What a fetch means for the file."""

    FILE = "file"
    MOVED = "moved"
    ABSENT = "absent"
    TROUBLE = "trouble"
    NOTHING = "nothing"  # we stopped the fetch ourselves


def robots_url(authority: str) -> str:
    """Return the URL of an authority's robots.txt."""
    return f"{authority}/robots.txt"


def robots_answer(fetch: RobotsFetchResult) -> RobotsAnswer:
    """Return what a fetch means for the file."""
    status = fetch.status
    if fetch.error == "cancelled":
        return RobotsAnswer.NOTHING
    if fetch.error or status is None or status == 429:
        return RobotsAnswer.TROUBLE
    if status == 202 and (not fetch.body.strip() or is_html(fetch.body)):
        return RobotsAnswer.TROUBLE  # not answered yet, as guards say that test a browser
    if 200 <= status < 300:
        # Hosts that answer everything with a page have no robots.txt.
        return RobotsAnswer.ABSENT if is_html(fetch.body) else RobotsAnswer.FILE
    if status in REDIRECTS and fetch.target not in (None, fetch.url):
        return RobotsAnswer.MOVED
    # A redirect to nowhere or to itself is one redirect too many: "unavailable" (2.3.1.2).
    return RobotsAnswer.ABSENT if 300 <= status < 500 else RobotsAnswer.TROUBLE


def record_after(
    old: RobotsRecord, fetch: RobotsFetchResult, settings: RobotsSettings, now: float, until: float
) -> RobotsRecord:
    """Return the new record of an authority. *until*: the end of a verdict that is not final."""
    what, hops = robots_answer(fetch), _hops(old, fetch)
    if what is RobotsAnswer.NOTHING:
        return old
    if what is RobotsAnswer.TROUBLE:
        return _after_trouble(old, fetch, hops, settings, until)
    if what is RobotsAnswer.MOVED and hops < MAX_REDIRECTS:
        return _pending(old, fetch.target or "", hops + 1, until)
    fresh = RobotsRecord(old.authority, RobotsState.ALLOW_ALL, now, now + settings.robots_max_age_s)
    if what is RobotsAnswer.FILE:
        return replace(fresh, kind=RobotsState.RULES, body=fetch.body[: settings.robots_max_bytes])
    found = "a page" if fetch.body and is_html(fetch.body) else f"status {fetch.status}"
    return replace(fresh, reason=f"{found}, after {hops} redirects")


def unknown_record(authority: str, now: float) -> RobotsRecord:
    """Return the record of an authority without data; it is expired from the start."""
    return RobotsRecord(authority, RobotsState.PENDING, now, now, next_url=robots_url(authority))


def unreachable_record(
    authority: str, reason: str, settings: RobotsSettings, now: float, until: float
) -> RobotsRecord:
    """Return the record of an authority given up for a reason other than its robots.txt. When it
    has expired one fetch decides: there are no tries left."""
    return RobotsRecord(
        authority, RobotsState.UNREACHABLE, now, until, tries=settings.robots_tries, reason=reason
    )


def _hops(old: RobotsRecord, fetch: RobotsFetchResult) -> int:
    expected = old.kind is RobotsState.PENDING and old.next_url == fetch.url
    return old.hops if expected else 0


def _pending(old: RobotsRecord, url: str, hops: int, until: float) -> RobotsRecord:
    # It expires, because a hop may have to wait for another host's turn: whatever becomes of that
    # turn, the authority does not stay undecided.
    return replace(old, kind=RobotsState.PENDING, next_url=url, hops=hops, expires_at=until)


def _after_trouble(
    old: RobotsRecord, fetch: RobotsFetchResult, hops: int, settings: RobotsSettings, until: float
) -> RobotsRecord:
    reason = fetch.error or f"status {fetch.status}"
    if fetch.detail:
        reason = f"{reason}: {fetch.detail}"
    if fetch.error == ADDRESS_REFUSED:
        reason = f"{fetch.url} leads to an address that may not be contacted"
    failed = replace(old, tries=old.tries + 1, reason=reason)
    if old.body is not None:
        # A copy may be used for longer than a day while the file is unreachable (2.4).
        return replace(failed, kind=RobotsState.RULES, expires_at=until)
    is_final = fetch.is_fault or fetch.error == ADDRESS_REFUSED
    if failed.tries < settings.robots_tries and not is_final:
        return _pending(failed, fetch.url, hops, until)
    return replace(failed, kind=RobotsState.UNREACHABLE, expires_at=until)


MEMORY_BYTES: Final = 64 << 20
ENTRY_BYTES: Final = 500
"""One entry without rules: record, key, links of the OrderedDict. Measured, rounded up."""


class RobotsStore(Protocol):
    """A store of records by authority, on disk."""

    def get(self, authority: str) -> RobotsRecord | None:
        """Return the record put last, expired or not."""

    def put(self, record: RobotsRecord) -> None:
        """Store *record* in place of its authority's last one."""


class RobotsAllowed(msgspec.Struct, frozen=True):
    """The URL may be fetched, then at least *crawl_delay_s* pass (0: the host asks for none)."""

    crawl_delay_s: float = 0.0
    rule: str = ""


class RobotsDisallowed(msgspec.Struct, frozen=True):
    """The URL must never be fetched, by *rule*."""

    rule: str

    @property
    def words(self) -> str:
        return f"robots.txt: {self.rule}"


class RobotsUnknown(msgspec.Struct, frozen=True):
    """The robots.txt at *url* must be fetched first, in the turn of its own host."""

    url: str

    @property
    def words(self) -> str:
        return f"{UNREACHABLE}no answer from {self.url}"


class RobotsUnreachable(msgspec.Struct, frozen=True):
    """Nothing of this authority may be fetched before *until* (epoch seconds)."""

    until: float
    reason: str

    @property
    def words(self) -> str:
        return f"{UNREACHABLE}{self.reason}"


RobotsVerdict = RobotsAllowed | RobotsDisallowed | RobotsUnknown | RobotsUnreachable


@dataclass(frozen=True, slots=True)
class _Entry:
    record: RobotsRecord  # without its body
    rules: RobotsRules
    size_bytes: int


class RobotsCache:
    """The rules of all authorities for one user agent, the last used ones in memory."""

    def __init__(
        self,
        store: RobotsStore,
        agent: str,
        settings: RobotsSettings,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """*agent* is the product token that groups are looked up by, such as "Gossamer"."""
        self._store = store
        self._agent = agent
        self._settings = settings
        self._memory_bytes = memory_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the least recently used first
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def verdict(self, url: str, now: float) -> RobotsVerdict:
        """Decide whether *url*, a fetch form, may be fetched at *now*."""
        authority = authority_of(url)
        entry = self._entry(authority)
        if entry is None or not is_valid(entry.record, now):
            return RobotsUnknown(robots_url(authority))
        record = entry.record
        if record.kind is RobotsState.PENDING:
            return RobotsUnknown(record.next_url)
        if record.kind is RobotsState.UNREACHABLE:
            return RobotsUnreachable(record.expires_at, record.reason)
        ruling = entry.rules.ruling(url)
        if not ruling.allowed:
            return RobotsDisallowed(ruling.rule)
        return RobotsAllowed(entry.rules.crawl_delay_s, ruling.rule)

    def rules(self, authority: str) -> RobotsRules:
        """Return the rules last read for *authority*, for its crawl-delay and its sitemaps."""
        entry = self._entry(authority)
        return entry.rules if entry else ALLOW_ALL

    def is_decided(self, authority: str, now: float) -> bool:
        """Return whether it is known what *authority* allows at *now*, without any other fetch."""
        entry = self._entry(authority)
        if entry is None or entry.record.kind is RobotsState.PENDING:
            return False
        return is_valid(entry.record, now)

    def store_result(
        self, authority: str, fetch: RobotsFetchResult, now: float, rest_s: float = 0.0
    ) -> RobotsRecord:
        """Store the result of a fetch for *authority*, whose host rests for *rest_s* from now on. A
        PENDING record names what to fetch next, perhaps of another host."""
        old = self._store.get(authority) or unknown_record(authority, now)
        record = record_after(old, fetch, self._settings, now, self._until(now, rest_s))
        if fetch.is_fault:
            # Other processes and the next start may run other code.
            self._remember(record)
            return record
        return self._keep(record)

    def give_up(self, authority: str, reason: str, now: float, rest_s: float = 0.0) -> None:
        """Forbid everything for a while, so that all URLs of a lost host become dead letters."""
        until = self._until(now, rest_s)
        self._keep(unreachable_record(authority, reason, self._settings, now, until))

    def end_giving_up(self, authority: str, now: float) -> None:
        """Let the robots.txt of *authority* be fetched, if it was given up because its host had
        failed: the host has answered."""
        known = self._store.get(authority)
        if known is None or known.kind is not RobotsState.UNREACHABLE:
            return
        if not known.reason.startswith(HOST_FAILED):
            return
        # Valid until then, so that other workers take it in place of theirs.
        until = self._until(now, 0.0)
        self._keep(replace(unknown_record(authority, now), expires_at=until))

    def allow_refetch(self, authority: str, now: float) -> None:
        """Forget that a robots.txt was unreachable, so that it is fetched again."""
        known = self._store.get(authority)
        if known is not None and known.kind is RobotsState.UNREACHABLE:
            self._keep(unknown_record(authority, now))

    def _until(self, now: float, rest_s: float) -> float:
        # Counted from the end of the rest: a verdict that ends before its host may be asked again
        # would be found expired each time, and the crawl would never end.
        return now + rest_s + self._settings.robots_unreachable_s

    def _keep(self, record: RobotsRecord) -> RobotsRecord:
        self._store.put(record)
        self._remember(record)
        return record

    def _entry(self, authority: str) -> _Entry | None:
        entry = self._entries.get(authority)
        if entry is not None:
            self._entries.move_to_end(authority)
            return entry
        record = self._store.get(authority)
        return None if record is None else self._remember(record)

    def _remember(self, record: RobotsRecord) -> _Entry:
        rules, size_bytes = ALLOW_ALL, ENTRY_BYTES
        if record.kind is RobotsState.RULES:
            rules = RobotsRules.parse(
                record.body or b"", self._agent, self._settings.robots_max_bytes
            )
            size_bytes += rules.size_bytes()
        entry = _Entry(replace(record, body=None), rules, size_bytes)
        old = self._entries.pop(record.authority, None)
        self.size_bytes += entry.size_bytes - (old.size_bytes if old else 0)
        self._entries[record.authority] = entry
        while self.size_bytes > self._memory_bytes and len(self._entries) > 1:
            _, least = self._entries.popitem(last=False)
            self.size_bytes -= least.size_bytes
        return entry


def is_valid(record: RobotsRecord, now: float) -> bool:
    """Return whether *record* is valid at *now*."""
    # A record from the future was written under a wrong clock, and would hold until then.
    return record.fetched_at <= now < record.expires_at
