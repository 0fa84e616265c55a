"""Whether more URLs of one pattern are worth a visit: by what those before have brought.

Rule: a pattern is left when so many pages in a row brought nothing new; then one is tried now and
then, and a new page opens it again. At its cap it is left for good. What a person named (a seed, a
request of a spider) is fetched in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from crawler.core.content_settings import Budgets
from crawler.core.types import Candidate, HostKey, Purpose
from crawler.policy.patterns import pattern_of
from crawler.policy.refusal import Reason, Refusal


class Yield(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the URLs of one pattern of a host have brought."""

    pages: int = 0  # fetched; errors and redirects are none
    new: int = 0  # of these, with content that nobody had
    barren: int = 0  # in a row, with nothing new
    at: float = 0.0  # epoch seconds: when the last of them landed, or one was tried


class Go(Enum):
    """Fetch it."""

    OPEN = auto()
    TRY = auto()  # its pattern was left a while ago


@dataclass(frozen=True, slots=True)
class Stopped:
    """Leave it, and why in words."""

    reason: str


class Yields(Protocol):
    """What all patterns of a crawl have brought. Nothing waits: who knows nothing says OPEN."""

    def of(self, candidate: Candidate, now: float) -> Go | Stopped:
        """Asked when its lease is taken."""

    def trying(self, candidate: Candidate, now: float) -> None:
        """Its fetch begins, as TRY said it may: the next one waits."""

    def has_stopped(self, host: HostKey) -> bool:
        """Whether any pattern of *host* is known to have stopped: else no link is refused."""

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        """Asked when a link is found: is its pattern known to have stopped?"""

    def note(self, candidate: Candidate, is_new: bool, now: float) -> None:
        """Its page has landed."""


NOTHING: Final = Yield()
OTHER: Final = "<other>"
"""Stands for all further patterns of a host that has too many of them."""


def judged_pattern(candidate: Candidate) -> str:
    """The pattern that decides about *candidate*. Empty: none does."""
    named = candidate.depth == 0 or candidate.request
    return "" if named or candidate.purpose is not Purpose.PAGE else pattern_of(candidate.url)


def noted_pattern(candidate: Candidate) -> str:
    """The pattern that its page counts for: also of what was named. Empty: of none."""
    return "" if candidate.purpose is not Purpose.PAGE else pattern_of(candidate.url)


def landed(pattern: str, before: Yield, is_new: bool, now: float) -> Yield:
    return more(pattern, before, Yield(1, int(is_new), int(not is_new), now))


def more(pattern: str, before: Yield, after: Yield) -> Yield:
    """*after*: what came since, counted from nothing."""
    return Yield(
        # What stands for many patterns has no cap, so its pages are not counted.
        pages=0 if pattern == OTHER else before.pages + after.pages,
        new=before.new + after.new,
        barren=after.barren if after.new else before.barren + after.barren,
        at=after.at,
    )


def tried(before: Yield, now: float) -> Yield:
    return replace(before, at=now)


def is_judge(rules: Budgets) -> bool:
    """Whether *rules* ever stop a pattern."""
    return rules.pattern_max_pages is not None or rules.pattern_barren_pages is not None


def is_full(brought: Yield, rules: Budgets) -> bool:
    return rules.pattern_max_pages is not None and brought.pages >= rules.pattern_max_pages


def is_barren(brought: Yield, rules: Budgets) -> bool:
    return rules.pattern_barren_pages is not None and brought.barren >= rules.pattern_barren_pages


def is_stopped(brought: Yield, rules: Budgets) -> bool:
    return is_full(brought, rules) or is_barren(brought, rules)


def verdict(pattern: str, brought: Yield, rules: Budgets, now: float) -> Go | Stopped:
    if is_full(brought, rules):
        return Stopped(f"pattern {pattern}: {brought.pages} of its pages were fetched, no more are")
    if not is_barren(brought, rules):
        return Go.OPEN
    # A clock that was set back must not leave it for ever.
    if not 0 <= now - brought.at < rules.pattern_probe_s:
        return Go.TRY
    return Stopped(f"pattern {pattern}: nothing new in its last {brought.barren} pages")


def refused(stopped: Stopped) -> Refusal:
    return Refusal(Reason.PATTERN, stopped.reason)
