"""The shared frontier for the contract suite: over a real redis-server whose time is given by the
test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from struct import unpack
from typing import Any

import redis

from crawler.frontier.port import FrontierLimits, LeaseRules
from crawler.frontier.records import DeadLetter, decode_letter
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Claim,
    Lease,
    Rest,
    Standing,
    Verdict,
)
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import ShardTotals, read_claim
from crawler.shared.crawl_format import (
    check_format,
    encode_format,
    new_format,
)
from crawler.shared.keys import Scripts
from crawler.shared.shard import ShardOperations
from tests.harness.frontiers import TIGHT
from tests.harness.script_frontier import ScriptFrontier

NAME = "t"
SHARDS = 3  # hosts of most tests are in several
FOR_EVER_S = float("inf")  # leases of the suite end only with their session, as embedded ones do
CLOCK = "local function wall() return tonumber(redis.call('GET', 'now') or 0) end"
SCRIPTS = Scripts(CLOCK)


class TimedLink:
    """A connection to a server whose scripts read their time from a key."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def set_time(self, now: float) -> None:
        self.client.set("now", repr(float(now)))

    def run(self, calls: Sequence[Call]) -> list[Any]:
        pipeline = self.client.pipeline(transaction=False)
        for call in calls:
            root = keys.root(NAME, call.shard)
            pipeline.evalsha(SCRIPTS.sha(call.script), 1, root, *call.args)
        return pipeline.execute()

    def commands(self, asks: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        pipeline = self.client.pipeline(transaction=False)
        for _, (word, *args) in asks:
            pipeline.execute_command(word, *args, NEVER_DECODE=[])
        return [_flat(reply) for reply in pipeline.execute()]

    def totals(self) -> list[ShardTotals]:
        return [ShardTotals.read(self.client.hgetall(keys.totals(NAME, n))) for n in range(SHARDS)]


def _flat(reply: Any) -> Any:
    """As a server sends a hash: redis-py makes a dictionary of it."""
    return [each for pair in reply.items() for each in pair] if isinstance(reply, dict) else reply


class TimedFrontier(ScriptFrontier):
    """A frontier that sets the time of the server before each call."""

    def __init__(
        self,
        link: TimedLink,
        ops: ShardOperations,
        dead_session: str | None,
        now: float,
        lease_rules: LeaseRules | None = None,
    ) -> None:
        self._timed_link = link
        # As the embedded one: time never goes back.
        link.set_time(max(now, *(each.clock for each in link.totals())))
        super().__init__(link, ops, dead_session, NAME, lease_rules)

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        self._timed_link.set_time(now)
        return super().add(found, now)

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        self._timed_link.set_time(now)
        return super().lease(now, limit, standings)

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        self._timed_link.set_time(now)
        return super().release(lease, rest, now)

    def note_trouble(self, lease: Lease, rest: Rest, now: float) -> None:
        self._timed_link.set_time(now)
        super().note_trouble(lease, rest, now)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        self._timed_link.set_time(now)
        return super().finish(lease, verdict, now)


class RedisWorld:
    """A world in which `reopen` is a restart of a killed worker: its last session is dead."""

    notes_releases = True

    def __init__(self, client: redis.Redis, limits: FrontierLimits = TIGHT) -> None:
        self.client = client
        self.limits = limits
        self._sessions = count()
        self._last: str | None = None
        client.flushall()
        for name in SCRIPTS.names():
            client.script_load(SCRIPTS.text(name))

    def reopen(self, now: float, lease_rules: LeaseRules | None = None) -> TimedFrontier:
        link = TimedLink(self.client)
        ours = new_format(SHARDS, len(self.limits.level_shares), ())
        if not self.client.set(keys.format_key(NAME), encode_format(ours), nx=True):
            check_format(self.client.get(keys.format_key(NAME)), ours, NAME)
        link.run([Call(n, "open", ("a" * 40, 30, FOR_EVER_S, keys.SCHEMA)) for n in range(SHARDS)])
        dead, self._last = self._last, f"session{next(self._sessions)}"
        ops = ShardOperations(self._last, SHARDS, self.limits, FOR_EVER_S)
        return TimedFrontier(link, ops, dead, now, lease_rules)

    def letters(self) -> list[DeadLetter]:
        kept = [self.client.hgetall(keys.dead(NAME, shard)) for shard in range(SHARDS)]
        return [decode_letter(letter) for each in kept for letter in each.values()]

    def claim(self, digest: bytes) -> Claim | None:
        """Return the claim on *digest*; without one, the digest is reserved by this call."""
        asks = ShardOperations("reader", SHARDS, self.limits, FOR_EVER_S).reserve(digest, 0, 1.0)
        ((_, word, *found),) = TimedLink(self.client).run([asks])
        return read_claim(*found) if word == b"claimed" else None

    def drift(self, _: ScriptFrontier, by: int) -> None:
        self.client.hincrby(keys.totals(NAME, 0), "waiting", by)

    def wakes(
        self, frontier: ScriptFrontier, now: float, standings: Sequence[Standing] = STANDINGS
    ) -> bool:
        wake_at = frontier.wake_at(standings)
        return wake_at is not None and wake_at <= now

    def check(self, _: ScriptFrontier | None = None) -> None:
        """Check that the structures of each shard agree."""
        dump = _dump(self.client)
        for shard in range(SHARDS):
            _check_shard(dump, keys.root(NAME, shard))


EMPTY, FRONT, RESTS, LEASED = range(4)
READS = {
    **dict.fromkeys("mhodcnyk", "hgetall"),
    **dict.fromkeys("rlwz", "zrange"),
    **dict.fromkeys("bfg", "lrange"),
    "s": "smembers",
    "x": "smembers",
    **dict.fromkeys("evta", "get"),
}
Dump = dict[str, Any]


def _dump(client: redis.Redis) -> Dump:
    """All keys of the crawl, in two round trips."""
    names = [key.decode() for key in client.keys(f"{NAME}:{{*")]
    pipeline = client.pipeline(transaction=False)
    for name in names:
        read = READS[name.split("}:")[1][0]]
        getattr(pipeline, read)(name, *((0, -1) if read.endswith("range") else ()))
    return dict(zip(names, pipeline.execute(), strict=True))


def _check_shard(dump: Dump, root: str) -> None:
    totals = ShardTotals.read(dump.get(f"{root}:m", {}))
    counts = totals.counts
    queues: dict[str, dict[int, int]] = {}
    for key, bodies in _under(dump, f"{root}:b:"):
        front, host = key.split(":", 1)
        queues.setdefault(host, {})[int(front)] = len(bodies)
    leases = [lease for _, held in _under(dump, f"{root}:o:") for lease in held.values()]
    unreleased = [each[12 : 12 + unpack("<H", each[10:12])[0]] for each in leases if not each[8]]
    resting = set(dump.get(f"{root}:r", ()))
    filed = {entry for _, entries in _under(dump, f"{root}:f:") for entry in entries}
    seen = [set(members) for _, members in _under(dump, f"{root}:s:")]
    by_front = sum(map(Counter, queues.values()), Counter[int]())
    assert counts.waiting == by_front.total()
    assert {at: urls for at, urls in totals.fronts.items() if urls} == by_front
    assert counts.later == len(dump.get(f"{root}:l", ()))
    assert counts.leased == len(leases)
    assert counts.dead == len(dump.get(f"{root}:d", ()))
    assert counts.refused == len(dump.get(f"{root}:k", ()))
    assert counts.seen == sum(map(len, seen)) == len(set().union(*seen))
    assert len(set(unreleased)) == len(unreleased), "two unreleased leases on one host"
    assert set(dump.get(f"{root}:z", ())) == {host.encode() for host in queues}
    for host, packed in dump.get(f"{root}:h", {}).items():
        place, front, fronts, number, *_ = unpack("<BBHIdI", packed[:20])
        waits = set(queues.get(host.decode(), ()))
        assert waits == {n for n in range(16) if fronts >> n & 1}, f"{host} and its queues"
        (waiting,) = unpack("<I", packed[50:])
        assert waiting == sum(queues.get(host.decode(), {}).values()), f"{host} and what waits"
        assert (place == LEASED) == (host in unreleased)
        assert (place == RESTS) == (host in resting)
        assert place != EMPTY or not waits, f"{host} has URLs and no turn"
        if place == FRONT:
            assert number.to_bytes(4, "little") + host in filed, f"{host} waits in no queue"
            assert front == min(waits), f"{host} is filed below its best"


def _under(dump: Dump, prefix: str) -> Iterator[tuple[str, Any]]:
    return (
        (name.removeprefix(prefix), kept) for name, kept in dump.items() if name.startswith(prefix)
    )
