"""A crawl described in a file, by the logs of the servers it fetches from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from crawler.model.types import ConfigError
from tests.harness import fork_server
from tests.harness.crawling import crawl, pass_time
from tests.servers.loopback import Reply, page, site

FOLDER, HOST, PAGE, OUTSIDE, FURTHER = (f"127.0.15.{number}" for number in range(1, 6))


def frontier(*words: str, settings: dict[str, Any]) -> str:
    given = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    done = fork_server.run([*fork_server.SCRAPY, "frontier", *words, *given])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_seed_has_its_own_scope_depth_hops_and_limits(
    tmp_path: Path, where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    data, file = tmp_path / "data", tmp_path / "crawl.toml"
    numbered = [f"/n/{number}" for number in range(20)]
    with (
        site(FURTHER, {"/": page("/more"), "/more": page()}) as further,
        site(OUTSIDE, {"/": page(further.url("/"), "/in"), "/in": page()}) as outside,
        site(PAGE, {"/one": page("/two"), "/two": page()}) as single,
        site(
            HOST,
            {
                "/": page("/a", *numbered, outside.url("/in")),
                "/a": page("/b"),
                "/b": page(),
                **dict.fromkeys(numbered, page()),
            },
        ) as limited,
        site(
            FOLDER,
            {
                "/docs/": page("/docs/a", "/blog/", outside.url("/"), limited.url("/a")),
                "/docs/a": page("/docs/b", "/docs/print/a"),
                "/docs/b": page("/docs/c"),
                "/docs/c": page(),
                "/blog/": page("/blog/2"),
                "/blog/2": page(),
            },
        ) as docs,
    ):

        def write(pages: int, depth: int = 2) -> None:
            (tmp_path / "pages.txt").write_text(single.url("/one"))
            file.write_text(f"""
                max_depth = {depth}
                deny = "/print/"
                [[seeds]]
                url = "{docs.url("/docs/")}"
                scope = "prefix"
                extra_hops = 1
                [[seeds]]
                url = "{limited.url("/")}"
                scope = "host"
                max_pages = {pages}
                max_depth = 1
                [[seeds]]
                list = "pages.txt"
                scope = "page"
                """)

        write(pages=6)
        done = crawl(data, settings=where, crawl=str(file))
        assert done.reason == "finished"
        # One hop out of the folder, wherever it leads; a link into another seed's scope is none.
        assert set(docs.hits) == {"/robots.txt", "/docs/", "/docs/a", "/docs/b", "/blog/"}
        assert set(outside.hits) == {"/robots.txt", "/"}
        assert not further.hits
        assert set(single.hits) == {"/robots.txt", "/one"}
        pages = {path: hits for path, hits in limited.hits.items() if path != "/robots.txt"}
        assert len(pages) == 6 and set(pages.values()) == {1} and "/b" not in pages

        settings = {**where, "CRAWLER_DATA_DIR": data}
        left = next(path for path in numbered if path not in pages)
        said = frontier("why", limited.url(left), settings=settings)
        assert "enough of its seed was fetched: max_pages is 6" in said
        assert f"in the scope of the seed {limited.url('/')}" in said
        assert f"in the scope of the seed {docs.url('/docs/')}" in frontier(
            "why", docs.url("/docs/new"), settings=settings
        )

        write(pages=9, depth=3)
        with caplog.at_level(logging.INFO):
            crawl(data, settings=where, crawl=str(file))
        assert "max_depth='3' (was '2')" in caplog.text
        pages = {path: hits for path, hits in limited.hits.items() if path.startswith("/n/")}
        assert sum(limited.hits.values()) == 9 + limited.hits["/robots.txt"]
        assert set(pages.values()) == {1}, "those that waited for a larger limit, each once"


def test_a_line_that_is_gone_from_the_file_does_not_hold_any_more(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    data, file = tmp_path / "data", tmp_path / "crawl.toml"
    with site(FOLDER, {"/": page("/1"), "/1": page("/2"), "/2": page()}) as web:
        seed = f'[[seeds]]\nurl = "{web.url("/")}"\nscope = "host"\n'
        file.write_text(f'max_depth = 1\nrevisit = "every 7d"\n{seed}')
        crawl(data, settings=where, crawl=str(file), max_pages="1")
        file.write_text(seed)
        crawl(data, settings=where, crawl=str(file))
        assert {"/", "/1", "/2"} <= set(web.hits)
        file.unlink()
        crawl(data, settings=where)  # goes on with what the file said
        with pytest.raises(ConfigError, match=r"crawl\.toml does not exist"):
            crawl(data, settings=where, crawl=str(file))


def test_a_list_of_urls_is_fetched_again_whatever_the_limit_of_their_seed(tmp_path: Path) -> None:
    data, file, chosen = tmp_path / "data", tmp_path / "crawl.toml", tmp_path / "urls.txt"
    pages = {f"/{number}": page() for number in range(6)}
    with site(HOST, {"/": page(*pages), **pages}) as web:
        seed = f'[[seeds]]\nurl = "{web.url("/")}"\nscope = "host"\nmax_pages = '
        file.write_text(f"{seed}3\n")
        crawl(data, crawl=str(file))
        before = web.hits
        assert sum(before.values()) == 3 + before["/robots.txt"]
        known = [path for path in pages if before[path]]
        chosen.write_text("\n".join(map(web.url, ["/", *known])))
        crawl(data, only=str(chosen))
        assert {path: (web.hits - before)[path] for path in known} == dict.fromkeys(known, 1)
        assert sum((web.hits - before).values()) <= 3 + 1
        before = web.hits
        file.write_text(f"{seed}4\n")
        crawl(data, crawl=str(file))
        [(_, more)] = [each for each in (web.hits - before).items() if each[0] != "/robots.txt"]
        assert more == 1, "what was fetched again counts for nothing"


def test_what_has_come_counts_before_it_is_on_disk(tmp_path: Path) -> None:
    paths = [f"/{number}" for number in range(20)]
    pages = {path: page(text=path * 5000) for path in paths}
    with site(HOST, {"/": page(*paths), **pages}) as web:
        crawl(
            tmp_path / "data",
            settings={"CRAWLER_FSYNC_EVERY_S": 1.0},
            seeds=f"{web.url('/')} scope=host max_bytes=25kB",
        )
        assert sum(web.hits[path] for path in paths) in (2, 3), "each has 10 to 15 kB"


def test_the_time_of_a_seed_that_is_over_by_the_clock_of_the_crawl_is_over(tmp_path: Path) -> None:
    """That clock never goes back, as that of the machine may."""
    data = tmp_path / "data"
    with site(HOST, {"/": page("/1"), "/1": page()}) as web:
        seeds = f"{web.url('/')} scope=host max_time=1h"
        crawl(data, seeds=seeds, max_pages="1")
        pass_time(data, 4000.0)
        assert crawl(data, seeds=seeds).reason == "finished"
        assert not web.hits["/1"]


def test_a_fetched_list_has_the_options_behind_it(tmp_path: Path) -> None:
    routes = {"/a/": page("/a/1", "/a/2"), "/a/1": page(), "/a/2": page()}
    with site(HOST, {**routes, "/urls.txt": lambda _: listed}) as web:
        listed = Reply(web.url("/a/"), content_type="text/plain")
        crawl(tmp_path / "data", seeds=f"{web.url('/urls.txt')} scope=prefix max_pages=2")
        assert web.hits["/a/"] and sum(web.hits[path] for path in routes) == 2
