"""The back tier: the active hosts, each with the head of one level in memory.

Rule: no disk here. A host is leased, or due (its rest is over), or in the heap by the
end of its rest; those due wait per standing and level. Memory is bounded by the number of active
hosts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from crawler.core.types import HostKey, Standing
from crawler.scheduler.records import HostRecord


@dataclass(slots=True, eq=False)
class ActiveHost:
    """A host whose turn it is: at most as many leases as its head is long."""

    host: HostKey
    record: HostRecord
    level: int
    head: deque[bytes]  # packed URLs, as they stand at the front of its queue
    leased: bool = False
    turn_over: bool = False  # a better URL came during its fetch: file it again
    gone: bool = False  # it has left; what still stands in a queue is stale


@dataclass(slots=True)
class ActiveSet:
    """All operations are O(log n) in the number of active hosts or better."""

    levels: int
    _hosts: dict[HostKey, ActiveHost] = field(default_factory=dict)
    _due: list[list[deque[ActiveHost]]] = field(default_factory=list)  # by standing, then level
    _heap: list[tuple[float, int, ActiveHost]] = field(default_factory=list)
    _tick: int = 0  # equals leave the heap in the order they came

    def __post_init__(self) -> None:
        self._due = [[deque() for _ in range(self.levels)] for _ in Standing]

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[ActiveHost]:
        return iter(self._hosts.values())

    def get(self, host: HostKey) -> ActiveHost | None:
        return self._hosts.get(host)

    def enter(self, active: ActiveHost) -> None:
        self._hosts[active.host] = active

    def leave(self, active: ActiveHost) -> None:
        active.gone = True
        del self._hosts[active.host]

    def wait(self, active: ActiveHost, now: float) -> None:
        """Until its rest is over, then among the due ones."""
        if active.record.rest_until <= now:
            self._add_due(active)
            return
        self._tick += 1
        heappush(self._heap, (active.record.rest_until, self._tick, active))

    def wake(self, now: float) -> None:
        """Move those whose rest is over to the due ones."""
        while self._heap and self._heap[0][0] <= now:
            _, _, active = heappop(self._heap)
            if not active.gone:
                self._add_due(active)

    def due(self, standing: Standing) -> list[int]:
        """The levels with due hosts of *standing*."""
        levels = self._due[standing]
        for hosts in levels:
            while hosts and hosts[0].gone:
                hosts.popleft()
        return [level for level, hosts in enumerate(levels) if hosts]

    def take(self, standing: Standing, level: int) -> ActiveHost | None:
        """The due host of *standing* and *level* that has waited longest."""
        hosts = self._due[standing][level]
        while hosts:
            active = hosts.popleft()
            if not active.gone:
                return active
        return None

    def next_at(self) -> float | None:
        """When the next host of the heap is due."""
        return self._heap[0][0] if self._heap else None

    def _add_due(self, active: ActiveHost) -> None:
        self._due[active.record.pace.standing][active.level].append(active)
