"""A data directory as it stands, read beside the crawl that uses it.

Rule: nothing is written and no lock is taken. What is seen is one moment; what comes later
needs another look. Bounded memory; searches may take as long as what they search is large.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Self

from crawler.core.errors import DataDirError
from crawler.core.outcome import Outcome
from crawler.core.types import Candidate, Counts, HostKey
from crawler.scheduler import keys
from crawler.scheduler.dead_letters import Letter, dead_letters
from crawler.scheduler.records import (
    HostRecord,
    OpenRecord,
    Totals,
    decode_candidate,
    decode_host,
    decode_open,
    decode_totals,
)
from crawler.storage.local.datadir import FRONTIER, OUTCOMES, WARC, read_format
from crawler.storage.local.outcome_log import read_outcomes
from crawler.storage.local.records import RobotsRecords
from crawler.storage.local.rocks import RocksStore
from crawler.storage.memory import MemoryStore
from crawler.storage.warc.openfile import open_name

_SLICE: Final = 1000
# The crawl may remove a file between our reading of its list of files and opening them.
_TRIES: Final = 3
_PAUSE_S: Final = 0.05
_HEAD_BYTES: Final = 64 * 1024  # of a WARC record; ours are below 4 kB
_REFERS: Final = b"WARC-Refers-To-Target-URI:"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A URL in its host's queue."""

    candidate: Candidate
    ahead: int  # of the same host and level


class Inspection:
    """Raises DataDirError if *path* is no data directory, or a damaged one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.format = read_format(path)
        if not (path / FRONTIER).is_dir():
            raise DataDirError(f"{path} holds no frontier: no crawl has begun in it")
        self._store = _opened(path / FRONTIER)
        self.robots = RobotsRecords(self._store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def counts(self) -> Counts:
        packed = self._store.get(keys.TOTALS)
        totals = decode_totals(packed) if packed else Totals(front=[])
        return Counts(
            waiting=totals.waiting,
            later=totals.later,
            leased=totals.leased,
            hosts_active=sum(1 for _ in self._each(keys.ACTIVE)),
            seen=totals.seen,
            done=totals.done,
            dead=totals.dead,
        )

    def hosts(self) -> Iterator[tuple[HostKey, HostRecord]]:
        for key, packed in self._each(keys.HOST):
            yield HostKey(keys.name_of(key)), decode_host(packed)

    def host(self, host: HostKey) -> HostRecord | None:
        packed = self._store.get(keys.named(keys.HOST, host))
        return decode_host(packed) if packed else None

    def dead(self) -> Iterator[Letter]:
        return dead_letters(self._store)

    def is_seen(self, key: int) -> bool:
        return self._store.get(keys.numbered(keys.SEEN, key)) is not None

    def waiting(self, host: HostKey, key: int) -> Waiting | None:
        record = self.host(host)
        for level in range(len(record.ends) if record else 0):
            begin, stop = keys.body(host, level, 0), keys.body(host, level + 1, 0)
            for ahead, (_, packed) in zip(count(), self._between(begin, stop)):
                candidate = decode_candidate(packed)
                if candidate.key == key:
                    return Waiting(candidate, ahead)
        return None

    def leased(self, key: int) -> OpenRecord | None:
        opened = (decode_open(packed) for _, packed in self._each(keys.OPEN))
        return next((each for each in opened if each.candidate.key == key), None)

    def later(self, key: int) -> Candidate | None:
        put_off = (decode_candidate(packed) for _, packed in self._each(keys.LATER))
        return next((each for each in put_off if each.key == key), None)

    def outcomes(self, host: HostKey, is_it: Callable[[str], bool]) -> list[Outcome]:
        """What came of the leases of one URL of *host*, which *is_it* knows; oldest first."""
        log = read_outcomes(self.path / OUTCOMES)
        return [each for each in log if each.host == host and is_it(each.url)]

    def original(self, record: str) -> str:
        """The URL whose content the archive record at "file:offset" stands for as a revisit;
        empty if it is none, or gone."""
        name, _, offset = record.rpartition(":")
        if not name or Path(name).name != name or not offset.isdigit():
            return ""
        final = self.path / WARC / name
        for file in (final, open_name(final)):
            with suppress(OSError, EOFError, zlib.error):
                return _refers_to(file, int(offset))
        return ""

    def remembered(self) -> MemoryStore:
        """What the crawl's doors remember, where it may be changed without a trace."""
        copy = MemoryStore()
        copy.write(dict(self._each(keys.DOORS)))
        return copy

    def _each(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._between(prefix, keys.after(prefix))

    def _between(self, begin: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        while found := self._store.scan(begin, stop, _SLICE):
            yield from found
            begin = found[-1][0] + b"\0"


def _opened(folder: Path) -> RocksStore:
    for _ in range(_TRIES - 1):
        with suppress(DataDirError):
            return RocksStore(folder, read_only=True)
        time.sleep(_PAUSE_S)
    return RocksStore(folder, read_only=True)


def _refers_to(file: Path, offset: int) -> str:
    with file.open("rb") as archive:
        archive.seek(offset)
        head = gzip.GzipFile(fileobj=archive).read(_HEAD_BYTES).partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n"):
        if line.startswith(_REFERS):
            return line.removeprefix(_REFERS).strip().decode("ascii", "replace")
    return ""
