"""The counters of a shared frontier, counted again while workers may be at work.

Rule: a shard is counted in many small questions. All that changes its queues changes its totals in
the same script; so what was counted between two equal looks at them is exact, and is written only
if they are still the same. A shard that never stands still long enough is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from crawler.scheduler.recount import Counter
from crawler.storage.redis import keys
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.shard_records import read_host
from crawler.storage.redis.visit.visit import Visit

TRIES: Final = 3
_AT_ONCE: Final = 500  # keys asked for together
_Fields = dict[bytes, bytes]
Each = TypeVar("Each")


class Recount:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self.counted: list[Counter] = []
        self.uncounted: list[int] = []
        """Shards that changed whenever they were counted."""

    def count(self) -> None:
        for shard in self._visit.shards:
            self._take(shard, None)

    def repair(self, ops: Ops) -> None:
        """Write what was counted, where it differs."""
        for shard in self._visit.shards:
            self._take(shard, ops)

    def _take(self, shard: int, ops: Ops | None) -> None:
        """Of one shard; with *ops* what differs is written."""
        for _ in range(TRIES):
            before = self._totals(shard)
            found = [
                Counter(name, int(before.get(name.encode(), 0)), number, shard)
                for name, number in self._numbers(shard, before)
            ]
            if self._totals(shard) != before:
                continue
            differing = {each.name: each.counted for each in found if each.differs}
            if ops is not None and differing:
                conditions = {field: before.get(field.encode(), b"") for field in _TELLING}
                (reply,) = self._visit.link.run([ops.repair(shard, conditions, differing)])
                if not reply[1]:
                    continue
            self.counted += found
            return
        self.uncounted.append(shard)

    def _totals(self, shard: int) -> _Fields:
        key = keys.totals(self._visit.name, shard)
        (reply,) = self._visit.ask_each([("HGETALL", key)])
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def _numbers(self, shard: int, totals: _Fields) -> Iterator[tuple[str, int]]:
        visit, name = self._visit, self._visit.name
        buckets = [
            keys.seen(name, shard, bucket) for bucket in range(int(totals.get(b"buckets", 1)))
        ]
        sessions = {
            keys.leases(name, shard, session.decode())
            for found in visit.scored(keys.sessions(name, shard))
            for session, _ in found
        }
        yield "waiting", self._sum("LLEN", self._queues(shard))
        yield "later", self._sum("ZCARD", [keys.later(name, shard)])
        yield "leased", self._sum("HLEN", sorted(sessions))
        yield "seen", self._sum("SCARD", buckets)
        yield "dead", self._sum("HLEN", [keys.dead(name, shard)])

    def _queues(self, shard: int) -> list[str]:
        """Those that its hosts say to have; a scan may tell a host twice."""
        key = keys.hosts(self._visit.name, shard)
        queues: set[str] = set()
        for found in self._visit.pairs(key):
            with self._visit.reading(key):
                for host, packed in found:
                    named = host.decode()
                    fronts = read_host(packed).fronts
                    queues.update(keys.queue(self._visit.name, shard, at, named) for at in fronts)
        return list(queues)

    def _sum(self, command: str, names: Sequence[str]) -> int:
        return sum(
            sum(self._visit.ask_each([(command, name) for name in part]))
            for part in _parts(names, _AT_ONCE)
        )


_TELLING: Final = (
    *("clock", "offset", "next", "run", "adds", "buckets"),
    *("waiting", "later", "leased", "seen", "done", "dead"),
)
"""Fields of which at least one changes whenever a queue does."""


def _parts(sequence: Sequence[Each], size: int) -> Iterator[list[Each]]:
    rest = iter(sequence)
    while part := list(islice(rest, size)):
        yield part
