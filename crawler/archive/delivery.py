"""Delivers finished files to a store, oldest first, and then removes them here.

Rule: one thread delivers; neither the event loop nor the archive waits for the store. A store that
is down is retried; when too many bytes wait on the disk, fetching waits too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from crawler.archive.delivery_stores import (
    DamagedInTransfer,
    NameTaken,
    Store,
    deliver_file,
    error_text,
)
from crawler.archive.warc_file import OPEN_SUFFIX
from crawler.model.types import CrawlerError
from crawler.policy.politeness import full_jitter_s

# The folder is the queue. There is no other record of the waiting files that could be lost or
# wrong. A WARC file and its
# companions are delivered together when none of them is open, because a companion that is being
# made again needs its WARC file here.
FOLDER: Final = "warc"
OUTCOMES: Final = "outcomes"  # the outcomes of all URLs: Parquet files by themselves
# The order of delivery: an index or a row in the store names a WARC file that is there. Also the
# order of removal: a WARC file without its companions would get new ones, while a companion alone
# does no harm.
SUFFIXES: Final = (".warc.gz", ".parquet", ".cdxj")


@dataclass(frozen=True, slots=True)
class Bundle:
    """One WARC file and its companions, in the order of delivery."""

    stem: str  # the common beginning of their names
    files: tuple[Path, ...]


def bundles(data: Path) -> list[Bundle]:
    """Return the finished bundles, oldest first: names begin with the time they were created."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    open_stems = set()
    for path in [*_files(data / FOLDER), *_files(data / OUTCOMES)]:
        name = path.name.removesuffix(OPEN_SUFFIX)
        if not name.endswith(SUFFIXES):
            continue
        found[_stem(name)].append(path)
        if path.name != name:
            open_stems.add(_stem(name))
    return [
        Bundle(stem, tuple(sorted(found[stem], key=_order)))
        for stem in sorted(found.keys() - open_stems)
    ]


def _files(folder: Path) -> list[Path]:
    try:
        # An open file may be renamed after it was listed; it then counts as open.
        return [
            path
            for path in folder.iterdir()
            if path.name.endswith(OPEN_SUFFIX) or (path.is_file() and not path.is_symlink())
        ]
    except OSError:  # the archive writer reports a broken folder
        return []


def _stem(name: str) -> str:
    """Return x of x.warc.gz, x.parquet and x.cdxj. The host name in x may hold dots too."""
    suffix = next(suffix for suffix in SUFFIXES if name.endswith(suffix))
    return name.removesuffix(suffix)


def _order(file: Path) -> int:
    return next(n for n, suffix in enumerate(SUFFIXES) if file.name.endswith(suffix))


logger = logging.getLogger(__name__)

ROOM_CHECK_INTERVAL_S: Final = 0.2  # the longest delay of fetching, once there is room
# At the end of the crawl, where a user waits.
LAST_BACKOFF_S: Final = 5.0
LAST_TRIES: Final = 5  # after so many failures in a row, files stay here
LAST_TRIES_DOWN: Final = 2  # the same for a store that was down before
MAX_NAMED_FILES: Final = 5  # files in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLimits:
    """The limits and intervals of delivery."""

    waiting_bytes: int  # of finished files; with more, fetching waits
    poll_interval_s: float = 5.0  # the interval at which finished files are looked for
    backoff_base_s: float = 1.0
    backoff_max_s: float = 120.0
    stall_timeout_s: float = 60.0  # at the end, after so long without progress, files stay here


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFigures:
    """The counts of a delivery so far."""

    files: int  # delivered
    bytes: int  # delivered
    failures: int  # tries that a store refused or did not answer
    damaged: int  # the failures in which the stored bytes were not those sent
    refused: int  # files left here because the store has other content under their name
    waiting_bytes: int
    is_down: bool  # the last try failed


class Delivery:
    """Delivers finished files from `begin` to `close`. All methods but `wait_for_room` and `close`
    may be called from any thread."""

    def __init__(self, data: Path, store: Store, limits: DeliveryLimits, random: Random) -> None:
        self._data = data
        self._store = store
        self._limits = limits
        self._random = random
        self._failures_in_row: Counter[str] = Counter()  # of each bundle that waits
        self._refused: set[str] = set()
        self._counted: Counter[str] = Counter()
        self._waiting_bytes = 0
        self._is_down = False
        self._is_full = False
        self._tries_left = LAST_TRIES  # at the end of the crawl
        self._is_unlimited = False
        self._listed_at = self._progress_at = monotonic()
        self._finish_requested = threading.Event()  # set: deliver what there is, then end
        self._stop_requested = threading.Event()  # set: end now
        self._thread = threading.Thread(target=self._work, name="delivery", daemon=True)

    def begin(self) -> None:
        """Start the thread. Unfinished files of a dead process must have been recovered before."""
        self._thread.start()

    def is_congested(self) -> bool:
        """Whether more bytes wait than CRAWLER_ARCHIVE_WAITING_BYTES."""
        return self._is_full and not self._is_unlimited

    async def wait_for_room(self) -> None:
        """Wait until another page may be archived."""
        while self.is_congested():
            await asyncio.sleep(ROOM_CHECK_INTERVAL_S)

    def stop_limiting(self) -> None:
        """Stop limiting the archive: the crawl ends, and only pages under way are archived."""
        self._is_unlimited = True

    @property
    def destination(self) -> str:
        """The address of the store, without credentials."""
        return str(self._store)

    @property
    def figures(self) -> DeliveryFigures:
        counted = self._counted
        return DeliveryFigures(
            files=counted["files"],
            bytes=counted["bytes"],
            failures=counted["failures"],
            damaged=counted["damaged"],
            refused=counted["refused"],
            waiting_bytes=self._waiting_bytes,
            is_down=self._is_down,
        )

    async def close(self) -> list[Path]:
        """Deliver what is left, as long as the store accepts it. Returns the files that stay here,
        for the next start."""
        self.stop_limiting()
        begun_at = monotonic()
        self._list_waiting()
        if self._waiting_bytes and self._thread.is_alive():
            logger.info("Delivering the last %d bytes to %s", self._waiting_bytes, self._store)
        if self._is_down:
            self._tries_left = LAST_TRIES_DOWN
        self._finish_requested.set()
        while self._thread.is_alive():
            if monotonic() - max(begun_at, self._progress_at) > self._limits.stall_timeout_s:
                break
            await asyncio.sleep(0.02)
        self._stop_requested.set()
        left = [file for bundle in bundles(self._data) for file in bundle.files]
        self._log_left(left)
        return left

    def _work(self) -> None:
        while self._tries_left and not self._stop_requested.is_set():
            bundle = self._next()
            if bundle is not None:
                self._try(bundle)
            elif self._finish_requested.is_set():
                return
            else:
                self._finish_requested.wait(self._limits.poll_interval_s)

    def _next(self) -> Bundle | None:
        """Return the oldest of the bundles with the fewest failures: a bundle that fails may be the
        only one that cannot be delivered."""
        waiting = self._list_waiting()
        return min(waiting, key=lambda each: self._failures_in_row[each.stem], default=None)

    def _try(self, bundle: Bundle) -> None:
        try:
            self._deliver(bundle)
        except NameTaken as taken:
            self._refused.add(bundle.stem)
            self._counted["refused"] += len(bundle.files)
            logger.error("Not delivered to %s: %s", self._store, taken)
        except Exception as error:
            self._failed(bundle, error)
        else:
            del self._failures_in_row[bundle.stem]
            self._succeeded()

    def _deliver(self, bundle: Bundle) -> None:
        sizes = [file.stat().st_size for file in bundle.files]
        for file in bundle.files:
            if self._stop_requested.is_set():
                return
            deliver_file(self._store, file, f"{file.parent.name}/{file.name}", self._note_progress)
        for file in bundle.files:
            file.unlink(missing_ok=True)
        self._counted["files"] += len(sizes)
        self._counted["bytes"] += sum(sizes)

    def _failed(self, bundle: Bundle, error: Exception) -> None:
        self._failures_in_row[bundle.stem] += 1
        self._log_down(error)
        is_last = self._finish_requested.is_set()
        self._tries_left -= is_last
        self._counted["damaged"] += isinstance(error, DamagedInTransfer)
        self._counted["failures"] += 1  # last: a reader that sees it finds the rest up to date
        if not self._tries_left:
            return
        failures, limits = self._failures_in_row[bundle.stem], self._limits
        cap_s = min(
            limits.backoff_max_s, LAST_BACKOFF_S if self._finish_requested.is_set() else inf
        )
        self._back_off(full_jitter_s(failures, limits.backoff_base_s, cap_s, self._random))

    def _back_off(self, wait_s: float) -> None:
        """Wait before the next try. The end of the crawl ends the wait early, once."""
        until = monotonic() + wait_s
        cut_short = (
            self._stop_requested if self._finish_requested.is_set() else self._finish_requested
        )
        while (left_s := until - monotonic()) > 0:
            if cut_short.wait(min(left_s, self._limits.poll_interval_s)):
                return
            self._list_waiting()

    def _succeeded(self) -> None:
        self._tries_left = LAST_TRIES
        if self._is_down:
            self._is_down = False
            logger.info("%s accepts files again", self._store)

    def _note_progress(self) -> None:
        """Note that a piece of a file was transferred. Threads of fsspec call this too."""
        self._progress_at = monotonic()
        if self._progress_at - self._listed_at > self._limits.poll_interval_s:
            self._list_waiting()

    def _list_waiting(self) -> list[Bundle]:
        """Return the bundles that wait, and update whether fetching must wait."""
        self._listed_at = monotonic()
        waiting = [each for each in bundles(self._data) if each.stem not in self._refused]
        self._waiting_bytes = sum(_size(file) for each in waiting for file in each.files)
        is_full = self._waiting_bytes > self._limits.waiting_bytes
        if is_full and not self._is_full:
            what = "CRAWLER_ARCHIVE_WAITING_BYTES"
            logger.warning(
                "Fetching pauses: more bytes than %s wait for delivery to %s", what, self._store
            )
        self._is_full = is_full
        return waiting

    def _log_down(self, error: Exception) -> None:
        """Log that the store is down, once until it is up again."""
        if not self._is_down:
            self._is_down = True
            logger.warning(
                "%s accepts no files: %s. %d bytes wait in %s; delivery is retried",
                self._store,
                _text_of(error),
                self._waiting_bytes,
                self._data,
                exc_info=not isinstance(error, CrawlerError | OSError),
            )

    def _log_left(self, left: list[Path]) -> None:
        if left:
            names = ", ".join(file.name for file in left[:MAX_NAMED_FILES])
            more = f" and {len(left) - MAX_NAMED_FILES} more" if len(left) > MAX_NAMED_FILES else ""
            logger.warning(
                "%d files were not delivered to %s; they are in %s, and the next start takes them"
                " up: %s%s",
                len(left),
                self._store,
                self._data,
                names,
                more,
            )


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, CrawlerError) else error_text(error)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # removed in between
        return 0
