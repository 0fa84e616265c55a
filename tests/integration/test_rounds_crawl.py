"""A crawl in rounds, as its user sees it."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from crawler.data.outcomes import read_outcomes
from crawler.model.types import ConfigError
from tests.harness import fork_server
from tests.harness.archive_judges import read_rows
from tests.harness.commands import QUICK, run
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
        rows = [row for file in (data / "warc").glob("*.parquet") for row in read_rows(file)]
        assert Counter((row["host"], row["round"]) for row in rows) == by_round
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
    return fork_server.run([*command, "-s", f"CRAWLER_DATA_DIR={data}"])


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
        assert "-o names no file" in frontier(data, "plan", "--out", "").stderr
        planned = [json.loads(line) for line in file.read_text().splitlines()]
        assert [each["host"] for each in planned] == [HOSTS[0]] * 4
        assert planned == sorted(planned, key=lambda each: each["due"])
        ran = crawl(data, only=str(file))
        assert [each.url for each in ran.outcomes[1:]] == [each["url"] for each in planned]
        assert crawl(data).reason == "finished"
        assert [web.hits[link] for link in (*links, "/found")] == [1] * 9, "each once, in all"


def test_a_plan_by_the_arguments_of_a_run_is_what_that_run_leases(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "plan.jsonl"
    links = [f"/{n}" for n in range(8)]
    routes = {"/": page(*links), **{link: page(text=link) for link in links}}
    with site(HOSTS[0], routes) as web:
        crawl(data, seeds=web.url("/"), scope="host", round_per_host=5, max_pages="2")
        shown = frontier(data, "plan", "--per-host", "5").stdout
        assert "5 URLs planned; not planned:" in shown
        assert "round 1 is under way, and this is a plan of a new one" in shown
        given = ("-a", "round_per_host=5", "--per-host", "9", "--out", str(file))
        assert "3 URLs planned of round 1; not planned:" in frontier(data, "plan", *given).stdout
        planned = [json.loads(line)["url"] for line in file.read_text().splitlines()]
        ran = crawl(data, round_per_host=5)
        assert ran.reason == "rounds"
        assert [each.url for each in ran.outcomes[2:]] == planned
        given = ("-a", "round=3", "-a", "round_kind=revisit")
        assert "0 URLs planned of round 2" in frontier(data, "plan", *given).stdout
        refused = frontier(data, "plan", "-a", "round=3", "-a", "round_hours=1")
        assert "round_hours and round_floor cannot be planned" in refused.stderr
        assert refused.returncode != 0 and not refused.stdout


def test_workers_are_in_one_round_together(tmp_path: Path) -> None:
    """Its books are the servers': what each was asked for, and in which round."""
    hosts = [f"127.0.14.{number}" for number in range(101, 107)]
    links = [f"/{n}" for n in range(6)]

    def routes(host: str) -> Routes:
        return {"/": page(*links, text=host), **{link: page(text=host + link) for link in links}}

    with ExitStack() as opened:
        webs = [opened.enter_context(site(host, routes(host))) for host in hosts]
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("\n".join(web.url("/") for web in webs))
        command = [sys.executable, "-m", "scrapy", "share", "web", "--workers", "2"]
        settings = {**QUICK, "CRAWLER_DATA_DIR": tmp_path / "data", "CRAWLER_FRONTIER_SHARDS": 8}
        settings |= {"CRAWLER_ALLOW_INSIDE": "127.0.0.0/8", "CRAWLER_LEASE_S": 10}
        for name, value in settings.items():
            command += ["-s", f"{name}={value}"]
        given = {"seeds": seeds, "scope": "host", "round": 10, "round_per_host": 2, "rounds": 2}
        ended = run([*command, *chain.from_iterable(("-a", f"{n}={v}") for n, v in given.items())])
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert sum(web.hits[link] for web in webs for link in ("/", *links)) == 20
        files = (tmp_path / "data").rglob("outcomes.jsonl")
        outcomes = [each for file in files for each in read_outcomes(file)]
        by_round = Counter(each.round for each in outcomes)
        assert by_round == {1: 10, 2: 10}
        assert max(Counter((each.host, each.round) for each in outcomes).values()) <= 2
        summary = json.loads((tmp_path / "data" / "summary.json").read_bytes())
        assert summary["rounds"]["ended"] == {"count": 2} and summary["rounds"]["leased"] == 10
        assert sum(each["urls"] for each in summary["rounds"]["left"]) == 22
        first_ended = max(each.at for each in outcomes if each.round == 1)
        assert first_ended <= min(each.at for each in outcomes if each.round == 2)
