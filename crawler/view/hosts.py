"""Which hosts a query is about: the first of all known ones in some order.

Rule: memory grows with what is asked for, not with the known hosts. All of them are looked at, in
slices, and of most of them only their names and the figure that orders them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crawler.frontier.records import (
    HostFigures,
    HostPlace,
    HostTally,
    decode_figures,
    waiting_of,
)
from crawler.model.types import HostKey, Pace, Standing
from crawler.policy.politeness import PAUSE_AFTER_CHALLENGES, is_left


class HostSort(StrEnum):
    """What orders hosts: the greatest figure first, equal ones by name."""

    WAITING = "waiting"
    NEXT = "next"  # when it may be contacted: the longest rest first
    FAILURES = "failures"
    ADMITTED = "admitted"
    REST = "rest"  # between two fetches: the slowest first
    FETCH = "fetch"  # how long one takes
    PAGES = "pages"
    BYTES = "bytes"
    SUCCESS = "success"  # the share of fetches that did not fail: the worst first
    FAILED = "failed"  # the latest failure first
    END = "end"  # what waits, by its rests: the hosts that hold up the end of the crawl first
    NAME = "name"


class HostFilter(StrEnum):
    """Which hosts are looked at."""

    ALL = ""
    EMPTY = "empty"
    FRONT = "front"
    ACTIVE = "active"
    RESTING = "resting"
    NEW = "new"  # it was never asked
    FAILING = "failing"  # its last fetch failed, and perhaps others before it
    PAUSED = "paused"  # for failures in a row, or as it does not welcome us
    LEFT = "left"  # as it does not welcome us


@dataclass(frozen=True, slots=True)
class HostQuery:
    """*top* hosts after the first *offset*, of those with *match* in their name and, if it is
    given, on *address*, in *state*, whose last failure was of the kind *failure*, "any" of any; or
    *host* alone, if it is known."""

    top: int = 1
    sort: HostSort = HostSort.WAITING
    match: str = ""
    offset: int = 0
    host: HostKey | None = None
    address: str = ""
    state: HostFilter = HostFilter.ALL
    failure: str = ""

    @property
    def is_filtered(self) -> bool:
        """Whether records are to be looked at to know which hosts it is about."""
        return bool(self.address or self.state or self.failure)


ANY_FAILURE: Final = "any"
_LEAST_REST_S: Final = 0.1  # of a host that was never asked: waiting URLs alone order these

_MOST_KEPT: Final = 10_000
"""Hosts beyond twice those asked for that are kept until they are sorted: 1 MB."""


SortFigures = NDArray[np.float64]

_FIGURES: Final[Mapping[HostSort, Callable[[Iterator[HostFigures]], list[float]]]] = {
    HostSort.NEXT: lambda hosts: [each.rest_until for each in hosts],
    HostSort.FAILURES: lambda hosts: [each.pace.failures for each in hosts],
    HostSort.ADMITTED: lambda hosts: [each.admitted for each in hosts],
    HostSort.REST: lambda hosts: [each.pace.gap_s for each in hosts],
    HostSort.FETCH: lambda hosts: [usual_fetch_s(each.pace) for each in hosts],
    HostSort.PAGES: lambda hosts: [each.tally.pages for each in hosts],
    HostSort.BYTES: lambda hosts: [each.tally.bytes for each in hosts],
    HostSort.SUCCESS: lambda hosts: [-success_of(each.tally) for each in hosts],
    HostSort.FAILED: lambda hosts: [each.tally.failed_at for each in hosts],
    HostSort.NAME: lambda hosts: [0.0 for _ in hosts],
}


def figures_of(packed: Sequence[bytes], sort: HostSort) -> SortFigures:
    """Return what orders the hosts with these records, of which there is at least one."""
    if sort is HostSort.WAITING:
        return waiting_of(packed).astype(float)
    if sort is HostSort.END:
        paces = [decode_figures(each).pace for each in packed]
        rests_s = [max(pace.gap_s, pace.crawl_delay_s, _LEAST_REST_S) for pace in paces]
        left_s: SortFigures = waiting_of(packed) * np.array(rests_s)
        return left_s
    return np.array(_FIGURES[sort](map(decode_figures, packed)), float)


def usual_fetch_s(pace: Pace) -> float:
    """Return how long a fetch of the host takes, in the mean of the logarithms; 0: not known."""
    return exp(pace.log_fetch_s) if pace.fetches else 0.0


_NEVER_ASKED: Final = 2.0


def success_of(tally: HostTally) -> float:
    """Return which share of the fetches of a host did not fail; above 1 if there was none."""
    if not tally.fetches:
        return _NEVER_ASKED
    return 1.0 - tally.failures / tally.fetches


_STATES: Final[Mapping[HostFilter, Callable[[HostFigures], bool]]] = {
    HostFilter.EMPTY: lambda host: host.place is HostPlace.EMPTY,
    HostFilter.FRONT: lambda host: host.place is HostPlace.FRONT,
    HostFilter.ACTIVE: lambda host: host.place is HostPlace.ACTIVE,
    HostFilter.RESTING: lambda host: host.place is HostPlace.RESTING,
    HostFilter.NEW: lambda host: host.pace.standing is Standing.NEW,
    HostFilter.FAILING: lambda host: host.pace.failures > 0,
    HostFilter.PAUSED: lambda host: is_paused(host.pace) and not is_left(host.pace),
    HostFilter.LEFT: lambda host: is_left(host.pace),
}


def is_paused(pace: Pace) -> bool:
    """Return whether the host is asked for little, as it fails, or does not welcome us."""
    return pace.pauses > 0 or pace.unwelcome >= PAUSE_AFTER_CHALLENGES


def is_asked_for(query: HostQuery, packed: bytes) -> bool:
    """Return whether the host with this record is one of *query*, but for its name."""
    kind = "" if query.failure == ANY_FAILURE else query.failure
    # Most records are not decoded.
    if query.address.encode() not in packed or kind.encode() not in packed:
        return False
    host = decode_figures(packed)
    return (
        query.address in ("", host.address)
        and (not query.state or _STATES[query.state](host))
        and (not query.failure or bool(host.tally.last_failure))
        and kind in ("", host.tally.last_failure)
    )


class TopHosts:
    """The first of all hosts, or domains, that are added."""

    def __init__(self, top: int, offset: int) -> None:
        """*offset*: how many are left out before the *top* ones."""
        self._offset = offset
        self._needed = offset + top
        self._figures: dict[bytes, float] = {}  # by name: a host may be added more than once
        self._last = (np.inf, b"")  # the rank of the last one needed, if there are so many

    def add(self, names: Sequence[bytes], figures: SortFigures) -> None:
        """Add hosts with the figures that order them."""
        fitting = np.flatnonzero(-figures <= self._last[0])
        for at, figure in zip(fitting.tolist(), figures[fitting].tolist(), strict=True):
            if (-figure, names[at]) < self._last:
                self._figures[names[at]] = figure
        if len(self._figures) > 2 * self._needed + _MOST_KEPT:
            self._drop_others()

    def names(self) -> list[HostKey]:
        """Return the names of the hosts, the first one first."""
        self._drop_others()
        return [HostKey(name.decode()) for name in list(self._figures)[self._offset :]]

    def _drop_others(self) -> None:
        ranked = sorted((-figure, name) for name, figure in self._figures.items())[: self._needed]
        self._figures = {name: -figure for figure, name in ranked}
        if len(ranked) == self._needed:
            self._last = ranked[-1]
