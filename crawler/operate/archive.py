"""Act on the archive of a crawl: recover, rebuild, pack it, write its graph, and delete from it.

Rule: a rebuilt file replaces the old in one step, and a file that a crawl is writing is left alone.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import Final

from crawler.archive.check import (
    Fault,
)
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery import OUTCOMES as OUTCOME_TABLE
from crawler.archive.delivery_stores import open_store
from crawler.archive.expire import Retention
from crawler.archive.lookup import (
    entries,
)
from crawler.archive.purge import DELETIONS, DeletionRecord, deletions, listed, purge
from crawler.archive.reader import DamagedFile
from crawler.archive.recovery import recover_one, unfinished_files
from crawler.archive.wacz import (
    Labels,
    PageLine,
    merged_index,
    pack_files,
)
from crawler.archive.warc_file import (
    OPEN_SUFFIX,
    Companion,
    companion_path,
    rebuild_lock,
    remove_unfinished_companions,
)
from crawler.content.crawl_archive import outcome_table
from crawler.data.changes import purge_changes
from crawler.data.data_dir import (
    CHANGES,
    OUTCOMES,
    lock_owner,
    locked,
    worker_folders,
)
from crawler.data.outcomes import read_outcomes
from crawler.model.program import PROGRAM
from crawler.model.types import (
    VERSION,
    ConfigError,
    CrawlerError,
    DataDirError,
    StoreUnavailable,
)
from crawler.model.url import fetch_form
from crawler.page.media_type import HTML_TYPES, PDF
from crawler.policy.name_set import NameSet
from crawler.policy.targets import UrlTarget
from crawler.view.archive import ArchivePlace, FileResult
from crawler.view.formats import (
    many,
    size,
)
from crawler.view.place import CrawlPlace


def recover_and_rebuild(
    place: ArchivePlace, kept: Sequence[Companion], companions: Sequence[Companion]
) -> Iterator[FileResult]:
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


def pack(place: ArchivePlace, out: Path, now: float, labels: Labels) -> Iterator[FileResult]:
    """Pack all finished files into *out*, a WACZ file with *labels*. Raises CrawlerError."""
    files, seeds = place.finished(), _seed_pages(place)
    _refuse_unpackable(place, files)
    scratch = out.with_name(f"{out.name}.index")
    with pack_files(out, now) as wacz, merged_index(files, scratch) as lines:
        for file in files:
            wacz.add_archive(file)
            yield FileResult(file.name, file.name)
        wacz.add_index(lines)
        have_texts = any(companion_path(file, COLUMNS).exists() for file in files)
        listed = (page for file in files for page in _pages(file, seeds))
        pages = wacz.add_pages(listed, have_texts=have_texts)
        title = labels.title or f"Crawl in {place.path.name}"
        wacz.add_description(replace(labels, title=title), f"Gossamer/{VERSION}")
    for file in place.files():
        if file not in files:
            yield FileResult(file.name, f"{file.name} is not finished, and was left out")
    totals = f"{many(len(files), 'file')}, {many(pages, 'page')}, {size(out.stat().st_size)}"
    yield FileResult(out.name, f"{out}: {totals}")


def export(
    place: ArchivePlace, folder: Path, write: Callable[[Path, Path, float, str], int]
) -> Iterator[FileResult]:
    """Write a WET or WAT file into *folder* for each finished file. Raises CrawlerError."""
    for file in place.finished():
        try:
            count = write(file, folder, time.time(), f"Gossamer/{VERSION}")
        except FileNotFoundError:
            missing = Fault(file.name, "it has no columns", f"{PROGRAM} archive parse makes them")
            yield _not_done(file, missing)
        except DataDirError as damage:
            yield _not_done(file, Fault(file.name, str(damage), ""))
        else:
            yield FileResult(file.name, f"{file.name}  {many(count, 'record')}")


def graph(place: ArchivePlace, folder: Path) -> Iterator[FileResult]:
    """Write the graph of the hosts and that of the domains of all finished files into *folder*,
    which is made. A file whose columns are missing or damaged is a fault. Raises CrawlerError."""
    from crawler.archive.graph import HostLinks, domain_graph, write_graph  # noqa: PLC0415  # Arrow

    links, pages = HostLinks(), 0
    for file in place.finished():
        try:
            found = links.add(companion_path(file, COLUMNS))
        except FileNotFoundError:
            missing = Fault(file.name, "it has no columns", f"{PROGRAM} archive parse makes them")
            yield _not_done(file, missing)
        except DataDirError as damage:
            yield _not_done(file, Fault(file.name, str(damage), ""))
        else:
            pages += found
            yield FileResult(file.name, f"{file.name}  {many(found, 'page')}")
    if not pages:
        raise DataDirError(f"{place.path} has no columns with pages, from which a graph is made")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {folder}: {error.strerror or error}") from error
    hosts = links.graph()
    for what, each in (("host", hosts), ("domain", domain_graph(hosts))):
        written = write_graph(each, folder, what)
        drawn = f", centrality by paths from {written.drawn:,} of them" if written.drawn else ""
        counted = f"{many(written.nodes, what)}, {many(written.edges, 'edge')}{drawn}"
        yield FileResult("", f"{folder / what}-ranks.txt.gz  {counted}")


def _recover_all(
    place: ArchivePlace, kept: Sequence[Companion], recovered: set[Path]
) -> Iterator[FileResult]:
    for folder in place.folders:
        for path in unfinished_files(folder):
            yield from _recover(path, kept, recovered)
        for companion in kept:
            remove_unfinished_companions(folder, companion.suffix)
    for home in place.homes:
        yield from _write_outcomes(home)


def _write_outcomes(home: Path) -> Iterator[FileResult]:
    """Write the outcomes that are in no Parquet file yet, where there are such files and no crawl
    runs that would write them."""
    if not (home / OUTCOME_TABLE).is_dir() or lock_owner(home) not in (None, os.getpid()):
        return
    table = outcome_table(home)
    table.recover()
    written = table.cut()
    if written is not None:
        yield FileResult(written.name, f"{written.name}  outcomes")


def _recover(path: Path, kept: Sequence[Companion], recovered: set[Path]) -> Iterator[FileResult]:
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
        yield FileResult(name, f"{name}  {state if done.records else 'had no record'}")


def _rebuild(file: Path, companions: Sequence[Companion]) -> Iterator[FileResult]:
    """Rebuild *companions* of *file*. Yields nothing if it was delivered since."""
    with suppress(FileNotFoundError), rebuild_lock(file) as is_ours:
        yield _rebuild_companions(file, companions) if is_ours else _not_done(file, _busy(file))


def _rebuild_companions(file: Path, companions: Sequence[Companion]) -> FileResult:
    try:
        for companion in companions:
            companion.rebuild(file, file)
    except DamagedFile as damage:
        return _not_done(file, Fault(file.name, str(damage), f"{PROGRAM} archive check shows more"))
    names = " ".join(companion_path(file, companion.suffix).name for companion in companions)
    return FileResult(file.name, names)


def _busy(file: Path) -> Fault:
    return Fault(file.name, "its columns are being made by the crawl", "try again later")


def _not_done(file: Path, fault: Fault) -> FileResult:
    return FileResult(file.name, f"{file.name}  not done", (fault,))


def _refuse_unpackable(place: ArchivePlace, files: Sequence[Path]) -> None:
    if not files:
        raise DataDirError(
            "; ".join([f"{place.path} has no finished file", *place.missing_notes()])
        )
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataDirError(f"two files are called {twice}, which one package cannot hold")


def _seed_pages(place: ArchivePlace) -> NameSet:
    """Return the URLs of the seeds that were fetched, and of what these redirected to."""
    hashes = array("q")
    for home in place.homes:
        for outcome in read_outcomes(home / OUTCOMES):
            if outcome.seed and outcome.fate == "done":
                hashes.append(hash(outcome.url))
    return NameSet(hashes)


def _pages(file: Path, seeds: NameSet) -> Iterator[PageLine]:
    """Yield the pages of a file from its columns, which have titles and texts, else from its
    index."""
    from crawler.archive.columns import read_texts  # noqa: PLC0415  # Arrow: 150 ms

    try:
        for row in read_texts(companion_path(file, COLUMNS)):
            if row.media_type in SHOWN or row.url in seeds:
                at = f"{row.fetched_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
                yield PageLine(row.url, at, row.title, row.text, row.url in seeds)
    except FileNotFoundError:
        for entry in entries(file):
            if entry.mime in SHOWN and entry.status.startswith("2"):
                yield PageLine(entry.url, _iso(entry.timestamp), is_seed=entry.url in seeds)


def _iso(timestamp: str) -> str:
    day, time = timestamp[:8], timestamp[8:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"


# Types that a reader opens by themselves, not as a part of a page.
SHOWN: Final = frozenset({*HTML_TYPES, PDF, "text/plain"})


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
) -> Iterator[FileResult]:
    """Finish what a dead process left, as `recover_and_rebuild`; then delete what the files here
    and in the object store hold of *targets*. Raises CrawlerError."""
    is_meant, before = _is_meant(targets), sum(1 for _ in listed(place.path))
    with ExitStack() as locks:
        for home in sorted({place.path, *place.homes}):
            locks.enter_context(locked(home))
        yield from _recover_all(place, kept, set())
        for done in purge(place.all_stores(), is_meant, place.path, lambda: None):
            line = f"{Path(done.name).name}  {many(done.records, 'record')} deleted"
            yield FileResult(done.name, line)
        for home in sorted({place.path, *place.homes}):
            if urls := purge_changes(home / CHANGES, is_meant, time.time()):
                line = f"{home / CHANGES}  {many(urls, 'URL')} announced as purged"
                yield FileResult(CHANGES, line)
    added = list(islice(listed(place.path), before, None))
    left = sum(not each.deleted for each in added)
    counted = f"{many(len(added) - left, 'record')} deleted, {many(left, 'revisit')} left of them"
    yield FileResult("", f"{counted}: added to {place.path / DELETIONS}")
    for package in sorted(found for home in place.homes for found in home.rglob("*.wacz")):
        advice = f"remove it, and pack again: {PROGRAM} archive pack"
        fault = Fault(package.name, "a package, which may hold what was deleted here", advice)
        yield FileResult(package.name, f"{package}  not looked at", (fault,))


def expire(
    place: ArchivePlace, before: float, now: float, *, is_trial: bool
) -> Iterator[FileResult]:
    """Remove the WARC files of which all answers are older than *before*, epoch seconds, and that
    no other needs; with *is_trial* say which. Raises CrawlerError."""
    local = place.local_stores()
    stores, waiting = ([open_store(place.store, place.path)], local) if place.store else (local, [])
    retention = Retention(stores, waiting, place.path)
    with ExitStack() as locks:
        for home in sorted({place.path, *place.homes}):
            locks.enter_context(locked(home))
        done = retention.look(before, now, 0.0, is_trial=is_trial)
    for each in sorted(done, key=lambda each: each.file):
        named = f": {many(each.named, 'answer')} named by newer records" if each.named else ""
        yield FileResult(each.file, f"{each.file}  {each.what}{named}")
    removed = sum(each.what == "removed" for each in done)
    would = "would be removed" if is_trial else "removed"
    yield FileResult("", f"{many(removed, 'file')} {would}, {len(done) - removed} kept for others")


def purge_shared_changes(place: CrawlPlace, targets: Sequence[UrlTarget]) -> Iterator[FileResult]:
    """Delete *targets* from the change feed of a crawl that workers share; nothing else has one in
    Redis. To be called after `purge_archive`, which writes what is then sent to it."""
    homes = [place.path, *worker_folders(place.path)]
    is_written = place.config.archive.changes or any((each / CHANGES).exists() for each in homes)
    if not place.is_shared or not is_written:
        return
    try:
        with place.shared_changes() as feed:
            if urls := feed.purge(_is_meant(targets), time.time()):
                yield FileResult(CHANGES, f"{feed.where}  {many(urls, 'URL')} announced as purged")
    except ConfigError as error:  # the crawl is not there any more, and its feed neither
        yield FileResult(CHANGES, f"the change feed in Redis  not looked at: {error}")
    except CrawlerError as error:
        fault = Fault(CHANGES, str(error), "purge again when that is mended")
        yield FileResult(CHANGES, "the change feed in Redis  not done", (fault,))


def _is_meant(targets: Sequence[UrlTarget]) -> Callable[[str], bool]:
    def is_meant(text: str) -> bool:
        # Other programs archive URLs in other forms, and names that are no URLs for us.
        url = fetch_form(text)
        return url is not None and any(target.matches(url) for target in targets)

    return is_meant
