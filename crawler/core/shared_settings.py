"""The settings of a crawl that several workers share.

Rule: as in config.py, of which this group is a part. All workers of a crawl are given the
same, but for their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crawler.core.choices import ByServer, RedisFsync
from crawler.core.kinds import choice, number, or_word, text, whole
from crawler.core.knobs import knob, refuse_disorder
from crawler.core.redis_url import frontier_url

# Above it a server would soon refuse what is written; the rest is for what must go on:
# finishes, heartbeats, replication, the buffers of its clients.
FULL_PART: Final = 0.8
HEARTBEATS: Final = 4  # in a lease: two may be lost and one late, and nothing expires


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """How workers share a crawl."""

    frontier_url: str = knob(
        "",
        frontier_url(),
        "The Redis (or file:/path of its URL) that holds the frontier; empty: the data directory.",
    )
    frontier_name: str = knob(
        "gossamer",
        text(
            "1 to 40 letters, digits, dots, hyphens, underscores", "name", r"[A-Za-z0-9._-]{1,40}"
        ),
        "What the crawl's keys begin with, so that one Redis can hold several crawls.",
    )
    frontier_shards: int = knob(
        64,
        # 1024: a scan for the end of the crawl asks each of them
        whole("shards", least=1, most=1024),
        "Parts the crawl is split into, for the servers of a cluster; fixed when it begins.",
    )
    worker_name: str = knob(
        "",
        text(
            "64 letters, digits, dots, hyphens, underscores at most",
            "name",
            r"[A-Za-z0-9._-]{0,64}",
        ),
        "This worker's name; empty: the machine's and a random part, kept in the data directory.",
    )
    lease_s: float = knob(
        120.0,
        number("seconds", least=1),
        "How long a worker that is not heard of keeps its URLs; then others get them.",
    )
    heartbeat_s: float = knob(
        10.0, number("seconds", least=0.1), "Time between two signs of life of a worker."
    )
    redis_wait_s: float = knob(
        300.0,  # a file of 10 GB is loaded in 1 to 2 minutes
        number("seconds"),
        "How long a worker waits at its start for servers that are away, or loading their data.",
    )
    redis_fsync: RedisFsync = knob(
        RedisFsync.EVERYSEC,
        choice(RedisFsync),
        "The servers' appendfsync; everysec: with several, a page is finished 4 s after its links.",
    )
    redis_max_bytes: int | ByServer = knob(
        ByServer.AUTO,
        or_word(whole("bytes", least=1024 * 1024), ByServer),
        "Above this a server's new links wait on our disk; auto: 0.8 of its maxmemory, if any.",
    )

    def __post_init__(self) -> None:
        refuse_disorder(
            *("CRAWLER_HEARTBEAT_S", self.heartbeat_s),
            *("a quarter of CRAWLER_LEASE_S", self.lease_s / HEARTBEATS),
        )

    def refuse_short_lease(self, total_timeout_s: float) -> None:
        """Raise ConfigError if fetches of *total_timeout_s* do not fit into a lease.

        Two must, after two heartbeats that were lost: a request begins only if all its time
        is left, and what it brought must be stored and finished before the lease is over.
        """
        refuse_disorder(
            "2 x CRAWLER_TOTAL_TIMEOUT_S + 2 x CRAWLER_HEARTBEAT_S",
            2 * total_timeout_s + 2 * self.heartbeat_s,
            *("CRAWLER_LEASE_S", self.lease_s),
        )

    def full_bytes(self, maxmemory_bytes: int) -> int | None:
        """Where a server of *maxmemory_bytes* (0: it has none) is full. None: nowhere."""
        if self.redis_max_bytes is not ByServer.AUTO:
            return self.redis_max_bytes
        return int(maxmemory_bytes * FULL_PART) if maxmemory_bytes else None
