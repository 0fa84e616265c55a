"""The benchmarks do what they say, in small: the frontiers on a real redis-server, and what one
host can take by framing alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from bench import owned
from bench.figures import Figures
from bench.framing import KINDS, measured
from bench.frontier import page, waiting
from bench.frontier.client import Act
from bench.frontier.clients import ClientFailed, clients
from bench.redis_server import redis_server
from bench.scale import Part, print_table, run
from bench.seen import commit, keys_of, new_pages
from crawler.frontier.drum import Drum
from crawler.frontier.run_files import DrumManifest, RunFolder

FRONTIERS = ["gossamer", "scrapy-redis"]


@pytest.mark.parametrize("frontier", FRONTIERS)
def test_every_link_is_new_once_and_leased_once(frontier: str) -> None:
    with redis_server(append_only=False) as server, clients(frontier, server, 2) as both:
        new = both.act(Act.NEW, 800, hosts=20)
        assert (new.done, both.known()) == (800, 800)
        mixed = both.act(Act.MIXED, 900)
        assert (mixed.done, both.known()) == (900, 900)
        first = both.act(Act.LEASE, 20)
        both.act(Act.SETTLE, 20)
        rest = both.act(Act.TURNS, 2_000)
        assert first.done + rest.done == 900
        with pytest.raises(ClientFailed, match="nothing to lease"):
            both.act(Act.LEASE, 1)


def test_a_client_that_dies_ends_the_measurement() -> None:
    with redis_server(append_only=False) as server, clients("scrapy-redis", server, 1) as one:
        server.asked.config_set("maxmemory", "1")
        with pytest.raises(ClientFailed):
            one.act(Act.FILL, 100, hosts=1)


def test_a_server_is_empty_and_ends_with_its_measurement() -> None:
    with redis_server(append_only=True) as server:
        assert server.asked.dbsize() == 0
        assert server.asked.config_get("appendonly") == {"appendonly": "yes"}
        assert server.used_bytes() > 0
        assert server.cpu_s() > 0
        url = server.url
    with redis_server(append_only=False) as other:
        assert other.asked.ping()
        assert url.startswith("redis://127.0.0.1:")


CAP_BYTES = 300_000
QUICK = ("extensions", "chunks of 1 byte", "interim answers")  # `python -m bench.framing` has all


@pytest.mark.parametrize("kind", QUICK)
def test_framing_without_end_is_taken_as_far_as_the_cap(kind: str) -> None:
    # So long that only the cap can end it: in 30 s an unbounded client takes gigabytes.
    taken = measured(kind, CAP_BYTES, total_timeout_s=60.0)
    assert not taken.broken(CAP_BYTES)
    assert taken.sent_bytes > 0


def test_all_that_can_frame_a_body_is_measured() -> None:
    assert len(KINDS) >= 12


def test_each_page_of_the_embedded_frontier_is_leased_once_and_measured() -> None:
    few, many = (page.page_us(200, hosts, one_in=9) for hosts in (300, 3_000))
    assert {"add", "lease", "release", "finish", "commit"} <= few.keys() == many.keys()
    assert page.scrapy_add_us(20, 300, one_in=9) > 0
    assert page.scrapy_pop_us(300, 50) > 0


def test_each_link_is_decided_in_one_way() -> None:
    ways = page.decided(500, 100, Figures())
    assert ways.total() == 500 * page.LINKS
    assert ways["at once, by keys in memory"] > 0.8 * ways.total()


def test_memory_does_not_grow_with_what_waits_and_a_second_run_continues(tmp_path: Path) -> None:
    figures = Figures()
    few, many = waiting.memory(tmp_path, [30_000, 90_000], 2_000, figures)
    assert many - few < 60_000 * 500 / 1e6  # Python objects of the URLs would take more
    assert len(waiting.memory(tmp_path, [90_000], 2_000, figures)) == 1
    assert waiting.mark(tmp_path, 200_000) == 200_000
    waiting.reopen(tmp_path, figures)
    waiting.scrapy_reopen(1_000, figures)


def test_no_new_page_is_called_seen_and_a_second_run_asks_for_the_others(tmp_path: Path) -> None:
    drum = Drum(RunFolder(tmp_path / "runs"), DrumManifest())
    drum.update(keys_of(np.arange(20_000, dtype=np.uint64)))
    commit(RunFolder(tmp_path / "runs"), drum)
    for asked in (3_000, 10_000):
        new_pages(tmp_path, drum, asked, 1_000, Figures())
        assert json.loads((tmp_path / "asked.json").read_text()) == [asked, 0]


def test_the_largest_size_that_fits_is_run() -> None:
    part = Part("near", "bench.near --pages {size}", (1_000, 100), 10)
    assert [part.fitting(free) for free in (20_000, 10_000, 1_200, 1_000)] == [
        1_000,
        100,
        100,
        None,
    ]


def test_a_large_run_goes_on_with_the_missing_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.jsonl").write_text("")
    first = Part("seen", "bench.seen_costs")  # prints nothing, and ends well
    fails = Part("near", "bench.no_such_part")
    (seen,) = run([first, fails], tmp_path)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('\n{"name": "near", "argu')  # killed in the middle of it
    assert run([first], tmp_path) == [seen]
    again = Part("near", "bench.seen_costs")
    assert [each["name"] for each in run([first, again], tmp_path)] == ["seen", "near"]
    assert [each["name"] for each in run([again, first], tmp_path)] == ["near", "seen"]
    assert not print_table([seen | {"lines": ["bytes a URL 8 (bar: 10)", "of which"]}])
    assert "(bar: 10)" in capsys.readouterr().out
    assert print_table([seen | {"lines": ["bytes a URL 12 (bar: 10, MISSED)"]}])


def test_a_shard_is_weighed_and_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(owned.measure(200, 100, tmp_path))
    assert capsys.readouterr().out.startswith("200 waiting of 2 hosts, 300 seen: loaded in")
