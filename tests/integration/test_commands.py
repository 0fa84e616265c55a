"""The commands as a user runs them: what they print, what they return, what they leave."""

from __future__ import annotations

import gc
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings

from crawler.frontier import records as keys
from crawler.frontier.records import decode_totals, encode
from crawler.frontier.rocks_store import RocksStore
from crawler.report.summary import Summary, text
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command, run
from tests.harness.crawling import crawl
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Routes, Site, page, site

QUICK = {"CRAWLER_RETRIES": 1, "CRAWLER_BACKOFF_BASE_S": 0.05, "CRAWLER_BACKOFF_MAX_S": 0.05}
COMPONENTS = "tests.harness.spiders"


def boom(hit: int) -> Reply:
    return Reply("not now", 503) if hit <= 2 else page(text="at last")


ROUTES: Routes = {
    "/": page("/a", "/b", "/c", "/secret", "/boom", "http://example.com/", "mailto:x@example.com"),
    "/a": page("/b", text="A"),
    "/b": page("/a", text="same"),
    "/c": page("/a", text="same"),
    "/boom": boom,
    "/robots.txt": Reply("User-agent: *\nDisallow: /secret\n"),
}


LATE = ("pyarrow", "feedparser", "pypdfium2", "numba", "llvmlite", "duckdb")
"""What takes 50 ms and more to import, and is imported where it is first needed."""


SHOWING_IMPORTS = """
import atexit, sys
from scrapy.cmdline import execute
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
execute(["scrapy", *sys.argv[1:]])
"""


def test_a_command_imports_what_it_runs_and_nothing_for_the_others() -> None:
    done = run([sys.executable, "-c", SHOWING_IMPORTS, "version"])
    assert done.returncode == 0 and done.stdout.startswith("Scrapy ")
    imported = set(done.stderr.split())
    assert imported.isdisjoint({*LATE, "msgspec", "numpy", "aiohttp"})
    ours = {name for name in imported if name.startswith("crawler.")}
    assert "crawler.commands.frontier" in ours, "Scrapy imports all commands to list them"
    assert {name for name in ours if not name.startswith("crawler.commands")} == {
        "crawler.settings",
        *("crawler.cli", "crawler.cli.interactive"),  # the base of `scrapy shell`
        *("crawler.engine", "crawler.engine.interactive"),
        *("crawler.model", "crawler.model.program"),  # the name that was typed
    }


NOT_AT_START = (
    *("pyarrow", "feedparser", "pypdfium2", "duckdb"),  # for the first page that needs them
    "fsspec",  # for an object store
    *("tldextract", "requests"),  # for cookies
)


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    with site("127.0.0.71", ROUTES) as served:
        yield served


def test_a_crawl_imports_nothing_for_pages_that_it_has_not(web: Site, tmp_path: Path) -> None:
    settings = QUICK | {"CRAWLER_OUTCOME_TABLE": False}  # it has a row for each URL
    command = crawl_command(tmp_path / "data", settings, seeds=web.url("/secret"))
    done = run([sys.executable, "-c", SHOWING_IMPORTS, *command[3:]])
    assert "robots.txt" in done.stderr and done.returncode == 1, "no page was fetched"
    imported = set(done.stderr.splitlines()[-1].split())
    assert "crawler.download.handler" in imported
    assert not imported.intersection(NOT_AT_START)


@pytest.fixture(scope="module")
def crawled(web: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    data = tmp_path_factory.mktemp("crawled") / "data"
    return data, run(crawl_command(data, QUICK, seeds=web.url("/")))


@pytest.fixture
def data(crawled: tuple[Path, Any], tmp_path: Path) -> Path:
    """A data directory of one's own, as that crawl left it."""
    shutil.copytree(crawled[0], tmp_path / "data")
    return tmp_path / "data"


def frontier_command(data: Path, *asked: str) -> list[str]:
    return ["scrapy", "frontier", *asked, "-s", f"CRAWLER_DATA_DIR={data}"]


def frontier(data: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which is a second quicker."""
    command = frontier_command(data, *asked)
    settings = Settings()
    settings.setmodule("crawler.settings", priority="project")
    out, err = StringIO(), StringIO()
    with (
        chdir(PROJECT),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        execute(list(command), settings)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(command, ended.value.code, out.getvalue(), err.getvalue())


def answer(data: Path, *asked: str) -> Any:
    result = frontier(data, *asked, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def read_summary(data: Path) -> Summary:
    return msgspec.json.decode((data / "summary.json").read_bytes(), type=Summary)


def test_the_fork_server_gives_the_same_output_as_a_new_process(web: Site, tmp_path: Path) -> None:
    """What most tests of whole crawls rely on."""
    quiet = {"LOG_LEVEL": "ERROR"}  # without dates
    wrong = crawl_command(tmp_path / "data", quiet, seeds=web.url("/"), sope="host")
    cold, begun = run(wrong), fork_server.run(wrong)
    assert (cold.returncode, cold.stdout, cold.stderr) == (1, begun.stdout, begun.stderr)
    assert begun.returncode == 1


def test_the_summary_is_printed_and_written(crawled: tuple[Path, Any]) -> None:
    data, done = crawled
    summary = read_summary(data)
    assert done.returncode == 0, done.stderr
    assert done.stdout == text(summary) + "\n"
    assert (summary.reason, summary.unfinished) == ("finished", False)
    assert (summary.pages, summary.duplicates, summary.dead_letters) == (5, 1, 1)
    assert summary.answers == {"2xx": 4, "5xx": 2}
    assert summary.robots.disallowed == 1
    assert summary.links.refused == {"no_contact": 1, "scheme": 1}
    assert summary.errors == {"status_503": 2}
    assert summary.archive.files == 1
    assert not list(data.glob("*.draft*"))


def test_counts_and_hosts(crawled: tuple[Path, Any]) -> None:
    data = crawled[0]
    counts = answer(data, "counts")
    assert (counts["counts"]["seen"], counts["counts"]["dead"], counts["process"]) == (6, 1, None)
    (host,) = answer(data, "hosts", "--top", "3")
    assert (host["host"], host["waiting"], host["admitted"]) == ("127.0.0.71", 0, 6)
    tally = [host[name] for name in ("fetches", "failed", "pages", "last_failure", "last_status")]
    assert tally == [6, 2, 4, "status_503", 503] and host["success"] == pytest.approx(4 / 6)
    assert host["bytes"] > 100 and 0 < host["fetch_s"] < 10 and host["left_s"] == 0
    assert 0 < time.time() - host["failed_at"] < 3600
    chosen = ("--state", "empty", "--failure", "status_503")
    assert answer(data, "hosts", "--match", "0.71", "--sort", "failures", *chosen) == [host]
    assert answer(data, "hosts", "--failure", "timeout") == answer(data, "hosts", "--state", "left")
    assert "status_503" in frontier(data, "hosts", "--sort", "end").stdout
    assert answer(data, "hosts", "--match", "0.72") == answer(data, "hosts", "--offset", "1") == []
    shown = frontier(data, "hosts", "--host", "127.0.0.71").stdout
    assert shown.splitlines()[1].startswith("127.0.0.71")
    unknown = frontier(data, "hosts", "--host", "nobody.example")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "gossamer: error: the frontier has no host nobody.example\n"


@pytest.mark.parametrize(
    ("url", "arguments", "expected"),
    [
        pytest.param("/a", [], ["seen", "done: status 200", "archived at crawl-"], id="a page"),
        pytest.param("/a?utm_source=x", [], ["seen", "done: status 200"], id="under another name"),
        pytest.param(
            "/secret", [], ["done: robots.txt: line 2", "robots.txt forbids it"], id="robots"
        ),
        pytest.param(
            "/boom", [], ["dead letter, ", "retry: status 503", "tried 2 times"], id="dead"
        ),
        pytest.param("/nowhere", [], ["not seen", "the rules admit it"], id="never met"),
        pytest.param(
            "/x.jpg", [], ["not seen", "by the rule file_type: files of this type"], id="a rule"
        ),
        pytest.param(
            "/x.jpg",
            ["requisites=yes"],
            ["the rule file_type", "no page needs it to be shown"],
            id="what no page needs",
        ),
        pytest.param(
            "http://example.com/", [], ["refused by the rule no_contact"], id="no contact"
        ),
        pytest.param(
            "http://127.0.0.72/",
            ["scope=host", "seeds=http://127.0.0.71/"],
            ["refused by the rule out_of_scope"],
            id="the crawl's own scope",
        ),
        pytest.param(
            "/a", ["deny=/b", "deny=/a"], ["refused by the rule denied", "/a"], id="repeated -a"
        ),
    ],
)
def test_why(
    crawled: tuple[Path, Any], web: Site, url: str, arguments: list[str], expected: list[str]
) -> None:
    whole = web.url(url) if url.startswith("/") else url
    given = [part for argument in arguments for part in ("-a", argument)]
    result = frontier(crawled[0], "why", whole, *given)
    assert result.returncode == 0, result.stderr
    assert [part for part in expected if part not in result.stdout] == [], result.stdout


def test_why_a_duplicate_is_one(crawled: tuple[Path, Any], web: Site) -> None:
    answers = [answer(crawled[0], "why", web.url(path)) for path in ("/b", "/c")]
    copy, original = sorted(answers, key=lambda each: each["duplicate_of"], reverse=True)
    assert copy["duplicate_of"] == original["url"]
    assert original["duplicate_of"] == ""


@pytest.mark.parametrize(
    ("setting", "rule", "name"),
    [
        ("CRAWLER_MAX_URLS_PER_DOMAIN", "domain_budget", "127.0.0.71"),
        ("CRAWLER_MAX_URLS_PER_HOST", "host_budget", "127.0.0.71"),
    ],
)
def test_links_over_budget_are_reported_with_the_setting(
    web: Site, tmp_path: Path, setting: str, rule: str, name: str
) -> None:
    data = tmp_path / "data"
    done = fork_server.run(
        crawl_command(data, {setting: 2}, seeds=f"{web.url('/b')},{web.url('/')}")
    )
    assert done.returncode == 0, done.stderr
    (kept_out,) = read_summary(data).links.top_over_budget
    assert (kept_out.setting, kept_out.limit, kept_out.name) == (setting, 2, name)
    assert kept_out.links == read_summary(data).links.over_budget > 1
    assert f"links of {name}, which has its 2 URLs ({setting})" in done.stdout
    asked = ("why", web.url("/a"))
    found = answer(data, *asked)
    assert (found["seen"], found["rule"]) == (False, rule)
    assert found["spilled"] is not None and found["domain"]["capped"]
    counts = answer(data, "counts")["counts"]
    assert counts["spilled"] == counts["capped"] > 1 == counts["spilled_domains"]
    (domain,) = answer(data, "domains", "--match", name, "--sort", "spilled")
    assert (domain["domain"], domain["spilled"]) == (name, counts["spilled"])
    assert "over their budgets in all: a start with a larger" in done.stdout
    assert f"has its full number of URLs: 2 of {name} ({setting} is 2)" in (
        frontier(data, *asked).stdout
    )
    larger = frontier(data, "why", web.url("/a"), "-s", f"{setting}=3").stdout
    assert "the rules admit it" in larger
    assert "rules admit it" in frontier(data, "why", web.url("/b")).stdout


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param([], "say what: counts, now, hosts, domains, dead", id="nothing asked"),
        pytest.param(["couns"], "say what", id="a misspelt word"),
        pytest.param(["why"], "why takes one URL", id="no URL"),
        pytest.param(["counts", "x"], "counts takes nothing more", id="a word too many"),
        pytest.param(["counts", "--top", "3"], "counts takes no --top", id="another's option"),
        pytest.param(["hosts", "--tpo", "3"], "unknown option --tpo", id="a misspelt option"),
        pytest.param(["hosts", "--sort", "size"], "invalid choice: 'size'", id="no such order"),
        pytest.param(["hosts", "--top", "0"], "a --top of 1 or more", id="nothing to list"),
        pytest.param(["hosts", "--offset", "-1"], "an --offset of 0", id="before the first"),
        pytest.param(["retry", "--all", "http://a/"], "retry takes", id="one and all"),
    ],
)
def test_arguments_without_meaning_are_refused(
    tmp_path: Path, asked: list[str], message: str
) -> None:
    result = frontier(tmp_path / "none", *asked)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("asked", [["counts"], ["dead"], ["retry", "--all"], ["why", "http://a/"]])
def test_looking_makes_no_data_directory(tmp_path: Path, asked: list[str]) -> None:
    result = frontier(tmp_path / "none", *asked)
    assert result.returncode == 1
    assert result.stderr.startswith(f"gossamer: error: {tmp_path / 'none'} is not a data directory")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "asked",
    ["frontier why http://example.com/", "frontier counts --json", "rules show", "archive list"],
)
def test_a_reader_that_closes_the_pipe_is_no_error(data: Path, asked: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "scrapy", *asked.split(), "-s", f"CRAWLER_DATA_DIR={data}"]
    with open(writing, "wb") as pipe:  # noqa: PTH123  # a descriptor
        done = subprocess.run(
            command, check=False, cwd=PROJECT, stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_outputs_are_no_error(web: Site, data: Path, tmp_path: Path) -> None:
    def run_without(outputs: str, command: list[str]) -> subprocess.CompletedProcess[str]:
        whole = ["sh", "-c", f'exec "$@" {outputs}', "sh", *command]
        return subprocess.run(whole, check=False, cwd=PROJECT, capture_output=True, text=True)

    looking = [sys.executable, "-m", *frontier_command(data, "counts")]
    looked = run_without(">&-", looking)
    assert (looked.returncode, looked.stderr) == (0, "")
    crawled = run_without("2>&-", crawl_command(tmp_path / "new", QUICK, seeds=web.url("/a")))
    assert (crawled.returncode, "as JSON" in crawled.stdout) == (0, True)


def test_each_verb_is_named_once_where_a_word_is_wanted(data: Path) -> None:
    words = frontier(data, "nothing").stderr.partition("say what: ")[2].split(", ")
    assert len(words) == len(set(words)) > 20


def test_counters_are_counted_again_and_repaired(data: Path) -> None:
    assert "10 counters counted again: all are right" in frontier(data, "check").stdout
    kept = answer(data, "check")
    with closing(RocksStore(data / "frontier")) as store:
        totals = decode_totals(store.get(keys.TOTALS) or b"")
        totals.waiting, totals.seen = totals.waiting - 19, totals.seen + 1
        store.write({keys.TOTALS: encode(totals)})
    found = frontier(data, "check")
    assert found.returncode == 1
    assert "waiting: the counter says -19, counted 0" in found.stdout
    assert "2 counters differ" in found.stdout
    assert "2 counters repaired" in frontier(data, "check", "--repair").stdout
    assert answer(data, "check") == kept


def test_what_another_crawl_has_is_not_fetched(data: Path, web: Site, tmp_path: Path) -> None:
    (index,) = (data / "warc").glob("*.cdxj")
    own = tmp_path / "own"
    result = frontier(own, "seen", "--from", str(index))
    assert result.returncode == 0, result.stderr
    lines = index.read_text().count("\n")
    assert answer(own, "seen", "--from", str(index)) == {"lines": lines, "new": 0, "unreadable": 0}
    assert (
        answer(own, "why", web.url("/a"))["seen"] and not answer(own, "why", web.url("/d"))["seen"]
    )
    done = run(crawl_command(own, QUICK, seeds=f"{web.url('/a')},{web.url('/d')}"))
    assert done.returncode == 0, done.stderr
    assert read_summary(own).pages == 1, "only the page that the other crawl does not have"


def test_an_index_that_is_none_is_refused(data: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cdxj"
    wrong.write_text('a 2 {"url": "http://a/"}\nno index\n')
    result = frontier(data, "seen", "--from", str(wrong))
    assert result.returncode == 1
    assert f"{wrong}, line 2: no index line (CDXJ)" in result.stderr
    assert "cannot be read" in frontier(data, "seen", "--from", str(tmp_path / "none")).stderr
    assert "seen needs --from FILE" in frontier(data, "seen").stderr


def test_a_dead_letter_put_back_is_fetched_again(data: Path, web: Site) -> None:
    url = web.url("/boom")
    (letter,) = answer(data, "dead")
    assert (letter["url"], letter["reason"]) == (url, "status 503, tried 2 times")
    assert letter["attempts"] == 2, "the last is counted, too"
    assert url in frontier(data, "dead").stdout
    other = frontier(data, "retry", web.url("/a"))
    assert other.returncode == 1
    assert "is no dead letter" in other.stderr
    assert answer(data, "retry", url) == {"put_back": 1}
    counts = answer(data, "counts")["counts"]
    assert (counts["waiting"], counts["dead"]) == (1, 0)
    assert answer(data, "why", url)["attempts"] == 0
    assert "0 URLs put back" in frontier(data, "retry", "--all").stdout
    crawl(data, seeds=web.url("/"))
    summary = read_summary(data)
    assert (summary.pages, summary.dead_letters) == (1, 0)


def test_beside_a_running_crawl(tmp_path: Path) -> None:
    data = tmp_path / "data"
    routes = {"/": page("/slow", "/next"), "/slow": Reply(hang=True), "/next": page()}
    settings = {"CRAWLER_MIN_DELAY_S": 0.01, "CRAWLER_DELAY_FACTOR": 0}
    with site("127.0.0.72", routes) as web:
        command = crawl_command(data, settings, seeds=web.url("/"))
        with fork_server.running(command, tmp_path / "log") as process:
            wait_until(lambda: "/slow" in web.asked, PATIENCE_S)
            counts = answer(data, "counts")
            assert counts["process"] == process.pid
            # The first page may still wait for the sync of its record.
            assert counts["counts"]["leased"] in (1, 2)
            assert "leased" in frontier(data, "why", web.url("/slow")).stdout
            assert answer(data, "why", web.url("/next"))["waiting"] == 0
            assert "0 URLs put back" in frontier(data, "retry", "--all").stdout
            assert "all are right" in frontier(data, "check").stdout
            assert "in use by another crawl" in frontier(data, "check", "--repair").stderr
            asked_at = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert time.monotonic() - asked_at < 30
    summary = read_summary(data)
    assert (summary.reason, summary.unfinished) == ("shutdown", True)
    assert "Run the same command again" in (tmp_path / "log").read_text()
    assert answer(data, "counts")["counts"]["waiting"] == 2


def test_a_running_crawl_puts_dead_letters_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    slow = {"/": page("/slow"), "/slow": Reply(hang=True)}
    busy = {
        "/robots.txt": Reply("no rules"),
        "/boom": lambda hit: Reply("not now", 503) if hit == 1 else page(text="at last"),
    }
    settings = {
        "CRAWLER_MIN_DELAY_S": 0.01,
        "CRAWLER_RETRIES": 0,
        "CRAWLER_BACKOFF_BASE_S": 0.01,
        "CRAWLER_TOTAL_TIMEOUT_S": PATIENCE_S,  # of the page that keeps the crawl at work
    }
    with site("127.0.0.72", slow) as web, site("127.0.0.73", busy) as other:
        seeds = f"{web.url('/')},{other.url('/boom')}"
        command = crawl_command(data, settings, seeds=seeds)
        with fork_server.running(command, tmp_path / "log") as process:
            wait_until(lambda: "/slow" in web.asked, PATIENCE_S)
            wait_until(lambda: answer(data, "counts")["counts"]["dead"] == 1, PATIENCE_S)
            assert frontier(data, "retry", other.url("/none")).returncode == 1
            assert answer(data, "retry", other.url("/boom")) == {"put_back": 1}
            wait_until(lambda: other.hits["/boom"] == 2, PATIENCE_S)
            assert answer(data, "counts")["process"] == process.pid
            assert answer(data, "counts")["counts"]["dead"] == 0
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
    assert not [file for file in data.iterdir() if file.suffix.startswith(".retr")]


def test_max_pages_is_an_end_like_another(web: Site, tmp_path: Path) -> None:
    done = fork_server.run(crawl_command(tmp_path / "data", seeds=web.url("/"), max_pages=1))
    assert done.returncode == 0, done.stderr
    summary = read_summary(tmp_path / "data")
    assert (summary.reason, summary.pages, summary.unfinished) == ("max_pages", 1, True)


def test_a_list_of_seeds_that_is_not_there_ends_with_1(web: Site, tmp_path: Path) -> None:
    done = fork_server.run(crawl_command(tmp_path / "data", seeds=web.url("/list.txt")))
    assert done.returncode == 1
    assert "/list.txt cannot be fetched: status 404" in done.stderr
    assert done.stdout.startswith("\nNot begun: the seeds are not usable")
    assert "Traceback" not in done.stderr


def test_a_full_disk_stops_the_crawl_and_the_next_run_continues(tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = [f"/{number}" for number in range(30)]
    noise = {name: Reply(os.urandom(20_000), content_type="x/y") for name in names}
    with site("127.0.0.73", {"/": page(*names), **noise}) as web:
        command = crawl_command(data, seeds=web.url("/"))
        # No file may grow beyond 200 kB: what a full disk says, this says too.
        stopped = run(["bash", "-c", 'ulimit -f 200; exec "$@"', "bash", *command])
        assert stopped.returncode == 1
        assert "gossamer: error: cannot write " in stopped.stderr
        kept = read_summary(data)
        assert (kept.reason, kept.unfinished) == ("store_failed", True)
        assert "a store failed" in stopped.stdout
        crawl(data, seeds=web.url("/"))
        assert kept.pages + read_summary(data).pages == 31


def test_few_files_end_no_crawl_of_many_hosts(tmp_path: Path) -> None:
    """Each host keeps its connection open."""
    data, hosts = tmp_path / "data", [f"127.7.{n // 250}.{n % 250 + 1}" for n in range(700)]

    def answer(ask: Ask) -> Reply:
        return Reply(status=404) if ask.path == "/robots.txt" else page()

    with LoopbackWeb(answer, hosts) as web:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("\n".join(web.url(host) for host in hosts))
        command = crawl_command(data, seeds=str(seeds))
        done = run(["bash", "-c", 'ulimit -n 640; exec "$@"', "bash", *command])
    assert done.returncode == 0, done.stderr
    assert "Too many open files" not in done.stderr
    assert read_summary(data).pages == len(hosts)


def test_another_spider_works_as_in_scrapy(web: Site, tmp_path: Path) -> None:
    settings = {"SPIDER_MODULES": COMPONENTS}
    command = crawl_command(tmp_path / "data", settings, spider="other", url=web.url("/a"))
    done = fork_server.run([*command, "-a", "word=first", "-a", "word=last"])
    assert done.returncode == 0, done.stderr
    assert "parsed last 200" in done.stderr
    failed = fork_server.run([*command, "-a", "word=bad"])
    assert failed.returncode == 1
    assert "RuntimeError: an error of the spider's own" in failed.stderr


@pytest.mark.parametrize(
    ("spider", "seeds", "objects"),
    [
        pytest.param("selecting", "url", gc.get_threshold()[0], id="a spider with selectors"),
        pytest.param("web", "seeds", 50_000, id="web, which leaves nothing behind"),
    ],
)
def test_the_garbage_collection_threshold(
    web: Site, tmp_path: Path, spider: str, seeds: str, objects: int
) -> None:
    settings = {
        "SPIDER_MODULES": f"crawler.spiders,{COMPONENTS}",
        "ADDONS": json.dumps({"crawler.addon.Addon": 1, f"{COMPONENTS}.ThresholdReport": 2}),
    }
    done = run(crawl_command(tmp_path / "data", settings, spider, **{seeds: web.url("/a")}))
    assert done.returncode == 0, done.stderr
    assert f"new objects: {objects}, kept for ever: True" in done.stderr


def test_a_crawl_that_fails_to_open_leaves_no_lock(web: Site, tmp_path: Path) -> None:
    pipelines = json.dumps({f"{COMPONENTS}.FailsToOpen": 50})
    failed = fork_server.run(
        crawl_command(tmp_path / "data", {"ITEM_PIPELINES": pipelines}, seeds=web.url("/"))
    )
    assert failed.returncode == 1
    assert "RuntimeError: it does not open" in failed.stderr
    assert crawl(tmp_path / "data", seeds=web.url("/a")).reason == "finished"


TWICE = f"""
import sys
from pathlib import Path
from tests.harness.crawling import crawl
data, seeds = Path(sys.argv[1]), sys.argv[2]
try:
    crawl(data, settings={{"ITEM_PIPELINES": {{"{COMPONENTS}.FailsToBeBuilt": 50}}}}, seeds=seeds)
except RuntimeError as failed:
    print(failed)
print(crawl(data, seeds=seeds).reason)
"""


def test_a_crawl_that_cannot_be_built_does_not_prevent_the_next_one(
    web: Site, tmp_path: Path
) -> None:
    done = run([sys.executable, "-c", TWICE, str(tmp_path / "data"), web.url("/a")])
    assert done.stdout == "it cannot be built\nfinished\n", done.stderr


def test_a_signal_during_the_start_is_obeyed(web: Site, tmp_path: Path) -> None:
    extensions = json.dumps({f"{COMPONENTS}.Interrupted": 1})
    done = fork_server.run(
        crawl_command(tmp_path / "data", {"EXTENSIONS": extensions}, seeds=web.url("/")),
    )
    assert done.returncode == 0, done.stderr
    assert read_summary(tmp_path / "data").reason == "shutdown"


def test_with_a_reactor_errors_read_the_same(web: Site, tmp_path: Path) -> None:
    settings = {"TWISTED_REACTOR_ENABLED": True}
    done = run(crawl_command(tmp_path / "data", settings, seeds=web.url("/"), sope="host"))
    assert done.returncode == 1
    assert done.stderr.endswith("gossamer: error: unknown argument sope; did you mean scope?\n")
    assert "Traceback" not in done.stderr


def test_hosts_that_cannot_be_reached_are_seen_from_the_first(tmp_path: Path) -> None:
    """A port that nothing listens on: bound, so that no other test takes it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.76", 0))
        seed = f"http://127.0.0.76:{closed.getsockname()[1]}/"
        settings = {
            **QUICK,
            "CRAWLER_PAUSE_S": 1.5,
            "CRAWLER_PROGRESS": "log",
            "CRAWLER_PROGRESS_LOG_S": 1,
        }
        done = fork_server.run(crawl_command(tmp_path / "data", settings, seeds=seed))
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if "gossamer: error: " in line]
    assert len(errors) == 1 and "error: no page was fetched: no connection " in errors[0]
    assert "INFO: Waiting for 127.0.0.76 until" in done.stderr
    shown = [line for line in done.stderr.splitlines() if "URL waiting" in line]
    assert shown and all(" 0 errors" not in line for line in shown)
    assert any("; waits for 127.0.0.76 until " in line for line in shown)
    assert all("(no connection)" in line for line in shown if "waits for" in line)


def test_seeds_that_are_all_refused_are_an_error(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = crawl_command(data, seeds="http://127.0.0.77/x", deny="/x")
    done = fork_server.run(command)
    assert done.returncode == 1
    assert "error: no page was fetched: " in done.stderr


def test_a_spider_that_is_not_there(tmp_path: Path) -> None:
    done = fork_server.run(crawl_command(tmp_path / "data", spider="wen"))
    assert done.returncode == 1
    assert done.stderr.endswith("gossamer: error: there is no spider wen; did you mean web?\n")
    assert "Traceback" not in done.stderr


def test_progress_in_the_log(tmp_path: Path) -> None:
    settings = {"CRAWLER_PROGRESS": "log", "CRAWLER_PROGRESS_LOG_S": 1}
    with site("127.0.0.74", {"/": Reply(page("/a").body, wait_s=1.5), "/a": page()}) as web:
        done = fork_server.run(crawl_command(tmp_path / "data", settings, seeds=web.url("/")))
    assert done.returncode == 0, done.stderr
    assert "0 hosts active" in done.stderr or "1 host active" in done.stderr
    assert "URLs waiting" in done.stderr


class Terminal:
    """A terminal of 80 columns that a command's standard error is connected to."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._shown += os.read(self._ours, 65536)
            except OSError:  # the other side is closed
                return

    def __str__(self) -> str:
        return self._shown.decode()

    def close(self) -> None:
        os.close(self.theirs)
        self._reader.join()
        os.close(self._ours)


def test_on_a_terminal(tmp_path: Path) -> None:
    data, seeds, screen = tmp_path / "data", tmp_path / "seeds.txt", Terminal()
    names = [f"/{number}" for number in range(200)]
    settings = {
        "CRAWLER_PROGRESS": "auto",
        "CRAWLER_PROGRESS_LOG_S": 1,
        "CRAWLER_DELAY_FACTOR": 0,
        "CRAWLER_MIN_DELAY_S": 0.02,
    }
    try:
        with site("127.0.0.75", {"/": page(*names), **{name: page() for name in names}}) as web:
            seeds.write_text(f"{web.url('/')}\nno seed\n")
            command = crawl_command(data, settings, seeds=seeds)
            at = command.index("LOG_LEVEL=INFO")  # or the user has set how to log
            command[at - 1 : at + 1] = []
            process = subprocess.Popen(
                command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=screen.theirs, text=True
            )
            wait_until(lambda: str(screen).count(" waiting | ") >= 2, PATIENCE_S)
            wait_until(lambda: "URLs waiting" in (data / "crawl.log").read_text(), PATIENCE_S)
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        screen.close()
    shown, log = str(screen), (data / "crawl.log").read_text()
    assert process.returncode == 0
    assert f"warning: {seeds} line 2 skipped" in shown, "warnings are shown"
    assert f"The log is in {data / 'crawl.log'}" in shown
    assert "INFO" not in shown, "the rest is there"
    assert "Spider opened" in log
    assert "line 2 skipped" in log
    assert "Stopping: " in shown, "Ctrl-C is answered at once"
    assert shown.endswith("\r\x1b[2K"), "the line is wiped before the summary"
    assert all(len(drawn.split("\r")[0]) < 80 for drawn in shown.split("\x1b[2K")[1:])
    assert "Stopped on request" in printed
