"""Rounds: how much of a crawl is fetched before the next round begins, and when one is over.

Rule: the times are epoch seconds, and come in. A round is a window of leases: what is over its caps
keeps its place, and waits for the next one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from crawler.model.choices import RoundKind

FLOOR_WINDOW_S: Final = 300.0
"""Over which pages are counted for the floor: as Nutch waits before it looks at its own."""
_FLOOR_LOOK_S: Final = 5.0  # between two looks at them


class RoundEnd(StrEnum):
    """Why a round was over."""

    COUNT = "count"  # as many URLs as it may have
    TIME = "time"
    FLOOR = "floor"  # fewer pages came than its floor
    DRY = "dry"  # nothing more may be fetched in it


ROUND_ENDS: Final = MappingProxyType(
    {
        RoundEnd.COUNT: "as many URLs as it may have were fetched",
        RoundEnd.TIME: "its time is over",
        RoundEnd.FLOOR: "pages came slower than its floor",
        RoundEnd.DRY: "nothing more may be fetched in it",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCaps:
    """What a round may fetch. What is counted are leases of URLs, but for those that are put back
    before their URL is asked for; a robots.txt is not counted."""

    urls: int | None = None
    per_host: int | None = None
    per_domain: int | None = None
    seconds: float | None = None  # from its first lease on
    floor: float | None = None  # pages a second, over FLOOR_WINDOW_S
    kind: RoundKind = RoundKind.BOTH
    rounds: int = 1  # after which the run is over
    # Number and URLs of all are decided elsewhere, for all workers of a crawl.
    are_led: bool = False


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """Where a crawl with rounds is."""

    number: int  # of the round, from 1
    leased: int  # URLs, in the round, by this process
    is_over: bool  # all rounds of the run are
    ended: tuple[RoundEnd, ...] = ()  # why those of this process were
    of_all: int = 0  # URLs that all workers have leased in it
    most: int | None = None  # that they may
    last: int = 0  # number of the last one of the run
    ends_at: float | None = None  # at the latest, epoch seconds; None: that is not said


def progress_of(
    caps: RoundCaps,
    number: int,
    first: int,
    began_at: float,
    of_all: int,
    *,
    leased: int,
    is_over: bool,
    ended: tuple[RoundEnd, ...] = (),
) -> RoundProgress:
    """Return where a run is whose rounds, by *caps*, are those from *first* on; *began_at*: when
    the present one did, 0: it did not yet."""
    return RoundProgress(
        number=number,
        leased=leased,
        is_over=is_over,
        ended=ended,
        of_all=of_all,
        most=caps.urls,
        last=first + caps.rounds - 1,
        ends_at=began_at + caps.seconds if began_at and caps.seconds is not None else None,
    )


@dataclass(slots=True)
class PageRate:
    """The pages of the last FLOOR_WINDOW_S."""

    began_at: float
    _by_second: deque[tuple[int, int]] = field(default_factory=deque)
    _pages: int = 0

    def note_page(self, now: float) -> None:
        """Count a page that has come."""
        self._pages += 1
        second = int(now)
        if self._by_second and self._by_second[-1][0] == second:
            self._by_second[-1] = (second, self._by_second[-1][1] + 1)
        else:
            self._by_second.append((second, 1))

    def pages(self, now: float) -> int:
        """Return how many came within the window."""
        while self._by_second and self._by_second[0][0] < now - FLOOR_WINDOW_S:
            self._pages -= self._by_second.popleft()[1]
        return self._pages

    def is_whole(self, now: float) -> bool:
        """Return whether a whole window is over."""
        return now >= self.began_at + FLOOR_WINDOW_S


def round_end(
    caps: RoundCaps, leased: int, began_at: float, rate: PageRate, now: float
) -> RoundEnd | None:
    """Return why a round is over, of which *leased* URLs were leased since *began_at*; 0: none was
    yet. None: it is not over, as far as these can tell."""
    if caps.urls is not None and leased >= caps.urls:
        return RoundEnd.COUNT
    if not began_at:
        return None
    if caps.seconds is not None and now >= began_at + caps.seconds:
        return RoundEnd.TIME
    is_slow = caps.floor is not None and rate.is_whole(now)
    if is_slow and rate.pages(now) < (caps.floor or 0.0) * FLOOR_WINDOW_S:
        return RoundEnd.FLOOR
    return None


def next_look(caps: RoundCaps, began_at: float, rate: PageRate, now: float) -> float | None:
    """Return when to ask `round_end` again; None: not by time."""
    times = []
    if began_at and caps.seconds is not None:
        times.append(began_at + caps.seconds)
    if began_at and caps.floor is not None:
        times.append(max(rate.began_at + FLOOR_WINDOW_S, now + _FLOOR_LOOK_S))
    return min(times, default=None)
