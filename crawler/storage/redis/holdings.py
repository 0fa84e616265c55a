"""The leases a worker holds, and until when it may begin what they allow.

Rule: by the worker's monotonic clock, counted from before the call that was answered: so it is
never later than the server's own reckoning, whatever wall clocks say.
"""

from __future__ import annotations

from collections.abc import Iterable

from crawler.core.types import Lease
from crawler.storage.redis.ops import shard_of_lease


class Holdings:
    """Bound: the leases that are open."""

    def __init__(self, lease_s: float, fetch_s: float) -> None:
        """*fetch_s*: the longest a fetch can take; it must be over before its lease is."""
        self._lease_s = lease_s
        self._fetch_s = fetch_s
        self._by_shard: dict[int, dict[int, Lease]] = {}
        self._ends: dict[int, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_shard.values()))

    def __contains__(self, lease: Lease) -> bool:
        return lease.id in self._by_shard.get(shard_of_lease(lease), ())

    def take(self, shard: int, leases: Iterable[Lease], asked_at: float) -> None:
        """Given in answer to a call of *asked_at*; the whole shard is renewed with them."""
        held = self._by_shard.setdefault(shard, {})
        held.update((lease.id, lease) for lease in leases)
        self.renew(shard, asked_at)

    def renew(self, shard: int, asked_at: float) -> None:
        self._ends[shard] = max(self._ends.get(shard, 0.0), asked_at + self._lease_s)

    def drop(self, lease: Lease) -> None:
        """It is finished, or was never given."""
        held = self._by_shard.get(shard_of_lease(lease), {})
        held.pop(lease.id, None)

    def lose(self, shard: int) -> list[Lease]:
        """All leases of *shard* have ended."""
        self._ends.pop(shard, None)
        return list(self._by_shard.pop(shard, {}).values())

    def may_begin(self, lease: Lease, steady: float) -> bool:
        """Whether a fetch begun at *steady* is over before its lease is."""
        ends = self._ends.get(shard_of_lease(lease), 0.0)
        return lease in self and steady + self._fetch_s < ends

    def shards(self) -> list[int]:
        return [shard for shard, held in self._by_shard.items() if held]

    def ids(self, shard: int) -> set[int]:
        return set(self._by_shard.get(shard, ()))

    def count(self, shard: int) -> int:
        return len(self._by_shard.get(shard, ()))
