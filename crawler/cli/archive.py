"""What `scrapy archive` does: show, check, rebuild and pack the archive of a crawl, and more.

Rule: showing needs no lock and changes nothing, also while the crawl runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

import msgspec
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.wacz import Labels
from crawler.cli.place import place_of
from crawler.config.readers import duration
from crawler.config.settings import Config, read_config
from crawler.content.crawl_archive import companions
from crawler.data.files import refuse_existing
from crawler.model.types import (
    ConfigError,
    CrawlerError,
    DataDirError,
    StoreUnavailable,
)
from crawler.operate import archive as archive_acts
from crawler.policy.targets import read_target
from crawler.report.messages import print_error
from crawler.view import archive as archive_view
from crawler.view.archive import (
    ArchivePlace,
    CaptureRow,
    FileResult,
    FileRow,
    archive_in,
    archive_of,
    fault_lines,
    moment,
)
from crawler.view.formats import many, number, plain, size, table


@dataclass(frozen=True, slots=True)
class ArchiveArguments:
    """The archive, the URL or file, and the options of one command."""

    place: ArchivePlace
    config: Config
    settings: BaseSettings
    words: tuple[str, ...]  # a URL, a file, a folder
    opts: argparse.Namespace


def run(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Do what *args* ask for and return the exit status. Raises UsageError."""
    action, words = _action(args, opts)
    try:
        if action is _expire and words:
            settings.set("CRAWLER_DATA_DIR", words[0], "cmdline")
        config = read_config(settings)
        is_typed = action is _compare  # it needs no crawl beside the two
        place = archive_in(Path(words[1])) if is_typed else archive_of(settings, config)
        return int(not action(ArchiveArguments(place, config, settings, words, opts)))
    except CrawlerError as error:
        print_error(error)
        return 1


def _action(args: list[str], opts: argparse.Namespace) -> tuple[Action, tuple[str, ...]]:
    """Return the action and its words. Raises UsageError for what it does not take."""
    unknown = next((each for each in args if each.startswith("-")), None)
    if unknown:
        raise UsageError(f"unknown option {unknown}")
    if not args or args[0] not in _ACTIONS:
        raise UsageError(f"say what: {', '.join(_ACTIONS)}", print_help=False)
    action, wants, options = _ACTIONS[args[0]]
    foreign = [name for name in _OPTIONS - options if getattr(opts, name) is not None]
    if foreign:
        raise UsageError(f"{args[0]} takes no {_OPTION_NAMES[foreign[0]]}")
    may_be_named = action is _expire and len(args) == 2  # its data directory
    if len(args) != 1 + len(wants) and not may_be_named:
        raise UsageError(f"{args[0]} takes {' and '.join(wants) or 'nothing more'}")
    return action, tuple(args[1:])


def _list(args: ArchiveArguments) -> bool:
    rows = list(archive_view.file_rows(args.place))
    _print(args, rows, files_text(rows))
    return True


def _get(args: ArchiveArguments) -> bool:
    is_rendered = bool(args.opts.rendered)
    captures = archive_view.find_captures(args.place, args.words[0], is_rendered=is_rendered)
    if args.opts.all:
        rows = [archive_view.capture_row(entry) for entry in captures]
        _print(args, rows, captures_text(rows))
        return True
    if args.opts.json:
        raise ConfigError("a body is no JSON; get --all --json lists what there is")
    entry = archive_view.choose_capture(captures, args.opts.at)
    got = archive_view.read_body(args.place, entry, is_raw=bool(args.opts.raw))
    for note in got.notes:
        print(note, file=sys.stderr)
    _write(got.body, args.opts.out)
    return True


def _check(args: ArchiveArguments) -> bool:
    return _run(args, archive_view.check(args.place))


def _index(args: ArchiveArguments) -> bool:
    kept = companions(args.config)
    return _run(args, archive_acts.recover_and_rebuild(args.place, kept, [CdxjCompanion()]))


def _parse(args: ArchiveArguments) -> bool:
    if not args.config.archive.columns:
        raise ConfigError("there are no columns to be made: CRAWLER_COLUMNS is off")
    kept = companions(args.config, tries_unreadable=True)
    return _run(args, archive_acts.recover_and_rebuild(args.place, kept, kept))


def _pack(args: ArchiveArguments) -> bool:
    labels = Labels(args.opts.title or "", args.opts.description or "")
    return _run(args, archive_acts.pack(args.place, Path(args.words[0]), time.time(), labels))


def _compare(args: ArchiveArguments) -> bool:
    from crawler.report.comparison_report import (  # noqa: PLC0415  # Arrow: 150 ms
        comparison_html,
        comparison_text,
    )
    from crawler.view.compare import compare  # noqa: PLC0415  # as well

    old, out = archive_in(Path(args.words[0])), args.opts.out
    if out is not None and not out.endswith((".html", ".jsonl")):
        raise ConfigError(f"-o {out} would be neither: name a .html or a .jsonl file")
    refuse_existing(out)
    if out is None or out.endswith(".html"):
        found = compare(old, args.place)
        if out is not None:
            _write(comparison_html(found).encode("utf-8", "replace"), out)
    else:
        try:
            with Path(out).open("xb") as file:
                found = compare(old, args.place, lambda page: _write_line(file, page))
        except DataDirError:
            Path(out).unlink()
            raise
        except OSError as error:
            raise StoreUnavailable(f"cannot write {out}: {error.strerror or error}") from error
    _print(args, found, comparison_text(found))
    return True


def _missing(args: ArchiveArguments) -> bool:
    from crawler.report.site_report import missing_text  # noqa: PLC0415  # DuckDB: 60 ms
    from crawler.view.site import missing_report  # noqa: PLC0415  # as well

    out = args.opts.out
    if out is not None and not out.endswith(".csv"):
        raise ConfigError(f"-o {out} would be no CSV: name a .csv file")
    refuse_existing(out)
    found = missing_report([args.place], None if out is None else Path(out))
    _print(
        replace(args, place=replace(args.place, store="", is_shared=False)),
        found,
        missing_text(found),
    )
    if not args.opts.json:
        for note in found.notes:
            print(note, file=sys.stderr)
    return True


def _write_line(file: IO[bytes], page: msgspec.Struct) -> None:
    file.write(msgspec.json.encode(page) + b"\n")


def _wet(args: ArchiveArguments) -> bool:
    from crawler.archive.export import write_wet  # noqa: PLC0415  # lxml.html: 60 ms

    return _run(args, archive_acts.export(args.place, Path(args.words[0]), write_wet))


def _wat(args: ArchiveArguments) -> bool:
    from crawler.archive.export import write_wat  # noqa: PLC0415  # as well

    return _run(args, archive_acts.export(args.place, Path(args.words[0]), write_wat))


def _graph(args: ArchiveArguments) -> bool:
    return _run(args, archive_acts.graph(args.place, Path(args.words[0])))


def _purge(args: ArchiveArguments) -> bool:
    try:
        targets = [read_target(args.words[0])]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if args.opts.list:
        for each in archive_acts.all_deletion_records(args.place, targets):
            print(msgspec.json.encode(each).decode())
        return True
    done = chain(
        archive_acts.purge_archive(args.place, companions(args.config), targets),
        archive_acts.purge_shared_changes(place_of(args.settings, args.config), targets),
    )
    # It works in the object store too, so no note says that files there are not looked at.
    return _run(replace(args, place=replace(args.place, store="")), done)


def _expire(args: ArchiveArguments) -> bool:
    older = args.config.archive.archive_keep
    if args.opts.older is not None:
        try:
            older = duration().read(args.opts.older)
        except ValueError as error:
            raise ConfigError(f"--older {args.opts.older}: want a time such as 30d") from error
    if older is None:
        raise ConfigError("say how old is too old: --older 30d, or CRAWLER_ARCHIVE_KEEP")
    if args.place.is_shared and not args.opts.whole:
        raise ConfigError(
            "other workers' files may name records that would go: with --whole, this machine (and"
            " the object store) has all of the archive, and no worker runs"
        )
    is_trial = bool(args.opts.list)
    now = time.time()
    return _run(
        replace(args, place=replace(args.place, store="")),
        archive_acts.expire(args.place, now - older.total_seconds(), now, is_trial=is_trial),
    )


def _run(args: ArchiveArguments, work: Iterable[FileResult]) -> bool:
    """Print the results as they come, in JSON at the end; return whether there are no faults."""
    done: list[FileResult] = []
    for each in work:
        done.append(each)
        if not args.opts.json:
            print(each.line, *fault_lines(each.faults), sep="\n", flush=True)
    _print(args, done, ())
    return not any(each.faults for each in done)


def _print(args: ArchiveArguments, value: object, lines: Iterable[str]) -> None:
    """Print *value* as JSON, or *lines* and notes on files that are not here."""
    if args.opts.json:
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        return
    for line in lines:
        print(line)
    for line in args.place.missing_notes():
        print(line, file=sys.stderr)


def _write(body: bytes, out: str | None) -> None:
    if out is None:
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        Path(out).write_bytes(body)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {out}: {error.strerror or error}") from error


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


Action = Callable[[ArchiveArguments], bool]
"""Returns whether it succeeded without faults."""

_OPTION_NAMES: Final = {
    **{name: f"--{name}" for name in ("all", "at", "raw", "rendered", "list")},
    **{name: f"--{name}" for name in ("title", "description")},
    **{name: f"--{name}" for name in ("older", "whole")},
    "out": "-o",
}
_OPTIONS: Final = frozenset(_OPTION_NAMES)
_GET_OPTIONS: Final = frozenset({"all", "at", "raw", "rendered", "out"})
_PACK_OPTIONS: Final = frozenset({"title", "description"})
_NONE: Final = frozenset[str]()
_ACTIONS: Final = MappingProxyType(
    {  # function, what it takes, options
        "list": (_list, (), _NONE),
        "get": (_get, ("one URL",), _GET_OPTIONS),
        "check": (_check, (), _NONE),
        "index": (_index, (), _NONE),
        "parse": (_parse, (), _NONE),
        "pack": (_pack, ("the name of a file that is not there yet",), _PACK_OPTIONS),
        "wet": (_wet, ("the folder to write into",), _NONE),
        "wat": (_wat, ("the folder to write into",), _NONE),
        "graph": (_graph, ("the folder to write it into",), _NONE),
        "compare": (
            _compare,
            ("the data directory of the older crawl", "that of the newer one"),
            frozenset({"out"}),
        ),
        "missing": (_missing, (), frozenset({"out"})),
        "purge": (_purge, ("one target",), frozenset({"list"})),
        "expire": (_expire, (), frozenset({"older", "whole", "list"})),
    }
)
