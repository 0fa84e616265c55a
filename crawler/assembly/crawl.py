"""One crawl as one value: its parts in groups, for the edges to Scrapy.

Rule: it is complete when `crawler.assembly.build` has built it, and nothing is set on it later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from crawler.archive.earlier_crawls import EarlierCrawls
from crawler.archive.replay import Replay
from crawler.config.arguments import Arguments
from crawler.config.settings import Config
from crawler.content.body_memory import BodyMemory
from crawler.content.cohorts import Cohorts
from crawler.content.crawl_archive import CrawlArchive
from crawler.content.parsing import Parsers
from crawler.content.preference_sources import PreferenceSources
from crawler.content.to_capture import ArchivedBodies
from crawler.data.allowed_origins import AllowedOrigins
from crawler.data.changes import ConsumerWatch
from crawler.data.data_dir import DataDir
from crawler.data.disk_room import DiskRoom
from crawler.data.frontier_work import FrontierWork
from crawler.data.operator_files import Credentials, OperatorStore
from crawler.data.outcomes import OutcomeLog
from crawler.duplicates.exact import Duplicates
from crawler.duplicates.near import NearDuplicatesIndex
from crawler.engine.errors import CodeFaults
from crawler.engine.lifecycle import Lifecycle
from crawler.engine.stats import CrawlStats
from crawler.engine.web_bot_auth import RequestSigner
from crawler.frontier.groups import LateAddresses
from crawler.frontier.port import Frontier
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.loop.loop import Loop
from crawler.model.clock import Clock
from crawler.model.page import DownloadOptions
from crawler.model.types import StoreUnavailable
from crawler.page.challenge import Signatures
from crawler.policy.body_caps import cap_bytes

if TYPE_CHECKING:  # only a shared crawl imports it: 30 ms
    from crawler.shared.owned.worker import OwnedWorker
    from crawler.shared.worker.names import SharedNames
    from crawler.urlfrontier.remote_frontier import RemoteFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """The settings and the arguments of the spider."""

    config: Config
    arguments: Arguments | None  # None: the spider's own code makes the start requests
    ends_at: float | None = None  # epoch seconds, at the latest; None: that is not said


@dataclass(frozen=True, slots=True)
class EmbeddedFrontier:
    """A frontier in the data directory, and the work beside its calls."""

    frontier: TwoTierFrontier
    work: FrontierWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The frontier, and where it is."""

    frontier: Frontier
    clock: Clock
    put_back_count: int  # how many leases of the last run were put back
    embedded: EmbeddedFrontier | None  # the same frontier, if it is in the data directory
    shared: OwnedWorker | None  # the same frontier, if workers share it
    remote: RemoteFrontier | None  # the same frontier, if its URLs are in a URL Frontier
    addresses: LateAddresses | None  # by which it groups hosts; None: it does not

    @property
    def own_frontier(self) -> TwoTierFrontier | None:
        """What this process leases from: all of the frontier, or the shards of this worker. None:
        it leases from a URL Frontier."""
        if self.shared is not None:
            return self.shared.frontier.frontier
        return self.embedded.frontier if self.embedded is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The parts that decide which URLs may be fetched."""

    allowed_origins: AllowedOrigins
    credentials: Credentials  # that the operator's rules name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """The parts that fetches share."""

    signatures: Signatures  # of challenges
    most_connections: int  # open at once, idle ones among them
    body_memory: BodyMemory
    cohorts: Cohorts
    replay: Replay | None  # None: pages are fetched from the network
    faults: CodeFaults
    signer: RequestSigner | None  # None: requests are not signed
    shared_names: SharedNames | None  # what name servers said to other workers, if it is shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The parsers of pages, and the lookup of duplicates."""

    parsers: Parsers
    duplicates: Duplicates
    near_duplicates: NearDuplicatesIndex
    earlier: EarlierCrawls | None  # whose records count as originals; None: none are given
    archived_bodies: ArchivedBodies
    preferences: PreferenceSources


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The parts that write to the data directory."""

    data: DataDir
    store: RocksStore
    outcomes: OutcomeLog
    archive: CrawlArchive  # the archive, and the syncs that pages wait for
    room: DiskRoom
    consumers: ConsumerWatch | None  # of the change feed; None: there is none

    @property
    def waits_for_consumer(self) -> bool:
        """Whether nothing may be leased until a consumer of the change feed has taken more."""
        return self.consumers is not None and self.consumers.is_behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """All parts of a crawl. `close` unlocks the data directory."""

    settings: UserSettings
    loop: Loop
    leases: Leases
    selection: Selection
    fetching: Fetching
    content: Contents
    storage: Storage
    stats: CrawlStats
    lifecycle: Lifecycle
    operator_store: OperatorStore  # the rules, and the audit

    def download_options(self) -> DownloadOptions:
        fetch = self.settings.config.fetch
        return DownloadOptions(
            cap=partial(cap_bytes, caps=fetch),
            admits=self.selection.allowed_origins.admits,
            tls=fetch.tls,
            connect_timeout_s=fetch.connect_timeout_s,
            total_timeout_s=fetch.total_timeout_s,
            min_delay_s=self.settings.config.politeness.min_delay_s,
            most_connections=self.fetching.most_connections,
            may_have_gone=self.storage.archive.expired.may_have,
        )

    def begin(self) -> None:
        """Start the background work, when the event loop runs."""
        self.stats.begin(self.leases.clock.now())
        self.storage.archive.begin()
        if self.storage.consumers is not None:
            self.storage.consumers.begin()
        embedded, shared = self.leases.embedded, self.leases.shared
        if embedded is not None:
            embedded.work.begin(embedded.frontier, self.leases.clock.now)
        if shared is not None:
            shared.begin()
        if self.leases.remote is not None:
            self.leases.remote.begin()

    def begin_stop(self) -> None:
        """Take no more leases. Called when the engine begins to wait for requests under way."""
        self.storage.archive.allow_last_pages()
        self.storage.room.stop_waiting()
        self.loop.bundles.give_back_all(self.leases.clock.now())
        if self.leases.shared is not None:
            self.leases.shared.stop_leasing()
        if self.leases.remote is not None:
            self.leases.remote.stop_leasing()
        self.lifecycle.note_stopping()

    async def close(self, *, is_finished: bool) -> None:
        """Close all parts. *is_finished*: nothing is left to fetch."""
        self.lifecycle.note_closing()
        try:
            if self.storage.consumers is not None:
                await self.storage.consumers.close()
            await self.content.parsers.close()
            try:
                await self.storage.archive.close(is_finished=is_finished)
            except StoreUnavailable as error:
                self.lifecycle.fail(error)  # the next start finishes its files
            if self.leases.embedded is not None:
                await self.leases.embedded.work.close()
            if self.leases.shared is not None:
                await self.leases.shared.close()
            if self.leases.remote is not None:
                await self.leases.remote.close()
        finally:
            self.abandon()
            self.stats.hand_over()

    def abandon(self) -> None:
        """Unlock the data directory of a crawl that is over, or never began."""
        self.storage.outcomes.close()
        if self.storage.consumers is not None:
            self.storage.consumers.feed.close()
        self.content.near_duplicates.close()
        if self.content.earlier is not None:
            self.content.earlier.close()
        self.storage.store.close()
        self.storage.data.close()
