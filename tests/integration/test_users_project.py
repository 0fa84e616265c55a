"""A project of a user's own beside ours, with the real command in its own folder: the settings,
middlewares, pipelines and spiders of users_project, as a user would write them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawler.data.outcomes import read_outcomes
from tests.harness import fork_server
from tests.harness.archive_judges import Read, read_folder
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, Site, page, site

THEIRS = Path(__file__).with_name("users_project")


def titled(title: str, *links: str, text: str = "") -> Reply:
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return Reply(f"<title>{title}</title><p>{text or title} {anchors}")


ROUTES = {
    "/robots.txt": Reply("User-agent: *\nDisallow: /forbidden\nAllow: /forbidden-by-me"),
    "/": titled("home", "/plain", "/unwanted", "/private", "/censored", "/forbidden-by-me",
                "/forbidden"),
    "/plain": titled("plain", "/"),
    "/unwanted": titled("unwanted", "/behind-unwanted"),
    "/private": titled("private", "/behind-private"),
    "/censored": titled("censored", "/behind-censored", text="a secret"),
    "/found-by-me": titled("found by me"),
    "/behind-private": titled("behind private"),
    "/login": page(text="welcome"),
    "/item": Reply("<b>12</b>"),
    "/item?again": Reply("<b>13</b>"),
    "/broken": page(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Done:
    web: Site
    log: str
    fates: dict[str, str]
    diary: list[dict[str, Any]]
    records: list[Read]

    def archived(self) -> set[str]:
        return {self.path(read.url) for read in self.records if read.kind == "response"}

    def path(self, url: str) -> str:
        return url.removeprefix(self.web.root)

    def noted(self, key: str) -> dict[str, Any]:
        """Return the notes of the diary on *key*, by path."""
        return {self.path(line["url"]): line[key] for line in self.diary if key in line}


@pytest.fixture
def web() -> Iterator[Site]:
    with site("127.0.9.1", ROUTES) as served:
        yield served


def cold(
    command: list[str], *, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run *command* from its very start as `gossamer`, in a folder of the project."""
    assert command[1:3] == ["-m", "scrapy"]
    return subprocess.run(
        [command[0], "-m", "crawler.cli.gossamer", *command[3:]],
        cwd=next(path for path in cwd.iterdir() if path.is_dir()),
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,  # its log is checked below
    )


def crawled(
    tmp_path: Path,
    web: Site,
    spider: str,
    run: Callable[..., subprocess.CompletedProcess[str]] = fork_server.run,
    **arguments: object,
) -> Done:
    project, data, diary = tmp_path / "project", tmp_path / "data", tmp_path / "diary"
    shutil.copytree(THEIRS, project)
    command = crawl_command(data, {"MINE_DIARY": diary}, spider, **arguments)
    # As if ours were installed.
    done = run(command, cwd=project, env={**os.environ, "PYTHONPATH": str(PROJECT)})
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = list(read_outcomes(data / "outcomes.jsonl"))
    assert len({outcome.url for outcome in outcomes}) == len(outcomes), "each lands once"
    return Done(
        web,
        done.stderr,
        {outcome.url.removeprefix(web.root): outcome.fate for outcome in outcomes},
        [json.loads(line) for line in diary.read_text().splitlines()],
        list(read_folder(data / "warc").values()),
    )


def test_our_spider_works_with_their_parts(tmp_path: Path, web: Site) -> None:
    done = crawled(tmp_path, web, "web", cold, seeds=web.url("/"))
    pages = {"/", "/plain", "/private", "/behind-private", "/found-by-me"}
    assert done.noted("title").keys() == pages, "their pipeline sees each page that is kept"
    assert done.noted("title")["/"] == "My home", "and what another of theirs made of it"
    assert all("stamped" in flags for flags in done.noted("flags").values())
    assert done.archived() == pages - {"/private"}, "where theirs did not say no"
    assert {path for path, record in done.noted("record").items() if record} == done.archived()
    refused = {"/unwanted", "/censored", "/forbidden", "/forbidden-by-me"}
    assert done.fates.keys() == pages | refused, "what they dropped leads no further"
    assert set(done.fates.values()) == {"done"}
    assert not {"/forbidden", "/forbidden-by-me"} & set(web.asked)
    requests = [read.block for read in done.records if read.kind == "request"]
    assert requests and all(b"\r\nX-Passport: 1234\r\n" in request for request in requests)


def test_their_spider_works_with_our_parts(tmp_path: Path, web: Site) -> None:
    done = crawled(tmp_path, web, "shop", root=web.root)
    assert done.noted("price") == {"/item": "12", "/item?again": "13"}
    assert done.noted("n") == {"/item": 0, "/item?again": 1}
    assert done.noted("broke") == {"/broken": "no price"}, "their middleware gets the error"
    asked = ["/login", "/item", "/item?again", "/broken", "/forbidden", "/forbidden-by-me"]
    assert done.fates == dict.fromkeys(asked, "done")
    assert web.asked[0] == "/robots.txt"
    assert not {"/forbidden", "/forbidden-by-me"} & set(web.asked)


def test_their_spider_may_be_ours_with_more(tmp_path: Path, web: Site) -> None:
    done = crawled(tmp_path, web, "titles", seeds=web.url("/"), max_depth=1, deny="/unwanted")
    assert done.noted("length").keys() == done.noted("title").keys() == {
        "/", "/plain", "/private", "/found-by-me",
    }  # fmt: skip
    assert done.archived() == {"/", "/plain", "/found-by-me"}
