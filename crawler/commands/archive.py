"""`scrapy archive`: look into what a crawl has kept, check it, and make it anew.

Rule: looking needs no lock and changes nothing, also beside a crawl that writes. Output is for
people, or JSON for programs; a body goes out as it is.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawler.archive.cdxj import CdxjCompanion
from crawler.config.settings import Config, read_config
from crawler.content.crawl_archive import companions
from crawler.inspect import (
    archive_tools as archive_get,
)
from crawler.inspect import (
    archive_tools as archive_looks,
)
from crawler.inspect import (
    archive_tools as archive_work,
)
from crawler.inspect.archive_tools import ArchivePlace, RebuildResult, archive_of, fault_lines
from crawler.model.types import (
    ConfigError,
    CrawlerError,
    StoreUnavailable,
)
from crawler.report.advice import complain


@dataclass(frozen=True, slots=True)
class ArchiveArguments:
    """What was typed."""

    place: ArchivePlace
    config: Config
    word: str  # a URL, a file
    opts: argparse.Namespace


class ArchiveCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "list | get URL | check | index | parse | pack OUT.wacz  [options]"

    def short_desc(self) -> str:
        return "Look into a crawl's archive; check, index, parse it again, or pack it"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="answer in JSON")
        parser.add_argument(
            "--all", action="store_true", default=None, help="get: list all captures of the URL"
        )
        parser.add_argument("--at", metavar="TIME", help="get: the capture of then, 20260102...")
        parser.add_argument(
            "--raw", action="store_true", default=None, help="get: still gzip and the like"
        )
        parser.add_argument("-o", dest="out", metavar="FILE", help="get: into this file")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        action, word = _action(args, opts)
        assert self.settings is not None
        try:
            config = read_config(self.settings)
            place = archive_of(self.settings, config)
            self.exitcode = int(not action(ArchiveArguments(place, config, word, opts)))
        except CrawlerError as error:
            complain(error)
            self.exitcode = 1
        except BrokenPipeError:
            # Whoever read our output has enough of it; at its end the interpreter would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _action(args: list[str], opts: argparse.Namespace) -> tuple[Action, str]:
    """Raises UsageError: what was typed must mean something, all of it."""
    unknown = next((each for each in args if each.startswith("-")), None)
    if unknown:
        raise UsageError(f"unknown option {unknown}")
    if not args or args[0] not in _ACTIONS:
        raise UsageError(f"say what: {', '.join(_ACTIONS)}", print_help=False)
    action, wants, options = _ACTIONS[args[0]]
    foreign = [name for name in _OPTIONS - options if getattr(opts, name) is not None]
    if foreign:
        raise UsageError(f"{args[0]} takes no {_OPTION_NAMES[foreign[0]]}")
    if len(args) != 1 + bool(wants):
        raise UsageError(f"{args[0]} takes {wants or 'nothing more'}")
    return action, args[1] if wants else ""


def _list(asked: ArchiveArguments) -> bool:
    looks = list(archive_looks.file_looks(asked.place))
    _tell(asked, looks, archive_looks.files_text(looks))
    return True


def _get(asked: ArchiveArguments) -> bool:
    captures = archive_get.found(asked.place, asked.word)
    if asked.opts.all:
        looks = [archive_looks.capture_look(entry) for entry in captures]
        _tell(asked, looks, archive_looks.captures_text(looks))
        return True
    if asked.opts.json:
        raise ConfigError("a body is no JSON; get --all --json lists what there is")
    entry = archive_get.chosen(captures, asked.opts.at)
    got = archive_get.got(asked.place, entry, is_raw=bool(asked.opts.raw))
    for note in got.notes:
        print(note, file=sys.stderr)
    _write(got.body, asked.opts.out)
    return True


def _check(asked: ArchiveArguments) -> bool:
    return _worked(asked, archive_work.check(asked.place))


def _index(asked: ArchiveArguments) -> bool:
    kept = companions(asked.config)
    return _worked(asked, archive_work.whole_again(asked.place, kept, [CdxjCompanion()]))


def _parse(asked: ArchiveArguments) -> bool:
    if not asked.config.archive.columns:
        raise ConfigError("there are no columns to be made: CRAWLER_COLUMNS is off")
    kept = companions(asked.config, tries_unreadable=True)
    return _worked(asked, archive_work.whole_again(asked.place, kept, kept))


def _pack(asked: ArchiveArguments) -> bool:
    return _worked(asked, archive_work.pack(asked.place, Path(asked.word), time.time()))


def _worked(asked: ArchiveArguments, work: Iterable[RebuildResult]) -> bool:
    """Whether all is well. It is told as it comes, to people."""
    done: list[RebuildResult] = []
    for each in work:
        done.append(each)
        if not asked.opts.json:
            print(each.line, *fault_lines(each.faults), sep="\n", flush=True)
    _tell(asked, done, ())
    return not any(each.faults for each in done)


def _tell(asked: ArchiveArguments, value: object, lines: Iterable[str]) -> None:
    """*value*: for programs; *lines*: for people, who are also told what is not here."""
    if asked.opts.json:
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        return
    for line in lines:
        print(line)
    for line in asked.place.elsewhere():
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


Action = Callable[[ArchiveArguments], bool]
"""Whether all is well."""

_OPTION_NAMES: Final = {"all": "--all", "at": "--at", "raw": "--raw", "out": "-o"}
_OPTIONS: Final = frozenset(_OPTION_NAMES)
_NONE: Final = frozenset[str]()
_ACTIONS: Final = MappingProxyType(
    {  # what it does, what it wants, and its options
        "list": (_list, "", _NONE),
        "get": (_get, "one URL", _OPTIONS),
        "check": (_check, "", _NONE),
        "index": (_index, "", _NONE),
        "parse": (_parse, "", _NONE),
        "pack": (_pack, "the name of a file that is not there yet", _NONE),
    }
)
