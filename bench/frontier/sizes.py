"""What a frontier weighs, and whether its leases grow dearer with its hosts.

Rule: bytes are Redis' own: the difference of `used_memory`, or MEMORY USAGE of all of a key.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from bench.frontier import ours, scrapy_redis
from bench.frontier.client import Act
from bench.frontier.clients import Clients, clients
from bench.frontier.links import URLS_A_HOST
from bench.redis_server import Server, redis_server
from crawler.shared import keys

URLS: Final = 100_000
CLAIMS: Final = 20_000
REQUESTS: Final = 20_000
FEW_HOSTS: Final = 10_000
MANY_HOSTS: Final = 1_000_000
LEASES: Final = 2_000  # of a round; what is leased of few hosts must leave most of them
ROUNDS: Final = 3


def ours_sizes(scale: float) -> dict[str, float]:
    few_hosts, many_hosts = int(FEW_HOSTS * scale), int(MANY_HOSTS * scale)
    few = _leases_of(few_hosts, int(LEASES * scale))
    many = _leases_of(many_hosts, int(LEASES * scale))
    return {
        **_bytes_a_url(int(URLS * scale), int(CLAIMS * scale)),
        "host_bytes": many["host_bytes"],
        "waiting_host_bytes": many["waiting_host_bytes"],
        "few_hosts": few_hosts,
        "many_hosts": many_hosts,
        "lease_us_few": few["lease_us"],
        "lease_us_many": many["lease_us"],
        "lease_growth": many["lease_us"] / few["lease_us"],
        "turn_growth": many["turn_us"] / few["turn_us"],
    }


def scrapy_redis_sizes(scale: float) -> dict[str, float]:
    urls = int(REQUESTS * scale)
    with redis_server(append_only=False) as server, clients("scrapy-redis", server, 1) as one:
        one.act(Act.FILL, urls, max(1, urls // URLS_A_HOST))
        waiting, seen = (_usage(server, key) / urls for key in scrapy_redis.KEYS)
    return {"waiting_bytes": waiting, "seen_bytes": seen}


def _bytes_a_url(urls: int, claims: int) -> dict[str, float]:
    """Filled and emptied again: what goes was waiting, what stays are the seen, and what is kept
    of a host, a hundredth of it. Once before in small, so that no buffer of a client counts."""
    with redis_server(append_only=False) as server, clients("gossamer", server, 1) as one:
        _fill(one, urls // 10)
        one.act(Act.TURNS, urls // 10)
        empty = server.used_bytes()
        new = _fill(one, urls)
        full = server.used_bytes()
        one.act(Act.TURNS, urls)
        emptied = server.used_bytes()
        one.act(Act.CLAIM, claims)
        claimed = server.used_bytes()
    return {
        "waiting_bytes": (full - emptied) / new,
        "seen_bytes": (emptied - empty) / new,
        "claim_bytes": (claimed - emptied) / claims,
    }


def _fill(one: Clients, urls: int) -> int:
    return one.act(Act.FILL, urls, max(1, urls // URLS_A_HOST)).new


def _leases_of(hosts: int, leases: int) -> dict[str, float]:
    """Of a frontier in which each of *hosts* has one URL."""
    with redis_server(append_only=False) as server, clients("gossamer", server, 2) as both:
        empty = server.used_bytes()
        both.act(Act.FILL, hosts, hosts)
        full = server.used_bytes()
        records = sum(_usage(server, keys.hosts(ours.NAME, n)) for n in range(ours.SHARDS))
        rounds = [_lease_and_settle(both, leases) for _ in range(ROUNDS)]
    return {
        "host_bytes": records / hosts,
        "waiting_host_bytes": (full - empty) / hosts,
        "lease_us": median(lease_us for lease_us, _ in rounds),
        "turn_us": median(lease_us + settle_us for lease_us, settle_us in rounds),
    }


def _lease_and_settle(both: Clients, leases: int) -> tuple[float, float]:
    """CPU of Redis for each: what of the wall passes elsewhere, hosts do not change."""
    lease = both.act(Act.LEASE, leases)
    settle = both.act(Act.SETTLE, leases)
    return lease.redis_us, settle.redis_us


def _usage(server: Server, key: str) -> int:
    return int(server.asked.memory_usage(key, samples=0) or 0)
