"""What is shown of a running crawl: the line and its parts by table, the terminal byte by byte."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from io import StringIO
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.engine import long_steps
from crawler.engine.long_steps import STEP, Step
from crawler.engine.stats import CrawlStats
from crawler.loop.life import Lives
from crawler.model.choices import ProgressStyle
from crawler.model.counts import Counts, Figures
from crawler.model.types import Answer, HostKey, StoreFull
from crawler.policy.politeness import Uplink, UplinkLimits
from crawler.policy.rounds import RoundCaps, progress_of
from crawler.policy.silent_hosts import SilentHosts
from crawler.report.end_forecast import GROWS, EndInWords
from crawler.report.logs import HeldLog, Notices
from crawler.report.progress import style_of, waits_for
from crawler.report.screen import (
    ProgressFigures,
    RecentRate,
    Screen,
    progress_line,
    progress_sentence,
    round_words,
    step_line,
)
from crawler.view.formats import (
    FAR,
    listed,
    many,
    plain,
    rate,
    since,
    size,
    span,
    until,
)


def shown(
    pages: int,
    pages_per_s: float,
    hosts_active: int,
    waiting: int,
    duplicates: int,
    errors: int,
    size_bytes: int,
    waits_for: str = "",
    ends: EndInWords = EndInWords(),  # noqa: B008  # it is frozen
) -> ProgressFigures:
    counters = {
        "pages": pages,
        "duplicates": duplicates,
        "error/dns": errors,
        "bytes": size_bytes,
    }
    counts = Counts(waiting, hosts_active=hosts_active)
    return ProgressFigures(Figures(counters), counts, pages_per_s, ends, waits_for)


def test_what_keeps_a_crawl_from_fetching_is_said_before_its_hosts() -> None:
    """An overview that looks well, or says that every host rests, while nothing can be fetched."""
    uplink = Uplink(UplinkLimits(min_hosts=2, probe_s=10.0))
    warnings = WaitWarnings(lambda: 0.0)
    room = DiskRoom(warnings, "the disk", lambda: False, lambda: 0.0)
    stats = CrawlStats(MemoryStatsCollector(get_crawler()))
    loop = SimpleNamespace(silent_hosts=SilentHosts(), uplink=uplink, lives=Lives())
    parsers = SimpleNamespace(ready_s=0.0)
    crawl: Any = SimpleNamespace(
        loop=loop,
        storage=SimpleNamespace(room=room),
        stats=stats,
        content=SimpleNamespace(parsers=parsers),
    )
    stats.begin(100.0)
    assert waits_for(crawl, 105.0).startswith("the compiler"), "what has come waits to be read"
    parsers.ready_s = inf
    assert waits_for(crawl, 200.0) == "", "every host rests"
    warnings.report("the servers of the frontier answer", "no answer")
    assert waits_for(crawl, 105.0) == "", "what was leased before is fetched"
    assert waits_for(crawl, 200.0) == "the time when the servers of the frontier answer"
    room.wait_for_room(StoreFull("no space"))
    assert waits_for(crawl, 105.0) == "the time when there is room on the disk", "at once"
    for host, error in (("a", ""), ("b", ""), ("a", "connect"), ("b", "connect")):
        uplink.observe(HostKey(host), Answer(0.1, None if error else 200, error), 150.0)
    stats.count_begun(HostKey("a"), 160.0)  # a probe
    assert waits_for(crawl, 160.0).startswith("our own connection, which is down")


@pytest.mark.parametrize(
    ("caps", "first", "is_over", "words"),
    [
        pytest.param(
            RoundCaps(urls=5_000, seconds=7_200.0, rounds=3),
            *(5, False, "round 6 of 7: 1,200 of 5,000 URLs, ends in 1 h 30 min at the latest"),
            id="those of earlier runs count",
        ),
        pytest.param(RoundCaps(per_host=9), 6, False, "round 6: 1,200 URLs", id="one alone"),
        pytest.param(RoundCaps(per_host=9), 6, True, "", id="all are over"),
    ],
)
def test_the_round_is_said(caps: RoundCaps, first: int, is_over: bool, words: str) -> None:
    progress = progress_of(caps, 6, first, 1_000.0, 1_200, leased=300, is_over=is_over)
    assert round_words(progress, 1_000.0 + 1_800.0) == words
    assert round_words(None, 0.0) == ""


BUSY = shown(
    pages=1_234,
    pages_per_s=83.24,
    hosts_active=210,
    waiting=12_345,
    duplicates=12,
    errors=3,
    size_bytes=148_200_000,
)
ENDS = EndInWords("ends in 3 h 20 min (18:05)", "a.example, 4,000 URLs at 3.0 s")
FRESH = shown(0, 0.0, 0, 0, 0, 0, 0)
WIPE = "\r\x1b[2K"


OVER = replace(BUSY, counts=Counts(12_345, hosts_active=210, spilled=900, capped=800))


@pytest.mark.parametrize(
    ("figures", "columns", "want"),
    [
        pytest.param(
            OVER,
            120,
            "1,234 pages | 83.2/s | 210 hosts | 12,445 waiting (900 over budget) | 12 duplicates |"
            " 3 errors | 148 MB",
            id="with those over a budget, some of which wait for a larger one",
        ),
        pytest.param(
            OVER,
            80,
            "1,234 pages | 83.2/s | 210 hosts | 12,445 waiting | 12 dup | 3 errors | 148 MB",
            id="without them where there is no room",
        ),
        pytest.param(
            BUSY,
            120,
            "1,234 pages | 83.2/s | 210 hosts | 12,345 waiting | 12 duplicates | 3 errors | 148 MB",
            id="a wide terminal shows all in full words",
        ),
        pytest.param(
            BUSY,
            80,
            "1,234 pages | 83.2/s | 210 hosts | 12,345 waiting | 12 dup | 3 errors | 148 MB",
            id="a usual one shows all, one word cut",
        ),
        pytest.param(
            BUSY,
            60,
            "1,234 pages | 83.2/s | 210 hosts | 12,345 waiting | 12 dup",
            id="a narrow one leaves out what matters least",
        ),
        pytest.param(BUSY, 5, "", id="one too narrow for a word shows nothing"),
        pytest.param(
            FRESH,
            80,
            "0 pages | 0.00/s | 0 hosts | 0 waiting | 0 duplicates | 0 errors | 0 B",
            id="nothing has happened yet",
        ),
        pytest.param(
            shown(1, 0.1, 1, 1, 1, 1, 1),
            80,
            "1 page | 0.10/s | 1 host | 1 waiting | 1 duplicate | 1 error | 1 B",
            id="one of each",
        ),
        pytest.param(
            shown(0, 0.0, 1, 2, 0, 3, 0, "www.example.org until 12:04 (no connection)"),
            80,
            "0 pages | 3 errors | waits for www.example.org until 12:04 (no connection)",
            id="nothing is being asked, because hosts fail",
        ),
        pytest.param(
            replace(BUSY, round="round 3 of 5: 1,200 of 5,000 URLs"),
            80,
            "1,234 pages | 83.2/s | round 3 of 5: 1,200 of 5,000 URLs | 210 hosts | 12 dup",
            id="the round is said before its hosts",
        ),
        pytest.param(
            replace(BUSY, ends=ENDS),
            92,
            "1,234 pages | 83.2/s | 210 hosts | 12,345 waiting | 3 errors |"
            " ends in 3 h 20 min (18:05)",
            id="the end is said before what matters less",
        ),
        pytest.param(
            replace(BUSY, ends=ENDS),
            170,
            "1,234 pages | 83.2/s | 210 hosts | 12,345 waiting | 3 errors |"
            " ends in 3 h 20 min (18:05): a.example, 4,000 URLs at 3.0 s | 12 duplicates | 148 MB",
            id="a wide one has room for the host",
        ),
        pytest.param(
            replace(BUSY, ends=EndInWords(GROWS)),
            80,
            "1,234 pages | 83.2/s | 210 hosts | 12,345 waiting | 3 errors | 12 dup | 148 MB",
            id="what does not fit is left out",
        ),
    ],
)
def test_the_line(figures: ProgressFigures, columns: int, want: str) -> None:
    assert progress_line(figures, columns) == want


@given(
    st.builds(
        shown,
        pages=st.integers(0, 10**12),
        pages_per_s=st.floats(0, 10**6),
        hosts_active=st.integers(0, 10**9),
        waiting=st.integers(0, 10**12),
        duplicates=st.integers(0, 10**12),
        errors=st.integers(0, 10**12),
        size_bytes=st.integers(0, 10**18),
        ends=st.sampled_from([EndInWords(), ENDS, EndInWords(GROWS)]),
    ),
    st.integers(1, 200),
)
def test_the_line_never_wraps(figures: ProgressFigures, columns: int) -> None:
    line = progress_line(figures, columns)
    assert len(line) < columns
    assert line.isascii() and line.isprintable()


@pytest.mark.parametrize(
    ("step", "columns", "want"),
    [
        pytest.param(
            Step("Checking seeds.txt", 12.3, 0.45),
            80,
            "[#########           ]  45% | Checking seeds.txt | 12 s",
            id="a bar",
        ),
        pytest.param(Step("Opening", 3.0, None), 80, "Opening | 3 s", id="how much is not known"),
        pytest.param(
            Step("Checking \x1b[2J", 3.0, 1.0), 42, f"[{'#' * 20}] 100% | Checking ?[", id="cut"
        ),
    ],
)
def test_a_step_of_the_start(step: Step, columns: int, want: str) -> None:
    assert step_line(step, columns) == want


def test_the_same_for_a_log() -> None:
    assert progress_sentence(BUSY) == (
        "1,234 pages (83.2 a second), 210 hosts active, 12,345 URLs waiting, 12 duplicates,"
        " 3 errors, 148 MB"
    )


@pytest.mark.parametrize(
    ("points", "want"),
    [
        pytest.param([(0, 0)], 0.0, id="one look says nothing"),
        pytest.param([(0, 0), (2, 10)], 5.0, id="since the first look, while there are few"),
        pytest.param([(0, 0), (5, 500), (10, 500), (15, 510)], 1.0, id="old bursts are forgotten"),
        pytest.param([(0, 0), (60, 120)], 2.0, id="looks far apart: since the one before"),
        pytest.param([(3, 7), (3, 7)], 0.0, id="two looks at once"),
    ],
)
def test_the_rate_of_late(points: list[tuple[float, int]], want: float) -> None:
    pace = RecentRate(window_s=10.0)
    assert [pace.at(total, now) for now, total in points][-1] == pytest.approx(want)


@pytest.mark.parametrize(
    ("ready_s", "want"),
    [
        pytest.param(0.0, 0.0, id="it is being compiled yet"),
        pytest.param(2.0, 10.0, id="for less time than the window"),
        pytest.param(100.0, 2.0, id="for longer"),
    ],
)
def test_the_rate_does_not_count_the_time_to_compile(ready_s: float, want: float) -> None:
    pace = RecentRate(window_s=10.0)
    pace.at(0, 0)
    assert pace.at(20, 10.0, ready_s) == pytest.approx(want)


def test_the_rate_remembers_a_window_only() -> None:
    pace = RecentRate(window_s=10.0)
    for moment in range(10_000):
        pace.at(moment, moment / 2)
    assert len(pace._points) < 25


@pytest.mark.parametrize(
    ("wanted", "is_terminal", "log_is_there", "want"),
    [
        pytest.param("auto", True, False, "line", id="auto: a line on a terminal"),
        pytest.param("auto", True, True, "log", id="auto: no line through a log"),
        pytest.param("auto", False, False, "log", id="auto: log lines elsewhere"),
        pytest.param("line", False, False, "line", id="a line because the user says so"),
        pytest.param("log", True, False, "log", id="log lines because the user says so"),
        pytest.param("off", True, False, "off", id="nothing because the user says so"),
    ],
)
def test_the_style(wanted: str, is_terminal: bool, log_is_there: bool, want: str) -> None:
    assert style_of(ProgressStyle(wanted), is_terminal, log_is_there) == want


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        pytest.param(rate(0.04), "0.04", id="a slow rate"),
        pytest.param(rate(8.34), "8.3", id="a usual rate"),
        pytest.param(rate(1234.5), "1,234", id="a fast rate"),
        pytest.param(size(999), "999 B", id="bytes"),
        pytest.param(size(1_000), "1.0 kB", id="thousands"),
        pytest.param(size(999_499), "999 kB", id="just below the next unit"),
        pytest.param(size(999_500), "1.0 MB", id="rounded up into it"),
        pytest.param(size(148_200_000), "148 MB", id="no digit too many"),
        pytest.param(size(10**19), "10,000 PB", id="beyond the last unit"),
        pytest.param(span(0.0), "0.0 s", id="an instant"),
        pytest.param(span(0.0004), "1 ms", id="nearly one"),
        pytest.param(span(0.04), "40 ms", id="the fetch of a page"),
        pytest.param(span(0.0951), "0.1 s", id="a tenth"),
        pytest.param(span(9.94), "9.9 s", id="seconds with a tenth"),
        pytest.param(span(95.4), "95 s", id="seconds"),
        pytest.param(span(125), "2 min 5 s", id="minutes"),
        pytest.param(span(3 * 3600 + 1200), "3 h 20 min", id="hours"),
        pytest.param(span(2 * 86400 + 4 * 3600), "2 d 4 h", id="days"),
        pytest.param(span(-5), "0.0 s", id="a clock set back"),
        pytest.param(until(100.0, 95.8), "in 4.2 s", id="ahead"),
        pytest.param(until(90.0, 95.0), "now", id="no more ahead"),
        pytest.param(until(FAR, 95.0), "when it is resumed", id="a pause without end"),
        pytest.param(since(90.0, 95.0), "5.0 s ago", id="gone by"),
        pytest.param(many(1, "page"), "1 page", id="one"),
        pytest.param(many(0, "page"), "0 pages", id="none"),
        pytest.param(listed({"a": 1, "b": 2000}), "b 2,000, a 1", id="the most frequent first"),
        pytest.param(listed({}), "none", id="nothing to list"),
        pytest.param(plain("a\x1b[2Jb\nc"), "a?[2Jb?c", id="a server cannot steer the terminal"),
        pytest.param(plain("x" * 30, 10), "xxxxxxx...", id="nor fill it"),
    ],
)
def test_figures(shown: str, want: str) -> None:
    assert shown == want


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_is_drawn_over_and_wiped() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.draw("one")
    screen.draw("two")
    screen.wipe()
    screen.wipe()
    assert out.getvalue() == f"{WIPE}one{WIPE}two{WIPE}"


def test_messages_stay_above_the_line() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.show_message("before")
    screen.draw("line")
    screen.show_message("message")
    assert out.getvalue() == f"before\n{WIPE}line{WIPE}message\n{WIPE}line"


def test_a_stream_that_is_no_terminal_has_a_width_too() -> None:
    screen = Screen(StringIO())
    assert not screen.is_terminal
    assert screen.columns == 80


def record(name: str, level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, message, None, None)


@pytest.mark.parametrize(
    ("name", "level", "message", "want"),
    [
        pytest.param("web", logging.WARNING, "a seed", "warning: a seed", id="our warning"),
        pytest.param(
            "crawler.assembly.build", logging.WARNING, "x", "warning: x", id="of any module"
        ),
        pytest.param("scrapy.core", logging.WARNING, "x", "", id="not of other loggers"),
        pytest.param("scrapy.core", logging.ERROR, "x\ny", "error: x", id="errors of any logger"),
        pytest.param("crawlers", logging.WARNING, "x", "", id="a name that only looks like ours"),
        pytest.param("web", logging.ERROR, "\x1b[2J", "error: ?[2J", id="harmless"),
        pytest.param("web", logging.ERROR, "", "error: ", id="an empty message"),
    ],
)
def test_notices(name: str, level: int, message: str, want: str) -> None:
    out = Terminal()
    notices = Notices(Screen(out))
    if level >= notices.level:
        notices.handle(record(name, level, message))
    assert out.getvalue() == (f"{want}\n" if want else "")


def test_steps_of_a_start_are_drawn_and_wiped_and_few_are_logged() -> None:
    out = Terminal()
    held, kept = HeldLog(Screen(out)), []
    half, over = Step("Opening", 3.0, None), Step("Opening", 4.0, 1.0, is_over=True)
    for level, step in ((logging.INFO, half), (logging.DEBUG, half), (logging.INFO, over)):
        one = record("crawler.engine.long_steps", level, str(step))
        one.__dict__[STEP] = step
        held.handle(one)
    assert out.getvalue() == f"{WIPE}Opening | 3 s{WIPE}Opening | 3 s{WIPE}"

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    handler = Kept()
    logging.root.addHandler(handler)
    try:
        held.release_records()
    finally:
        logging.root.removeHandler(handler)
    assert kept == ["Opening: 3 s so far", "Opening: 4 s so far, 100%"]


def test_a_step_is_reported_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(long_steps, "_FIRST_S", 0.0)
    monkeypatch.setattr(long_steps, "_DRAWN_S", 0.001)
    looked = iter(range(100_000))
    often = threading.Event()

    def share() -> float:
        if (number := next(looked)) > 5:
            often.set()
        return min(1.0, number / 10)

    with (
        caplog.at_level(logging.DEBUG, "crawler.engine.long_steps"),
        long_steps.long_step("Opening", share),
    ):
        assert often.wait(60)
    shown = [each.__dict__[STEP] for each in caplog.records]
    assert [step.share for step in shown[:5]] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert [step.is_over for step in shown] == [*[False] * (len(shown) - 1), True]
    assert [each.levelno for each in caplog.records][:3] == [
        logging.INFO,
        logging.DEBUG,
        logging.DEBUG,
    ]


def test_a_short_step_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ValueError, match="as it was"),
        long_steps.long_step("Opening"),
    ):
        raise ValueError("as it was")
    assert caplog.records == []


def test_notices_are_few() -> None:
    out = Terminal()
    notices = Notices(Screen(out))
    for number in range(1000):
        notices.handle(record("web", logging.WARNING, f"seed {number}"))
    lines = out.getvalue().splitlines()
    assert lines[-1] == "more of these are in the log"
    assert len(lines) == 51


def test_early_log_lines_are_held_and_then_written() -> None:
    kept: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    held, handler = HeldLog(Screen(StringIO())), Kept(logging.INFO)
    held.handle(record("web", logging.DEBUG, "fine"))
    held.handle(record("web", logging.INFO, "coarse"))
    logging.root.addHandler(handler)
    try:
        held.release_records()
        held.release_records()
    finally:
        logging.root.removeHandler(handler)
    assert kept == ["coarse"]
