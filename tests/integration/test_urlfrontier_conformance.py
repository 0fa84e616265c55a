"""What the conformance suite of the URL Frontier protocol asserts of every server of it.

Its classes are URLFrontierServiceTest and DumpURLsTest of crawler-commons/url-frontier 2.6; each
test here has the name of one of theirs. The client of the dumps is our own.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier.client import discovered, known, url_info
from tests.harness.url_frontier import IMPLEMENTATIONS, ServedFrontier, served_frontier


@pytest.fixture(scope="module", params=list(IMPLEMENTATIONS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedFrontier]:
    with served_frontier(IMPLEMENTATIONS[request.param](tmp_path_factory.mktemp("data"))) as made:
        yield made


@pytest.fixture
def served(server: ServedFrontier) -> ServedFrontier:
    """The server without a crawl."""
    for crawl in ("BESPOKE", ""):
        server.delete_crawl(crawl)
    server.clock.now += 1_000
    return server


def test_never_refetched(served: ServedFrontier) -> None:
    (ack,) = served.acks(known(url_info("http://key1.com/", key="key1.com"), 0))
    assert ack.ID == "http://key1.com/"
    assert served.get("key1.com") == []


def test_right_order(served: ServedFrontier) -> None:
    young, old = "http://key1.com/young", "http://key1.com/old"
    acks = served.acks(
        known(url_info(young, key="key1.com"), served.now()),
        known(url_info(old, key="key1.com"), served.now() - 10_000),
    )
    assert len(acks) == 2
    assert served.get("key1.com", per_queue=2) == [old, young]


def test_updates(served: ServedFrontier) -> None:
    item = discovered(url_info("http://key1.com/", key="key1.com"))
    assert len(served.acks(item, item)) == 2
    assert list(served.queues().values) == ["key1.com"]
    assert served.get("key1.com", per_queue=1, lease_s=2) == ["http://key1.com/"]
    stats = served.stats("key1.com")
    assert (stats.numberOfQueues, stats.inProcess) == (1, 1)
    assert served.get("key1.com", per_queue=1, lease_s=2) == []
    served.clock.now += 2
    assert served.stats("key1.com").inProcess == 0
    assert served.delete_queue("key1.com") == 1
    assert served.stats().numberOfQueues == 0


def test_queue_names(served: ServedFrontier) -> None:
    served.put(discovered(url_info("http://gac.icann.org?language_id=9")))
    assert served.stats("gac.icann.org").size == 1
    assert served.delete_queue("gac.icann.org") == 1


def test_crawl_ids(served: ServedFrontier) -> None:
    assert list(served.call("ListCrawls", pb.Local()).values) == []
    for crawl in ("BESPOKE", "", "DEFAULT"):
        served.put(discovered(url_info("http://key1.com/", key="key1.com", crawl_id=crawl)))
    stats = {
        crawl: served.call("GetStats", pb.QueueWithinCrawlParams(key="key1.com", crawlID=crawl))
        for crawl in ("BESPOKE", "")
    }
    assert [each.size for each in stats.values()] == [1, 1]
    assert [each.crawlID for each in stats.values()] == ["BESPOKE", "DEFAULT"]
    for crawl in stats:
        served.delete_crawl(crawl)
    assert list(served.call("ListCrawls", pb.Local()).values) == []


def test_dump_and_back(served: ServedFrontier, tmp_path: Path) -> None:
    """DumpURLsTest.roundTrip."""
    refetch_at = served.now() + 3_600
    example = "example.com"
    seed = url_info("http://example.com/discovered", key=example, metadata={"source": ["seed"]})
    later = url_info("http://example.com/later", key=example)
    bespoke = url_info("http://bespoke.com/", key="bespoke.com", crawl_id="BESPOKE")
    acks = served.acks(
        discovered(seed),
        known(url_info("http://example.com/done", key=example)),
        known(later, refetch_at),
        discovered(bespoke),
    )
    assert len(acks) == 4
    dump = dumped(served, tmp_path / "dump.jsonl")
    assert len(dump.read_text().splitlines()) == 4
    assert all('"known"' in line for line in dump.read_text().splitlines())
    delete_and_load(served, dump)
    assert served.status("http://example.com/done", example).known.refetchable_from_date == 0
    assert served.status(later.url, example).known.refetchable_from_date == refetch_at
    assert list(served.status(seed.url).known.info.metadata["source"].values) == ["seed"]
    again = dumped(served, tmp_path / "again.jsonl.gz")
    with gzip.open(again, "rt") as lines:
        assert sorted(lines) == sorted(dump.read_text().splitlines(keepends=True))
    assert served.call("CountURLs", pb.CountUrlParams(crawlID="BESPOKE")).value == 1


def test_dump_of_many_queues(served: ServedFrontier, tmp_path: Path) -> None:
    """DumpURLsTest.parallelDump: 20 URLs of ten queues, and one of another crawl."""
    urls = [f"http://site{number % 10}.com/page{number}" for number in range(20)]
    items = [discovered(url_info(url)) for url in urls]
    other = discovered(url_info("http://bespoke.com/", crawl_id="BESPOKE"))
    assert len(served.acks(*items, other)) == 21
    listed = served.queues(size=10_000, include_inactive=True)
    assert sorted(listed.values) == [f"site{number}.com" for number in range(10)]
    assert sorted(url for key in listed.values for url in served.listed(key=key)) == sorted(urls)
    dump = dumped(served, tmp_path / "dump.jsonl")
    assert len(dump.read_text().splitlines()) == 21
    delete_and_load(served, dump)
    assert served.count() == 20
    assert served.call("CountURLs", pb.CountUrlParams(crawlID="BESPOKE")).value == 1


def dumped(served: ServedFrontier, path: Path) -> Path:
    assert served.command("dump", f"127.0.0.1:{served.port}", str(path)) == 0
    return path


def delete_and_load(served: ServedFrontier, dump: Path) -> None:
    for crawl in served.call("ListCrawls", pb.Local()).values:
        served.delete_crawl(crawl)
    assert list(served.call("ListCrawls", pb.Local()).values) == []
    assert served.command("load", f"127.0.0.1:{served.port}", str(dump)) == 0
