"""A crawl whose archive goes to an object store or a folder: to its end, stopped, and held up by
the store.

Running: a small web, a server that speaks S3 and a network in front of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from crawler.model.types import ConfigError
from tests.harness.archive_judges import read_folder
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.crawling import crawl
from tests.harness.fork_server import run, running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Ask, LoopbackWeb, Reply, page, site
from tests.servers.s3 import BUCKET, UNSPOKEN, S3Server, environment
from tests.servers.troubled import Call, Fault, TroubledNetwork

HOST = "127.0.12.1"
PAGES = 60
PAGE_BYTES = 400_000  # that cannot be compressed: twenty files of a megabyte in all


def web(ask: Ask) -> Reply:
    if ask.path == "/":
        links = "".join(f"<a href=/{number}>x</a>" for number in range(PAGES))
        return Reply(f"<title>start</title>{links}".encode())
    if not ask.path[1:].isdigit():
        return Reply(status=404)
    return Reply(Random(ask.path).randbytes(PAGE_BYTES), content_type="application/octet-stream")


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def network(s3: S3Server) -> Iterator[TroubledNetwork]:
    with TroubledNetwork(s3.port) as between, patch.dict(os.environ, environment(between.port)):
        yield between


@pytest.fixture
def pages() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(web, [HOST]) as served:
        yield served


def command(data: Path, pages: LoopbackWeb, **settings: object) -> list[str]:
    always = {
        "CRAWLER_ARCHIVE_URL": f"s3://{BUCKET}/crawl",
        "CRAWLER_ARCHIVE_WAITING_BYTES": 1024 * 1024,
        "CRAWLER_WARC_MAX_BYTES": 1024 * 1024,
        "CRAWLER_COLUMNS": "no",
        "LOG_LEVEL": "DEBUG",
    }
    return crawl_command(data, {**always, **settings}, seeds=pages.url(HOST))


def forbidden(call: Call) -> Fault:
    return Fault.FORBIDDEN


def finished(data: Path) -> list[str]:
    return sorted(file.name for file in (data / "warc").iterdir())


def stored(s3: S3Server) -> list[str]:
    return sorted(name.removeprefix("crawl/warc/") for name in s3.names())


def test_the_last_pages_are_delivered(
    s3: S3Server, network: TroubledNetwork, pages: LoopbackWeb, tmp_path: Path
) -> None:
    done = run(command(tmp_path, pages))
    assert done.returncode == 0, done.stderr
    assert finished(tmp_path) == []
    warcs = [name for name in stored(s3) if name.endswith(".warc.gz")]
    assert len(warcs) >= 15
    assert stored(s3) == sorted(warcs + [name.replace(".warc.gz", ".cdxj") for name in warcs])
    assert not [word for word in UNSPOKEN.values() if word in done.stdout + done.stderr]


def test_files_left_at_the_end_are_delivered_by_the_same_command(
    s3: S3Server, network: TroubledNetwork, pages: LoopbackWeb, tmp_path: Path
) -> None:
    network.deal = forbidden
    done = run([*command(tmp_path, pages), "-a", "max_pages=5"])
    stay = finished(tmp_path)
    assert f"{len(stay)} files were not delivered to s3://archive/crawl" in done.stderr
    assert stay
    assert stored(s3) == []
    network.end_trouble()
    run([*command(tmp_path, pages), "-a", "max_pages=5"])
    assert finished(tmp_path) == []
    assert set(stay) <= set(stored(s3))


def test_fetching_waits_for_the_store(
    s3: S3Server, network: TroubledNetwork, pages: LoopbackWeb, tmp_path: Path
) -> None:
    network.deal = forbidden
    log = tmp_path / "log"
    # Slow enough for a look at what waits, one in five seconds; what Scrapy has under way by then
    # is at most 5 MB more.
    slow = command(tmp_path / "data", pages, CRAWLER_MIN_DELAY_S=0.15)
    with running(slow, log) as crawl:
        wait_until(
            lambda: "Fetching pauses" in log.read_text(),
            PATIENCE_S,
            "fetching waits",
            log=log.read_text,
        )
        wait_until(lambda: stands_still(pages), PATIENCE_S, "no fetches", log=log.read_text)
        assert len(pages.visits) < PAGES
        network.end_trouble()
        assert crawl.wait(PATIENCE_S) == 0, log.read_text()[-2000:]
    assert len({visit.path for visit in pages.visits}) == PAGES + 2  # the first, and robots.txt
    assert finished(tmp_path / "data") == []
    assert len([name for name in stored(s3) if name.endswith(".warc.gz")]) >= 15


def stands_still(pages: LoopbackWeb) -> bool:
    """Nothing was asked for in several times the usual gap."""
    before = len(pages.visits)
    try:
        wait_until(lambda: len(pages.visits) > before, 1.0, "another fetch")
    except AssertionError:
        return True
    return False


ROUTES = {"/": page("/a", "/b", text="start"), "/a": page(text="a"), "/b": page(text="b")}


def test_all_files_of_a_crawl_are_there_and_no_longer_here(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with site("127.0.62.1", ROUTES) as web:
        settings = {"CRAWLER_ARCHIVE_URL": store.as_uri()}
        crawled = crawl(tmp_path / "data", settings=settings, seeds=web.url("/"))
    assert crawled.reason == "finished"
    assert {path.suffix for path in (store / "warc").iterdir()} == {".gz", ".cdxj", ".parquet"}
    assert not [path for path in (tmp_path / "data" / "warc").iterdir() if path.is_file()]
    archived = {one.url for one in read_folder(store / "warc").values() if one.kind == "response"}
    assert archived == {web.url("/"), web.url("/a"), web.url("/b")}


def test_files_of_an_earlier_run_are_delivered_too(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with site("127.0.62.1", ROUTES) as web:
        crawl(tmp_path / "data", seeds=web.url("/"))
        kept = {path.name for path in (tmp_path / "data" / "warc").iterdir() if path.is_file()}
        settings = {"CRAWLER_ARCHIVE_URL": store.as_uri()}
        crawl(tmp_path / "data", settings=settings, seeds=web.url("/"))
    assert kept and kept <= {path.name for path in (store / "warc").iterdir()}


def test_a_missing_store_is_refused_at_once(tmp_path: Path) -> None:
    settings = {"CRAWLER_ARCHIVE_URL": "s3x://nowhere/at/all"}
    with pytest.raises(ConfigError, match="CRAWLER_ARCHIVE_URL"):
        crawl(tmp_path / "data", settings=settings, seeds="http://127.0.62.1/")
