"""How many links and leases a second, over two connections.

Rule: both frontiers take turns, each on an empty server of the same settings. It keeps no
append-only file here: what is measured is the frontier, not the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.frontier.client import Act
from bench.frontier.clients import Clients, Cost, clients
from bench.frontier.links import URLS_A_HOST
from bench.redis_server import redis_server

CLIENTS: Final = 2


@dataclass(frozen=True, slots=True)
class Load:
    """What one round of a frontier consists of: two to three seconds of each."""

    new: int
    mixed: int
    turns: int


LOADS: Final = {
    "gossamer": Load(new=160_000, mixed=270_000, turns=40_000),
    "scrapy-redis": Load(new=8_000, mixed=18_000, turns=8_000),
}


def speed(frontier: str, scale: float) -> dict[str, float]:
    """One round."""
    load = LOADS[frontier]
    with redis_server(append_only=False) as server, clients(frontier, server, CLIENTS) as both:
        new = _all_new(both, int(load.new * scale))
        mixed = both.act(Act.MIXED, int(load.mixed * scale))
        turns = both.act(Act.TURNS, int(load.turns * scale))
    return {
        "new_per_s": new.per_s,
        "mixed_per_s": mixed.per_s,
        "turns_per_s": turns.per_s,
        "new_redis_us": new.redis_us,
        "mixed_redis_us": mixed.redis_us,
        "turns_redis_us": turns.redis_us,
    }


def _all_new(both: Clients, count: int) -> Cost:
    cost = both.act(Act.NEW, count, max(1, count // URLS_A_HOST))
    assert both.known() == cost.done, "a URL was taken for seen that nobody had added"
    return cost
