"""Files beside each WARC file, made of what goes into it: an index, columns.

Rule: a finished WARC file has its companions, whole, from the moment it is there: they are
finished before it. One that fails is given up, and made again from the records alone; so a
companion can never cost a capture. What takes minutes to make again is not made while somebody
waits: its unfinished file, beside a WARC file that is finished, is the mark that it is owed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from crawler.core.errors import StoreUnavailable
from crawler.storage.warc.capture import Written
from crawler.storage.warc.openfile import lock, open_name, refused_write
from crawler.storage.warc.stored import Stored

WARC_SUFFIX: Final = ".warc.gz"


class Companion(Protocol):
    """One kind of such a file. Called by one thread; for one WARC file after the other: begin,
    add..., then finish or discard. `rebuild` is for any file, also between the others."""

    @property
    def suffix(self) -> str:
        """What its name has in place of `.warc.gz`: `.cdxj`, `.parquet`."""

    @property
    def is_slow(self) -> bool:
        """To make it again takes minutes a file: it is put off, and `add_again` never called."""

    def begin(self, warc: Path) -> None:
        """*warc*: the name it will have. Until `finish` its companion's name is
        `open_name(beside(warc, suffix))`; one that is there is written over."""

    def add(self, written: Written) -> None:
        """One capture more. In bounded memory. Raises StoreUnavailable only, whatever the capture
        holds."""

    def add_again(self, stored: Stored) -> None:
        """As `add`, of a capture read from its file, without its body."""

    def finish(self) -> None:
        """Whole, forced to the disk, under its final name, in place of one that is there.
        Raises StoreUnavailable."""

    def discard(self) -> None:
        """Close and remove the unfinished file, if there is one."""

    def rebuild(self, warc: Path, content: Path) -> None:
        """Make the finished companion of *warc* from its records alone, which are whole, in
        *content*: itself, or the file that will get its name. Raises CrawlerError; a mark that
        it is owed is left then."""


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
            if not kept.is_whole and kept.companion.is_slow:
                owe(self._warc, kept.companion.suffix)
            elif not kept.is_whole:
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


def owe(warc: Path, suffix: str) -> None:
    """Mark that a companion of *warc* is still to be made; before *warc* is finished. Raises
    StoreUnavailable."""
    mark = open_name(beside(warc, suffix))
    try:
        mark.write_bytes(b"")
    except OSError as error:
        raise refused_write(f"cannot write {mark}", error) from error


def owed(folder: Path, suffix: str) -> list[Path]:
    """The finished WARC files that lack this companion, oldest first."""
    return sorted(warc for warc, _ in _unfinished(folder, suffix) if warc.exists())


def is_owed(warc: Path, suffix: str) -> bool:
    return warc.exists() and open_name(beside(warc, suffix)).exists()


def clear(folder: Path, suffix: str, *, also_owed: bool = False) -> None:
    """Remove unfinished companions of no file that is being written; but not what is owed."""
    for warc, path in _unfinished(folder, suffix):
        # A living writer has the file open before its companions, and after them.
        if not open_name(warc).exists() and (also_owed or not warc.exists()):
            path.unlink(missing_ok=True)


@contextmanager
def held(warc: Path) -> Iterator[bool]:
    """Of those who make companions of a finished file again, one at a time; False: another is at
    it. Raises OSError."""
    with warc.open("rb") as file:
        yield lock(file.fileno(), warc)


def _unfinished(folder: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """With the final name of the WARC file of each."""
    ending = open_name(Path(suffix)).name
    for path in list(folder.glob(f"*{ending}")):
        yield path.with_name(path.name.removesuffix(ending) + WARC_SUFFIX), path
