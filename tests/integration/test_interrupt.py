"""Ctrl-C and SIGTERM end a crawl within seconds, whatever is under way, and lose nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from crawler.storage.local.outcome_log import read_outcomes
from tests.command import crawl_command, run, running
from tests.servers.pages import Answer, Site, page, site

SLOW_S = 20.0
MOST_S = 3.0  # the promise itself
HOSTS = [f"127.0.7.{number}" for number in range(1, 6)]


def slow_then_quick(hit: int) -> Answer:
    return Answer("late", wait_s=SLOW_S) if hit == 1 else page(text="there")


def wait_until_asked(web: Site, path: str, most_s: float = 30.0) -> None:
    end = time.monotonic() + most_s
    while path not in web.asked:
        assert time.monotonic() < end, f"{path} is never asked for"
        time.sleep(0.05)


@pytest.mark.parametrize("what", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_it_stops_at_once_and_goes_on_later(tmp_path: Path, what: signal.Signals):
    data = tmp_path / "data"
    routes = {"/": page("/slow", "/more"), "/slow": slow_then_quick, "/more": page()}
    with site("127.0.7.1", routes) as web:
        # Between two pages of the host a minute would have to go by, but for its robots.txt.
        settings = {"CRAWLER_MIN_DELAY_S": 0.05, "CRAWLER_MAX_DELAY_S": 300}
        command = crawl_command(data, settings, seeds=web.url("/"))
        with running(command, tmp_path / "log") as process:
            wait_until_asked(web, "/slow")
            signalled = time.monotonic()
            process.send_signal(what)
            status = process.wait(30)
            took_s = time.monotonic() - signalled
        log = (tmp_path / "log").read_text()
        assert took_s < MOST_S, f"{took_s:.1f} s, with an answer of {SLOW_S} s in flight\n{log}"
        assert status == 0, log
        before = [(one.url, one.fate) for one in read_outcomes(data / "outcomes.jsonl")]
        assert before == [(web.url("/"), "done")], "the transfer was put back, not failed"
        again = run(crawl_command(data, {"CRAWLER_MIN_DELAY_S": 0.05}, seeds=web.url("/")))
    assert again.returncode == 0, again.stderr
    fates = {one.url: one.fate for one in read_outcomes(data / "outcomes.jsonl")}
    assert fates == {web.url(path): "done" for path in ("/", "/slow", "/more")}


def test_a_minutes_rest_delays_no_stop(tmp_path: Path):
    data = tmp_path / "data"
    with site("127.0.7.2", {"/": page("/next"), "/next": page()}) as web:
        command = crawl_command(data, {"CRAWLER_MIN_DELAY_S": 60}, seeds=web.url("/"))
        with running(command, tmp_path / "log") as process:
            wait_until_asked(web, "/robots.txt")
            time.sleep(0.5)
            signalled = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait(30)
            took_s = time.monotonic() - signalled
    assert took_s < MOST_S, (tmp_path / "log").read_text()
