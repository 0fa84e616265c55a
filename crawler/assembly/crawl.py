"""One crawl, as one value: what the edges ask for, in groups.

Rule: whole when it is built (`crawler.assembly.build`), and nothing is set on it later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

from crawler.archive.replay import Replay
from crawler.config.settings import Arguments, Config
from crawler.content.crawl_archive import CrawlArchive
from crawler.content.parsing import Parsers
from crawler.crawl.allowed_origins import AllowedOrigins
from crawler.crawl.body_memory import BodyMemory
from crawler.crawl.clock import Clock
from crawler.crawl.in_flight import Completion, InFlight
from crawler.crawl.lifecycle import Lifecycle
from crawler.crawl.precheck import Precheck, Probes
from crawler.crawl.slots import Slots
from crawler.crawl.stats import CrawlStats
from crawler.data.data_dir import DataDir
from crawler.data.outcomes import OutcomeLog
from crawler.duplicates.exact import Duplicates
from crawler.duplicates.near import Nearest
from crawler.frontier.port import Frontier
from crawler.frontier.rocks_store import RocksStore
from crawler.model.page import DownloadOptions
from crawler.model.types import PutBack
from crawler.policy.media_type import cap_bytes
from crawler.policy.patterns import PatternStatsStore
from crawler.policy.politeness import Uplink
from crawler.policy.priority import Prioritizer
from crawler.policy.robots_cache import RobotsCache
from crawler.shared.worker.frontier import SharedFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the user has chosen."""

    config: Config
    arguments: Arguments | None  # of a spider that has seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Where URLs come from, what has become of those that were taken, and how they end."""

    frontier: Frontier
    clock: Clock
    flights: InFlight
    landing: Completion
    put_back: int  # leases of the last run
    shared: SharedFrontier | None  # the frontier itself, if other workers share it

    def begin_or_put_back(self, lease: object) -> bool:
        """Whether a host may be asked under *lease* still. If not, its flight is told so, and its
        URL is put back when it lands."""
        flight = self.flights.of(lease)
        if flight is None or self.frontier.may_begin(flight.lease):
            return True
        flight.verdict = PutBack()
        flight.begun = self.clock.now()  # its host was not kept busy by us, however long we stood
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which URLs may be fetched, and which come first."""

    doors: AllowedOrigins
    prioritizer: Prioritizer
    robots: RobotsCache
    probes: Probes
    clearance: Precheck  # of a lease, by what is known of its robots.txt, pattern and probes
    yields: PatternStatsStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What fetches share."""

    slots: Slots
    body_memory: BodyMemory
    uplink: Uplink
    random: Random  # of retries
    replay: Replay | None  # None: the network is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What pages say, and whether it is stored already."""

    parsers: Parsers
    digests: Duplicates
    nearest: Nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What is written to the data directory."""

    data: DataDir
    store: RocksStore
    outcomes: OutcomeLog
    keeping: CrawlArchive  # the archive, and the syncs that pages wait for


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """Closed by `close`, which gives the data directory free."""

    settings: Given
    leases: Leases
    admission: Selection
    fetching: Fetching
    content: Contents
    storage: Storage
    tally: CrawlStats
    lifecycle: Lifecycle

    def download_options(self) -> DownloadOptions:
        fetch = self.settings.config.fetch
        return DownloadOptions(
            cap=partial(cap_bytes, caps=fetch),
            admits=self.admission.doors.admits,
            begin_or_put_back=self.leases.begin_or_put_back,
            tls=fetch.tls,
            connect_timeout_s=fetch.connect_timeout_s,
            total_timeout_s=fetch.total_timeout_s,
        )

    def begin(self) -> None:
        """The loop runs: what works in the background begins."""
        self.storage.keeping.begin()
        if self.leases.shared is not None:
            self.leases.shared.begin()

    def stopping(self) -> None:
        """The engine begins to wait for what is under way: nothing else is begun."""
        self.storage.keeping.stopping()
        if self.leases.shared is not None:
            self.leases.shared.stopping()
        self.lifecycle.stopping()

    async def close(self, *, is_finished: bool) -> None:
        """*is_finished*: there is nothing left to fetch."""
        self.lifecycle.closing()
        try:
            await self.content.parsers.close()
            await self.storage.keeping.close(is_finished=is_finished)
            if self.leases.shared is not None:
                await self.leases.shared.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the data directory free: the crawl is over, or never began."""
        self.storage.outcomes.close()
        self.content.nearest.close()
        self.storage.store.close()
        self.storage.data.close()
