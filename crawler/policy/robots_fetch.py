"""What fetching a robots.txt brought, and what is known about the authority from then on.

Rule: a decision table, no clock and no socket. RFC 9309, 2.3.1: a file is obeyed, its absence
(4xx) allows everything, trouble (5xx, no answer) forbids everything until it is over.
429 counts as trouble. The RFC lets us crawl on after any 4xx (2.3.1.3: MAY), but this one is sent
by a host that is overloaded, not by one that has no robots.txt.
A redirect to an address that may not be contacted is trouble too, as a literal address or as a name
that leads to one: which rules stand there is not known, and another try changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.core.config import Robots

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


MAX_REDIRECTS: Final = 5
"""RFC 9309, 2.3.1.2: at least five are followed."""


REFUSED: Final = "refused"
"""The error of a fetch that we did not make: its URL or its name leads where we may not go."""


class Known(StrEnum):
    """What an authority's record says."""

    RULES = "rules"  # its file, in `body`
    ALLOW_ALL = "allow_all"
    UNREACHABLE = "unreachable"  # forbid all
    PENDING = "pending"  # undecided: fetch `next_url`


class RobotsRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of one authority ("scheme://host[:port]"), as it is stored."""

    authority: str
    kind: Known
    fetched_at: float  # epoch seconds
    expires_at: float
    body: bytes | None = None  # the last good copy, capped
    tries: int = 0  # failures in a row
    next_url: str = ""  # PENDING: what to fetch, perhaps on another host
    hops: int = 0  # PENDING: redirects that led to next_url
    reason: str = ""  # in words, for a person


@dataclass(frozen=True, slots=True)
class RobotsFetch:
    """What one request for a robots.txt brought. Arrow: fetch -> robots."""

    url: str  # that was asked: the file itself, or what it redirects to
    status: int | None = None
    error: str = ""  # as in Answer, or REFUSED
    target: str | None = None  # where a redirect leads, a fetch form; None: nowhere we can go
    body: bytes = b""


class Brought(StrEnum):
    """The left column of the table."""

    FILE = "file"
    MOVED = "moved"
    ABSENT = "absent"
    TROUBLE = "trouble"
    NOTHING = "nothing"  # we stopped the fetch ourselves


def robots_url(authority: str) -> str:
    """Where an authority keeps its robots.txt."""
    return f"{authority}/robots.txt"


def brought(fetch: RobotsFetch) -> Brought:
    """What a fetch says about the file."""
    status = fetch.status
    if fetch.error == "cancelled":
        return Brought.NOTHING
    if fetch.error or status is None or status == 429:
        return Brought.TROUBLE
    if 200 <= status < 300:
        return Brought.FILE
    if status in REDIRECTS and fetch.target not in (None, fetch.url):
        return Brought.MOVED
    # A redirect to nowhere or to itself is one redirect too many: "unavailable" (2.3.1.2).
    return Brought.ABSENT if 300 <= status < 500 else Brought.TROUBLE


def learned(
    old: RobotsRecord, fetch: RobotsFetch, rules: Robots, now: float, until: float
) -> RobotsRecord:
    """The authority's new record. *until*: how long a verdict holds that is not settled."""
    what, hops = brought(fetch), _hops(old, fetch)
    if what is Brought.NOTHING:
        return old
    if what is Brought.TROUBLE:
        return _after_trouble(old, fetch, hops, rules, until)
    if what is Brought.MOVED and hops < MAX_REDIRECTS:
        return _pending(old, fetch.target or "", hops + 1, until)
    fresh = RobotsRecord(old.authority, Known.ALLOW_ALL, now, now + rules.robots_max_age_s)
    if what is Brought.FILE:
        return replace(fresh, kind=Known.RULES, body=fetch.body[: rules.robots_max_bytes])
    return replace(fresh, reason=f"status {fetch.status}, after {hops} redirects")


def unknown(authority: str, now: float) -> RobotsRecord:
    """The record of an authority nothing is known about; it has expired from birth."""
    return RobotsRecord(authority, Known.PENDING, now, now, next_url=robots_url(authority))


def given_up(authority: str, reason: str, rules: Robots, now: float, until: float) -> RobotsRecord:
    """The record of an authority given up for another reason than its robots.txt. When it has
    expired one fetch decides: there are no tries left."""
    return RobotsRecord(
        authority, Known.UNREACHABLE, now, until, tries=rules.robots_tries, reason=reason
    )


def _hops(old: RobotsRecord, fetch: RobotsFetch) -> int:
    expected = old.kind is Known.PENDING and old.next_url == fetch.url
    return old.hops if expected else 0


def _pending(old: RobotsRecord, url: str, hops: int, until: float) -> RobotsRecord:
    # It expires, because a hop may have to wait for another host's turn: whatever became of that
    # turn, the authority does not stay undecided.
    return replace(old, kind=Known.PENDING, next_url=url, hops=hops, expires_at=until)


def _after_trouble(
    old: RobotsRecord, fetch: RobotsFetch, hops: int, rules: Robots, until: float
) -> RobotsRecord:
    reason = fetch.error or f"status {fetch.status}"
    if fetch.error == REFUSED:
        reason = f"{fetch.url} leads to an address that may not be contacted"
    failed = replace(old, tries=old.tries + 1, reason=reason)
    if old.body is not None:
        # A copy may be used for longer than a day while the file is unreachable (2.4).
        return replace(failed, kind=Known.RULES, expires_at=until)
    if failed.tries < rules.robots_tries and fetch.error != REFUSED:
        return _pending(failed, fetch.url, hops, until)
    return replace(failed, kind=Known.UNREACHABLE, expires_at=until)
