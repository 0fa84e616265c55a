"""The archive of one crawl: its writer, companions, recovery, delivery and columns rebuild.

Rule: unfinished files are recovered at the start. The writer is created with the first record,
because it needs the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic, time
from typing import TYPE_CHECKING, Final

import msgspec

from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.columns_companion import CRAWL_ID, SUFFIX, ColumnsCompanion
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery import Delivery, DeliveryLimits
from crawler.archive.delivery_stores import local_store, open_store
from crawler.archive.expire import ExpiredFiles, ExpiryWork, Retention, read_expired
from crawler.archive.recovery import (
    ArchivedAnswers,
    ReadingLimits,
    claim_unfinished,
    find_archived_answers,
    recover,
    unfinished_files,
)
from crawler.archive.warc_file import (
    Companion,
    companion_path,
    is_missing,
    missing_companions,
    remove_unfinished_companions,
)
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.config.settings import Config
from crawler.content.columns_rebuild_child import (
    BodyCaps,
    RebuildJob,
    RebuiltFile,
)
from crawler.content.group_commit import GroupCommit
from crawler.content.parsing import rebuild_settings
from crawler.data.changes import ChangeFeed
from crawler.data.data_dir import OUTCOMES, DataDir
from crawler.engine.lifecycle import Lifecycle
from crawler.engine.long_steps import long_step
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import OpenRecord
from crawler.model.program import PROGRAM
from crawler.model.types import VERSION, ConfigError, CrawlerError, StoreUnavailable, WaitsForRoom

if TYPE_CHECKING:
    from crawler.archive.outcome_table import OutcomeTable

logger = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 10.0  # the interval at which missing columns files are looked for
REBUILD_WAIT_S: Final = 600.0  # at the end of a crawl that has finished: 3 GB (guess, revisit)
STOPPED_REBUILD_WAIT_S: Final = 5.0  # at the end of a crawl that was stopped: a user waits
_NAMED: Final = 5  # files in a message


class ColumnsRebuild:
    """Makes the columns files that a crash or a full disk left missing, from `begin` to `close`.

    A child process with low priority makes them, so neither the start nor the fetching waits. What
    is not made at the end stays marked for the next start.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self._folder = folder
        self._config = config
        self._tried: set[Path] = set()
        self._ending = threading.Event()  # set: make the files now missing, then end
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # around its start and its end
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name="columns", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The id of the last process, or None if there was none."""
        return self._process.pid if self._process is not None else None

    async def close(self, patience_s: float) -> list[Path]:
        """Wait for the rebuild for at most *patience_s*. Returns the WARC files that still lack
        columns."""
        self._ending.set()
        until = monotonic() + patience_s
        if self._thread.is_alive() and missing_companions(self._folder, SUFFIX):
            logger.info("Writing the last columns files, for %.0f s at most", patience_s)
        while self._thread.is_alive() and monotonic() < until:
            await asyncio.sleep(0.02)
        self._end()
        left = missing_companions(self._folder, SUFFIX)
        self._log_left(left)
        return left

    def _work(self) -> None:
        while True:
            is_last = self._ending.is_set()
            self._rebuild(
                [
                    warc
                    for warc in missing_companions(self._folder, SUFFIX)
                    if warc not in self._tried
                ]
            )
            if is_last:
                return
            self._ending.wait(POLL_INTERVAL_S)

    def _rebuild(self, warcs: Sequence[Path]) -> None:
        process = self._start_process() if warcs else None
        if process is None or process.stdin is None or process.stdout is None:
            return
        self._tried.update(warcs)
        names = ", ".join(warc.name for warc in warcs[:_NAMED])
        logger.info("Writing the columns of %d files in the background: %s", len(warcs), names)
        try:
            process.stdin.write(msgspec.json.encode(self._job(warcs)) + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                _log_rebuilt(msgspec.json.decode(line, type=RebuiltFile))
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("The process that makes columns: %s", error)
        finally:
            process.kill()
            status = process.wait()
            process.stdout.close()
            process.stdin.close()
        if status and not self._is_over:
            logger.warning("The process that makes columns ended with status %d", status)

    def _start_process(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_over:
                return None
            try:
                self._process = subprocess.Popen(  # our own interpreter and module only
                    [sys.executable, "-P", "-m", "crawler.content.columns_rebuild_child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": _path()},
                    start_new_session=True,  # a Ctrl-C must reach only us
                )
            except OSError as error:
                logger.warning("No process that makes columns can be started: %s", error)
            return self._process

    def _job(self, warcs: Sequence[Path]) -> RebuildJob:
        caps = msgspec.convert(self._config.fetch, BodyCaps, from_attributes=True)
        return RebuildJob([str(warc.resolve()) for warc in warcs], self._config.content, caps)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        if self._thread.is_alive():
            self._thread.join()

    def _log_left(self, left: Sequence[Path]) -> None:
        if left:
            names = ", ".join(warc.name for warc in left[:_NAMED])
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            logger.warning(
                "%d WARC files have no columns yet; the next start makes them, or %s archive"
                " parse: %s%s",
                len(left),
                PROGRAM,
                names,
                more,
            )


def _log_rebuilt(result: RebuiltFile) -> None:
    warc = Path(result.warc)
    if result.fault and is_missing(warc, SUFFIX):
        logger.warning("No columns of %s: %s", warc.name, result.fault)
    elif not result.fault:
        logger.info("Made again in %.1f s: %s", result.seconds, companion_path(warc, SUFFIX).name)


def _path() -> str:
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)


PIECE_BYTES: Final = 32 << 20
"""Of the log of outcomes in one Parquet file: some 130,000 outcomes, which become 3 MB."""


class OutcomeFiles:
    """Makes Parquet files of the log of outcomes from `begin` to `close`: of what the last run
    left, whenever there is enough for one, and at the end. A thread does it, 6 us an outcome."""

    def __init__(self, data: DataDir, crawl_id: str) -> None:
        self._data = data
        self._crawl_id = crawl_id
        self._written = 0  # bytes of the log that are in files, or are too few for one
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="outcomes", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        """Write the last outcomes."""
        self._ending.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        least = 1  # what the last run left
        while True:
            is_last = self._ending.is_set()
            self._write(1 if is_last else least)
            if is_last:
                return
            least = PIECE_BYTES
            self._ending.wait(POLL_INTERVAL_S)

    def _write(self, least: int) -> None:
        """Write a file if there are at least *least* bytes for it."""
        log = self._data.outcomes
        size = log.stat().st_size if log.exists() else 0
        if size - self._written < least:
            return
        try:
            table = outcome_table(self._data.path, self._crawl_id)
            table.recover()
            table.cut()
        except (CrawlerError, OSError) as error:
            logger.warning("Outcomes are not written as Parquet, the next try does: %s", error)
        else:
            self._written = size


def outcome_table(data: Path, crawl_id: str | None = None) -> OutcomeTable:
    """Return the table of the outcomes of a data directory. *crawl_id*: None for the noted one."""
    from crawler.archive.outcome_table import OutcomeTable  # noqa: PLC0415  # Arrow: 150 ms

    return OutcomeTable(data, data / OUTCOMES, _origin(), crawl_id)


class PreviousArchive:
    """The archive that earlier runs left, with the unfinished files of a dead process."""

    def __init__(self, config: Config, data: DataDir, *, is_complete: bool) -> None:
        """Recover unfinished files. *is_complete* says that no file was delivered to a store.
        Raises CrawlerError."""
        self._config = config
        self._data = data
        self._is_complete = is_complete
        _recover(data.warc, companions(config))
        if not config.archive.columns:  # then no later start makes them
            remove_unfinished_companions(data.warc, COLUMNS, also_marked=True)

    def claim_unfinished(self, store: OrderedStore) -> None:
        """Claim the archived answers of open leases, before a frontier opens *store*. Raises
        CrawlerError."""
        with long_step("Looking for pages that were archived and not finished"):
            claimed = claim_unfinished(store, self._data.warc, self._reading())
        _log_claims(claimed)

    def find_answers(self, leases: Iterable[OpenRecord]) -> ArchivedAnswers:
        """Return what the archive holds of the answers to *leases* that the last run left open.
        Raises DataDirError."""
        with long_step("Looking for pages that were archived and not finished"):
            found = find_archived_answers(leases, self._data.warc, self._reading())
        _log_claims(len(found.claims))
        return found

    def _reading(self) -> ReadingLimits:
        reading = rebuild_settings(self._config)
        return ReadingLimits(
            reading.max_body_bytes, reading.max_bytes, is_complete=self._is_complete
        )


class CrawlArchive:
    """The archive of this run."""

    def __init__(
        self,
        config: Config,
        data: DataDir,
        delivery: Delivery | None,
        retention: CrawlRetention,
        waits_for_room: WaitsForRoom,
        sync_verdicts: Callable[[], None],
        lifecycle: Lifecycle,
        changes: ChangeFeed | None,
        crawl_id: str,
    ) -> None:
        """*sync_verdicts* is that of `GroupCommit`; *changes* is written with each sync."""
        self.crawl_id = crawl_id
        self._config = config
        self._data = data
        self._waits_for_room = waits_for_room
        self._archive: Archive | None = None
        self._changes = changes
        self.delivery = delivery
        self.expired = retention.expired
        self._expiry = retention.work
        self._columns_rebuild = (
            ColumnsRebuild(data.warc, config) if config.archive.columns else None
        )
        self._outcomes = OutcomeFiles(data, crawl_id) if config.archive.has_outcome_table else None
        self.group_commit: GroupCommit | None = None  # None if the archive is not synced
        if config.archive.fsync:
            self.group_commit = GroupCommit(
                config.archive.fsync_every_s,
                self._sync,
                self._unsynced_bytes,
                sync_verdicts,
                lifecycle.fail,
                lifecycle.wake,
            )

    def begin(self) -> None:
        """Start the columns rebuild and the delivery of finished files."""
        if self._columns_rebuild is not None:
            self._columns_rebuild.begin()
        if self._outcomes is not None:
            self._outcomes.begin()
        if self.delivery is not None:
            self.delivery.begin()
        if self._expiry is not None:
            self._expiry.begin()

    def open_writer(self) -> Archive | None:
        """Return the archive, created by the first call. Returns None if the crawl keeps none."""
        if self._archive is None and self._config.archive.warc:
            settings = warc_settings(self._config, self._data.warc, self.crawl_id)
            writer = WarcWriter(settings, companions(self._config))
            parts = [part for part in (self.delivery, self.group_commit) if part is not None]
            rooms = [part.wait_for_room for part in parts]
            self._archive = Archive(writer, self._waits_for_room, rooms)
        return self._archive

    def _sync(self) -> None:
        """Make all records so far survive a power cut, then the changes that they are. It blocks,
        so call it in a thread. Raises StoreUnavailable."""
        changes = self._changes.taken() if self._changes is not None else []
        if self._archive is not None:
            self._archive.sync()
        if self._changes is not None:
            self._changes.write(changes)

    def _unsynced_bytes(self) -> int:
        return self._archive.unsynced_bytes if self._archive is not None else 0

    def is_congested(self) -> bool:
        """Whether pages must wait, because too many finished files wait for their store."""
        return self.delivery is not None and self.delivery.is_congested()

    def allow_last_pages(self) -> None:
        """Let pages under way be archived, however many files wait for the store."""
        if self.delivery is not None:
            self.delivery.stop_limiting()

    async def close(self, *, is_finished: bool) -> None:
        """Finish the last files, then deliver them; what cannot be delivered waits for the next
        run. If the crawl *is_finished*, no user waits and columns get more time."""
        if self._expiry is not None:
            self._expiry.close()
        if self.group_commit is not None:
            await self.group_commit.close()
        try:
            if self._archive is not None:
                await self._archive.close()
        finally:
            if self._columns_rebuild is not None:
                await self._columns_rebuild.close(
                    REBUILD_WAIT_S if is_finished else STOPPED_REBUILD_WAIT_S
                )
            if self._outcomes is not None:
                await self._outcomes.close()
            if self.delivery is not None:
                await self.delivery.close()


def delivery_of(config: Config, data: DataDir, random: Random) -> Delivery | None:
    """Return the delivery to CRAWLER_ARCHIVE_URL, or None if it is not set. Raises
    CrawlerError."""
    url = config.archive.archive_url
    if not url:
        return None
    waiting = DeliveryLimits(waiting_bytes=config.archive.archive_waiting_bytes)
    return Delivery(data.path, open_store(url, data.path), waiting, random)


@dataclass(frozen=True, slots=True)
class CrawlRetention:
    """What has gone of the archive, and what removes more of it, if anything does."""

    expired: ExpiredFiles
    work: ExpiryWork | None


def retention_of(config: Config, data: DataDir, *, is_shared: bool) -> CrawlRetention:
    """Return what is known of files that were removed for their age, and what removes others. The
    store of the archive need not answer. Raises CrawlerError."""
    keep, url = config.archive.archive_keep, config.archive.archive_url
    if keep is not None and is_shared:
        raise ConfigError(
            "CRAWLER_ARCHIVE_KEEP is for a crawl of one process: other workers' records may name"
            f" what would go. Stop the workers, and call {PROGRAM} archive expire"
        )
    expired, local = ExpiredFiles(), local_store(data.path)
    listed = read_expired([local])
    try:
        listed |= read_expired([open_store(url, data.path)] if url else [])
    except StoreUnavailable as error:
        logger.warning("Which files have gone from the archive is read here only: %s", error)
    expired.note(listed.values())
    if keep is None:
        return CrawlRetention(expired, None)
    stores, waiting = ([open_store(url, data.path)], [local]) if url else ([local], [])
    retention = Retention(stores, waiting, data.path)
    return CrawlRetention(expired, ExpiryWork(retention, keep.total_seconds(), expired, time))


def _log_claims(claimed: int) -> None:
    if claimed:
        logger.info("Archived before the last run ended, and not finished: %d pages", claimed)


def _recover(folder: Path, companions: Sequence[Companion]) -> None:
    began_at = monotonic()
    total = max(1, sum(file.stat().st_size for file in unfinished_files(folder)))
    read: list[int] = []  # bytes of records
    with long_step("Recovering archive files of a crash", lambda: min(1.0, sum(read) / total)):
        recovered = recover(folder, companions, read.append)
    for each in recovered:
        logger.warning(
            "%s was left unfinished by a crash, and is whole again: %d records kept, %d bytes"
            " without an end removed",
            each.file,
            each.records,
            each.cut_bytes,
        )
    took_s, read_bytes = monotonic() - began_at, sum(each.kept_bytes for each in recovered)
    if read_bytes:
        per_gb_s = took_s * 1e9 / read_bytes
        logger.info("The recovery took %.1f s, or %.0f s for each GB", took_s, per_gb_s)


def companions(config: Config, *, tries_unreadable: bool = False) -> Sequence[Companion]:
    """Return the companions of each WARC file of a crawl with *config*."""
    columns = []
    if config.archive.columns:
        columns.append(
            ColumnsCompanion(rebuild_settings(config, tries_unreadable=tries_unreadable))
        )
    return [CdxjCompanion(), *columns]


def warc_settings(config: Config, folder: Path, crawl_id: str) -> WarcSettings:
    info = {
        "software": f"Gossamer/{VERSION}",
        "format": "WARC File Format 1.1",
        "robots": "obeyed (RFC 9309)",
        "http-header-user-agent": config.identity.user_agent,
        "operator": config.identity.contact,
        CRAWL_ID: crawl_id,
    }
    return WarcSettings(
        folder=folder,
        origin=_origin(),
        max_file_bytes=config.archive.warc_max_bytes,
        info=tuple((name, value) for name, value in info.items() if value),
    )


def _origin() -> str:
    machine = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return f"{machine or 'host'}-{os.getpid()}"
