"""What can be seen of a crawl: hosts, dead letters and workers, as values to be printed.

Rule: bounded memory, however many hosts and letters there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from crawler.core.errors import ConfigError
from crawler.core.types import Counts, HostKey
from crawler.storage.inspection import HostState, Inspection
from crawler.storage.redis.visit.workers import is_alive
from crawler.storage.redis.worker_record import WorkerSaid


class FrontierLook(msgspec.Struct, frozen=True):
    """All of it."""

    counts: Counts
    process: int | None  # of the crawl at work
    data_dir: str
    arguments: dict[str, str] = {}  # of the spider's last start


class SharedLook(msgspec.Struct, frozen=True):
    """All of one that workers share."""

    counts: Counts
    where: str  # in words
    workers: int  # alive
    outbox: int  # links on the disks of workers, alive or not
    arguments: dict[str, str] = {}  # of the spider's last start


class HostLook(msgspec.Struct, frozen=True):
    """One host."""

    host: str
    waiting: int  # URLs
    place: str  # empty | front | active | leased | resting
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


class WorkerLook(msgspec.Struct, frozen=True):
    """One worker of a shared crawl, as it said last."""

    name: str
    host: str  # the machine
    pid: int
    state: str  # starting | working | stopping | silent
    pages: int
    pages_per_s: float  # since it started; 0: its clock is not the server's
    bytes: int
    errors: int
    leases: int
    outbox: int  # links on its disk
    preferred: int  # shards
    heard_at: float  # epoch seconds


def busiest(inspection: Inspection, top: int) -> list[HostLook]:
    """The *top* hosts by waiting URLs."""
    return [_host(state) for state in inspection.busiest(top)]


def one_host(inspection: Inspection, name: str) -> HostLook:
    """Raises ConfigError if the frontier does not know it."""
    state = inspection.host(HostKey(name.lower()))
    if state is None:
        raise ConfigError(f"the frontier knows no host {name}")
    return _host(state)


def dead(inspection: Inspection, limit: int) -> Iterator[DeadLook]:
    """The oldest first."""
    for letter in inspection.oldest_dead(limit):
        url = letter.candidate
        yield DeadLook(url.url, letter.reason, letter.at, url.attempts, url.depth)


def workers(everybody: Sequence[WorkerSaid], now: float) -> list[WorkerLook]:
    return [_worker(said, now) for said in everybody]


def _host(state: HostState) -> HostLook:
    return HostLook(
        host=state.host,
        waiting=state.waiting,
        place=state.place,
        next_at=state.rest_until,
        gap_s=state.pace.gap_s,
        crawl_delay_s=state.pace.crawl_delay_s,
        failures=state.pace.failures,
        pauses=state.pace.pauses,
        admitted=state.admitted,
    )


def _worker(said: WorkerSaid, now: float) -> WorkerLook:
    ran_s = said.at - said.started
    return WorkerLook(
        name=said.name,
        host=said.host,
        pid=said.pid,
        state=said.state if is_alive(said, now) else "silent",
        pages=said.pages,
        pages_per_s=said.pages / ran_s if ran_s > 0 else 0.0,
        bytes=said.bytes,
        errors=said.errors,
        leases=said.leases,
        outbox=said.outbox,
        preferred=said.preferred,
        heard_at=said.at,
    )
