"""Which URLs of a host look as if one program made them: the pattern they have in common.

Rule: what counts up is folded (numbers, dates, ids, the values of a query), what names is kept.
When in doubt it is a name: a pattern too fine costs a host some pages more, one too coarse would
leave the rest of a whole host with the first hundred copies on it.
"""

from __future__ import annotations

import re
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
from crawler.policy.scope import Reason, Refusal

MOST_CHARS: Final = 200
"""Of a pattern. A longer one is cut, and told from its like by a hash."""

# A fetch form holds neither "#" nor "<", so in a pattern they can only be ours.
NUMBER: Final = "#"
ID: Final = "<id>"

_HASH_CHARS: Final = 16
_has_digit: Final = re.compile("[0-9]").search
# Each begins at the beginning of a word, or a long one would be tried from all its letters.
_ids: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"  # a UUID
    r"|(?=[A-Fa-f]*+[0-9])(?=[0-9]*+[A-Fa-f])[0-9A-Fa-f]{8,}+"  # a hash or a part of one
    r"|(?=[A-Za-z]*+[0-9])[0-9A-Za-z]{22,}+"  # 128 bits in base 64: of a session, mostly
    r")(?![0-9A-Za-z])"
)
# Digits beside letters: only words that have them can be any of these.
_may_have_ids: Final = re.compile(r"[0-9](?:(?=[A-Za-z])|(?<=[A-Za-z][0-9]))").search
_numbers: Final = re.compile("[0-9]+")
_numbers_of_escaped: Final = re.compile(r"(?<!%)(?<!%[0-9A-Fa-f])[0-9]+")  # %C3 stays as it is
# What was x7Gk29a: no word has numbers in two places.
_mixed: Final = re.compile(r"(?<![A-Za-z#])[A-Za-z]*+#[A-Za-z]++#[A-Za-z#]*+")


def pattern_of(url: str) -> str:
    """The pattern of a fetch form, without its host. Empty: nothing in it is folded, so it is the
    only URL of its pattern."""
    path, _, query = url[url.index("/", 8) :].partition("?")  # 8: past "http://" and into the host
    folded = _folded(path)
    if query:
        keys = {_folded(pair.partition("=")[0]) for pair in query.split("&")}
        folded = f"{folded}?{'&'.join(sorted(filter(None, keys)))}"
    elif folded == path:
        return ""
    return folded if len(folded) <= MOST_CHARS else _cut(folded)


def _folded(text: str) -> str:
    if not _has_digit(text):
        return text
    numbers = _numbers_of_escaped if "%" in text else _numbers
    if not _may_have_ids(text):
        return numbers.sub(NUMBER, text)
    return _mixed.sub(ID, numbers.sub(NUMBER, _ids.sub(ID, text)))


def _cut(pattern: str) -> str:
    # Names in other scripts are long: nine characters of escapes each of theirs.
    told = xxhash.xxh3_64_hexdigest(pattern.encode())
    return f"{pattern[: MOST_CHARS - _HASH_CHARS - 1]}~{told}"


# Whether more URLs of one pattern are worth a visit: by what those before have brought.
#
# Rule: a pattern is left when so many pages in a row brought nothing new; then one is tried now and
# then, and a new page opens it again. At its cap it is left for good. What a person named (a seed,
# a
# request of a spider) is fetched in any case.


class PatternStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the URLs of one pattern of a host have brought."""

    pages: int = 0  # fetched; errors and redirects are none
    new: int = 0  # of these, with content that nobody had
    barren: int = 0  # in a row, with nothing new
    at: float = 0.0  # epoch seconds: when the last of them landed, or one was tried


class FetchIt(Enum):
    """Fetch it."""

    OPEN = auto()
    TRY = auto()  # its pattern was left a while ago


@dataclass(frozen=True, slots=True)
class PatternStopped:
    """Leave it, and why in words."""

    reason: str


class PatternStatsStore(Protocol):
    """What all patterns of a crawl have brought. Nothing waits: who knows nothing says OPEN."""

    def of(self, candidate: Candidate, now: float) -> FetchIt | PatternStopped:
        """Asked when its lease is taken."""

    def trying(self, candidate: Candidate, now: float) -> None:
        """Its fetch begins, as TRY said it may: the next one waits."""

    def has_stopped(self, host: HostKey) -> bool:
        """Whether any pattern of *host* is known to have stopped: else no link is refused."""

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        """Asked when a link is found: is its pattern known to have stopped?"""

    def note(self, candidate: Candidate, is_new: bool, now: float) -> None:
        """Its page has landed."""


NOTHING: Final = PatternStats()
OTHER: Final = "<other>"
"""Stands for all further patterns of a host that has too many of them."""


def judged_pattern(candidate: Candidate) -> str:
    """The pattern that decides about *candidate*. Empty: none does."""
    named = candidate.depth == 0 or candidate.request
    return "" if named or candidate.purpose is not Purpose.PAGE else pattern_of(candidate.url)


def noted_pattern(candidate: Candidate) -> str:
    """The pattern that its page counts for: also of what was named. Empty: of none."""
    return "" if candidate.purpose is not Purpose.PAGE else pattern_of(candidate.url)


def stats_after(pattern: str, before: PatternStats, is_new: bool, now: float) -> PatternStats:
    return more(pattern, before, PatternStats(1, int(is_new), int(not is_new), now))


def more(pattern: str, before: PatternStats, after: PatternStats) -> PatternStats:
    """*after*: what came since, counted from nothing."""
    return PatternStats(
        # What stands for many patterns has no cap, so its pages are not counted.
        pages=0 if pattern == OTHER else before.pages + after.pages,
        new=before.new + after.new,
        barren=after.barren if after.new else before.barren + after.barren,
        at=after.at,
    )


def tried(before: PatternStats, now: float) -> PatternStats:
    return replace(before, at=now)


def is_judge(rules: PatternSettings) -> bool:
    """Whether *rules* ever stop a pattern."""
    return rules.pattern_max_pages is not None or rules.pattern_barren_pages is not None


def is_full(brought: PatternStats, rules: PatternSettings) -> bool:
    return rules.pattern_max_pages is not None and brought.pages >= rules.pattern_max_pages


def is_barren(brought: PatternStats, rules: PatternSettings) -> bool:
    return rules.pattern_barren_pages is not None and brought.barren >= rules.pattern_barren_pages


def is_stopped(brought: PatternStats, rules: PatternSettings) -> bool:
    return is_full(brought, rules) or is_barren(brought, rules)


def verdict(
    pattern: str, brought: PatternStats, rules: PatternSettings, now: float
) -> FetchIt | PatternStopped:
    if is_full(brought, rules):
        return PatternStopped(
            f"pattern {pattern}: {brought.pages} of its pages were fetched, no more are"
        )
    if not is_barren(brought, rules):
        return FetchIt.OPEN
    # A clock that was set back must not leave it for ever.
    if not 0 <= now - brought.at < rules.pattern_probe_s:
        return FetchIt.TRY
    return PatternStopped(f"pattern {pattern}: nothing new in its last {brought.barren} pages")


def refused(stopped: PatternStopped) -> Refusal:
    return Refusal(Reason.PATTERN, stopped.reason)
