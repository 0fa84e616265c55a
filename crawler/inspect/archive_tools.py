"""What `scrapy archive` does: list, get, check, rebuild and pack the WARC files of a crawl.

Rule: listing and getting need no lock and change nothing. A rebuilt file replaces the old in one
step, and a file that a crawl is writing is left alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from scrapy.settings import BaseSettings

from crawler.archive.cdxj import SUFFIX as INDEX
from crawler.archive.check import (
    ArchiveChecker,
    CheckResult,
    Fault,
    open_checker,
)
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery_stores import FolderStore, Store, StoreAddress, open_store
from crawler.archive.lookup import (
    Entry,
    entries,
    find_original,
    lookup,
    read_entry,
    warc_files,
)
from crawler.archive.purge import DELETIONS, DeletionRecord, deletions, listed, purge
from crawler.archive.reader import ArchivedCapture, DamagedFile
from crawler.archive.recovery import recover_one, unfinished_files
from crawler.archive.wacz import (
    PageLine,
    merged_index,
    pack_files,
)
from crawler.archive.warc_file import (
    OPEN_SUFFIX,
    Companion,
    companion_path,
    is_missing,
    rebuild_lock,
    remove_unfinished_companions,
)
from crawler.assembly.build import data_dir
from crawler.config.settings import Config
from crawler.data.data_dir import (
    WARC,
    WORKER,
    lock_owner,
    locked,
)
from crawler.inspect.frontier_view import table
from crawler.model.page import Flag, head_fields
from crawler.model.types import VERSION, ConfigError, DataDirError
from crawler.model.url import fetch_form
from crawler.page.encodings import codings_of, undo_codings
from crawler.page.media_type import HTML_TYPES, PDF
from crawler.policy.targets import UrlTarget
from crawler.report.figures import (
    many,
    number,
    plain,
    size,
)
from crawler.workers.workers import worker_folders


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """The archive of a data directory and of all workers below it."""

    path: Path  # the data directory
    folders: tuple[Path, ...]  # with WARC files
    store: str  # the object store for finished files; empty: they stay here
    is_shared: bool  # whether other machines may have parts of it

    def files(self) -> list[Path]:
        """Return all WARC files, finished or not."""
        return [file for folder in self.folders for file in warc_files(folder)]

    def finished(self) -> list[Path]:
        return [file for file in self.files() if not file.name.endswith(OPEN_SUFFIX)]

    @property
    def is_whole(self) -> bool:
        """Whether all of the archive is here."""
        return not (self.store or self.is_shared)

    @property
    def homes(self) -> list[Path]:
        return [folder.parent for folder in self.folders]

    def local_stores(self) -> list[Store]:
        return [FolderStore(StoreAddress(f"file://{home.resolve()}")) for home in self.homes]

    def all_stores(self) -> list[Store]:
        """Return the folders here and the object store. Raises ConfigError."""
        local = self.local_stores()
        return [*local, open_store(self.store, self.path)] if self.store else local

    def missing_notes(self) -> list[str]:
        """Return notes for the user on files that are not here."""
        if self.store:
            return [f"finished files are brought to {self.store}: those are not looked at"]
        return ["other workers' archives are not looked at"] if self.is_shared else []


def archive_of(settings: BaseSettings, config: Config) -> ArchivePlace:
    """Return the archive that the settings name. Raises DataDirError if there is none."""
    path = data_dir(settings, config)
    homes = [path, *worker_folders(path)]
    folders = tuple(home / WARC for home in homes if (home / WARC).is_dir())
    if not folders:
        raise DataDirError(
            f"{path} holds no archive: there is no {path / WARC}. CRAWLER_DATA_DIR says where"
        )
    is_shared = bool(config.shared.frontier_url) or (path / WORKER).exists()
    return ArchivePlace(path, folders, config.archive.archive_url, is_shared)


def is_being_written(file: Path) -> bool:
    """Return whether a running crawl is writing *file*."""
    return file.name.endswith(OPEN_SUFFIX) and lock_owner(file.parent.parent) is not None


COLUMNS_MISSING: Final = "(columns to be made)"
"""This crawl or the next one makes them; so does `scrapy archive parse`."""


class FileRow(msgspec.Struct, frozen=True):
    """One WARC file."""

    file: str
    state: str  # finished | being written | unfinished
    bytes: int
    captures: int  # responses and revisits
    revisits: int
    first: str  # time of the oldest, 14 digits; empty: no captures
    last: str
    beside: tuple[str, ...]  # index, columns, or COLUMNS_MISSING


class NewestFile(msgspec.Struct, frozen=True):
    """One of the newest WARC files, without a look into it."""

    file: str
    folder: str
    state: str  # finished | being written | unfinished
    bytes: int
    changed_at: float  # epoch seconds
    beside: tuple[str, ...]  # as of FileRow


class CaptureRow(msgspec.Struct, frozen=True):
    """One capture of a URL."""

    at: str  # 14 digits
    status: str
    media_type: str  # of a revisit: warc/revisit
    url: str
    record: str  # "file:offset"
    digest: str


def file_rows(place: ArchivePlace) -> Iterator[FileRow]:
    for file in place.files():
        with suppress(FileNotFoundError):  # finished or delivered since
            yield _file_row(file)


def newest_files(place: ArchivePlace, top: int) -> list[NewestFile]:
    """Return the *top* files that were changed last, the latest first."""
    found = []
    for file in place.files():
        with suppress(FileNotFoundError):  # finished or delivered since
            stat = file.stat()
            found.append((stat.st_mtime, stat.st_size, file))
    rows = []
    for changed_at, size_bytes, file in heapq.nlargest(top, found):
        name = file.name.removesuffix(OPEN_SUFFIX)
        beside = tuple(_beside(file.with_name(name)))
        folder = str(file.parent)
        rows.append(NewestFile(name, folder, _state(file), size_bytes, changed_at, beside))
    return rows


def capture_row(entry: Entry) -> CaptureRow:
    return CaptureRow(
        entry.timestamp, entry.status, entry.mime, entry.url, str(entry.place), entry.digest
    )


def deletion_records(place: ArchivePlace, targets: Sequence[UrlTarget]) -> Iterator[DeletionRecord]:
    """Yield what the files here hold of *targets*. Raises DataDirError, StoreUnavailable."""
    return deletions(place.local_stores(), _is_meant(targets))


def all_deletion_records(
    place: ArchivePlace, targets: Sequence[UrlTarget]
) -> Iterator[DeletionRecord]:
    """Yield what the files here and in the object store hold of *targets*. Raises CrawlerError."""
    return deletions(place.all_stores(), _is_meant(targets))


def purge_archive(
    place: ArchivePlace, kept: Sequence[Companion], targets: Sequence[UrlTarget]
) -> Iterator[RebuildResult]:
    """Finish what a dead process left, as `recover_and_rebuild`; then delete what the files here
    and in the object store hold of *targets*. Raises CrawlerError."""
    is_meant, before = _is_meant(targets), sum(1 for _ in listed(place.path))
    with ExitStack() as locks:
        for home in sorted({place.path, *place.homes}):
            locks.enter_context(locked(home))
        yield from _recover_all(place, kept, set())
        for done in purge(place.all_stores(), is_meant, place.path, lambda: None):
            line = f"{Path(done.name).name}  {many(done.records, 'record')} deleted"
            yield RebuildResult(done.name, line)
    added = list(islice(listed(place.path), before, None))
    left = sum(not each.deleted for each in added)
    counted = f"{many(len(added) - left, 'record')} deleted, {many(left, 'revisit')} left of them"
    yield RebuildResult("", f"{counted}: added to {place.path / DELETIONS}")
    for package in sorted(found for home in place.homes for found in home.rglob("*.wacz")):
        advice = "remove it, and pack again: scrapy archive pack"
        fault = Fault(package.name, "a package, which may hold what was deleted here", advice)
        yield RebuildResult(package.name, f"{package}  not looked at", (fault,))


def _is_meant(targets: Sequence[UrlTarget]) -> Callable[[str], bool]:
    def is_meant(text: str) -> bool:
        # Other programs archive URLs in other forms, and names that are no URLs for us.
        url = fetch_form(text)
        return url is not None and any(target.matches(url) for target in targets)

    return is_meant


def files_text(files: Sequence[FileRow]) -> Iterator[str]:
    head = ("file", "state", "captures", "revisits", "size", "first", "last", "beside")
    rows = [_file_cells(file) for file in files]
    yield from table([head, *rows], right={2, 3, 4})
    captures, taken = sum(file.captures for file in files), sum(file.bytes for file in files)
    yield f"{many(len(files), 'file')}, {many(captures, 'capture')}, {size(taken)}"


def captures_text(captures: Sequence[CaptureRow]) -> Iterator[str]:
    yield from table(
        [
            (
                moment(capture.at),
                capture.status or "-",
                plain(capture.media_type) or "-",
                capture.record,
            )
            + ((plain(capture.url),) if len({each.url for each in captures}) > 1 else ())
            for capture in captures
        ],
        right=set(),
    )


def moment(timestamp: str) -> str:
    """Format 14 digits as date and time."""
    day, time = timestamp[:8], timestamp[8:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:]}"


def _file_row(file: Path) -> FileRow:
    size_bytes = file.stat().st_size
    captures, revisits, first, last = 0, 0, "", ""
    for entry in entries(file):
        captures += 1
        revisits += entry.is_revisit
        first = min(first or entry.timestamp, entry.timestamp)
        last = max(last, entry.timestamp)
    name = file.name.removesuffix(OPEN_SUFFIX)
    has = tuple(_beside(file.with_name(name)))
    return FileRow(name, _state(file), size_bytes, captures, revisits, first, last, has)


def _beside(warc: Path) -> Iterator[str]:
    if companion_path(warc, INDEX).exists():
        yield "index"
    if is_missing(warc, COLUMNS):
        yield COLUMNS_MISSING
    elif companion_path(warc, COLUMNS).exists():
        yield "columns"


def _state(file: Path) -> str:
    if not file.name.endswith(OPEN_SUFFIX):
        return "finished"
    return "being written" if is_being_written(file) else "unfinished"


def _file_cells(row: FileRow) -> tuple[str, ...]:
    return (
        row.file,
        row.state,
        number(row.captures),
        number(row.revisits),
        size(row.bytes),
        moment(row.first) if row.first else "-",
        moment(row.last) if row.last else "-",
        " ".join(row.beside) or "-",
    )


MAX_BODY_BYTES: Final = 1024 * 1024 * 1024  # of a body, compressed or not: it is held in memory


@dataclass(frozen=True, slots=True)
class ArchivedBody:
    """A body, and notes for the user on it."""

    body: bytes
    notes: tuple[str, ...]


def find_captures(place: ArchivePlace, text: str) -> list[Entry]:
    """Return the captures of exactly this URL, else of URLs with the same index key, the oldest
    first. Raises CrawlerError, also if there is none."""
    url = fetch_form(text)
    if url is None:
        raise ConfigError(f"{text!r} cannot be read as an http or https URL")
    captures = lookup(place.folders, url)
    exact = [entry for entry in captures if entry.url == url]
    if not captures:
        message = "; ".join(
            [f"{plain(url)} is not in the archive of {place.path}", *place.missing_notes()]
        )
        raise ConfigError(message)
    return exact or captures


def choose_capture(captures: list[Entry], at: str | None) -> Entry:
    """Return the latest capture whose timestamp begins with the digits of *at*, if given. Raises
    ConfigError if there is none."""
    if at is None:
        return captures[-1]
    digits = "".join(char for char in at if char.isdigit())
    fitting = [entry for entry in captures if entry.timestamp.startswith(digits)]
    if not digits or not fitting:
        raise ConfigError(f"no capture of {plain(captures[-1].url)} is of {at}; --all lists them")
    return fitting[-1]


def read_body(place: ArchivePlace, entry: Entry, *, is_raw: bool) -> ArchivedBody:
    """Return the body of a capture, of a revisit that of its original. Raises CrawlerError if a
    record cannot be read."""
    stored = read_entry(entry, MAX_BODY_BYTES)
    source = stored
    if stored.kind == "revisit":
        first = find_original(place.folders, stored)
        if first is None:
            parts = [
                f"{plain(stored.url)} repeats {plain(stored.refers_to)}, whose record is not here",
                *place.missing_notes(),
            ]
            raise ConfigError("; ".join(parts))
        source = read_entry(first, MAX_BODY_BYTES)
    body, coding = (source.body, "") if is_raw else _decoded_body(source)
    return ArchivedBody(body, tuple(_notes(entry, stored, source, coding, len(body))))


def _decoded_body(source: ArchivedCapture) -> tuple[bytes, str]:
    headers = head_fields(source.head)
    codings = codings_of([value for name, value in headers if name.lower() == b"content-encoding"])
    if not codings:
        return source.body, ""
    result = undo_codings(source.body, codings, MAX_BODY_BYTES)
    names = plain(b", ".join(codings).decode("latin-1"))
    if Flag.UNDECODED in result.flags:
        return result.body, f"as it came, in a coding that is not known: {names}"
    if result.flags:
        return result.body, f"damaged or short in its coding ({names}): what could be read"
    return result.body, ""


def _notes(
    entry: Entry, stored: ArchivedCapture, source: ArchivedCapture, coding: str, size_bytes: int
) -> Iterator[str]:
    kind = plain(entry.mime) if source is stored else f"repeats {plain(source.url)}"
    yield (
        f"{moment(entry.timestamp)}  {entry.status or '-'}  {kind or '-'}  {size(size_bytes)}"
        f"  {entry.place}"
    )
    if source.truncated:
        yield f"the body is not whole: it was cut when it was fetched ({source.truncated})"
    if source.body_cut:
        yield f"the body is not whole: {size(MAX_BODY_BYTES)} of it are given"
    if coding:
        yield f"the body is {coding}"


# Types that a reader opens by themselves, not as a part of a page.
SHOWN: Final = frozenset({*HTML_TYPES, PDF, "text/plain"})


class RebuildResult(msgspec.Struct, frozen=True):
    """The result of one file, or of all. *line*: the same as text."""

    file: str
    line: str
    faults: tuple[Fault, ...] = ()


def check(place: ArchivePlace) -> Iterator[RebuildResult]:
    """Check each file, then revisits for their originals. Raises DataDirError, also if there is no
    file to check."""
    if not place.files() and place.is_whole:
        raise DataDirError(f"{place.path} has no WARC file (.warc.gz, .warc)")
    with open_checker() as checker:
        for file in place.files():
            with suppress(FileNotFoundError):  # delivered since
                yield _check_file(checker, file)
        orphans = tuple(checker.orphans())
    known = {each.place for each in listed(place.path) if each.original_deleted}
    if deleted := [each for each in orphans if each.where in known]:
        orphans = tuple(each for each in orphans if each.where not in known)
        yield RebuildResult("", f"{many(len(deleted), 'revisit')} of what was deleted on request")
    advice = "copy the files of the other parts of this archive here, and check again"
    faults = tuple(Fault(each.where, each.what, advice) for each in orphans)
    if faults and not place.is_whole:
        yield RebuildResult("", f"{many(len(faults), 'revisit')} of what is elsewhere")
    elif faults:
        yield RebuildResult("", f"{many(len(faults), 'revisit')} of nothing that is here", faults)


def recover_and_rebuild(
    place: ArchivePlace, kept: Sequence[Companion], companions: Sequence[Companion]
) -> Iterator[RebuildResult]:
    """Recover files that a dead process left unfinished, as its next start would; *kept*: all their
    companions. Then rebuild the companions *companions* of each finished file, of a recovered one
    only the slow ones. A file that cannot be read or recovered is a fault, and the others are done
    all the same. Raises CrawlerError."""
    recovered: set[Path] = set()
    yield from _recover_all(place, kept, recovered)
    slow = [companion for companion in companions if companion.is_slow]
    for file in place.finished():
        if missing := slow if file in recovered else companions:
            yield from _rebuild(file, missing)


def pack(place: ArchivePlace, out: Path, now: float) -> Iterator[RebuildResult]:
    """Pack all finished files into *out*, a WACZ file. Raises CrawlerError."""
    files = place.finished()
    _refuse_unpackable(place, files)
    scratch = out.with_name(f"{out.name}.index")
    with pack_files(out, now) as wacz, merged_index(files, scratch) as lines:
        for file in files:
            wacz.add_archive(file)
            yield RebuildResult(file.name, file.name)
        wacz.add_index(lines)
        pages = wacz.add_pages(page for file in files for page in _pages(file))
        wacz.add_description(f"Crawl in {place.path.name}", f"Gossamer/{VERSION}")
    for file in place.files():
        if file not in files:
            yield RebuildResult(file.name, f"{file.name} is not finished, and was left out")
    totals = f"{many(len(files), 'file')}, {many(pages, 'page')}, {size(out.stat().st_size)}"
    yield RebuildResult(out.name, f"{out}: {totals}")


def _recover_all(
    place: ArchivePlace, kept: Sequence[Companion], recovered: set[Path]
) -> Iterator[RebuildResult]:
    for folder in place.folders:
        for path in unfinished_files(folder):
            yield from _recover(path, kept, recovered)
        for companion in kept:
            remove_unfinished_companions(folder, companion.suffix)


def _recover(
    path: Path, kept: Sequence[Companion], recovered: set[Path]
) -> Iterator[RebuildResult]:
    """Recover *path*. Yields nothing if a crawl is writing it."""
    name = path.name.removesuffix(OPEN_SUFFIX)
    try:
        done = recover_one(path, kept)
    except DataDirError as error:
        yield _not_done(path, Fault(name, str(error), ""))
        return
    if done is not None:
        recovered.add(path.with_name(name))
        state = f"{many(done.records, 'record')}  was unfinished, is whole now"
        yield RebuildResult(name, f"{name}  {state if done.records else 'had no record'}")


def _rebuild(file: Path, companions: Sequence[Companion]) -> Iterator[RebuildResult]:
    """Rebuild *companions* of *file*. Yields nothing if it was delivered since."""
    with suppress(FileNotFoundError), rebuild_lock(file) as is_ours:
        yield _rebuild_companions(file, companions) if is_ours else _not_done(file, _busy(file))


def _rebuild_companions(file: Path, companions: Sequence[Companion]) -> RebuildResult:
    try:
        for companion in companions:
            companion.rebuild(file, file)
    except DamagedFile as damage:
        return _not_done(file, Fault(file.name, str(damage), "scrapy archive check shows more"))
    names = " ".join(companion_path(file, companion.suffix).name for companion in companions)
    return RebuildResult(file.name, names)


def _busy(file: Path) -> Fault:
    return Fault(file.name, "its columns are being made by the crawl", "try again later")


def _not_done(file: Path, fault: Fault) -> RebuildResult:
    return RebuildResult(file.name, f"{file.name}  not done", (fault,))


def _check_file(checker: ArchiveChecker, file: Path) -> RebuildResult:
    written = is_being_written(file)
    found = checker.check_file(file, is_being_written=written)
    state = "  being written" if written else ""
    if is_missing(file, COLUMNS):
        state = "  columns still to be made"
    verdict = many(len(found.faults), "fault") if found.faults else "good"
    return RebuildResult(found.file, _line(found, f"{verdict}{state}"), found.faults)


def _line(found: CheckResult, verdict: str) -> str:
    counted = f"{many(found.records, 'record')}, {many(found.captures, 'capture')}"
    return f"{found.file}  {counted}  {verdict}"


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    for fault in faults:
        advice = f" ({fault.advice})" if fault.advice else ""
        yield f"  {fault.where}: {plain(fault.what)}{advice}"


def _refuse_unpackable(place: ArchivePlace, files: Sequence[Path]) -> None:
    if not files:
        raise DataDirError(
            "; ".join([f"{place.path} has no finished file", *place.missing_notes()])
        )
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataDirError(f"two files are called {twice}, which one package cannot hold")


def _pages(file: Path) -> Iterator[PageLine]:
    """Yield the pages of a file from its columns, which have titles, else from its index."""
    from crawler.archive.columns import read_titles  # noqa: PLC0415  # Arrow: 150 ms

    try:
        for row in read_titles(companion_path(file, COLUMNS)):
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
