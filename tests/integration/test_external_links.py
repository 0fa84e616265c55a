"""`-a check_external=yes`: links out of the scope are asked for, and nothing of what is there is
kept. Judged by the logs of the servers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from crawler.model.types import ConfigError, Outcome
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import Crawled, crawl
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit, page
from tests.servers.redis import RedisServer

OWN, OTHER, THIRD = "127.0.75.2", "127.0.75.3", "127.0.75.4"
SHUT = "127.0.75.5"  # its robots.txt forbids all
QUICK = {"CRAWLER_SOFT_404": False}
CHECKED = {
    "/any-200": (["HEAD"], "ok"),
    "/head-405-get-200": (["HEAD", "GET"], "ok"),
    "/head-404-get-404": (["HEAD", "GET"], "broken"),
    "/head-close-get-200": (["HEAD", "GET"], "ok"),
    "/any-503": (["HEAD", "GET"], "broken"),
    "/any-403": (["HEAD", "GET"], "unknown"),
    "/any-410": (["HEAD"], "broken"),
    "/any-moved": (["HEAD"], "moved"),
    "/any-404": (["HEAD", "GET"], "broken"),  # where that leads
    "/any-in": (["HEAD"], "moved"),  # into the scope
}
"""What is asked for on OTHER, and what is found."""


@dataclass
class Web:
    """Four hosts, and what they were asked."""

    served: LoopbackWeb = field(init=False)
    own: dict[str, Reply] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # host, path, method

    def url(self, host: str, path: str = "/") -> str:
        return self.served.url(host, path)

    def methods(self, host: str) -> dict[str, list[str]]:
        """What *host* was asked, by path. What was sent again, as its server had closed a kept
        connection, counts once."""
        found: dict[str, list[str]] = {}
        for where, path, method in self.asked:
            if where == host and not (path in found and "close" in path and method == "HEAD"):
                found.setdefault(path, []).append(method)
        return found

    def answer(self, ask: Ask) -> Reply:
        self.asked.append((ask.host, ask.path, ask.method))
        if ask.path == "/robots.txt":
            return Reply("User-agent: *\nDisallow: /" if ask.host == SHUT else "")
        if ask.host == OWN:
            return self.own.get(ask.path, Reply("", 404))
        words = ask.path.strip("/").split("-")
        said = dict(zip(words[::2], words[1::2], strict=False))
        what = said.get(ask.method.lower(), said.get("any", "200"))
        leads = {"moved": "/any-404", "in": self.url(OWN), "away": self.url(THIRD, "/any-404")}
        if what in leads:
            return Reply("", 301, headers=(("Location", leads[what]),))
        body = page("/linked", self.url(THIRD, "/never")).body
        return Reply(close=True) if what == "close" else Reply(f"{body}{'x' * 200_000}", int(what))


@contextmanager
def web(
    own: Mapping[str, list[tuple[str, str]]] | None = None,
    hosts: Sequence[str] = (OTHER, THIRD, SHUT),
) -> Iterator[Web]:
    """Serve OWN and *hosts*. *own*: pages of the first one, with their links by host and path."""
    found = Web()
    with LoopbackWeb(found.answer, [OWN, *hosts]) as found.served:
        for path, links in (own or {}).items():
            found.own[path] = page(*(found.url(*each) for each in links))
        yield found


def checked(done: Crawled, host: str) -> dict[str, Outcome]:
    """The last outcome of each URL of *host* that was checked, by its path."""
    found = {each.url: each for each in done.outcomes if each.external}
    mine = {url: each for url, each in found.items() if f"//{host}:" in url}
    return {f"/{url.split('/', 3)[3]}": each for url, each in mine.items()}


def test_each_link_out_of_the_scope_is_asked_for_once_and_nothing_of_it_is_kept(
    tmp_path: Path,
) -> None:
    with web() as served:
        links = [served.url(OTHER, path) for path in CHECKED if path != "/any-404"]
        advertisement = f"<a rel=nofollow href={served.url(THIRD, '/unwanted')}>buy</a>"
        image = f"<img src={served.url(THIRD, '/image')}>"
        first = page("/2", *links, served.url(SHUT, "/private"))
        served.own["/"] = Reply(f"{first.body}{advertisement}{image}")
        served.own["/2"] = page("/", *links, "/3", "http://10.0.0.1/")
        leaves = (("Location", served.url(THIRD, "/any-404")),)
        served.own["/3"] = Reply("", 302, headers=leaves)
        arguments = {"seeds": served.url(OWN), "scope": "host", "check_external": "yes"}
        done = crawl(tmp_path / "data", settings=QUICK, max_pages=100, **arguments)
        assert done.reason == "finished"
        assert done.stats["crawler/refused/inside_address"] == 1
        expected = {path: methods for path, (methods, _) in CHECKED.items()}
        assert served.methods(OTHER) == {"/robots.txt": ["GET"], **expected}
        robots = {"/robots.txt": ["GET"]}
        third = {"/image": ["HEAD"], "/any-404": ["HEAD", "GET"]}
        assert served.methods(THIRD) == {**robots, **third}
        assert served.methods(SHUT) == robots
        assert set(served.methods(OWN)) == {"/", "/2", "/3", "/robots.txt"}
        found = checked(done, OTHER)
        assert {path: each.external for path, each in found.items()} == {
            path: result for path, (_, result) in CHECKED.items()
        }
        assert found["/any-moved"].target == served.url(OTHER, "/any-404")
        (third,) = (each for each in done.outcomes if each.url == served.url(OWN, "/3"))
        assert third.target == served.url(THIRD, "/any-404") and not third.external
        assert found["/any-in"].target == served.url(OWN)
        private = checked(done, SHUT)["/private"]
        assert (private.external, private.reason) == ("unknown", "robots.txt: line 2: Disallow: /")
        assert {each.record for each in found.values()} == {""}
        assert max(each.size for each in found.values()) <= 4096
        _the_report_tells_what_is_broken(done.data, served)


def _the_report_tells_what_is_broken(data: Path, served: Web) -> None:
    said = msgspec.json.decode(command(data, "site", "--json", of="report"))
    rows = {each["name"]: each["rows"] for each in said["findings"]}
    broken = {
        row[0]: (row[1], row[-1]) for row in rows["broken-links"] if row[2] == served.url(OWN)
    }
    over, last = served.url(OTHER, "/any-moved"), served.url(OTHER, "/any-404")
    wanted = {
        served.url(OTHER, path) for path, (_, result) in CHECKED.items() if result == "broken"
    }
    assert broken.keys() == {*wanted - {last}, over}
    assert broken[over] == ("404", last)
    answers = {row[0]: (row[1], row[2]) for row in rows["external"]}
    forbidden = answers[served.url(SHUT, "/private")]
    assert forbidden == ("unknown", "robots.txt: line 2: Disallow: /")
    assert answers[served.url(OTHER, "/any-403")] == ("unknown", "403")
    own = [row for row in rows["broken-links"] if row[0] == served.url(OWN, "/3")]
    assert [row[-1] for row in own] == [served.url(THIRD, "/any-404")]


def test_they_count_as_no_pages_wait_where_they_are_not_wanted_and_are_pages_in_a_wider_scope(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    own = {
        "/": [(OWN, "/2"), (OTHER, "/any-200"), (OTHER, "/any-404")],
        "/2": [(OTHER, "/any-503"), (THIRD, "/any-200"), (THIRD, "/gone/any-200")],
    }
    with web(own) as served:
        first = {"seeds": served.url(OWN), "scope": "host"}
        done = crawl(data, settings=QUICK, max_pages=2, check_external="yes", **first)
        assert done.reason == "max_pages"
        assert {"/", "/2"} < set(served.methods(OWN)), "no check took the place of a page"
        before = list(served.asked)
        assert crawl(data, settings=QUICK, check_external="no").reason == "finished"
        assert served.asked == before, "they wait for a run that is asked for them"
        command(data, "purge", f"{THIRD}/gone/*")
        crawl(data, settings=QUICK, check_external="yes")
        assert served.methods(OTHER)["/any-503"] == ["HEAD", "GET"]
        assert served.methods(THIRD) == {"/robots.txt": ["GET"], "/any-200": ["HEAD"]}
        said = command(data, "why", served.url(OTHER, "/any-404"))
        assert "Checked as an external link" in said and "broken: status 404" in said, said
        assert "links to it are checked" in said, said
        summary = msgspec.json.decode((data / "summary.json").read_bytes())
        assert summary["pages"] == 0 and summary["whole"]["pages"] == 2
        counted = summary["whole"]["counters"]
        assert (counted["external/ok"], counted["external/broken"]) == (2, 2)
        served.own["/3"] = page(served.url(OTHER, "/any-200"))
        crawl(
            data, settings=QUICK, seeds=f"{served.url(OWN, '/3')},{served.url(OTHER, '/any-410')}"
        )
        assert served.methods(OTHER)["/any-200"] == ["HEAD", "GET"], "it is a page now"


def command(data: Path, *words: str, of: str = "frontier") -> str:
    """What a command says of the crawl in *data*, which does not run."""
    place = ["-s", f"CRAWLER_DATA_DIR={data}", "-s", "CRAWLER_ALLOW_INSIDE=127.0.0.0/8"]
    ended = run([sys.executable, "-m", "scrapy", of, *words, *place])
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


DELAY_S = 0.1
RESTING = {"CRAWLER_MIN_DELAY_S": DELAY_S, "CRAWLER_PACED_MIN_DELAY_S": DELAY_S}


def is_polite(served: Web) -> bool:
    """Whether each host was asked one thing at a time, with rests between."""
    by_host: dict[str, list[Visit]] = {}
    for visit in sorted(served.served.visits, key=lambda each: each.arrival_s):
        by_host.setdefault(visit.host, []).append(visit)
    return all(
        later.arrival_s - earlier.end_s >= DELAY_S
        for visits in by_host.values()
        for earlier, later in pairwise(visits)
    )


def test_kills_cost_what_was_put_back_and_no_rest(tmp_path: Path) -> None:
    links = [(host, f"/any-{status}") for host in (OTHER, THIRD) for status in (200, 404, 410)]
    kills = 3
    with web({"/": links}) as served:
        arguments = {"seeds": served.url(OWN), "scope": "host", "check_external": "yes"}
        crawling = crawl_command(tmp_path / "data", {**QUICK, **RESTING}, **arguments)
        for number in range(kills):
            with running(crawling, tmp_path / "log") as process:
                enough = 4 + 2 * number
                wait_until(lambda most=enough: len(served.asked) >= most, PATIENCE_S)
                process.kill()
        last = run(crawling)
        assert last.returncode == 0
        put_back = re.findall(r"put back: (\d+)", (tmp_path / "log").read_text() + last.stderr)
        asked = [each for each in served.asked if each[1] != "/robots.txt"]
        wanted = {(OWN, "/", "GET"), *((*each, "HEAD") for each in links)}
        wanted |= {(host, "/any-404", "GET") for host in (OTHER, THIRD)}
        assert set(asked) == wanted
        assert len(asked) - len(wanted) <= sum(map(int, put_back))
        assert is_polite(served)


def test_two_workers_ask_for_each_once(tmp_path: Path, server: RedisServer) -> None:
    hosts = [OTHER, THIRD, *(f"127.0.75.{number}" for number in range(6, 10))]
    links = [(host, f"/any-{what}") for host in hosts for what in ("200", "410", "away")]
    with web({"/": [(OWN, "/2"), *links], "/2": links}, hosts) as served:
        shared = {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 4}
        arguments = {"seeds": served.url(OWN), "scope": "host", "check_external": "yes"}
        commands = [
            crawl_command(tmp_path / name, {**QUICK, **RESTING, **shared}, **arguments)
            for name in ("a", "b")
        ]
        with ExitStack() as both:
            workers = [both.enter_context(running(each, tmp_path / "log")) for each in commands]
            assert [each.wait(PATIENCE_S) for each in workers] == [0, 0]
        asked = [each for each in served.asked if each[0] != OWN and each[1] != "/robots.txt"]
        target = [(THIRD, "/any-404", method) for method in ("HEAD", "GET")]
        assert sorted(asked) == sorted([*((*each, "HEAD") for each in links), *target])
        assert is_polite(served)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"check_external": "maybe"}, "check_external is 'maybe'; want", id="no flag"),
        pytest.param({"check_external": "yes"}, "with scope=any none does", id="nothing outside"),
        pytest.param(
            {"check_external": "yes", "scope": "host", "seeds": "http://127.0.75.2/ scope=any"},
            "with scope=any none does",
            id="nothing outside of one seed",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, arguments: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        crawl(tmp_path / "data", **{"seeds": "http://127.0.75.2/", **arguments})
