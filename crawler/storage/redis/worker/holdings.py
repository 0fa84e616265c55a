"""The leases a worker holds, and until when it may begin what they allow.

Rule: by the worker's monotonic clock, counted from before the call that was answered: so it is
never later than the server's own reckoning, whatever wall clocks say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from crawler.core.types import Lease
from crawler.storage.redis.ops import shard_of_lease
from crawler.storage.redis.worker.runs import Runs

FRESH_S: Final = 3.0
"""A shard that was not heard of for so long may have died and forgotten leases of ours; what was
begun before is over a total time-out later. Each is asked once a second."""


class Holdings:
    """Bound: the leases that are open."""

    def __init__(self, lease_s: float, fetch_s: float, runs: Runs) -> None:
        """*fetch_s*: the longest a fetch can take; it must be over before its lease is."""
        self._lease_s = lease_s
        self._fetch_s = fetch_s
        self._runs = runs
        self._doubtful: set[int] = set()
        self._by_shard: dict[int, dict[int, Lease]] = {}
        self._ends: dict[int, float] = {}
        self.on_doubt: Callable[[int], None] = lambda _: None
        """Is told of a shard that is to be asked which leases of ours it knows."""

    def __len__(self) -> int:
        return sum(map(len, self._by_shard.values()))

    def __contains__(self, lease: Lease) -> bool:
        return lease.id in self._by_shard.get(shard_of_lease(lease), ())

    def take(self, shard: int, leases: Iterable[Lease], asked_at: float) -> None:
        """Given in answer to a call of *asked_at*; the whole shard is renewed with them."""
        self.renew(shard, asked_at)
        held = self._by_shard.setdefault(shard, {})
        held.update((lease.id, lease) for lease in leases)

    def renew(self, shard: int, asked_at: float) -> None:
        """Those of *shard* live on, if they still lived when that was asked for. What is renewed
        later may be others, so the shard must name them: a word that they had ended can be lost."""
        if self.count(shard) and asked_at >= self._ends.get(shard, 0.0):
            self.doubt(shard)
            self.on_doubt(shard)
        self._ends[shard] = max(self._ends.get(shard, 0.0), asked_at + self._lease_s)

    def drop(self, lease: Lease) -> None:
        """It is finished, or was never given."""
        held = self._by_shard.get(shard_of_lease(lease), {})
        held.pop(lease.id, None)

    def lose(self, shard: int, asked_at: float) -> list[Lease]:
        """All leases of *shard* have ended, as a call of *asked_at* was told. What was given later
        is not meant."""
        if self._ends.get(shard, 0.0) > asked_at + self._lease_s:
            return []
        self._ends.pop(shard, None)
        return list(self._by_shard.pop(shard, {}).values())

    def forget(self, shard: int, ids: Iterable[int]) -> list[Lease]:
        """*shard* does not know them any more."""
        held = self._by_shard.get(shard, {})
        return [held.pop(each) for each in ids if each in held]

    def may_begin(self, lease: Lease, steady: float) -> bool:
        """Whether its server surely knows of it, and a fetch begun at *steady* is over before the
        lease is."""
        shard = shard_of_lease(lease)
        if shard in self._doubtful or steady - self._runs.asked_at(shard) > FRESH_S:
            return False
        return lease in self and steady + self._fetch_s < self._ends.get(shard, 0.0)

    def doubt(self, shard: int) -> None:
        """It may have forgotten leases of ours."""
        self._doubtful.add(shard)

    def trust(self, shard: int) -> None:
        """It has named those that it knows."""
        self._doubtful.discard(shard)

    def shards(self) -> list[int]:
        """Where our session may live, with leases or without: with it lives what it holds there
        and never reached us."""
        return list(self._ends)

    def ids(self, shard: int) -> set[int]:
        return set(self._by_shard.get(shard, ()))

    def count(self, shard: int) -> int:
        return len(self._by_shard.get(shard, ()))
