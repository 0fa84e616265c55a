"""Seeds from a list on the web: the whole list, or an error that names what is missing."""

from __future__ import annotations

import gzip
import signal
from contextlib import closing
from pathlib import Path

from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from tests.harness.commands import PATIENCE_S, crawl_command, running
from tests.harness.crawling import crawl
from tests.harness.waiting import wait_until
from tests.servers.hostile import HostileServer
from tests.servers.hostile_kit import Hostile, Pieces, error, gzipped, head, once
from tests.servers.loopback import Reply, page, site


def test_a_long_list_is_read_to_its_end(tmp_path: Path) -> None:
    with site("127.0.12.1", {"/first": page(), "/last": page(text="last")}) as web:
        comment = f"# {'of our own ' * 10}\n"
        lines = [web.url("/first") + "\n", comment * 30_000, "nonsense\n", web.url("/last")]
        listed = Reply("".join(lines), content_type="text/plain")
        with site("127.0.12.2", {"/seeds.txt": listed}) as lists:
            done = crawl(tmp_path / "data", seeds=lists.url("/seeds.txt"))
    assert done.reason == "finished"
    assert done.fates() == {"/first": ["done"], "/last": ["done"]}
    assert lists.asked == ["/robots.txt", "/seeds.txt"]


def test_a_packed_table_is_a_list(tmp_path: Path) -> None:
    with site("127.0.12.1", {"/": page()}) as web:
        table = f"rank,host\n1,{web.url('').removeprefix('http://')}\n"
        packed = Reply(gzip.compress(table.encode()), content_type="application/gzip")
        with site("127.0.12.2", {"/top.csv.gz": packed}) as lists:
            done = crawl(tmp_path / "data", seeds=lists.url("/top.csv.gz"))
    assert done.reason == "finished"
    assert done.fates() == {"/": ["done"]}


def test_a_seed_without_its_scheme(tmp_path: Path) -> None:
    with site("127.0.12.1", {"/": page()}) as web:
        done = crawl(tmp_path / "data", seeds=web.url("/").removeprefix("http://"))
    assert done.fates() == {"/": ["done"]}


def refused(data: Path, pieces: Pieces) -> str:
    row = Hostile("seeds.txt", pieces, error("never a page"))
    with HostileServer((row,), "127.0.12.3") as server:
        done = crawl(data, seeds=server.url + row.path)
    assert done.fates() == {}
    return done.reason


def test_a_list_that_breaks_off_is_refused(tmp_path: Path) -> None:
    pieces = once(head(b"Content-Type: text/plain", b"Content-Length: 900") + b"127.0.12.1\n")
    assert refused(tmp_path / "data", pieces) == "bad_seeds"


def test_a_list_that_cannot_be_unpacked_is_refused(tmp_path: Path) -> None:
    packed = gzipped(b"127.0.12.1\n" * 1000)[:-9]
    coded = (b"Content-Type: text/plain", b"Content-Encoding: gzip")
    assert refused(tmp_path / "data", once(head(*coded) + packed)) == "bad_seeds"


SEEDS = 300_000  # a second or more to read; the first page is there after 0.2 s


def test_the_crawl_begins_while_its_seeds_are_read_and_a_kill_loses_none(tmp_path: Path) -> None:
    listed, data, log = tmp_path / "seeds.txt", tmp_path / "data", tmp_path / "log"
    with site("127.0.12.1", {"/": page()}, default=lambda _: page()) as web:
        paths = ["/", *(f"/{number}" for number in range(1, SEEDS))]
        listed.write_text("two words\n" + "".join(web.url(path) + "\n" for path in paths))
        settings = {"CRAWLER_MAX_URLS_PER_DOMAIN": "none", "CRAWLER_MAX_URLS_PER_HOST": "none"}
        command = crawl_command(data, settings, seeds=listed)
        with running(command, log) as first:
            wait_until(lambda: "/" in web.hits, PATIENCE_S, log=log.read_text)
            first.kill()
        assert "Seeds: " not in log.read_text(), "the first page was fetched after the last seed"
        with running(command, log) as second:
            wait_until(lambda: "Seeds: " in log.read_text(), PATIENCE_S, log=log.read_text)
            second.send_signal(signal.SIGINT)
            assert second.wait(PATIENCE_S) == 0
    text = log.read_text()
    new = int(text.partition(f"Seeds: {SEEDS}, of them new: ")[2].split()[0])
    assert 0 < new < SEEDS, "the seeds of the first start count as new at the second"
    assert text.count(f"{listed} line 1 skipped (white space in the URL)") == 2
    assert urls_of(data) == SEEDS


def urls_of(data: Path) -> int:
    """Return how many different URLs a crawl knows."""
    with closing(open_frontier(data, FrontierLimits(max_undecided_s=0.0), 1e10)) as frontier:
        counts = frontier.counts()
    assert not counts.undecided
    return counts.seen
