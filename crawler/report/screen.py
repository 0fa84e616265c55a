"""The progress line at the foot of a terminal, with messages above it, and the figures in it.

Rule: call `wipe` before anything else is written to the same terminal.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final, TextIO

from crawler.engine.long_steps import Step
from crawler.model.counts import Counts, Figures
from crawler.policy.rounds import RoundProgress
from crawler.report.end_forecast import EndInWords
from crawler.view.formats import (
    many,
    number,
    plain,
    rate,
    size,
    span,
)

_WIPE: Final = "\r\x1b[2K"  # to the first column, erase the line: VT100, so every terminal
_COLUMNS: Final = 80
_BETWEEN: Final = " | "


class Screen:
    """One line of a terminal. If *stream* is not a terminal, only `show_message` is of use."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal that can erase a line."""
        return self._stream.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int:
        """The width now, as windows are resized."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def draw(self, text: str) -> None:
        """Replace the line by *text*: one line, no longer than `columns`."""
        self._stream.write(_WIPE + text)
        self._stream.flush()
        self._shown = text

    def wipe(self) -> None:
        if self._shown:
            self.draw("")

    def show_message(self, message: str) -> None:
        """Write *message* above the line, where it stays."""
        shown = self._shown
        self.wipe()
        self._stream.write(message + "\n")
        if shown:
            self.draw(shown)
        self._stream.flush()


_BAR: Final = 20  # characters


def step_line(step: Step, columns: int) -> str:
    """Return a line about a step of the start, with a bar if it is known how much is done."""
    fields = [step.what, f"{step.seconds:.0f} s"]
    if step.share is not None:
        done = "#" * round(step.share * _BAR)
        fields.insert(0, f"[{done:{_BAR}}] {step.share:4.0%}")
    return plain(_BETWEEN.join(fields), 1000)[: columns - 1]


# The line must fit the terminal, whatever its width: a line that wraps cannot be erased.

RATE_WINDOW_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ProgressFigures:
    """The figures of a running crawl at one moment."""

    fetched: Figures  # in this run
    counts: Counts
    pages_per_s: float  # in the last RATE_WINDOW_S
    ends: EndInWords = EndInWords()
    # The failing host that is tried next, if nothing is being fetched; or the compiler.
    waits_for: str = ""
    workers: int = 1  # of `scrapy share`, that run
    round: str = ""  # as `round_words`


def round_words(progress: RoundProgress | None, now: float) -> str:
    """Return which round of how many it is, what is fetched of it, and when it ends; empty if there
    is none."""
    if progress is None or not progress.number or progress.is_over:
        return ""
    of = f" of {number(progress.last)}" if progress.last > progress.number else ""
    most = "" if progress.most is None else f" of {number(progress.most)}"
    words = f"round {number(progress.number)}{of}: {number(progress.of_all)}{most} URLs"
    if progress.ends_at is None:
        return words
    return f"{words}, ends in {span(max(progress.ends_at - now, 0.0))} at the latest"


class RecentRate:
    """The rate a second over the last `RATE_WINDOW_S`, or since the previous call if that is longer
    ago. Memory: one point for each call in the window."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        self._window_s = window_s
        self._points: deque[tuple[float, int]] = deque()

    def at(self, total: int, now: float, ready_s: float = inf) -> float:
        """Return the rate at *now*. *ready_s*: for how long there can have been any pages; the time
        before does not count."""
        self._points.append((now, total))
        while len(self._points) > 2 and self._points[1][0] <= now - self._window_s:
            self._points.popleft()
        began, before = self._points[0]
        seconds = min(now - began, ready_s)
        return (total - before) / seconds if seconds > 0 else 0.0


def progress_line(figures: ProgressFigures, columns: int) -> str:
    """Return as much of *figures* as fits into *columns*, the most important first."""
    room = columns - 1  # some terminals wrap in the last column
    whole = _BETWEEN.join(_fields(figures, short=False))
    if len(whole) <= room:
        return whole
    shown = ""
    for each in _fields(figures, short=True):
        longer = shown + _BETWEEN + each if shown else each
        if len(longer) <= room:
            shown = longer
    return shown


def progress_sentence(figures: ProgressFigures) -> str:
    """Return the figures as a sentence for the log."""
    fetched, counts = figures.fetched, figures.counts
    return (
        f"{many(fetched.pages, 'page')} ({rate(figures.pages_per_s)} a second),"
        f" {many(counts.hosts_active, 'host')} active,"
        f" {many(counts.to_fetch, 'URL')} waiting{over_budget(counts)},"
        f" {many(fetched.duplicates, 'duplicate')}, {many(fetched.errors, 'error')},"
        f" {size(fetched.bytes)}"
        f"{f', {rendered}' if (rendered := rendered_pages(fetched)) else ''}"
        f"{f'; {figures.round}' if figures.round else ''}"
        f"{f'; waits for {plain(figures.waits_for)}' if figures.waits_for else ''}"
        f"{f'; {figures.ends}' if figures.ends.when else ''}"
    )


def rendered_pages(fetched: Figures) -> str:
    """Return how many pages a browser has made, in words; empty if none."""
    pages = fetched["render/pages"]
    return f"{many(pages, 'page')} rendered" if pages else ""


def over_budget(counts: Counts) -> str:
    """Return how many URLs wait for a budget, in parentheses; empty if none does."""
    return f" ({number(counts.spilled)} over budget)" if counts.spilled else ""


def _fields(figures: ProgressFigures, *, short: bool) -> tuple[str, ...]:
    fetched, counts = figures.fetched, figures.counts
    pages = many(fetched.pages, "page")
    pages_per_s = f"{rate(figures.pages_per_s)}/s"
    hosts = many(counts.hosts_active, "host")
    waiting = f"{number(counts.to_fetch)} waiting{'' if short else over_budget(counts)}"
    n = fetched.duplicates
    duplicates = f"{number(n)} dup" if short else many(n, "duplicate")
    errors = many(fetched.errors, "error")
    bytes_ = size(fetched.bytes)
    rounds = (figures.round,) if figures.round else ()
    rendered = tuple(filter(None, (rendered_pages(fetched),)))
    if figures.waits_for:
        waits_for = f"waits for {plain(figures.waits_for)}"
        return pages, errors, waits_for, *rounds, waiting, hosts, duplicates, *rendered, bytes_
    if figures.ends.when:
        ends = figures.ends.when if short else str(figures.ends)
        left = *rounds, hosts, waiting, errors, ends
        return pages, pages_per_s, *left, duplicates, *rendered, bytes_
    return pages, pages_per_s, *rounds, hosts, waiting, duplicates, errors, *rendered, bytes_
