"""Columns that a WARC file lacks, made while the crawl runs: after a crash, or a full disk.

Rule: neither the start nor the fetching waits for them, nor does the crawl give its processor: a
process of its own, which yields to others, makes them. What is not made at the end stays marked,
and the next start takes it up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from crawler.columns_child import Caps, Made, Orders
from crawler.core.config import Config
from crawler.storage.columns.companion import SUFFIX
from crawler.storage.warc.companions import beside, is_owed, owed

logger = logging.getLogger(__name__)

LOOK_S: Final = 10.0  # so much later a file that came to lack them is seen
PATIENCE_S: Final = 600.0  # at the end of a crawl that has finished: 3 GB (guess, revisit)
STOPPED_PATIENCE_S: Final = 5.0  # somebody waits
_NAMED: Final = 5  # files in a message


class ColumnsLater:
    """Begins with `begin`, ends with `close`."""

    def __init__(self, folder: Path, config: Config) -> None:
        self._folder = folder
        self._config = config
        self._tried: set[Path] = set()
        self._ending = threading.Event()  # make what there is, then end
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # around its start and its end
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name="columns", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the last process; None: there was none."""
        return self._process.pid if self._process is not None else None

    async def close(self, patience_s: float) -> list[Path]:
        """Wait for what is being made, so long; the WARC files that still lack columns."""
        self._ending.set()
        until = monotonic() + patience_s
        if self._thread.is_alive() and owed(self._folder, SUFFIX):
            logger.info("Making the last columns; for %.0f s at most", patience_s)
        while self._thread.is_alive() and monotonic() < until:
            await asyncio.sleep(0.02)
        self._end()
        left = owed(self._folder, SUFFIX)
        self._tell_left(left)
        return left

    def _work(self) -> None:
        while True:
            is_last = self._ending.is_set()
            self._make([warc for warc in owed(self._folder, SUFFIX) if warc not in self._tried])
            if is_last:
                return
            self._ending.wait(LOOK_S)

    def _make(self, warcs: Sequence[Path]) -> None:
        process = self._started() if warcs else None
        if process is None or process.stdin is None or process.stdout is None:
            return
        self._tried.update(warcs)
        names = ", ".join(warc.name for warc in warcs[:_NAMED])
        logger.info("Columns are made in the background of %d files: %s", len(warcs), names)
        try:
            process.stdin.write(msgspec.json.encode(self._orders(warcs)) + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                _tell(msgspec.json.decode(line, type=Made))
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("The process that makes columns: %s", error)
        finally:
            process.kill()
            status = process.wait()
            process.stdout.close()
            process.stdin.close()
        if status and not self._is_over:
            logger.warning("The process that makes columns ended with status %d", status)

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_over:
                return None
            try:
                self._process = subprocess.Popen(  # ourselves, and nothing of anybody else's
                    [sys.executable, "-P", "-m", "crawler.columns_child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": _path()},
                    start_new_session=True,  # a Ctrl-C is for us
                )
            except OSError as error:
                logger.warning("No process that makes columns can be started: %s", error)
            return self._process

    def _orders(self, warcs: Sequence[Path]) -> Orders:
        caps = msgspec.convert(self._config.fetch, Caps, from_attributes=True)
        return Orders([str(warc.resolve()) for warc in warcs], self._config.content, caps)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        if self._thread.is_alive():
            self._thread.join()

    def _tell_left(self, left: Sequence[Path]) -> None:
        if left:
            names = ", ".join(warc.name for warc in left[:_NAMED])
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            logger.warning(
                "%d WARC files have no columns yet; the next start makes them, or scrapy archive"
                " parse: %s%s",
                *(len(left), names, more),
            )


def _tell(made: Made) -> None:
    warc = Path(made.warc)
    if made.fault and is_owed(warc, SUFFIX):
        logger.warning("No columns of %s: %s", warc.name, made.fault)
    elif not made.fault:
        logger.info("Made again in %.1f s: %s", made.seconds, beside(warc, SUFFIX).name)


def _path() -> str:
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
