"""What takes its time on an archive: check it, make its indexes and columns again, pack it.

Rule: one file after the other, and each is told about when it is done. A file that a crawl
writes is left to it; what is made again takes the place of the old in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Final

import msgspec

from crawler.core.errors import DataDirError
from crawler.core.version import VERSION
from crawler.ops.archive_place import ArchivePlace, is_being_written
from crawler.ops.figures import many, plain, size
from crawler.policy.content import HTML_TYPES, PDF
from crawler.storage.columns.companion import SUFFIX as COLUMNS
from crawler.storage.columns.titles import titled
from crawler.storage.warc.checking import Checked, Checking, Fault, checking
from crawler.storage.warc.companions import Companion, beside, clear, held, is_owed
from crawler.storage.warc.lookup import entries
from crawler.storage.warc.members import Damaged
from crawler.storage.warc.openfile import OPEN_SUFFIX
from crawler.storage.warc.recovery import left_open, recover_one
from crawler.storage.warc.wacz import PageLine, merged, packing

# What a reader opens by itself, and not as a part of a page.
SHOWN: Final = frozenset({*HTML_TYPES, PDF, "text/plain"})


class Done(msgspec.Struct, frozen=True):
    """What came of one file, or of all. *line*: the same for a person."""

    file: str
    line: str
    faults: tuple[Fault, ...] = ()


def check(place: ArchivePlace) -> Iterator[Done]:
    """Of each file, then of revisits whose original is nowhere. Raises DataDirError, also where
    there is nothing to check."""
    if not place.files() and place.is_whole:
        raise DataDirError(f"{place.path} has no WARC file (.warc.gz, .warc)")
    with checking() as looking:
        for file in place.files():
            with suppress(FileNotFoundError):  # brought away since
                yield _checked(looking, file)
        orphans = tuple(looking.orphans())
    advice = "copy the files of the other parts of this archive here, and check again"
    faults = tuple(Fault(each.where, each.what, advice) for each in orphans)
    if faults and not place.is_whole:
        yield Done("", f"{many(len(faults), 'revisit')} of what is elsewhere")
    elif faults:
        yield Done("", f"{many(len(faults), 'revisit')} of nothing that is here", faults)


def whole_again(
    place: ArchivePlace, kept: Sequence[Companion], again: Sequence[Companion]
) -> Iterator[Done]:
    """What a dead process left unfinished is mended, as its next start would: it may never be
    started again. Then companions are made *again* of each finished file. *kept*: all that a file
    has; of one that is mended the slow ones are owed. A file that cannot be read or mended is a
    fault, and the others are done all the same. Raises CrawlerError."""
    mended: set[Path] = set()
    for folder in place.folders:
        for path in left_open(folder):
            yield from _mended(path, kept, mended)
        for companion in kept:
            clear(folder, companion.suffix)
    slow = [companion for companion in again if companion.is_slow]
    for file in place.finished():
        if lacks := slow if file in mended else again:
            yield from _made_again(file, lacks)


def pack(place: ArchivePlace, out: Path, now: float) -> Iterator[Done]:
    """All finished files into *out*. Raises CrawlerError."""
    files = place.finished()
    _refuse_unpackable(place, files)
    scratch = out.with_name(f"{out.name}.index")
    with packing(out, now) as wacz, merged(files, scratch) as lines:
        for file in files:
            wacz.archive(file)
            yield Done(file.name, file.name)
        wacz.index(lines)
        pages = wacz.pages(page for file in files for page in _pages(file))
        wacz.describe(f"Crawl in {place.path.name}", f"Gossamer/{VERSION}")
    for file in place.files():
        if file not in files:
            yield Done(file.name, f"{file.name} is not finished, and was left out")
    told = f"{many(len(files), 'file')}, {many(pages, 'page')}, {size(out.stat().st_size)}"
    yield Done(out.name, f"{out}: {told}")


def _mended(path: Path, kept: Sequence[Companion], mended: set[Path]) -> Iterator[Done]:
    """Nothing, if a crawl writes it."""
    name = path.name.removesuffix(OPEN_SUFFIX)
    try:
        done = recover_one(path, kept)
    except DataDirError as error:
        yield _not_done(path, Fault(name, str(error), ""))
        return
    if done is not None:
        mended.add(path.with_name(name))
        state = f"{many(done.records, 'record')}  was unfinished, is whole now"
        yield Done(name, f"{name}  {state if done.records else 'had no record'}")


def _made_again(file: Path, companions: Sequence[Companion]) -> Iterator[Done]:
    """Nothing, if it was brought away since."""
    with suppress(FileNotFoundError), held(file) as is_ours:
        yield _made(file, companions) if is_ours else _not_done(file, _busy(file))


def _made(file: Path, companions: Sequence[Companion]) -> Done:
    try:
        for companion in companions:
            companion.rebuild(file, file)
    except Damaged as damage:
        return _not_done(file, Fault(file.name, str(damage), "scrapy archive check tells more"))
    names = " ".join(beside(file, companion.suffix).name for companion in companions)
    return Done(file.name, names)


def _busy(file: Path) -> Fault:
    return Fault(file.name, "its columns are being made by the crawl", "try again later")


def _not_done(file: Path, fault: Fault) -> Done:
    return Done(file.name, f"{file.name}  not done", (fault,))


def _checked(looking: Checking, file: Path) -> Done:
    written = is_being_written(file)
    found = looking.file(file, is_being_written=written)
    state = "  being written" if written else ""
    if is_owed(file, COLUMNS):
        state = "  columns still to be made"
    verdict = many(len(found.faults), "fault") if found.faults else "good"
    return Done(found.file, _line(found, f"{verdict}{state}"), found.faults)


def _line(found: Checked, verdict: str) -> str:
    counted = f"{many(found.records, 'record')}, {many(found.captures, 'capture')}"
    return f"{found.file}  {counted}  {verdict}"


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    for fault in faults:
        advice = f" ({fault.advice})" if fault.advice else ""
        yield f"  {fault.where}: {plain(fault.what)}{advice}"


def _refuse_unpackable(place: ArchivePlace, files: Sequence[Path]) -> None:
    if not files:
        raise DataDirError("; ".join([f"{place.path} has no finished file", *place.elsewhere()]))
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataDirError(f"two files are called {twice}, which one package cannot hold")


def _pages(file: Path) -> Iterator[PageLine]:
    """By its columns, which have titles; or by its index."""
    try:
        for row in titled(beside(file, COLUMNS)):
            yield PageLine(
                row.url, f"{row.fetched_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", row.title
            )
    except FileNotFoundError:
        for entry in entries(file):
            if entry.mime in SHOWN and entry.status.startswith("2"):
                yield PageLine(entry.url, _iso(entry.timestamp))


def _iso(timestamp: str) -> str:
    day, time = timestamp[:8], timestamp[8:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"
