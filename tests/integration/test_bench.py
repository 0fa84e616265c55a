"""The benchmarks do what they say, in small: the frontiers on a real redis-server, and what one
host can take by framing alone."""

from __future__ import annotations

import pytest

from bench.framing import KINDS, measured
from bench.frontier.client import Act
from bench.frontier.clients import ClientFailed, clients
from bench.redis_server import redis_server

FRONTIERS = ["gossamer", "scrapy-redis"]


@pytest.mark.parametrize("frontier", FRONTIERS)
def test_every_link_is_new_once_and_leased_once(frontier: str) -> None:
    with redis_server(append_only=False) as server, clients(frontier, server, 2) as both:
        new = both.act(Act.NEW, 800, hosts=20)
        assert (new.done, new.new) == (800, 800)
        mixed = both.act(Act.MIXED, 900)
        assert (mixed.done, mixed.new) == (900, 100)
        first = both.act(Act.LEASE, 20)
        both.act(Act.SETTLE, 20)
        rest = both.act(Act.TURNS, 2_000)
        assert first.done + rest.done == 900
        with pytest.raises(ClientFailed, match="nothing to lease"):
            both.act(Act.LEASE, 1)


def test_a_client_that_dies_ends_the_measurement() -> None:
    with redis_server(append_only=False) as server, clients("gossamer", server, 1) as one:
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
