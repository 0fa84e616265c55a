"""What a frontier weighs in Redis.

Rule: bytes are Redis' own: the difference of `used_memory`, or MEMORY USAGE of all of a key.
"""

from __future__ import annotations

from typing import Final

from bench.frontier import scrapy_redis
from bench.frontier.client import Act
from bench.frontier.clients import clients
from bench.frontier.links import URLS_A_HOST
from bench.redis_server import Server, redis_server

URLS: Final = 100_000
CLAIMS: Final = 20_000
REQUESTS: Final = 20_000


def ours_sizes(scale: float) -> dict[str, float]:
    urls, claims = int(URLS * scale), int(CLAIMS * scale)
    return {**_bytes_a_url(urls, claims), "waiting_host_bytes": _bytes_a_host(urls)}


def scrapy_redis_sizes(scale: float) -> dict[str, float]:
    urls = int(REQUESTS * scale)
    with redis_server(append_only=False) as server, clients("scrapy-redis", server, 1) as one:
        one.act(Act.FILL, urls, max(1, urls // URLS_A_HOST))
        waiting, seen = (_usage(server, key) / urls for key in scrapy_redis.KEYS)
    return {"waiting_bytes": waiting, "seen_bytes": seen}


def _bytes_a_url(urls: int, claims: int) -> dict[str, float]:
    """Filled and emptied again: what goes was waiting, what stays are the seen, and what is kept
    of a host, a hundredth of it. Once before in small, so that no buffer of a client counts."""
    hosts = max(1, urls // URLS_A_HOST)
    with redis_server(append_only=False) as server, clients("gossamer", server, 1) as one:
        one.act(Act.FILL, urls // 10, max(1, hosts // 10))
        one.act(Act.TURNS, urls // 10)
        known, empty = one.known(), server.used_bytes()
        one.act(Act.FILL, urls, hosts)
        new, full = one.known() - known, server.used_bytes()
        one.act(Act.TURNS, urls)
        emptied = server.used_bytes()
        one.act(Act.CLAIM, claims)
        claimed = server.used_bytes()
    return {
        "waiting_bytes": (full - emptied) / new,
        "seen_bytes": (emptied - empty) / new,
        "claim_bytes": (claimed - emptied) / claims,
    }


def _bytes_a_host(hosts: int) -> float:
    """Of a frontier in which each host has one URL."""
    with redis_server(append_only=False) as server, clients("gossamer", server, 1) as one:
        empty = server.used_bytes()
        one.act(Act.FILL, hosts, hosts)
        return (server.used_bytes() - empty) / hosts


def _usage(server: Server, key: str) -> int:
    return int(server.asked.memory_usage(key, samples=0) or 0)
