"""Which hosts a query is about: the first of all known ones in some order.

Rule: memory grows with what is asked for, not with the known hosts. All of them are looked at, in
slices, and of most of them only their names and the figure that orders them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crawler.frontier.records import HostFigures, decode_figures, waiting_of
from crawler.model.types import HostKey


class HostSort(StrEnum):
    """What orders hosts: the greatest figure first, equal ones by name."""

    WAITING = "waiting"
    NEXT = "next"  # when it may be contacted: the longest rest first
    FAILURES = "failures"
    ADMITTED = "admitted"
    REST = "rest"  # between two fetches: the slowest first
    NAME = "name"


@dataclass(frozen=True, slots=True)
class HostQuery:
    """*top* hosts after the first *offset*, of those with *match* in their name and, if it is
    given, on *address*; or *host* alone, if it is known."""

    top: int = 1
    sort: HostSort = HostSort.WAITING
    match: str = ""
    offset: int = 0
    host: HostKey | None = None
    address: str = ""


_MOST_KEPT: Final = 10_000
"""Hosts beyond twice those asked for that are kept until they are sorted: 1 MB."""


SortFigures = NDArray[np.float64]

_FIGURES: Final[Mapping[HostSort, Callable[[Iterator[HostFigures]], list[float]]]] = {
    HostSort.NEXT: lambda hosts: [each.rest_until for each in hosts],
    HostSort.FAILURES: lambda hosts: [each.pace.failures for each in hosts],
    HostSort.ADMITTED: lambda hosts: [each.admitted for each in hosts],
    HostSort.REST: lambda hosts: [each.pace.gap_s for each in hosts],
    HostSort.NAME: lambda hosts: [0.0 for _ in hosts],
}


def figures_of(packed: Sequence[bytes], sort: HostSort) -> SortFigures:
    """Return what orders the hosts with these records, of which there is at least one."""
    if sort is HostSort.WAITING:
        return waiting_of(packed).astype(float)
    return np.array(_FIGURES[sort](map(decode_figures, packed)), float)


def is_at(address: str, packed: bytes) -> bool:
    """Return whether the host with this record was fetched from *address* last."""
    return address.encode() in packed and decode_figures(packed).address == address


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
