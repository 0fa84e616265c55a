"""RocksDB as the ordered store: durable, atomic batches, bounded memory.

Rule: driver exceptions are translated here, to StoreUnavailable. A write is in the write-ahead log,
with the operating system, when its call returns, so a killed process loses nothing; after the next
`sync` a power cut loses nothing either.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from crawler.model.program import PROGRAM
from crawler.model.types import (
    OUT_OF_FILES,
    DataDirError,
    StoreFull,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

# Bounds of memory for any number of URLs (tests/integration/test_memory.py). Half the cache would
# double the time of an `add` at 1e6 URLs (50 us a URL instead of 27).
_MEMTABLE_BYTES: Final = 8 << 20
_MEMTABLES: Final = 3
# The share of a memtable for a filter of its keys: 16 bits a key. Most look-ups of hosts find
# nothing, and without the filter each costs 2 us a memtable.
_MEMTABLE_FILTER: Final = 0.02
# Without a limit all files of the database are open, hundreds at 1e8 URLs, and connections would
# find none left.
_MOST_FILES: Final = 200
_NO_ROOM: Final = (os.strerror(errno.ENOSPC), *map(os.strerror, OUT_OF_FILES))
MEMTABLES_BYTES: Final = _MEMTABLES * _MEMTABLE_BYTES
_MANY: Final = 1_000  # pairs of a scan
CACHE_BYTES: Final = 32 << 20


class RocksStore:
    """Implements port.DurableStore.

    The log is one sequence, and a power cut loses only its end. So a page whose finish survived has
    its links too, and one whose finish was lost is fetched again."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        """Raises DataDirError, with nothing changed, if *folder* cannot be opened."""
        self._no_room = ""  # why the last write found no room
        _refuse_without_current(folder)
        try:
            self._db = _opened(folder, read_only=read_only)
        except Exception as error:  # rocksdict raises bare Exception
            raise DataDirError(_why_not_open(folder, str(error))) from error

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:  # rocksdict raises bare Exception
            raise _unreadable(error) from error
        return value

    def scan(
        self, start: bytes, stop: bytes, limit: int, *, fills_cache: bool = True
    ) -> list[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(stop)
        bounds.fill_cache(fills_cache)  # type: ignore[call-arg]  # its stub lacks it
        found: list[tuple[bytes, bytes]] = []
        if limit >= _MANY:
            # Four fifths of the time of the loop below, which goes on where this seems to end.
            items: Any = self._db.items(from_key=start, read_opt=bounds)
            found = list(islice(items, limit))
            if len(found) == limit:
                return found
            start = found[-1][0] + b"\0" if found else start
        cursor = self._db.iter(bounds)
        cursor.seek(start)
        while len(found) < limit and cursor.valid():
            found.append((cursor.key(), cursor.value()))
            cursor.next()
        try:
            cursor.status()  # a damaged block looks like the end
        except Exception as error:  # rocksdict raises bare Exception
            raise _unreadable(error) from error
        return found

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        try:
            self._db.write(batch)
            self._no_room = ""
        except Exception as error:  # rocksdict raises bare Exception
            # RocksDB recovers from other errors, such as a broken disk, only when opened again.
            why = _failed("written", error)
            self._no_room = why if _is_out_of_room(error) else ""
            raise (StoreFull if self._no_room else StoreUnavailable)(why) from error

    def sync(self) -> None:
        """Make all earlier writes survive a power cut. May run in a thread while other threads read
        and write. Raises StoreUnavailable."""
        if no_room := self._no_room:
            # RocksDB resumes by itself when there is room, but never after a failed sync.
            raise StoreFull(no_room)
        try:
            self._db.flush_wal(sync=True)
        except Exception as error:  # rocksdict raises bare Exception
            raise StoreUnavailable(_failed("synced", error)) from error

    def checkpoint(self, folder: Path) -> None:
        """Copy the store as it is at one moment to *folder*, which must not exist: files that do
        not change any more by hard links, where the file system has them. May run in a thread while
        other threads read and write. Raises StoreUnavailable."""
        try:
            # A checkpoint holds the interpreter lock, and flushes the memtables: 100 to 560 ms with
            # 8 MB in them. A flush does not hold it, and leaves 20 ms to the checkpoint.
            self._db.flush()
            Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:  # rocksdict raises bare Exception
            kind = StoreFull if _is_out_of_room(error) else StoreUnavailable
            raise kind(_failed("copied", error)) from error

    def close(self) -> None:
        try:
            self._db.close()
        except Exception as error:  # rocksdict raises bare Exception
            # An earlier write failed, and raised; acknowledged writes are in the log.
            logger.warning("The frontier was not closed in good order: %s", error)


class OpenedStore(RocksStore):
    """An open store, to read in any thread until it is closed. What is read takes no room in the
    cache, which is the crawl's."""

    def __init__(self, store: RocksStore) -> None:
        self._db = store._db
        self._no_room = ""

    def scan(
        self, start: bytes, stop: bytes, limit: int, *, fills_cache: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return super().scan(start, stop, limit, fills_cache=fills_cache)

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        raise StoreUnavailable("the frontier is open for reading only")

    def close(self) -> None:
        """Do nothing: the crawl closes its store."""


def _options() -> Options:
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(Cache(CACHE_BYTES))
    # Filters and indexes are in the cache, so memory is bounded for any number of URLs. They are
    # partitioned: a whole filter is larger than a shard of the cache, is never kept there, and
    # was read again for each get (measured at 1e6 URLs: 500 us a get instead of 3).
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_max_write_buffer_number(_MEMTABLES)
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(_MEMTABLE_FILTER)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_open_files(_MOST_FILES)
    return options


def _opened(folder: Path, *, read_only: bool) -> Rdict:
    """Open the store, with the end of its log cut off where it cannot be read: a crash leaves half
    an entry there. RocksDB does not tell; so it is first asked to accept nothing of the kind, and
    what it says is logged. Beside a running crawl the end may be half written at any time."""
    if read_only:
        return Rdict(str(folder), _options(), access_type=AccessType.read_only(False))
    options = _options()
    options.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    try:
        return Rdict(str(folder), options, access_type=AccessType.read_write())
    except Exception as error:  # rocksdict raises bare Exception
        if not (refused := str(error)).startswith("Corruption"):
            raise
    opened = Rdict(str(folder), _options(), access_type=AccessType.read_write())
    logger.warning(
        "The log of the frontier in %s could not be read to its end (%s): the machine or the"
        " process was stopped in a write, or the disk is damaged. The crawl goes on from the moment"
        " before that; pages finished after it are fetched again",
        folder,
        _one_line(refused),
    )
    return opened


def _refuse_without_current(folder: Path) -> None:
    """Raise DataDirError if *folder* has data but no CURRENT, which names the list of its files:
    RocksDB would make a new store and remove the old data."""
    if (folder / "CURRENT").exists():
        return
    if next(folder.glob("*.sst"), None) or next(folder.glob("*.log"), None):
        raise DataDirError(_why_not_open(folder, "its file CURRENT is missing"))


def _unreadable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(_failed("read", error))


_FILE: Final = re.compile(r" in (\S+\.(?:sst|log))|(\S+\.(?:sst|log)|\S+/MANIFEST-\d+)\b")
_RESTORE: Final = (
    f"restore the data directory from a snapshot ({PROGRAM} frontier snapshot) or another copy, or"
    f" begin again in another one (CRAWLER_DATA_DIR); {PROGRAM} frontier seen --from FILE.cdxj"
    " keeps what the archive has from being fetched again"
)


def _is_out_of_room(error: Exception) -> bool:
    return any(words in str(error) for words in _NO_ROOM)


def _failed(done: str, error: Exception) -> str:
    """Return that the frontier cannot be *done*: read, written. A damaged file is named."""
    text = _one_line(str(error))
    if "Corruption" not in text:
        return f"the frontier cannot be {done}: {text}"
    named = _FILE.search(text)
    file = (named[1] or named[2]) if named else "a file of the frontier"
    return f"{file} is damaged ({text}). No answer is taken from it: {_RESTORE}"


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")  # messages of RocksDB may have several lines


def _why_not_open(folder: Path, text: str) -> str:
    if "lock" in text.lower():
        return f"{folder} is in use by another process: {text}"
    return (
        f"{folder} cannot be opened: {_one_line(text)}. Nothing was changed. If it is damaged,"
        f" {_RESTORE}"
    )
