"""What can be seen of a frontier: hosts and dead letters, as values to be printed.

Rule: bounded memory, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from itertools import islice

import msgspec

from crawler.core.errors import ConfigError
from crawler.core.types import Counts, HostKey
from crawler.scheduler.records import HostRecord
from crawler.storage.local.datadir import holder
from crawler.storage.local.inspection import Inspection


class FrontierLook(msgspec.Struct, frozen=True):
    """All of it."""

    counts: Counts
    process: int | None  # of the crawl at work
    data_dir: str


class HostLook(msgspec.Struct, frozen=True):
    """One host."""

    host: str
    waiting: int  # URLs
    place: str  # empty | front | active | resting
    next_at: float  # epoch seconds; it may be contacted from then on
    gap_s: float  # the last rest it was given
    crawl_delay_s: float
    failures: int  # in a row
    pauses: int  # in a row
    admitted: int  # URLs, ever


class DeadLook(msgspec.Struct, frozen=True):
    """One dead letter."""

    url: str
    reason: str
    at: float  # epoch seconds
    attempts: int
    depth: int


def whole(inspection: Inspection) -> FrontierLook:
    return FrontierLook(inspection.counts(), holder(inspection.path), str(inspection.path))


def busiest(inspection: Inspection, top: int) -> list[HostLook]:
    """The *top* hosts by waiting URLs."""
    found = nlargest(top, inspection.hosts(), key=lambda pair: pair[1].waiting())
    return [_host(name, record) for name, record in found]


def one_host(inspection: Inspection, name: str) -> HostLook:
    """Raises ConfigError if the frontier does not know it."""
    host = HostKey(name.lower())
    record = inspection.host(host)
    if record is None:
        raise ConfigError(f"the frontier knows no host {name}")
    return _host(host, record)


def dead(inspection: Inspection, limit: int) -> Iterator[DeadLook]:
    """The oldest first."""
    for _, letter in islice(inspection.dead(), limit):
        url = letter.candidate
        yield DeadLook(url.url, letter.reason, letter.at, url.attempts, url.depth)


def _host(name: HostKey, record: HostRecord) -> HostLook:
    return HostLook(
        host=name,
        waiting=record.waiting(),
        place=record.place.name.lower(),
        next_at=record.rest_until,
        gap_s=record.pace.gap_s,
        crawl_delay_s=record.pace.crawl_delay_s,
        failures=record.pace.failures,
        pauses=record.pace.pauses,
        admitted=record.admitted,
    )
