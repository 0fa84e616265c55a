"""Scrapy's commands for people: fetch, view, shell, parse, check. They show what the crawler gets,
and neither need a crawl nor leave one behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S
from tests.harness.scrapy_project import write_project
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, Site, page, site

SITEMAP = "<urlset><url><loc>{}/lamp</loc></url></urlset>"
ROUTES = {
    "/robots.txt": Reply("User-agent: *\nDisallow: /forbidden\n"),
    "/": page("/lamp", "/more", "/gone", text="home"),
    "/lamp": page(text="lamp"),
    "/more": page("/lamp2", text="more"),
    "/lamp2": page(text="lamp 2"),
    "/forbidden": page(text="forbidden"),
    "/moved": Reply("", 302, headers=(("Location", "/lamp"),)),
    "/busy": Reply("not now", 503),
    "/gone": Reply("gone", 404),
}


@pytest.fixture
def web() -> Iterator[Site]:
    with site("127.0.0.76", ROUTES) as served:
        yield served


@pytest.fixture
def project(tmp_path: Path, web: Site) -> Path:
    return write_project(tmp_path / "project", web.root)


def cold(
    command: list[str], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run *command* from its very start: each command once in this file."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=env,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=False,  # checked by the tests
    )


def scrapy(
    project: Path,
    *words: str,
    log: str = "INFO",
    run: Callable[..., subprocess.CompletedProcess[str]] = fork_server.run,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    temporary = project.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    done = run(
        [sys.executable, "-m", "scrapy", *words, "-s", f"LOG_LEVEL={log}"],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "TMPDIR": str(temporary),
            **environment,
        },
    )
    left = [each.name for each in temporary.iterdir() if each.name.startswith("gossamer-")]
    assert left == [], "a data directory is left over"
    assert not (project / "crawl-data").exists(), "no crawl was begun"
    return done


@pytest.mark.parametrize(
    ("run", "words", "shown"),
    [
        pytest.param(cold, ["fetch", "/busy"], "not now", id="fetch: a 503, at once"),
        pytest.param(fork_server.run, ["fetch", "--no-redirect", "--headers", "/moved"],
                     "< Location: /lamp", id="fetch: a redirect"),
        pytest.param(cold, ["view", "/lamp"], "file:///", id="view: a file for the browser"),
        pytest.param(cold, ["parse", "--spider", "shop", "-d", "2", "/"], "'depth': 1",
                     id="parse: a page, and what it leads to"),
        pytest.param(fork_server.run, ["parse", "--spider", "rules", "-r", "/lamp",
                                 "-m", '{"link_text": "l"}', "--cbkwargs", '{"kind": "k"}'],
                     "'kind': 'k'", id="parse: by rules"),
    ],
)  # fmt: skip
def test_interactive_commands_show_the_page(
    project: Path,
    web: Site,
    run: Callable[..., subprocess.CompletedProcess[str]],
    words: list[str],
    shown: str,
) -> None:
    words = [web.url(word) if word.startswith("/") else word for word in words]
    done = scrapy(project, *words, run=run, BROWSER="echo %s")
    assert shown in done.stdout, done.stderr
    assert done.returncode == 0
    assert web.asked[0] == "/robots.txt", "asked for before anything else"


@pytest.mark.parametrize("reactor", [False, True], ids=["no reactor", "Twisted's reactor"])
def test_a_shell_asks_again_and_again(project: Path, web: Site, reactor: bool) -> None:
    asked = ["response.css('title::text').get()", "response.url", "response.status", "response"]
    paths = ["/lamp", "/moved", "/gone", "/forbidden"]
    code = ", ".join(
        f"fetch({web.url(path)!r}), {shown}" for path, shown in zip(paths, asked, strict=True)
    )
    done = scrapy(
        project, "shell", "-c", code, "-s", f"TWISTED_REACTOR_ENABLED={reactor}", run=cold
    )
    found = (None, "lamp", None, web.url("/lamp"), None, 404, None, None)
    assert done.stdout.strip() == repr(found), done.stderr
    assert web.asked == ["/robots.txt", "/lamp", "/moved", "/lamp", "/gone"], "robots.txt once"
    assert "Not fetched: " in done.stderr and "robots.txt: " in done.stderr


def test_contracts_are_checked(project: Path) -> None:
    done = scrapy(project, "check", run=cold)
    assert done.returncode == 0, done.stderr
    assert "Ran 3 contracts" in done.stderr and "OK" in done.stderr


def test_a_local_file_may_be_opened(project: Path) -> None:
    (project / "page.html").write_text("<p>from a file</p>")
    done = scrapy(project, "shell", "./page.html", "-c", "response.css('p::text').get()")
    assert done.stdout.strip() == "from a file", done.stderr


def test_a_page_leads_to_no_file(project: Path, web: Site, tmp_path: Path) -> None:
    secret = tmp_path / "secret.html"
    secret.write_text("<p>secret</p>")
    spider = project / "theirs" / "spiders" / "thief.py"
    spider.write_text(
        "from scrapy import Request, Spider\n\n\nclass Thief(Spider):\n    name = 'thief'\n\n"
        "    def parse(self, response):\n        yield {'text': response.text}\n"
        f"        yield Request('file://{secret}')\n"
    )
    done = scrapy(project, "parse", "--spider", "thief", "-d", "2", web.url("/lamp"))
    assert "lamp" in done.stdout and "<p>secret" not in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(["fetch", "http://public.example/"], "without a contact only loopback"
                     " is crawled", id="a public host, without a contact"),
        pytest.param(["shell", "-c", "fetch('http://8.8.8.8/')"], "8.8.8.8 is a public address,"
                     " and CRAWLER_CONTACT does not say who asks", id="a public address"),
        pytest.param(["parse", "http://127.0.0.1:1/", "--spider", "web", "-s",
                      "SPIDER_MODULES=crawler.spiders"], "the spider web has no callbacks to try",
                     id="the spider web"),
        pytest.param(["bench"], "make bench", id="bench"),
    ],
)  # fmt: skip
def test_errors_of_interactive_commands_are_one_sentence(
    project: Path, words: list[str], sentence: str
) -> None:
    done = scrapy(project, *words, log="ERROR")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gossamer: error: ") and sentence in line


def test_a_running_crawl_is_not_disturbed(project: Path, web: Site, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["-s", f"CRAWLER_DATA_DIR={data}"]
    first = scrapy(project, "crawl", "shop", "-o", "-:jsonlines", *words)
    assert len(first.stdout.splitlines()) == 3, first.stderr
    before = {each: each.stat().st_mtime_ns for each in sorted(data.rglob("*"))}
    assert scrapy(project, "fetch", web.url("/lamp"), *words).returncode == 0
    assert {each: each.stat().st_mtime_ns for each in sorted(data.rglob("*"))} == before


def test_a_spider_in_a_file_of_its_own(project: Path, web: Site, tmp_path: Path) -> None:
    file = tmp_path / "alone.py"
    file.write_text(
        "import scrapy\n\n\nclass Alone(scrapy.Spider):\n    name = 'alone'\n"
        f"    start_urls = ['{web.url('/lamp')}']\n\n"
        "    def parse(self, response):\n        yield {'url': response.url, 'by': self.by}\n"
    )
    words = ["-s", f"CRAWLER_DATA_DIR={tmp_path / 'data'}"]
    asked = ["runspider", str(file), "-a", "by=me", "-o", "-:jsonlines", *words]
    done = scrapy(project, *asked, run=cold)
    assert json.loads(done.stdout) == {"url": web.url("/lamp"), "by": "me"}, done.stderr
    wrong = scrapy(project, "runspider", str(file), *words, "-s", "CRAWLER_RETRIES=x", log="ERROR")
    assert wrong.returncode == 1 and wrong.stderr.startswith("gossamer: error: CRAWLER_RETRIES")
