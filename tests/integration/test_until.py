"""When a crawl ends: one that visits pages again runs until it is stopped, or until a date.

Rule: time passes for a crawl between two runs, as its clock never goes back.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec
import pytest

from crawler.data.changes import FeedReader
from crawler.model.types import Change, ChangeKind, ConfigError
from tests.harness.crawling import crawl, pass_time
from tests.servers.loopback import page, site

EVERY: Final = {"CRAWLER_REVISIT": "every 10m", "CRAWLER_CHANGES": True}


def test_a_page_behind_an_unchanged_start_page_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Norconex/crawler#274: an unchanged start page made orphans of all pages behind it."""
    data = tmp_path / "data"
    routes = {"/": page("/list", text="start"), "/list": page("/old"), "/old": page(text="old")}
    with site("127.0.14.91", routes) as web, caplog.at_level(logging.INFO):
        first = crawl(data, settings=EVERY, seeds=web.url("/"), max_pages="3")
        assert first.reason == "max_pages"
        assert "Pages are visited again: the crawl runs until it is stopped" in caplog.text
        pass_time(data, 700.0)
        routes |= {"/list": page("/old", "/new"), "/new": page(text="new")}
        second = crawl(data, settings=EVERY, seeds=web.url("/"), max_pages="4")
        assert second.reason == "max_pages"
        assert web.hits == {"/robots.txt": 1, "/": 2, "/list": 2, "/old": 2, "/new": 1}
        lines = [each.line for each in FeedReader(data / "changes", 0).read()]
        changes = [msgspec.json.decode(line, type=Change) for line in lines]
        kinds = [(each.kind, each.url[-4:]) for each in changes]
        assert kinds[3:] == [(ChangeKind.CHANGED, "list"), (ChangeKind.NEW, "/new")]
        assert {kind for kind, _ in kinds[:3]} == {ChangeKind.NEW}

        caplog.clear()
        third = crawl(data, settings=EVERY, seeds=web.url("/"), until="2s")
        assert third.reason == "until", "nothing is left to do but to wait"
        assert "at the latest (until)" in caplog.text
        assert sum(web.hits.values()) == 8, "no page is due yet"


def test_a_run_ends_after_its_time_or_its_bytes(tmp_path: Path) -> None:
    data, body = tmp_path / "data", "x" * 10_000
    routes = {"/": page(*(f"/{n}" for n in range(100)))}
    routes |= {f"/{n}": page(text=body) for n in range(100)}
    with site("127.0.14.93", routes) as web:
        few = crawl(data, seeds=web.url("/"), max_bytes="40kB")
        assert few.reason == "max_bytes"
        # What was under way comes too: one page of each host, and there is one.
        assert 40_000 <= sum(outcome.size for outcome in few.outcomes) < 60_000
        slow = {"CRAWLER_MIN_DELAY_S": 1}
        short = crawl(data, settings=slow, max_time="3s")
        assert short.reason == "until"
        rest = crawl(data)
        assert rest.reason == "finished", "both are limits of a run"
        assert web.hits == {"/robots.txt": 1} | dict.fromkeys(routes, 1)


def test_a_date_ends_a_crawl_and_is_kept(tmp_path: Path) -> None:
    """A page a second, some of which are not fetched yet: they wait for the next run."""
    data, routes = tmp_path / "data", {"/": page(*(f"/{n}" for n in range(1_000)))}
    slow = {"CRAWLER_MIN_DELAY_S": 1}
    with site("127.0.14.92", routes) as web:
        done = crawl(data, settings=slow, seeds=web.url("/"), until="3s")
        assert done.reason == "until"
        assert not {outcome.fate for outcome in done.outcomes} - {"done", "put_back", "dead"}
        again = crawl(data, settings=slow, seeds=web.url("/"))
        assert again.reason == "until", "so long after each start"
        with pytest.raises(ConfigError, match=r"until is 2026-01-01T00:00:00.00:00, which is past"):
            crawl(data, settings=slow, until="2026-01-01")
