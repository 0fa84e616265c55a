"""Captures into WARC files: gzip a record, one file after the other.

Rule: synchronous; one thread appends. What `append` returned is in the operating system's hands:
it survives the death of the process at any moment. After the next `sync` it survives a power cut
too. No file is ever written over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from isal.igzip_lib import COMP_GZIP, compress

from crawler.core.errors import ConfigError, StoreUnavailable
from crawler.storage.warc.capture import Capture, RecordPlace, Written
from crawler.storage.warc.companions import Companion, Companions
from crawler.storage.warc.openfile import OpenFile
from crawler.storage.warc.records import RANDOM_BYTES, capture_records, warcinfo

SAFE_NAME: Final = re.compile(r"[\w.~-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcRules:
    """Settings of the archive."""

    folder: Path
    prefix: str = "crawl"
    origin: str  # which process of which machine: "host-pid"
    max_file_bytes: int = 1_000_000_000  # the target size of WARC 1.1 annex B
    gzip_level: int = 1  # isal's 1 costs 90 us a 30 KB page, 2 the same for 1 % less, 3 230 us
    info: tuple[tuple[str, str], ...] = ()  # warcinfo: software, operator, robots...

    def __post_init__(self) -> None:
        for name in (self.prefix, self.origin):
            if not SAFE_NAME.fullmatch(name):
                raise ConfigError(f"a WARC file name cannot hold {name!r}: {SAFE_NAME.pattern} can")
        if self.max_file_bytes < 1 or self.gzip_level not in range(4):
            raise ConfigError(f"want max_file_bytes >= 1 and gzip_level 0 to 3, got {self}")


class WarcWriter:
    """Appends captures, each as a unit; begins a new file when one is full.

    StoreUnavailable leaves the files as they were before the call; later calls may succeed.
    """

    def __init__(self, rules: WarcRules, companions: Sequence[Companion] = ()) -> None:
        self._rules = rules
        self._companions = companions
        self._serial = 0
        self._file: OpenFile | None = None
        self._beside = Companions((), Path())  # those of the file
        self._appended_bytes = 0
        self._synced_bytes = 0  # of these

    def append(self, capture: Capture) -> RecordPlace:
        """Write its records; the place of the first, the response or revisit."""
        records, answer = capture_records(capture, os.urandom(RANDOM_BYTES))
        members = [self._packed(records[0]), *map(_lightly_packed, records[1:])]
        file = self._current(capture.fetched_at)
        data = b"".join(members)
        offset = file.append(data)
        self._appended_bytes += len(data)
        place = RecordPlace(file.final.name, offset, len(members[0]))
        self._beside.add(Written(capture, place, answer))
        return place

    @property
    def unsynced_bytes(self) -> int:
        """Of records that were appended since the last sync began."""
        return self._appended_bytes - self._synced_bytes

    def sync(self) -> None:
        """All that was appended before survives a power cut. One other thread may call it: nothing
        that appends waits for it. Files before the one at hand were synced when they were
        finished."""
        appended, file = self._appended_bytes, self._file
        if file is not None and self._synced_bytes < appended:
            file.sync()
        self._synced_bytes = appended

    def close(self) -> None:
        """Finish the file at hand, synced. The writer may be used again."""
        if self._file is not None:
            self._beside.finish()
            self._file.finish()
            self._file = None

    def _current(self, now: float) -> OpenFile:
        # Full files are finished here, not after the append that filled them: should that
        # fail, no capture is left half acknowledged.
        if self._file is not None and self._file.size_bytes >= self._rules.max_file_bytes:
            self.close()
        if self._file is None:
            self._file = self._begin(now)
            self._beside = Companions(self._companions, self._file.final)
        return self._file

    def _begin(self, now: float) -> OpenFile:
        file = self._create(now)
        info = warcinfo(file.final.name, now, self._rules.info, os.urandom(16))
        try:
            file.append(self._packed(info))
        except StoreUnavailable:
            file.discard()
            raise
        return file

    def _create(self, now: float) -> OpenFile:
        rules = self._rules
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d%H%M%S")
        while True:
            name = f"{rules.prefix}-{stamp}-{self._serial:05}-{rules.origin}.warc.gz"
            self._serial += 1
            file = OpenFile.create(rules.folder / name)
            if file is not None:
                return file

    def _packed(self, record: bytes) -> bytes:
        # Without a time in the gzip header: the same record gives the same bytes.
        return compress(record, self._rules.gzip_level, COMP_GZIP)


def _lightly_packed(record: bytes) -> bytes:
    """A request or metadata: level 1 takes four times as long for a quarter less, which is 3 %
    of a page (docs/decisions/0016)."""
    return compress(record, 0, COMP_GZIP)
