"""Files beside each WARC file, made of what goes into it: an index, columns.

Rule: a finished WARC file has its companions, whole, from the moment it is there: they are
finished before it, and of a file that a dead process left they are made again, from its records
alone. So a companion can never cost a capture: one that fails is given up, and made again when
the file is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from crawler.core.errors import StoreUnavailable
from crawler.storage.warc.capture import Written
from crawler.storage.warc.openfile import open_name

WARC_SUFFIX: Final = ".warc.gz"


class Companion(Protocol):
    """One kind of such a file. Called by one thread; for one WARC file after the other: begin,
    add..., then finish or discard. `rebuild` is for any file, also between the others."""

    @property
    def suffix(self) -> str:
        """What its name has in place of `.warc.gz`: `.cdxj`, `.parquet`."""

    def begin(self, warc: Path) -> None:
        """*warc*: the name it will have. Until `finish` its companion's name is
        `open_name(beside(warc, suffix))`; one that is there is written over."""

    def add(self, written: Written) -> None:
        """One capture more. In bounded memory. Raises StoreUnavailable only, whatever the capture
        holds."""

    def finish(self) -> None:
        """Whole, forced to the disk, under its final name, in place of one that is there.
        Raises StoreUnavailable."""

    def discard(self) -> None:
        """Close and remove the unfinished file, if there is one."""

    def rebuild(self, warc: Path, content: Path) -> None:
        """Make the finished companion of *warc* from its records alone, which are whole, in
        *content*: itself, or the file that will get its name. Raises CrawlerError."""


def beside(warc: Path, suffix: str) -> Path:
    """The final name of a companion."""
    return warc.with_name(warc.name.removesuffix(WARC_SUFFIX) + suffix)


@dataclass(slots=True)
class _Kept:
    companion: Companion
    is_whole: bool = True  # it has got all captures so far
    is_finished: bool = False


class Companions:
    """Those of the file at hand."""

    def __init__(self, companions: Sequence[Companion], warc: Path) -> None:
        self._warc = warc
        self._kept = [_Kept(companion) for companion in companions]
        for kept in self._kept:
            self._try(kept, lambda companion: companion.begin(warc))

    def add(self, written: Written) -> None:
        for kept in self._kept:
            if kept.is_finished:  # and the file was not, after it: this capture is not in it
                kept.is_finished = kept.is_whole = False
            if kept.is_whole:
                self._try(kept, lambda companion: companion.add(written))

    def finish(self) -> None:
        """StoreUnavailable: call it again later."""
        for kept in self._kept:
            if kept.is_finished:
                continue
            if kept.is_whole:
                self._try(kept, lambda companion: companion.finish())
            if not kept.is_whole:
                kept.companion.rebuild(self._warc, open_name(self._warc))
            kept.is_finished = True

    def discard(self) -> None:
        for kept in self._kept:
            kept.companion.discard()

    @staticmethod
    def _try(kept: _Kept, step: Callable[[Companion], None]) -> None:
        try:
            step(kept.companion)
        except StoreUnavailable:
            kept.is_whole = False
            with suppress(StoreUnavailable):
                kept.companion.discard()


def clear(folder: Path, companions: Iterable[Companion]) -> None:
    """Remove unfinished companions of no file that is being written."""
    for companion in companions:
        for path in folder.glob(open_name(Path(f"*{companion.suffix}")).name):
            stem = path.name.removesuffix(open_name(Path(companion.suffix)).name)
            # A living writer has the file open before its companions, and after them.
            if not open_name(path.with_name(stem + WARC_SUFFIX)).exists():
                path.unlink(missing_ok=True)
