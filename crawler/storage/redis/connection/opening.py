"""Which shards of a server are open: told of the run that it is in, before any other script.

Rule: no script runs on a shard before its `open` has told it the run of its server. The scripts
of a server that does not know one were lost, with who knows what else: all is opened again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.faults import ERRORS
from crawler.storage.redis.connection.wire import Wire, pack


class ScriptTexts(Protocol):
    """The operations, one of which is `open`."""

    def names(self) -> tuple[str, ...]: ...

    def text(self, name: str) -> str: ...

    def sha(self, name: str) -> str: ...


class Opening:
    """Of one server. `None` in an answer: the shard is open."""

    def __init__(
        self, scripts: ScriptTexts, root: Callable[[int], str], told: tuple[Argument, ...]
    ) -> None:
        """*told*: what `open` is told behind the run; then how long we know the shard, in s."""
        self.served: frozenset[int] = frozenset()
        self.times_lost = 0
        self._scripts = scripts
        self._root = root
        self._told = told
        self._open: frozenset[int] = frozenset()
        self._known_since: dict[int, float] = {}  # by the clock of the loop
        self._lock = asyncio.Lock()

    def serve(self, shards: Iterable[int]) -> None:
        """A shard that leaves is opened again when it comes back: it was elsewhere."""
        self.served = frozenset(shards)
        self._open &= self.served

    def lost(self) -> None:
        self._open = frozenset()
        self.times_lost += 1

    async def open(self, wire: Wire, run_id: str, shards: Iterable[int]) -> dict[int, Any]:
        """*run_id*: of the server at the end of *wire*. Returns what was answered by those of
        *shards* that cannot be opened. O(shards) if all are open."""
        if self._open.issuperset(shards):
            return {}
        async with self._lock:
            missing = sorted(self.served.union(shards) - self._open)
            times_lost = self.times_lost
            answers = await self._ask(wire, run_id, missing) if missing else {}
            # After the run has ended, or all was lost once more, it means nothing any more.
            if wire.broken is None and times_lost == self.times_lost:
                self._opened(shard for shard, error in answers.items() if error is None)
        return {shard: error for shard, error in answers.items() if error is not None}

    def _opened(self, shards: Iterable[int]) -> None:
        now_s = asyncio.get_running_loop().time()
        for shard in shards:
            self._known_since.setdefault(shard, now_s)
            self._open |= {shard}

    async def _ask(self, wire: Wire, run_id: str, shards: Sequence[int]) -> dict[int, Any]:
        """The other scripts are loaded behind `open`: who does not get NOSCRIPT for them finds
        the run known everywhere."""
        first, *others = sorted(self._scripts.names(), key=lambda name: name != "open")
        loads = [pack(("SCRIPT", "LOAD", self._scripts.text(name))) for name in (first, *others)]
        opens = [self._packed_open(run_id, shard) for shard in shards]
        replies = await wire.ask([loads[0], *opens, *loads[1:]])
        errors = [reply if isinstance(reply, ERRORS) else None for reply in replies]
        opened, loaded = errors[1 : len(shards) + 1], (errors[0], *errors[len(shards) + 1 :])
        unloaded = next((error for error in loaded if error is not None), None)
        return {shard: unloaded or error for shard, error in zip(shards, opened, strict=True)}

    def _packed_open(self, run_id: str, shard: int) -> bytes:
        now_s = asyncio.get_running_loop().time()
        known_s = now_s - self._known_since.get(shard, now_s)
        asked = ("EVALSHA", self._scripts.sha("open"), 1, self._root(shard), run_id)
        return pack((*asked, *self._told, known_s))
