"""A crawl in rounds, as its user sees it."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from crawler.model.types import ConfigError
from tests.harness.commands import run
from tests.harness.crawling import crawl
from tests.servers.loopback import Routes, page, site

HOSTS = ("127.0.14.95", "127.0.14.96")


def test_a_run_has_its_rounds_and_the_next_one_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    links = [f"/{n}" for n in range(8)]

    def routes(host: str) -> Routes:
        return {"/": page(*links, text=host), **{link: page(text=host + link) for link in links}}

    with site(HOSTS[0], routes(HOSTS[0])) as one, site(HOSTS[1], routes(HOSTS[1])) as other:
        given = {"seeds": f"{one.url('/')},{other.url('/')}", "scope": "host", "round_per_host": 3}
        ran = crawl(data, settings={"CRAWLER_SUMMARY": True}, **given, rounds=2)
        assert ran.reason == "rounds"
        by_round = Counter((each.host, each.round) for each in ran.outcomes)
        assert by_round == {(host, number): 3 for host in HOSTS for number in (1, 2)}
        summary = json.loads((data / "summary.json").read_bytes())
        assert summary["unfinished"] and summary["ended"] == "Finished: its rounds are over"
        assert summary["rounds"] == {
            "number": 2,
            "leased": 6,
            "ended": {"dry": 2},
            "left": [{"host": host, "urls": 3} for host in HOSTS],
        }
        rest = crawl(data, round=4)
        assert rest.reason == "rounds"
        assert sum(web.hits["/robots.txt"] for web in (one, other)) == 2, "it is in no round"
        assert [each.round for each in rest.outcomes[12:]] == [3] * 4
        assert crawl(data).reason == "finished"
        assert sum(web.hits[link] for web in (one, other) for link in ("/", *links)) == 18


def test_arguments_about_no_round_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rounds is about rounds, and nothing bounds one"):
        crawl(tmp_path / "data", seeds="http://127.0.14.95/", rounds=2)


def frontier(data: Path, *words: str) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "scrapy", "frontier", *words]
    return run([*command, "-s", f"CRAWLER_DATA_DIR={data}"])


def test_a_plan_says_what_comes_and_is_fetched_as_it_says(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "plan.jsonl"
    links = [f"/{n}" for n in range(8)]
    routes = {"/": page(*links), **{link: page("/found", text=link) for link in links}}
    with site(HOSTS[0], {**routes, "/found": page(text="found")}) as web:
        crawl(data, seeds=web.url("/"), scope="host", max_pages="1")
        shown = frontier(data, "plan", "--top", "3").stdout
        assert "3 URLs planned; not planned:" in shown
        assert re.search(r"(?m)^order +5 ", shown)
        shown = frontier(data, "plan", "--per-host", "4", "--out", str(file)).stdout
        assert re.search(r"(?m)^host_cap +4 ", shown)
        assert "exists: remove it" in frontier(data, "plan", "--out", str(file)).stderr
        planned = [json.loads(line) for line in file.read_text().splitlines()]
        assert [each["host"] for each in planned] == [HOSTS[0]] * 4
        assert planned == sorted(planned, key=lambda each: each["due"])
        ran = crawl(data, only=str(file))
        assert [each.url for each in ran.outcomes[1:]] == [each["url"] for each in planned]
        assert crawl(data).reason == "finished"
        assert [web.hits[link] for link in (*links, "/found")] == [1] * 9, "each once, in all"
