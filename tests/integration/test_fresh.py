"""`scrapy frontier fresh`: of a real crawl that has visited its pages twice, 40 days apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec
from scrapy.settings import Settings

from crawler.config.settings import read_config
from crawler.console.views import VIEWS, FreshAsked, Shown, UrlAsked
from crawler.data.history import HistorySpan, read_history
from crawler.report.fresh_text import copies_text, page_text
from crawler.report.why_text import why_text
from crawler.view.fresh import CopiesFreshness, PageVisits, fresh_copies, fresh_page
from crawler.view.local import LocalView
from crawler.view.place import CrawlPlace
from crawler.view.why import why
from tests.harness.archive_judges import read_rows
from tests.harness.crawling import crawl, pass_time
from tests.servers.loopback import Reply, page, site

ADAPTIVE: Final[dict[str, Any]] = {"CRAWLER_REVISIT": "adaptive", "CRAWLER_REVISITS_PER_DAY": 1e6}
DAY_S: Final = 86_400.0


def test_of_a_page_that_is_gone(tmp_path: Path) -> None:
    data, days = tmp_path / "data", {"CRAWLER_REVISIT": "every 1d"}
    routes = {"/": page("/old"), "/old": page(text="a")}
    with site("127.0.14.94", routes) as web:
        crawl(data, settings=days, outcomes=2, seeds=web.url("/"))
        pass_time(data, 40 * DAY_S)
        routes["/old"] = Reply(status=410)
        crawl(data, settings=days, outcomes=2, seeds=web.url("/"))
        url = web.url("/old")
    config = read_config({**days, "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8"})
    with LocalView(data) as view:
        gone, now = fresh_page(url, view, config), view.now()
        assert (gone.place, gone.visits, gone.changes, gone.due_at) == ("gone", 1, 0, None)
        assert gone.gone_at is not None and gone.visited_at is not None
        assert 40 * DAY_S <= gone.gone_at - gone.visited_at < 41 * DAY_S
        assert gone.named_from == gone.gone_at + 30 * DAY_S
        assert gone.gone_outcome is not None and gone.gone_outcome.status == 410
        said = "\n".join(page_text(gone, now))
        assert re.search(r"It is gone, as its last visit found .+ ago: status 410", said)
        assert "it was there 40 d 0 h ago, and no more" in said
        found = why(url, view, config, {})
        assert "It is gone" in "\n".join(why_text(found, now))


def test_of_a_crawl_that_has_visited_its_pages_twice(tmp_path: Path) -> None:
    data = tmp_path / "data"
    routes = {"/": page("/day/1", "/day/2"), "/day/1": page(text="a"), "/day/2": page(text="b")}
    with site("127.0.14.93", routes) as web:
        crawl(data, settings=ADAPTIVE, seeds=web.url("/"), max_pages="3")
        pass_time(data, 40 * DAY_S)
        routes["/day/2"] = page(text="a change")
        done = crawl(data, settings=ADAPTIVE, seeds=web.url("/"), max_pages="3")
        assert done.reason == "max_pages" and web.hits["/day/2"] == 2
    counted = {name: n for name, n in done.stats.items() if "revisits/result/" in name}
    assert counted == {
        "crawler/revisits/result/changed": 1,
        "crawler/revisits/result/unchanged": 2,
    }
    summary = msgspec.json.decode((data / "summary.json").read_bytes())["revisits"]
    assert summary["results"] == {"changed": 1, "unchanged": 2}
    assert [each["changes"] for each in summary["top_changes"]] == [1]
    assert 2 / 3 < summary["fresh"] < 1.0
    history = read_history(data / "history.bin", HistorySpan.HOUR)
    assert history.columns["changes"][-1] == 1 and history.fresh()[-1] is not None
    report = (data / "report.html").read_text()
    assert "What visits of known pages found" in report
    assert report.count("<td>127.0.14.93</td>") >= 2, "its host is the one with most changes"
    rows = [row for file in sorted((data / "warc").glob("*.parquet")) for row in read_rows(file)]
    found = {(row["url"][-6:], row["visits"]): row for row in rows}
    assert len(found) == len(rows) == 6
    first, second = found["/day/2", 1], found["/day/2", 2]
    assert (first["changes"], second["changes"]) == (0, 1)
    assert (second["changed_at"] - first["changed_at"]).days == 40
    assert found["/day/1", 2]["changed_at"] == found["/day/1", 1]["changed_at"]
    assert {row["next_visit"] for row in rows} == {None}, "they come when that is worth it"
    config = read_config({**ADAPTIVE, "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8"})
    shown = Shown(CrawlPlace(data, config), Settings())
    by_host = VIEWS["fresh"].show(shown, FreshAsked("127.0.14.93"))
    of_page = VIEWS["visits"].show(shown, UrlAsked(web.url("/day/2")))
    assert isinstance(by_host, CopiesFreshness) and by_host.pages == 3
    assert isinstance(of_page, PageVisits) and of_page.changes == 1
    with LocalView(data) as view:
        copies = fresh_copies(view, config)
        assert (copies.pages, copies.visits, copies.changes) == (3, 6, 1)
        assert copies.visited_last_day == 3 and copies.changed_last_day == 1
        assert copies.fresh is not None and copies.fresh > 0.99
        assert fresh_copies(view, config, "127.0.14.93").patterns == copies.patterns
        assert not fresh_copies(view, config, "another.example").pages
        (most,) = copies.patterns
        assert (most.pattern, most.visits, most.changes) == ("/day/#", 2, 1)
        changed, steady = (fresh_page(web.url(f"/day/{n}"), view, config) for n in (2, 1))
        assert changed.change_days is not None and steady.change_days is not None
        assert changed.change_days < 50 < steady.change_days
        assert changed.due_at is not None and changed.visits_per_day == 1e6
        text = "\n".join(page_text(changed, view.now()))
        assert "1 change found" in text and "with the budget of 1,000,000 visits a day" in text
        said = "\n".join(copies_text(copies))
        assert re.search(r"fresh +\d+\.\d % of the copies", said) and "/day/#" in said
        answer = why(web.url("/day/2"), view, config, {})
        assert answer.later_at == changed.due_at
        assert "visited again when that is worth it" in "\n".join(why_text(answer, view.now()))
        (data / "rules.toml").write_text("revisits_per_day = 7\n")
        assert fresh_copies(view, config).visits_per_day == 7.0
        assert fresh_page(web.url("/day/2"), view, config).visits_per_day == 7.0
