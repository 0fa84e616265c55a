"""The tutorial and the guides as their readers type them: one small crawl, and what is asked of it.

Rule: what a page shows as an output is what comes, but for times, sizes and names of files.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import duckdb
import pytest
from scrapy.utils.project import ENVVAR

from tests.harness import fork_server
from tests.harness.sources import PROJECT
from tests.harness.typed_pages import Step, steps

DOCS: Final = PROJECT / "docs"
TYPED_IN_THE_TUTORIAL: Final = "127.0.0.1:8000"
INSTALLED_HERE: Final = (
    "python3 -m venv .venv",
    ". .venv/bin/activate",
    "pip install CLONE duckdb-cli",
)
SERVED_HERE: Final = (
    "python3 -m http.server 8000 --bind 127.0.0.1 --directory site 2>server.log &",
    "kill %1",
)
# Of public sites, of a second crawl, of what runs until it is stopped, of other programs.
ONLY_READ: Final = re.compile(
    r"example\.org|seeds=seeds|CONTACT|console|crawl-data-|changes|pip|wb-manager|wayback|-f "
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Reader:
    """Types what a page says, in a folder, with the address of our server in place of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.seen = ""

    def take(self, step: Step) -> None:
        text = step.text.replace(TYPED_IN_THE_TUTORIAL, self.address)
        if step.kind == "saved":
            (self.folder / step.file).write_text(text)
        elif step.kind == "typed":
            self.seen = self._typed(text)
        else:
            assert shape(text) <= shape(self.seen), f"{text}\nis not in\n{self.seen}"

    def _typed(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "duckdb":
            where = duckdb.connect(config={"file_search_path": str(self.folder)})
            return str(where.sql(words[2]))
        if words[0] == "gossamer":
            # Without a spider's name `gossamer crawl` runs `web`, and `scrapy crawl` none.
            spider = ["web"] if words[1] == "crawl" and words[2].startswith("-") else []
            project = {} if (self.folder / "scrapy.cfg").exists() else {ENVVAR: "crawler.settings"}
            env = {key: value for key, value in os.environ.items() if key != ENVVAR} | project
            command = [*fork_server.SCRAPY, words[1], *spider, *words[2:]]
            done = fork_server.run(command, cwd=self.folder, env=env)
        else:
            env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            done = subprocess.run(
                words, cwd=self.folder, env=env, capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


def shape(output: str) -> set[str]:
    """The lines of *output*, without what differs from run to run."""
    lines = (
        re.sub(r"in .* a second\), .*|rests of hosts: .*|, .* kB|\d+ s ago", "...", line)
        for line in output.splitlines()
    )
    return {" ".join(re.sub(r"[│┌┬┐├┼┤└┴┘─]+", " ", line).split()) for line in lines}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("tutorial")
    handler = partial(Quiet, directory=str(folder / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield Reader(folder, f"127.0.0.1:{server.server_port}")
        server.shutdown()


def typed_in(page: str) -> list[Step]:
    return list(steps((DOCS / page).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def after_tutorial(reader: Reader) -> Reader:
    taken = typed_in("tutorial.md")
    lines = [step.text for step in taken if step.kind == "typed"]
    assert {*INSTALLED_HERE, *SERVED_HERE} <= set(lines)
    for step in taken:
        if step.text not in (*INSTALLED_HERE, *SERVED_HERE):
            reader.take(step)
    return reader


def test_the_tutorial_ends_with_nothing_left_to_fetch(after_tutorial: Reader) -> None:
    assert "pages         0 in" in after_tutorial.seen


@pytest.mark.parametrize("guide", ["watch", "archive", "data-set", "audit", "search"])
def test_what_a_guide_asks_of_a_crawl(after_tutorial: Reader, guide: str) -> None:
    asked = [step for step in typed_in(f"guides/{guide}.md") if step.kind == "typed"]
    taken = [step for step in asked if not ONLY_READ.search(step.text)]
    for step in taken:
        after_tutorial.take(step)
    assert taken


def test_the_query_of_clean_text(after_tutorial: Reader) -> None:
    (sql,) = [step.text for step in typed_in("guides/data-set.md") if step.file == "clean.sql"]
    folder = after_tutorial.folder
    where = duckdb.connect(config={"file_search_path": str(folder)})
    made, counted, *_ = sql.replace("BETWEEN 50 AND", "BETWEEN 5 AND").split(";\n")
    where.execute(made).fetchall()
    assert where.sql(counted).fetchall() == [(1, 13)]


def test_an_own_spider_of_three_files(after_tutorial: Reader, tmp_path: Path) -> None:
    own = Reader(tmp_path, after_tutorial.address)
    for step in typed_in("guides/own-spider.md"):
        own.take(step)
    items = (tmp_path / "breads.jsonl").read_text()
    assert items.count('"says": ') == 2 and items.count('"warc_file": ') == 2
