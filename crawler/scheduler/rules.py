"""The numbers of a frontier, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRules:
    level_shares: tuple[float, ...] = (60.0, 30.0, 10.0)  # turns of each level, best first
    max_active_hosts: int = 20_000  # hosts in memory, about 4 kB each with their heads
    head_urls: int = 32  # URLs of a turn: the head of a host in memory
    min_gap_s: float = 1.0  # a host whose lease was open when we died rests at least this
    # What an open lease's fetch may have been when we died: its host rests accordingly.
    gap_factor: float = 10.0
    max_gap_s: float = 300.0
    longest_fetch_s: float = 30.0
    max_rest_s: float = 86_400.0  # no rest is longer
    # A host that rests longer leaves memory: at 10 x the fetch time most gaps are below 30 s.
    evict_rest_s: float = 60.0
    look: int = 16  # front entries looked at for one lease: bounds the call when most rest
    slice: int = 64  # of what has come due, moved in one call (12 us each)
    judged_slice: int = 1000  # refused URLs of one call: 10 ms
    max_urls_per_domain: int | None = None
    max_urls_per_host: int | None = None
