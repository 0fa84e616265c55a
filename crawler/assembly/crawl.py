"""The parts of one crawl, as one value: what the edges ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
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
from crawler.crawl.precheck import Clearance, Probes
from crawler.crawl.slots import Slots
from crawler.crawl.stats import Tally
from crawler.data.data_dir import DataDir
from crawler.data.outcomes import OutcomeLog
from crawler.duplicates.exact import Duplicates
from crawler.duplicates.near import Nearest
from crawler.frontier.port import Frontier
from crawler.frontier.rocks_store import RocksStore
from crawler.model.page import DownloadOptions, Exchanges
from crawler.model.types import CrawlerError, PutBack
from crawler.policy.media_type import cap_bytes
from crawler.policy.patterns import Yields
from crawler.policy.politeness import Uplink
from crawler.policy.priority import Prioritizer
from crawler.policy.robots_cache import RobotsCache
from crawler.shared.worker.frontier import SharedFrontier

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
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
    exchanges: Exchanges
    body_memory: BodyMemory
    digests: Duplicates
    nearest: Nearest
    parsers: Parsers
    probes: Probes
    keeping: Keeping
    yields: Yields
    outcomes: OutcomeLog
    tally: Tally
    stop_crawl: Callable[[str], None]  # end it in good order, for this reason
    on_stop: list[Callable[[], None]] = field(default_factory=list)  # end what is under way
    is_stopping: bool = False  # what is under way comes to its end, and nothing is begun
    is_closed: bool = False  # nothing may be added: the stores close
    failure: CrawlerError | None = None
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

    def fail(self, error: CrawlerError) -> None:
        """A store has failed us: stop in good order. What was acknowledged is safe."""
        if self.failure is None:
            self.failure = error
            logger.error("The crawl stops: %s", error)
            self.stop_crawl("store_failed")

    def begin(self) -> None:
        """The loop runs: what works in the background begins."""
        self.keeping.begin()
        if self.shared is not None:
            self.shared.begin()

    async def close(self, *, is_finished: bool) -> None:
        """*is_finished*: there is nothing left to fetch."""
        self.is_closed = True
        try:
            await self.parsers.close()
            if self.commits is not None:
                await self.commits.close()
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
