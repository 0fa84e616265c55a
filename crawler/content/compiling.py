"""Loads what reads pages, which numba compiles, while the crawl opens.

Rule: what is in the cache is loaded in a quarter of a second; what is not, one process compiles,
while those that need it, too, wait.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from threading import Thread
from typing import Final

from crawler.model.types import OUT_OF_FILES
from crawler.page.simhash import fingerprint
from crawler.page.text_quality import text_quality

logger = logging.getLogger(__name__)

_PACKAGE: Final = Path(__file__).parents[1]
_FOLDER: Final = "NUMBA_CACHE_DIR"
_LONGEST_S: Final = 300.0  # 10 to 25 s of CPU, a minute and more where others take most of it
_LOOK_S: Final = 0.05
_PAUSE_S: Final = 1.0
_TRIES: Final = 60  # guess: idle connections are kept for seconds
_MENTIONED_S: Final = 1.0  # more than others hold the lock to load what is compiled


def cache_in(folder: Path) -> None:
    """Keep what is compiled in *folder* where the package itself is read-only. To be called before
    `loading`; child processes do the same."""
    if not os.access(_PACKAGE, os.W_OK):
        os.environ.setdefault(_FOLDER, str(folder))


class Loading:
    """Compiles in a thread what is not compiled: 0.6 s, and some seconds the first time. A process
    that ends does not wait for it."""

    def __init__(self) -> None:
        self.loaded = Future[None]()
        self._waits = False  # for what is being compiled, here or by another process
        self._ended = 0.0  # by time.monotonic; 0: not yet
        Thread(target=self._work, name="compile", daemon=True).start()

    @property
    def ready_s(self) -> float:
        """For how long pages can be read, in seconds: 0 while they wait for what is being compiled,
        infinite if nothing had to be."""
        if not self._waits:
            return inf
        return time.monotonic() - self._ended if self._ended else 0.0

    def _work(self) -> None:
        try:
            when_files_are_free(lambda: load(self._on_wait))
            self.loaded.set_result(None)
        except BaseException as error:
            self.loaded.set_exception(error)
        finally:
            self._ended = time.monotonic()

    def _on_wait(self) -> None:
        self._waits = True


def when_files_are_free(work: Callable[[], None], pause_s: float = _PAUSE_S) -> None:
    """Do *work*, and again while this process has too many open files: what the crawl has fetched
    waits for it, so its connections are soon closed. Else no page of this run had text or links."""
    for _ in range(_TRIES):
        try:
            return work()
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
            time.sleep(pause_s)
    return work()


def load(on_wait: Callable[[], None] | None = None) -> None:
    """Compile here what is not compiled. *on_wait* is called when that takes seconds."""
    from crawler.content.parsers import html_markdown, html_scan  # noqa: PLC0415  # numba: 0.4 s
    from crawler.model import url_scan  # noqa: PLC0415  # the same
    from crawler.model.compiled import compile_listener, is_compiled  # noqa: PLC0415  # the same

    if not is_compiled:
        logger.warning(
            "numba is not installed: pages are read by the interpreter, some hundred times slower"
        )
        return
    compiler = logging.getLogger("numba")
    if compiler.level == logging.NOTSET:  # else the user has chosen a level
        compiler.setLevel(logging.INFO)  # at DEBUG, which is Scrapy's own, it logs 26,000 lines
    waits: list[str] = []

    def mention(why: str) -> None:
        if waits:
            return
        waits.append(why)
        logger.info("%s: pages are read when that is done", why)
        if on_wait is not None:
            on_wait()

    begins = partial(mention, "Compiling what reads pages, once in an installation (10 to 25 s)")
    others = partial(mention, "Waiting for another process, which compiles what reads pages")
    with _one_compiles(others), compile_listener(begins):
        out, end, _, tags = html_scan.scanned_with_tags(b"<p>", False, 1)
        _, _, lines, sees_all = html_scan.chosen_lines(out, end)
        page = html_scan.readable(b"<p>")
        html_markdown.markdown(page, out, end, tags, lines, sees_all=sees_all)
        url_scan.kinds_of(["a"])
        url_scan.PlainUrls(1, 1, ()).verdicts(["a"])
        html_scan.link_texts(out, end)
        for text in ("a b c", "ä b c"):
            fingerprint(text, 3)
        text_quality("a b", None)


@contextmanager
def _one_compiles(on_wait: Callable[[], None]) -> Iterator[None]:
    """Wait until no other process compiles, but not for ever: one may be stopped meanwhile.
    *on_wait* is called when it takes longer than to load what is compiled."""
    folder = Path(os.environ.get(_FOLDER) or _PACKAGE / "__pycache__")
    lock = None
    with suppress(OSError):  # else each process compiles for itself
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        began = time.monotonic()
        while (waited_s := time.monotonic() - began) < _LONGEST_S:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if waited_s > _MENTIONED_S:
                on_wait()
            time.sleep(_LOOK_S)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
