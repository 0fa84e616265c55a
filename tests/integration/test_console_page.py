"""The page of a crawl that runs, in a real browser, judged by the web that is crawled."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from itertools import product
from pathlib import Path

import msgspec
import pytest

from crawler.data.operator_files import Act, Audit
from crawler.view.rows import HostRow
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.waiting import wait_until
from tests.servers.browser import open_tab
from tests.servers.judge import Gap, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, page
from tests.servers.redis_process import free_port

HOSTS = tuple(f"127.0.0.{120 + number}" for number in range(3))
EVIL = "127.0.0.124"
MIN_DELAY_S = 0.2
FAILED = re.compile(r"status 503 \d+ min \d+ s ago, 2 in a row")
HOSTILE = "/<svg/onload=hacked=1>"  # a path, and what a robots.txt says of it


class Console:
    """A crawl with its console, and a web that would go on for long."""

    def __init__(self, folder: Path) -> None:
        self.data, self.log, self.port = folder / "data", folder / "log", free_port()
        self.attacks = ""  # the page of another site
        self.web = LoopbackWeb(self.answer, (*HOSTS, EVIL))

    def answer(self, ask: Ask) -> Reply:
        if ask.path == "/robots.txt":
            rule = f"User-agent: *\nDisallow: {HOSTILE}\n"
            return Reply(rule, content_type="text/plain") if ask.host == HOSTS[2] else not_here(ask)
        if ask.host == EVIL:
            return Reply(self.attacks)
        at = int(ask.path[1:]) if ask.path[1:].isdecimal() else 0
        links = [f"/{at + ahead}" for ahead in range(1, 20)]  # it has no end
        return page(escape(HOSTILE), *links, text=f"{ask.host} {ask.path}")

    @property
    def url(self) -> str:
        written = (self.data / "control.address").read_text().strip()
        return f"http://{written}/"

    @contextmanager
    def crawling(self) -> Iterator[None]:
        settings = {
            "CRAWLER_HTTP": f"127.0.0.1:{self.port}",
            "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
            "CRAWLER_DELAY_FACTOR": 0,
            "CRAWLER_SOFT_404": False,
            "CRAWLER_DOMAIN_BUDGET": 10_000,
        }
        seeds = ",".join(self.web.url(host, "/0") for host in HOSTS)
        command = crawl_command(self.data, settings, seeds=seeds, scope="host")
        with fork_server.running(command, self.log):
            wait_until(lambda: (self.data / "control.address").exists(), PATIENCE_S)
            yield

    def asked(self, host: str) -> int:
        return sum(visit.host == host for visit in self.web.visits)

    def paths(self) -> set[str]:
        return {visit.path for visit in self.web.visits}

    def acts(self) -> list[str]:
        lines = Audit(self.data / "audit.jsonl").read()
        return [line.verb for line in lines if isinstance(line, Act)]


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = Console(tmp_path)
    with made.web, made.crawling():
        yield made


def test_a_crawl_is_seen_and_acted_on(console: Console, tmp_path: Path) -> None:
    paused, other = HOSTS[0], HOSTS[1]
    with open_tab(tmp_path / "browser") as tab:
        tab.open(console.url)
        tab.wait("document.getElementById('sentence').textContent.startsWith('Well')")
        tab.wait("document.getElementById('main').innerText.includes('pages a second')")
        tab.wait("document.getElementById('main').innerText.includes('the shortest rest')")
        # A minute in which no page came, but was fetched.
        tab.run("points.unshift([latest.now - 60, ...points.at(-1).slice(1)]), true")
        assert tab.run("health(latest)[0]") == "good"
        assert tab.run("health({...latest, idle_s: 12}).join()").startswith("doubt,Nothing")

        tab.open(f"{console.url}#hosts/{paused}")
        tab.click("td button", "pause")
        tab.wait("[...document.querySelectorAll('td')].some((e) => e.innerText.includes('pauses'))")
        before, others = console.asked(paused), console.asked(other)
        wait_until(lambda: console.asked(other) > others + 10, PATIENCE_S)
        assert console.asked(paused) <= before + 1, "one may have been under way"
        tab.click("td button", "resume")
        wait_until(lambda: console.asked(paused) > before + 3, PATIENCE_S)

        tab.open(f"{console.url}#rules")
        tab.fill("textarea", f'[[rule]]\nfor = "{other}"\nrefuse = maybe\n')
        tab.click("#save")
        tab.wait("document.getElementById('said').innerText.includes('line')")
        assert "refuse" not in (console.data / "rules.toml").read_text()
        tab.fill("textarea", f'# ours\n[[rule]]\nfor = "{other}"\nrefuse = true\n')
        tab.click("#save")
        tab.wait("document.getElementById('main').innerText.includes('1 rules are in force')")
        log = console.log.read_text
        wait_until(lambda: "Rules in force: 1" in log(), PATIENCE_S, log=log)
        refused, others = console.asked(other), console.asked(paused)
        wait_until(lambda: console.asked(paused) > others + 10, PATIENCE_S)
        assert console.asked(other) <= refused + 1

        tab.open(f"{console.url}#why")
        tab.fill("#added", console.web.url(HOSTS[2], "/added-by-hand"))
        tab.click("#add")
        wait_until(lambda: "/added-by-hand" in console.paths(), PATIENCE_S, log=tab.text)
        tab.fill("input[type=url]", console.web.url(HOSTS[2], "/added-by-hand"))

        def known() -> str:
            tab.click("#asked")
            return str(tab.run("document.querySelector('pre').innerText"))

        wait_until(lambda: "done" in known(), PATIENCE_S, log=known)
        assert console.acts() == ["pause", "resume", "rules", "add"]
        tab.click("#undo")
        tab.wait("document.getElementById('question').textContent.startsWith('Undo act 4 of ')")
        assert "add http" in tab.run("document.getElementById('question').textContent")
        tab.run("document.getElementById('ask').close(), true")

        tab.open(f"{console.url}#domains")
        tab.wait("document.getElementById('main').innerText.includes('linked by')")
        for view in (
            "overview",
            "now",
            "domains",
            "outcomes",
            "dead",
            "archive",
            "workers",
            "audit",
        ):
            tab.open(f"{console.url}#{view}")
            tab.wait(f"document.querySelector('nav a[aria-current]').hash === '#{view}'")
            tab.wait("!document.querySelector('#main .bad')")
        refused = [each for each in tab.errors if "400" in each and "/api/rules" in each]
        assert tab.errors == refused, "the edit with an error alone"
    console.web.settle()
    assert not judge(console.web.visits, {}, Gap(MIN_DELAY_S, 0)).found, "with a page open"


HOST = HostRow(
    host="www.a-name-that-is-not-short.example.org",
    waiting=1234567,
    place="resting",
    next_at=time.time() + 4000.0,
    gap_s=0.16,
    crawl_delay_s=0.0,
    failures=2,
    pauses=0,
    admitted=2345678,
    stage="parallel",
    base_s=0.08,
    factor=1.0,
    at_once=4,
    share=0.3333,
    refused_interval_s=5.0,
    because="rests 0.2 s: its fetches stay near the 80 ms of a server hardly used: 2 times",
    rest_because="",
    fetch_s=0.08,
    left_s=187_200.0,
    fetches=12_860,
    failed=514,
    success=0.96003,
    pages=12_345,
    bytes=3_210_000_000,
    last_failure="status_503",
    last_status=503,
    failed_at=time.time() - 185,
)
WIDTHS = (1280, 390)
STUB = "asked_of = get, get = async (...p) => p[0] === '{}' ? {} : asked_of(...p), true"
HISTORY = {
    "at": [1e9, 2e9],
    "pages_per_s": [1.5, 8.3],
    "bytes_per_s": [1, 2],
    "errors_per_s": [None, 0],
    "waiting": [5, 6],
    "hosts_active": [3, 4],
    "fetch_s": [0.08, None],
    "fresh": [None, None],
    "answers_per_s": {"2xx": [1.25, 8.25], "4xx": [0, 0.5]},
}


def test_each_view_fits_its_screen_and_is_for_all(console: Console, tmp_path: Path) -> None:
    """Also a host whose cells are all full; by axe-core, over both widths and colour schemes."""
    with open_tab(tmp_path / "browser") as tab:
        tab.open(console.url)
        tab.wait("!!latest")
        tab.run(STUB.format("hosts", f"[{msgspec.json.encode(HOST).decode()}]"))
        views = tab.run("Object.keys(VIEWS)")
        assert len(views) >= 11
        views.append(f"hosts/{HOST.host}")
        for width, scheme, view in product(WIDTHS, ("light", "dark"), views):
            tab.resize((width, 800), scheme)
            tab.run(f"location.hash = '{view}', true")
            chosen = "document.querySelector('nav a[aria-current]').hash"
            tab.wait(f"location.hash.startsWith({chosen}) && location.hash === '#{view}'")
            tab.wait("!document.querySelector('main > div:empty, main > .plots > div:empty')")
            where = (view, width, scheme)
            assert tab.run("document.documentElement.scrollWidth") == width, where
            assert tab.cut_off() == [], where
            assert tab.violations() == [], where
        cards = tab.run("[...document.querySelectorAll('.card b')].map((e) => e.innerText)")
        pace = ["parallel", "80 ms", "\u00d7 1", "4 at once", "33.3 %"]
        assert cards == [*pace, "2,345,678", "\u2013", "5.0 s apart"]
        cells = tab.run("[...document.querySelectorAll('tbody td')].map((e) => e.innerText)")
        assert cells[1:3] == ["1,234,567", "2 d 4 h"]
        assert cells[6:10] == ["80 ms", "96 %", "12,345", "3.2 GB"] and FAILED.fullmatch(cells[10])
        acts = "[...document.querySelectorAll('td.many button')].map((each) => each.ariaLabel)"
        assert tab.run(acts)[3:] == [f"refuse {HOST.host}", f"drop {HOST.host}"]
        assert not tab.errors


def test_figures_wait_for_who_reads_them(console: Console, tmp_path: Path) -> None:
    with open_tab(tmp_path / "browser") as tab:

        def point(selector: str, share: float = 0.5) -> None:
            found = f"document.querySelector('{selector}').getBoundingClientRect()"
            x, y = tab.run(f"[{found}.left + {found}.width * {share}, {found}.top + 5]")
            tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

        def first() -> str:
            return str(tab.run("document.querySelector('tbody td.long').innerText"))

        tab.resize((1280, 900))
        tab.open(f"{console.url}#outcomes")
        tab.wait("document.querySelectorAll('tbody tr').length > 5")
        before = first()
        wait_until(lambda: first() != before, PATIENCE_S)  # nobody points at it
        point("tbody tr")
        tab.wait("!document.getElementById('more').hidden")
        read = first()
        more = "document.getElementById('more').textContent"
        words = tab.wait(f"/^[1-9][0-9]+ new/.exec({more})?.[0]")
        assert first() == read, "the list waits"
        tab.run("scrollTo(0, 200), true")
        point("h1", 2.0)
        tab.wait(f"!{more}.startsWith('{words}')")
        assert first() == read, "as it is scrolled"
        tab.click("#more")
        assert first() != read and tab.run("scrollY") == 0
        read = first()
        wait_until(lambda: first() != read, PATIENCE_S)

        tab.run(STUB.format("history", json.dumps(HISTORY)))
        tab.run("location.hash = 'overview', true")
        tab.wait("document.querySelectorAll('.plot .u-over').length === 7")
        shown = "[...document.querySelectorAll('.value')].map((each) => each.innerText)"
        assert [text.split("\n")[0] for text in tab.run(shown)][:2] == ["8.3", "2xx 8.3"]
        tab.run("document.querySelector('.plot').scrollIntoView(), true")
        point(".plot .u-over", 0.05)
        tab.wait(f"{shown}[0].startsWith('1.5')")
        texts = [text.split("\n") for text in tab.run(shown)]
        assert texts[1][:2] == ["2xx 1.3", "4xx 0.00"], "those of the others are of the same time"
        assert [text[0] for text in texts[2:]] == ["\u2013", "80 ms", "1 B", "5", "3"]

        tab.run("location.hash = 'rules', true")
        tab.click("#example")
        tab.click("#save")
        tab.wait("document.getElementById('main').innerText.includes('3 rules are in force')")
        tab.wait("document.getElementById('undo').textContent.startsWith('Undo: rules')")
        assert not tab.errors


def test_what_comes_from_the_web_runs_nothing(console: Console, tmp_path: Path) -> None:
    with open_tab(tmp_path / "browser") as tab:
        tab.open(f"{console.url}#outcomes")
        tab.fill("input[placeholder='part of the URL']", "hacked")
        tab.wait("document.querySelector('main').innerText.includes('onload')")
        tab.run(f"act('refuse', {{targets: ['a.example{HOSTILE}*']}})")
        tab.open(f"{console.url}#audit")
        tab.wait("document.querySelector('main').innerText.includes('<svg')")
        assert tab.run("typeof hacked") == "undefined"
        assert not tab.run("document.querySelectorAll('main svg, main script').length")
        script = "document.body.append(Object.assign(document.createElement('script'),"
        tab.run(f"{script} {{textContent: 'hacked = 1'}})), true")
        assert tab.run("typeof hacked") == "undefined", "the policy lets no inline script run"


ATTACKS = """<!doctype html><title>evil</title><body><script>
const done = [];
const target = TARGET;
async function attempt(name, made) {
  try { const answer = await made(); done.push([name, answer.type, answer.status]); }
  catch (error) { done.push([name, 'failed']); }
}
(async () => {
  const json = {"Content-Type": "application/json"};
  const stop = {method: "POST", body: "{}"};
  await attempt("simple", () => fetch(target + "api/stop", {...stop, mode: "no-cors"}));
  await attempt("json", () => fetch(target + "api/stop", {...stop, headers: json}));
  await attempt("read", () => fetch(target + "api/overview"));
  await attempt("blind", () => fetch(target + "api/overview", {mode: "no-cors"}));
  const form = document.createElement("form");
  Object.assign(form, {method: "post", action: target + "api/stop", target: "frame"});
  form.enctype = "text/plain";
  const frame = Object.assign(document.createElement("iframe"), {name: "frame"});
  document.body.append(frame, form);
  form.submit();
  await new Promise((resolve) => { frame.onload = resolve; });
  window.attacked = done;
})();
</script>"""


def test_other_sites_can_do_nothing(console: Console, tmp_path: Path) -> None:
    console.attacks = ATTACKS.replace("TARGET", json.dumps(console.url))
    with open_tab(tmp_path / "browser", {"rebound.test": "127.0.0.1"}) as tab:
        tab.open(console.web.url(EVIL))
        attacked = {name: rest for name, *rest in tab.wait("window.attacked")}
        assert attacked["json"] == attacked["read"] == ["failed"]
        assert attacked["simple"] in (["failed"], ["opaque", 0])

        rebound = console.url.replace("127.0.0.1", "rebound.test")
        tab.open(rebound)
        tab.wait("document.body && document.body.innerText.includes('is not this crawl')")
        answered = tab.run(
            "fetch('/api/stop', {method: 'POST', body: '{}',"
            " headers: {'Content-Type': 'application/json'}}).then((answer) => answer.status)"
        )
        assert answered == 403
    assert not console.acts()
