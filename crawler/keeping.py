"""The archive of one crawl: what is written beside each WARC file, and what a dead process left.

Rule: it begins with the first record, as it needs the loop; what is unfinished is mended before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from time import monotonic

from crawler import rules
from crawler.columns_later import PATIENCE_S, STOPPED_PATIENCE_S, ColumnsLater
from crawler.core.config import Config
from crawler.core.errors import StoreFull
from crawler.reparsing import again
from crawler.scheduler.ports import OrderedStore
from crawler.scheduler.records import OpenRecord
from crawler.storage.columns.companion import SUFFIX as COLUMNS
from crawler.storage.columns.companion import ColumnsCompanion
from crawler.storage.delivery.delivery import Delivery, DeliveryRules
from crawler.storage.delivery.opening import open_store
from crawler.storage.local.datadir import DataDir
from crawler.storage.local.unfinished import Archived, Reading, claim_unfinished, look
from crawler.storage.warc.archive import Archive
from crawler.storage.warc.cdxj import CdxjCompanion
from crawler.storage.warc.companions import Companion, clear
from crawler.storage.warc.recovery import recover
from crawler.storage.warc.writer import WarcWriter

logger = logging.getLogger(__name__)


class Keeping:
    def __init__(self, config: Config, data: DataDir, random: Random) -> None:
        """Mends what is unfinished. Raises CrawlerError."""
        self._config = config
        self._data = data
        self._companions = companions(config)
        self._archive: Archive | None = None
        self.waits_for_room: Callable[[StoreFull], bool] = lambda _: False
        self.delivery = _delivery(config, data, random)
        self._rooms: list[Callable[[], Awaitable[None]]] = []
        if self.delivery is not None:
            self._rooms.append(self.delivery.room)
        self._later = ColumnsLater(data.warc, config) if config.archive.columns else None
        _mend(data.warc, self._companions)
        if self._later is None:  # nobody would ever make them
            clear(data.warc, COLUMNS, also_owed=True)

    def claim_unfinished(self, store: OrderedStore) -> None:
        """Before a frontier opens *store*. Raises CrawlerError."""
        _tell(claim_unfinished(store, self._data.warc, self._reading()))

    def look(self, leases: Iterable[OpenRecord]) -> Archived:
        """What the archive has of *leases* that the last run left open. Raises DataDirError."""
        found = look(leases, self._data.warc, self._reading())
        _tell(len(found.claims))
        return found

    def _reading(self) -> Reading:
        reading = again(self._config)
        return Reading(reading.room, reading.most_bytes, is_all_here=self.delivery is None)

    def begin(self) -> None:
        """Files that an earlier run finished are brought from now on."""
        if self._later is not None:
            self._later.begin()
        if self.delivery is not None:
            self.delivery.begin()

    def archive(self) -> Archive | None:
        """None: the crawl keeps none."""
        if self._archive is None and self._config.archive.warc:
            writer = WarcWriter(rules.warc_rules(self._config, self._data.warc), self._companions)
            self._archive = Archive(writer, self._rooms)
            self._archive.waits_for_room = self.waits_for_room
        return self._archive

    def wait_for(self, room: Callable[[], Awaitable[None]]) -> None:
        """Before each record. To be called before the first."""
        self._rooms.append(room)

    def sync(self) -> None:
        """All records so far survive a power cut. For a thread; raises StoreUnavailable."""
        if self._archive is not None:
            self._archive.sync()

    def unsynced_bytes(self) -> int:
        """Of records."""
        return self._archive.unsynced_bytes if self._archive is not None else 0

    def is_congested(self) -> bool:
        """Finished files wait for their store, and more pages would have to wait too."""
        return self.delivery is not None and self.delivery.is_congested()

    def stopping(self) -> None:
        """What is under way is still archived, however much waits for the store."""
        if self.delivery is not None:
            self.delivery.let_through()

    async def close(self, *, is_finished: bool) -> None:
        """Finish the last files, then bring them; those that cannot be wait for the next run.
        *is_finished*: the crawl is, and nobody waits for its end."""
        try:
            if self._archive is not None:
                await self._archive.close()
        finally:
            if self._later is not None:
                await self._later.close(PATIENCE_S if is_finished else STOPPED_PATIENCE_S)
            if self.delivery is not None:
                await self.delivery.close()


def _delivery(config: Config, data: DataDir, random: Random) -> Delivery | None:
    url = config.archive.archive_url
    if not url:
        return None
    waiting = DeliveryRules(waiting_bytes=config.archive.archive_waiting_bytes)
    return Delivery(data.path, open_store(url, data.path), waiting, random)


def _tell(claimed: int) -> None:
    if claimed:
        logger.info("Archived before the last run ended, and not finished: %d pages", claimed)


def _mend(folder: Path, kept: Sequence[Companion]) -> None:
    began_at = monotonic()
    mended = recover(folder, kept)
    for each in mended:
        logger.warning(
            "%s was left unfinished by a crash, and is whole again: %d records kept, %d bytes"
            " without an end removed",
            each.file,
            each.records,
            each.cut_bytes,
        )
    took_s, read_bytes = monotonic() - began_at, sum(each.kept_bytes for each in mended)
    if read_bytes:
        per_gb_s = took_s * 1e9 / read_bytes
        logger.info("That took %.1f s, or %.0f s for each GB", took_s, per_gb_s)


def companions(config: Config, *, tries_unreadable: bool = False) -> Sequence[Companion]:
    """Of each WARC file of this crawl."""
    columns = []
    if config.archive.columns:
        columns.append(ColumnsCompanion(again(config, tries_unreadable=tries_unreadable)))
    return [CdxjCompanion(), *columns]
