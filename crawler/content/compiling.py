"""Loads what reads pages, which numba compiles, while the crawl opens.

Rule: what is in the cache is loaded in a quarter of a second; what is not, one process compiles,
while those that need it, too, wait.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final

from crawler.policy.simhash import fingerprint

logger = logging.getLogger(__name__)

_PACKAGE: Final = Path(__file__).parents[1]
_FOLDER: Final = "NUMBA_CACHE_DIR"
_LONGEST_S: Final = 60.0  # to compile takes some 8 s
_LOOK_S: Final = 0.05


def cache_in(folder: Path) -> None:
    """Keep what is compiled in *folder* where the package itself is read-only. To be called before
    `loading`; child processes do the same."""
    if not os.access(_PACKAGE, os.W_OK):
        os.environ.setdefault(_FOLDER, str(folder))


def loading() -> Future[None]:
    """Compile in a thread what is not compiled: 0.6 s, and some seconds the first time. A process
    that ends does not wait for it."""
    loaded = Future[None]()

    def work() -> None:
        try:
            load()
            loaded.set_result(None)
        except BaseException as error:
            loaded.set_exception(error)

    Thread(target=work, name="compile", daemon=True).start()
    return loaded


def load() -> None:
    """Compile here what is not compiled."""
    from crawler.content.parsers import html_scan  # noqa: PLC0415  # it imports numba: 0.4 s
    from crawler.model import url_scan  # noqa: PLC0415  # the same
    from crawler.model.compiled import is_compiled  # noqa: PLC0415  # the same

    if not is_compiled:
        logger.warning(
            "numba is not installed: pages are read by the interpreter, some hundred times slower"
        )
        return
    with _one_compiles():
        out, end, _ = html_scan.scanned(b"<p>", False, 1)
        html_scan.content(out, end, is_all=False)
        url_scan.kinds_of(["a"])
        url_scan.PlainUrls(1, 1, ()).verdicts(["a"])
        for text in ("a b c", "ä b c"):
            fingerprint(text, 3)


@contextmanager
def _one_compiles() -> Iterator[None]:
    """Wait until no other process compiles, but not for ever: one may be stopped meanwhile."""
    folder = Path(os.environ.get(_FOLDER) or _PACKAGE / "__pycache__")
    lock = None
    with suppress(OSError):  # else each process compiles for itself
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        deadline = time.monotonic() + _LONGEST_S
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOOK_S)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
