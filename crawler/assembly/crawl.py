"""The parts of one crawl, as one value: what the edges ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

from crawler.archive.replay import Replay
from crawler.archive.writer import Archive
from crawler.config.settings import Arguments, Config
from crawler.content.crawl_archive import Keeping
from crawler.content.parsing import Parsers
from crawler.crawl.allowed_origins import Doors
from crawler.crawl.body_memory import BodyMemory
from crawler.crawl.clock import Clock
from crawler.crawl.group_commit import GroupCommit
from crawler.crawl.in_flight import Flights, Landing
from crawler.crawl.lifecycle import Lifecycle
from crawler.crawl.precheck import Clearance, Probes
from crawler.crawl.slots import Slots
from crawler.crawl.stats import Tally
from crawler.data.data_dir import DataDir
from crawler.data.outcomes import OutcomeLog
from crawler.duplicates.exact import Duplicates
from crawler.duplicates.near import Nearest
from crawler.frontier.port import Frontier
from crawler.frontier.rocks_store import RocksStore
from crawler.model.page import DownloadOptions
from crawler.model.types import PutBack
from crawler.policy.media_type import cap_bytes
from crawler.policy.patterns import Yields
from crawler.policy.politeness import Uplink
from crawler.policy.priority import Prioritizer
from crawler.policy.robots_cache import RobotsCache
from crawler.shared.worker.frontier import SharedFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one crawl. Closed by `close`, which gives the data directory free."""

    config: Config
    arguments: Arguments | None  # of a spider that has seeds
    random: Random
    data: DataDir
    store: RocksStore
    frontier: Frontier
    put_back_at_open: int  # leases of the last run
    clock: Clock
    doors: Doors
    prioritizer: Prioritizer
    robots: RobotsCache
    clearance: Clearance
    uplink: Uplink
    flights: Flights
    slots: Slots
    landing: Landing
    commits: GroupCommit | None  # None: no page waits for a sync
    body_memory: BodyMemory
    digests: Duplicates
    nearest: Nearest
    parsers: Parsers
    probes: Probes
    keeping: Keeping
    yields: Yields
    outcomes: OutcomeLog
    tally: Tally
    lifecycle: Lifecycle
    shared: SharedFrontier | None = None  # None: the frontier is embedded
    replay: Replay | None = None  # None: the network is asked

    def archive(self) -> Archive | None:
        """None: the crawl keeps none."""
        return self.keeping.archive()

    def download_options(self) -> DownloadOptions:
        fetch = self.config.fetch
        return DownloadOptions(
            cap=partial(cap_bytes, caps=fetch),
            admits=self.doors.admits,
            begin_or_put_back=self.begin_or_put_back,
            tls=fetch.tls,
            connect_timeout_s=fetch.connect_timeout_s,
            total_timeout_s=fetch.total_timeout_s,
        )

    def begin_or_put_back(self, lease: object) -> bool:
        """Whether a host may be asked under *lease* still. If not, its flight is told so, and its
        URL is put back when it lands."""
        flight = self.flights.of(lease)
        if flight is None or self.frontier.may_begin(flight.lease):
            return True
        flight.verdict = PutBack()
        flight.begun = self.clock.now()  # its host was not kept busy by us, however long we stood
        return False

    def begin(self) -> None:
        """The loop runs: what works in the background begins."""
        self.keeping.begin()
        if self.shared is not None:
            self.shared.begin()

    def stopping(self) -> None:
        """The engine begins to wait for what is under way: nothing else is begun."""
        self.keeping.stopping()
        if self.shared is not None:
            self.shared.stopping()
        self.lifecycle.stopping()

    async def close(self, *, is_finished: bool) -> None:
        """*is_finished*: there is nothing left to fetch."""
        self.lifecycle.closing()
        try:
            await self.parsers.close()
            await self.keeping.close(is_finished=is_finished)
            if self.shared is not None:
                await self.shared.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the data directory free: the crawl is over, or never began."""
        self.outcomes.close()
        self.nearest.close()
        self.store.close()
        self.data.close()
