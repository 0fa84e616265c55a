"""Look at the archive of a crawl: its files, the captures of a URL, one body, and its faults.

Rule: no lock is needed, and nothing is changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from scrapy.settings import BaseSettings

from crawler.archive.capture import DOM
from crawler.archive.cdxj import SUFFIX as INDEX
from crawler.archive.check import (
    ArchiveChecker,
    CheckResult,
    Fault,
    open_checker,
)
from crawler.archive.columns_companion import RENDERED
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery_stores import Store, local_store, open_store
from crawler.archive.earlier_crawls import FOLDER as EARLIER
from crawler.archive.earlier_crawls import EarlierCrawls, folders_of
from crawler.archive.lookup import (
    Entry,
    entries,
    find_original,
    lookup,
    read_entry,
    read_with_dom,
    warc_files,
)
from crawler.archive.purge import listed
from crawler.archive.reader import ArchivedCapture
from crawler.archive.warc_file import (
    OPEN_SUFFIX,
    companion_path,
    is_missing,
)
from crawler.assembly.build import data_dir
from crawler.config.settings import Config
from crawler.data.data_dir import (
    WARC,
    WORKER,
    lock_owner,
    worker_folders,
)
from crawler.model.page import Flag, head_fields
from crawler.model.types import ConfigError, DataDirError
from crawler.model.url import fetch_form
from crawler.page.encodings import codings_of, undo_codings
from crawler.view.formats import (
    many,
    plain,
    size,
)


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

    @property
    def earlier(self) -> list[Path]:
        """The folders of earlier crawls whose records count as originals (`-a known=`)."""
        return [folder for home in self.homes for folder in folders_of(home / EARLIER)]

    def local_stores(self) -> list[Store]:
        return [local_store(home) for home in self.homes]

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
    folders = _archive_folders(path)
    if not folders:
        raise DataDirError(
            f"{path} holds no archive: there is no {path / WARC}. CRAWLER_DATA_DIR says where"
        )
    has_redis = bool(config.shared.frontier_url) and not config.shared.url_frontier
    is_shared = has_redis or (path / WORKER).exists()
    return ArchivePlace(path, folders, config.archive.archive_url, is_shared)


def archive_in(path: Path) -> ArchivePlace:
    """Return what of an archive is in a data directory. Raises DataDirError if there is none."""
    folders = _archive_folders(path)
    if not folders:
        raise DataDirError(f"{path} holds no archive: there is no {path / WARC}")
    return ArchivePlace(path, folders, "", is_shared=False)


def _archive_folders(path: Path) -> tuple[Path, ...]:
    homes = [path, *worker_folders(path)]
    return tuple(home / WARC for home in homes if (home / WARC).is_dir())


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


def moment(timestamp: str) -> str:
    """Format 14 digits as date and time."""
    day, time = timestamp[:8], timestamp[8:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:]}"


def _file_row(file: Path) -> FileRow:
    size_bytes = file.stat().st_size
    captures, revisits, first, last = 0, 0, "", ""
    for entry in entries(file):
        if entry.url.startswith(DOM):
            continue  # of a capture that is counted
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


MAX_BODY_BYTES: Final = 1024 * 1024 * 1024  # of a body, compressed or not: it is held in memory


@dataclass(frozen=True, slots=True)
class ArchivedBody:
    """A body, and notes for the user on it."""

    body: bytes
    notes: tuple[str, ...]


def find_captures(place: ArchivePlace, text: str, *, is_rendered: bool = False) -> list[Entry]:
    """Return the captures of exactly this URL, else of URLs with the same index key, the oldest
    first; with *is_rendered*, or of `urn:dom:` and a URL, what a browser has made of them. Raises
    CrawlerError, also if there is none."""
    is_rendered = is_rendered or text.startswith(DOM)
    url = fetch_form(text.removeprefix(DOM))
    if url is None:
        raise ConfigError(f"{text!r} cannot be read as an http or https URL")
    captures = lookup(place.folders, url)
    exact = [entry for entry in captures if entry.url == url]
    if not captures:
        message = "; ".join(
            [f"{plain(url)} is not in the archive of {place.path}", *place.missing_notes()]
        )
        raise ConfigError(message)
    if not is_rendered:
        return exact or captures
    doms = lookup(place.folders, DOM + url) or list(_doms_of_copies(place, exact or captures))
    if not doms:
        raise ConfigError(f"no browser has rendered {plain(url)}: get it without --rendered")
    return [entry for entry in doms if entry.url == DOM + url] or doms


def _doms_of_copies(place: ArchivePlace, captures: list[Entry]) -> Iterator[Entry]:
    """Yield the DOMs, or answers as sent, of the pages whose content rendered ones repeat."""
    for entry in captures:
        noted = _noted(entry)
        original, digest = noted.get("duplicate-of"), noted.get("content-digest", entry.digest)
        if original and RENDERED in noted:
            doms = [each for each in lookup(place.folders, DOM + original) if each.digest == digest]
            sent = (each for each in lookup(place.folders, original) if not each.is_revisit)
            same = (e for e in sent if _noted(e).get("content-digest", e.digest) == digest)
            yield from doms[:1] or islice(same, 1)


def _noted(entry: Entry) -> dict[str, str]:
    """Return the metadata of a capture."""
    found = read_with_dom(entry, most_bytes=0)
    return dict(found[0].metadata) if found is not None else {}


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
        first = find_original([*place.folders, *place.earlier], stored)
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


class FileResult(msgspec.Struct, frozen=True):
    """The result of one file, or of all. *line*: the same as text."""

    file: str
    line: str
    faults: tuple[Fault, ...] = ()


def check(place: ArchivePlace) -> Iterator[FileResult]:
    """Check each file, then revisits for their originals. Raises DataDirError, also if there is no
    file to check."""
    if not place.files() and place.is_whole:
        raise DataDirError(f"{place.path} has no WARC file (.warc.gz, .warc)")
    known = [home / EARLIER for home in place.homes if folders_of(home / EARLIER)]
    with ExitStack() as opened:
        earlier = [opened.enter_context(closing(EarlierCrawls(folder))) for folder in known]
        checker = opened.enter_context(open_checker(earlier))
        for file in place.files():
            with suppress(FileNotFoundError):  # delivered since
                yield _check_file(checker, file)
        orphans = tuple(checker.orphans())
    purged = {each.place for each in listed(place.path) if each.original_deleted}
    if deleted := [each for each in orphans if each.where in purged]:
        orphans = tuple(each for each in orphans if each.where not in purged)
        yield FileResult("", f"{many(len(deleted), 'revisit')} of what was deleted on request")
    advice = "copy the files of the other parts of this archive here, and check again"
    faults = tuple(Fault(each.where, each.what, advice) for each in orphans)
    if faults and not place.is_whole:
        yield FileResult("", f"{many(len(faults), 'revisit')} of what is elsewhere")
    elif faults:
        yield FileResult("", f"{many(len(faults), 'revisit')} of nothing that is here", faults)


def _check_file(checker: ArchiveChecker, file: Path) -> FileResult:
    written = is_being_written(file)
    found = checker.check_file(file, is_being_written=written)
    state = "  being written" if written else ""
    if is_missing(file, COLUMNS):
        state = "  columns still to be made"
    verdict = many(len(found.faults), "fault") if found.faults else "good"
    return FileResult(found.file, _line(found, f"{verdict}{state}"), found.faults)


def _line(found: CheckResult, verdict: str) -> str:
    counted = f"{many(found.records, 'record')}, {many(found.captures, 'capture')}"
    return f"{found.file}  {counted}  {verdict}"


def fault_lines(faults: Iterable[Fault]) -> Iterator[str]:
    for fault in faults:
        advice = f" ({fault.advice})" if fault.advice else ""
        yield f"  {fault.where}: {plain(fault.what)}{advice}"
