"""Commands to suggest to the user, and the form of our error messages."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from crawler.config.settings import ArchiveSettings
from crawler.model.program import PROGRAM
from crawler.model.types import CrawlerError


def frontier_command(action: str, data_dir: str) -> str:
    """Return the `scrapy frontier` command for *action* on *data_dir*."""
    if data_dir == ArchiveSettings().data_dir:
        return f"{PROGRAM} frontier {action}"
    return f"{PROGRAM} frontier {action} -s {shlex.quote(f'CRAWLER_DATA_DIR={data_dir}')}"


def shared_command(action: str, settings: BaseSettings) -> str:
    """Return the command for a shared crawl, with the settings typed to find it; the URL, which may
    hold a password, is not shown."""
    shown = {
        "CRAWLER_FRONTIER_URL": "...",
        "CRAWLER_FRONTIER_NAME": settings["CRAWLER_FRONTIER_NAME"],
    }
    typed = [
        f"-s {shlex.quote(f'{name}={value}')}"
        for name, value in shown.items()
        if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    ]
    return " ".join([f"{PROGRAM} frontier", action, *typed])


def open_closed_outputs() -> None:
    """Let standard output and standard error lead to nothing where they are closed (`>&-`). Else
    the next files that are opened would have their numbers, and get what libraries print."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            try:
                os.fstat(number)
            except OSError:
                os.dup2(nothing, number)
            setattr(sys, name, os.fdopen(nothing, "w"))


@contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """Leave the block without an error if the reader of standard output, such as `head`, has closed
    it, or if there is none."""
    open_closed_outputs()
    try:
        yield
        sys.stdout.flush()  # else the interpreter would report it at exit
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


NAME: Final = "gossamer"


def print_error(error: CrawlerError | str) -> None:
    """Print one sentence without traceback, as the cause is the user's input or machine."""
    print(f"{NAME}: error: {error}", file=sys.stderr, flush=True)
