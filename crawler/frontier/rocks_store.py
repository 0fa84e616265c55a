"""RocksDB as the ordered store: durable, atomic batches, bounded memory.

Rule: driver exceptions end here, as StoreUnavailable. Writes go through the write-ahead
log to the operating system before a call returns, so a killed process loses nothing; after the
next `sync` a power cut does not either. The log is one sequence: what a power cut takes of it is
its end, so a page whose finish survived has its links too, and one whose finish was lost is
fetched again.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from crawler.model.types import (
    DataDirError,
    StoreFull,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

# Bounds of memory, whatever the number of URLs (tests/integration/test_memory.py). Half the
# cache doubles the price of an `add` at 1e6 URLs (50 us a URL instead of 27).
_MEMTABLE_BYTES: Final = 8 << 20
_MEMTABLES: Final = 3
# Of a memtable, for a filter of the keys in it: 16 bits a key. Most links are asked for in vain,
# and without it each search of a memtable costs 2 us: 110 us a page of 40 links, with it 70.
_MEMTABLE_FILTER: Final = 0.02
_NO_SPACE: Final = os.strerror(errno.ENOSPC)
MEMTABLES_BYTES: Final = _MEMTABLES * _MEMTABLE_BYTES
CACHE_BYTES: Final = 32 << 20


class RocksStore:
    """Implements scheduler.ports.OrderedStore."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        """Raises DataDirError if *folder* cannot be opened; nothing in it is changed then."""
        self._is_full = False  # the last write found no room
        _refuse_headless(folder)
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        try:
            self._db = Rdict(str(folder), _options(), access_type=access)
        except Exception as refused:  # rocksdict raises bare Exception
            raise DataDirError(_why_not_open(folder, str(refused))) from refused

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as refused:  # rocksdict raises bare Exception
            raise _unreadable(refused) from refused
        return value

    def has(self, keys: Sequence[bytes]) -> list[bool]:
        db = self._db
        try:
            return [key in db for key in keys]
        except Exception as refused:  # rocksdict raises bare Exception
            raise _unreadable(refused) from refused

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(stop)
        cursor = self._db.iter(bounds)
        cursor.seek(start)
        found: list[tuple[bytes, bytes]] = []
        while len(found) < limit and cursor.valid():
            found.append((cursor.key(), cursor.value()))
            cursor.next()
        try:
            cursor.status()  # a damaged block looks like the end
        except Exception as refused:  # rocksdict raises bare Exception
            raise _unreadable(refused) from refused
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
            self._is_full = False
        except Exception as refused:  # rocksdict raises bare Exception
            # Of the others, such as a broken disk, it never recovers while it is open.
            self._is_full = _NO_SPACE in str(refused)
            kind = StoreFull if self._is_full else StoreUnavailable
            raise kind(f"the frontier cannot be written: {refused}") from refused

    def sync(self) -> None:
        """All that was written before survives a power cut. For a thread: other threads may read
        and write meanwhile. Raises StoreUnavailable."""
        if self._is_full:
            # RocksDB goes on by itself when there is room, but never after a sync that failed.
            raise StoreFull("the frontier cannot be synced: its last write found no room")
        try:
            self._db.flush_wal(sync=True)
        except Exception as refused:  # rocksdict raises bare Exception
            raise StoreUnavailable(f"the frontier cannot be synced: {refused}") from refused

    def close(self) -> None:
        try:
            self._db.close()
        except Exception as refused:  # rocksdict raises bare Exception
            # A write has failed before, and was told; what was acknowledged is in the log.
            logger.warning("The frontier was not closed in good order: %s", refused)


def _options() -> Options:
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(Cache(CACHE_BYTES))
    # Filters and indexes inside the cache: memory stays bounded however many URLs there are.
    # In partitions: a whole filter is larger than a shard of the cache, is never kept there,
    # and was read anew for each get (measured at 1e6 URLs: 500 us a get instead of 3).
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
    # Half an entry at the end of the log is what a crash leaves; anything else is damage.
    return options


def _refuse_headless(folder: Path) -> None:
    """Without CURRENT, which names its list of files, RocksDB makes a new store in a folder,
    and removes the data of the old one."""
    if (folder / "CURRENT").exists():
        return
    if next(folder.glob("*.sst"), None) or next(folder.glob("*.log"), None):
        raise DataDirError(_why_not_open(folder, "its file CURRENT is missing"))


def _unreadable(refused: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the frontier cannot be read: {refused}")


def _why_not_open(folder: Path, text: str) -> str:
    if "lock" in text.lower():
        return f"{folder} is in use by another process: {text}"
    text = " ".join(text.split()).rstrip(".")  # RocksDB's may have several lines
    return (
        f"{folder} cannot be opened: {text}. Nothing was changed. If it is damaged, put back a"
        " copy, or begin again in another data directory (CRAWLER_DATA_DIR)"
    )
