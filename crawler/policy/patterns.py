"""Patterns of URLs that one program seems to have made, and when no more of a pattern is fetched.

Rule: numbers, dates, ids and the values of a query are folded, names are kept, and what is in doubt
is a name: a pattern too fine costs a host some more pages, one too coarse would stop a whole host
for the first hundred copies on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

import msgspec
import xxhash
from msgspec.structs import replace

from crawler.config.settings import PatternSettings
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
)
from crawler.policy.refusal import Reason, Refusal

MAX_PATTERN_CHARS: Final = 200
"""Longest pattern. A longer one is cut, and a hash keeps it unique."""

# A fetch form holds neither "#" nor "<", so in a pattern they are always placeholders.
NUMBER: Final = "#"
ID: Final = "<id>"

_HASH_CHARS: Final = 16
_has_digit: Final = re.compile("[0-9]").search
# Each begins at the start of a word, so that a long word is not tried from all its letters.
_ids: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"  # a UUID
    r"|(?=[A-Fa-f]*+[0-9])(?=[0-9]*+[A-Fa-f])[0-9A-Fa-f]{8,}+"  # a hash or a part of one
    r"|(?=[A-Za-z]*+[0-9])[0-9A-Za-z]{22,}+"  # 128 bits in base 64: of a session, mostly
    r")(?![0-9A-Za-z])"
)
# A digit beside a letter: only words that have one can be an id.
_may_have_ids: Final = re.compile(r"[0-9](?:(?=[A-Za-z])|(?<=[A-Za-z][0-9]))").search
_numbers: Final = re.compile("[0-9]+")
_numbers_of_escaped: Final = re.compile(r"(?<!%)(?<!%[0-9A-Fa-f])[0-9]+")  # %C3 stays as it is
# What was x7Gk29a: natural words have no numbers in two places.
_mixed: Final = re.compile(r"(?<![A-Za-z#])[A-Za-z]*+#[A-Za-z]++#[A-Za-z#]*+")


def pattern_of(url: str) -> str:
    """Return the pattern of a fetch form, without its host. Returns "" if nothing in it is folded:
    it is the only URL of its pattern."""
    path, _, query = url[url.index("/", 8) :].partition("?")  # 8: past "http://" and into the host
    folded = _fold(path)
    if query:
        keys = {_fold(pair.partition("=")[0]) for pair in query.split("&")}
        folded = f"{folded}?{'&'.join(sorted(filter(None, keys)))}"
    elif folded == path:
        return ""
    return folded if len(folded) <= MAX_PATTERN_CHARS else _shorten(folded)


def _fold(text: str) -> str:
    if not _has_digit(text):
        return text
    numbers = _numbers_of_escaped if "%" in text else _numbers
    if not _may_have_ids(text):
        return numbers.sub(NUMBER, text)
    return _mixed.sub(ID, numbers.sub(NUMBER, _ids.sub(ID, text)))


def _shorten(pattern: str) -> str:
    # Names in other scripts are long: each letter takes nine characters of escapes.
    digest = xxhash.xxh3_64_hexdigest(pattern.encode())
    return f"{pattern[: MAX_PATTERN_CHARS - _HASH_CHARS - 1]}~{digest}"


# Whether more URLs of one pattern are fetched. A pattern stops after so many pages in a row with
# nothing new; then one is tried now and then, and a new page reopens it. At its cap it stops for
# good. Seeds and the requests of a spider are fetched in any case.


class PatternStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The results of the URLs of one pattern of a host."""

    pages: int = 0  # fetched; errors and redirects do not count
    new: int = 0  # of these, with content not stored before
    barren: int = 0  # in a row, with nothing new
    at: float = 0.0  # epoch seconds, when the last page was fetched or tried
    # Of its pages that were visited again: visits that found a change, and the seconds between.
    changes: int = 0
    watched_s: int = 0


class FetchAllowed(Enum):
    """The URL may be fetched."""

    OPEN = auto()
    PROBE = auto()  # its pattern stopped a while ago


@dataclass(frozen=True, slots=True)
class PatternStopped:
    """The URL is not fetched, with the reason in words."""

    reason: str


class PatternStatsStore(Protocol):
    """The statistics of all patterns of a crawl. No method blocks: what is unknown is OPEN."""

    def decide(self, candidate: Candidate, now: float) -> FetchAllowed | PatternStopped:
        """Decide about *candidate* when its lease is taken."""

    def record_try(self, candidate: Candidate, now: float) -> None:
        """Record that the fetch begins that FetchAllowed.PROBE allowed, so that the next one
        waits."""

    def have_stopped(self, hosts: Collection[HostKey]) -> bool:
        """Return whether a pattern of one of *hosts* is known to have stopped; else no link to them
        is refused."""

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        """Refuse a link that was found if its pattern is known to have stopped."""

    def record_page(self, candidate: Candidate, is_new: bool, now: float) -> None:
        """Record that the page of *candidate* was fetched."""

    def record_visit(self, candidate: Candidate, is_changed: bool, interval_s: int) -> None:
        """Record that the page of *candidate* was visited again, *interval_s* after the visit
        before."""

    def changes_of(self, candidate: Candidate) -> tuple[int, int]:
        """Return how often visits of pages of the same pattern have found a change, and the seconds
        between these visits."""


NO_STATS: Final = PatternStats()
OTHER_PATTERNS: Final = "<other>"
"""Stands for all further patterns of a host that has too many of them."""


def deciding_pattern(candidate: Candidate) -> str:
    """Return the pattern that decides about *candidate*, or "" if none does."""
    return "" if candidate.depth == 0 or candidate.request else counted_pattern(candidate)


def counted_pattern(candidate: Candidate) -> str:
    """Return the pattern that its page counts for, also of seeds and requests, or "" if none: what
    a page needs to be shown is fetched whatever others like it brought."""
    is_page = candidate.purpose is Purpose.PAGE and not candidate.requisite
    return pattern_of(candidate.url) if is_page else ""


def stats_after(pattern: str, before: PatternStats, is_new: bool, now: float) -> PatternStats:
    return merge_stats(pattern, before, PatternStats(1, int(is_new), int(not is_new), now))


def merge_stats(pattern: str, before: PatternStats, after: PatternStats) -> PatternStats:
    """Add *after*, what was counted since *before*, from zero."""
    return PatternStats(
        # OTHER_PATTERNS stands for many patterns and has no cap, so its pages are not counted.
        pages=0 if pattern == OTHER_PATTERNS else before.pages + after.pages,
        new=before.new + after.new,
        barren=after.barren if after.new else before.barren + after.barren,
        at=after.at,
        changes=before.changes + after.changes,
        watched_s=before.watched_s + after.watched_s,
    )


def with_try(before: PatternStats, now: float) -> PatternStats:
    return replace(before, at=now)


def can_stop(settings: PatternSettings) -> bool:
    """Return whether *settings* ever stop a pattern."""
    return settings.pattern_max_pages is not None or settings.pattern_barren_pages is not None


def is_full(stats: PatternStats, settings: PatternSettings) -> bool:
    return settings.pattern_max_pages is not None and stats.pages >= settings.pattern_max_pages


def is_barren(stats: PatternStats, settings: PatternSettings) -> bool:
    return (
        settings.pattern_barren_pages is not None and stats.barren >= settings.pattern_barren_pages
    )


def is_stopped(stats: PatternStats, settings: PatternSettings) -> bool:
    return is_full(stats, settings) or is_barren(stats, settings)


def decide(
    pattern: str, stats: PatternStats, settings: PatternSettings, now: float
) -> FetchAllowed | PatternStopped:
    if is_full(stats, settings):
        return PatternStopped(
            f"pattern {pattern}: {stats.pages} of its pages were fetched, no more are"
        )
    if not is_barren(stats, settings):
        return FetchAllowed.OPEN
    # A clock that was set back must not stop the pattern for ever.
    if not 0 <= now - stats.at < settings.pattern_probe_s:
        return FetchAllowed.PROBE
    return PatternStopped(f"pattern {pattern}: nothing new in its last {stats.barren} pages")


def refusal_of(stopped: PatternStopped) -> Refusal:
    return Refusal(Reason.PATTERN, stopped.reason)
