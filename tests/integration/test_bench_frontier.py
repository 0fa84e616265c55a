"""The benchmark of the frontiers does what it says, in small, on a real redis-server."""

from __future__ import annotations

import pytest

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
