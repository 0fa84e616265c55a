"""Seeds from a list on the web: the whole list, or an error that names what is missing."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.harness.crawling import crawl
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
