"""One server of the shared frontier: its connection, and which shards are open there.

Rule: no script runs on a shard before the run of its server is known there. A connection
belongs to one run, and before our first script on a shard its `open` is asked under that run. A
server that does not know a script was emptied: all that it serves is opened again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from crawler.storage.redis.address import Address
from crawler.storage.redis.calls import Argument
from crawler.storage.redis.faults import ERRORS, FAULTS, Fault, Unreachable, fault_of, is_word
from crawler.storage.redis.greeting import Greeting, connect
from crawler.storage.redis.wire import Wire, pack

PIPELINE: Final = 64
"""Commands that go out together: with 50 URLs each some 30 ms of a server."""
OPENINGS: Final = 3  # in one run of ours: a server that forgets faster serves nobody
PATIENCE_S: Final = 0.25
"""How long calls wait for a connection that is made again: longer than a round trip across an
ocean, and short for calls of other servers that go out together with them."""


class ScriptTexts(Protocol):
    """The operations, one of which is `open`."""

    def names(self) -> tuple[str, ...]: ...

    def text(self, name: str) -> str: ...

    def sha(self, name: str) -> str: ...


class Node:
    """Connects when it is first asked, and again whenever it is asked after that broke."""

    def __init__(
        self,
        address: Address,
        scripts: ScriptTexts,
        root: Callable[[int], str],
        opening: tuple[Argument, ...],
    ) -> None:
        self.name = str(address)
        self.host = address.host
        self.greeting: Greeting | None = None  # of its last connection
        self.served: frozenset[int] = frozenset()
        self._address = address
        self._scripts = scripts
        self._root = root
        self._opening = opening
        self._wire: Wire | None = None
        self._fault: Fault = Unreachable(f"Redis at {self.name} is not connected yet")
        self._connecting: asyncio.Task[None] | None = None
        self._open: frozenset[int] = frozenset()
        self._times_emptied = 0
        self._lock = asyncio.Lock()

    @property
    def is_connected(self) -> bool:
        return self._wire is not None and self._wire.broken is None

    def serve(self, shards: Iterable[int]) -> None:
        """A shard that leaves is opened again when it comes back: it may have been elsewhere."""
        self.served = frozenset(shards)
        self._open &= self.served

    async def connected(self, patience_s: float | None = PATIENCE_S) -> Wire | Fault:
        """*patience_s* None: as long as the address allows."""
        if self._wire is None or self._wire.broken is not None:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            await asyncio.wait({self._connecting}, timeout=patience_s)
        if self._wire is None:
            return self._fault
        return self._wire.broken or self._wire

    async def ask(self, *command: Argument) -> Any:
        """A command that is no script: its reply, a hiredis.ReplyError, or a Fault."""
        wire = await self.connected()
        if not isinstance(wire, Wire):
            return wire
        return (await wire.ask([pack(command)]))[0]

    async def run(
        self, shards: Sequence[int], packed: Sequence[bytes], tries: int = OPENINGS
    ) -> list[Any]:
        """What each of the *packed* commands, of its shard, was answered: as in `ask`."""
        wire = await self.connected()
        if not isinstance(wire, Wire):
            return [wire] * len(packed)
        times_emptied = self._times_emptied
        replies = await self._run_on(wire, shards, packed)
        again = [at for at, reply in enumerate(replies) if is_word(reply, "NOSCRIPT")]
        if again and tries > 1:
            if times_emptied == self._times_emptied:  # else somebody found that before us
                self._emptied()
            rest = [shards[at] for at in again], [packed[at] for at in again]
            put(replies, again, await self.run(*rest, tries - 1))
        return replies

    async def open(self, wire: Wire, shards: Iterable[int]) -> dict[int, Any]:
        """So that scripts may run on *shards*. Returns what was answered where they may not."""
        if self._open.issuperset(shards):
            return {}
        async with self._lock:
            missing = sorted(self.served.union(shards) - self._open)
            if not missing or wire.broken is not None:
                return dict.fromkeys(missing, wire.broken)
            times_emptied = self._times_emptied
            answers = await self._ask_open(wire, missing)
            # Of an ended run, or of one that was emptied meanwhile, it means nothing any more.
            if wire.broken is None and times_emptied == self._times_emptied:
                self._open |= {shard for shard, error in answers.items() if error is None}
            return {shard: error for shard, error in answers.items() if error is not None}

    async def open_all(self) -> list[Fault]:
        """All that it serves. Returns what was in the way."""
        wire = await self.connected(patience_s=None)
        if not isinstance(wire, Wire):
            return [wire]
        answers = await self.open(wire, self.served)
        # What has moved meanwhile is opened where it is, before its first call.
        errors = [error for error in answers.values() if not is_word(error, "MOVED")]
        return [fault_of(error, self.name) for error in errors]

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._wire is not None:
            await self._wire.close()

    async def _connect(self) -> None:
        try:
            wire, greeting = await connect(self._address)
        except FAULTS as fault:
            self._fault, self._wire = fault, None
        else:
            if self.greeting is None or self.greeting.run_id != greeting.run_id:
                self._emptied()
            self._wire, self.greeting = wire, greeting
        finally:
            self._connecting = None

    def _emptied(self) -> None:
        self._open = frozenset()
        self._times_emptied += 1

    async def _run_on(
        self, wire: Wire, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        closed = await self.open(wire, shards)
        if not closed:
            return await _in_pipelines(wire, packed)
        replies = [closed.get(shard) for shard in shards]
        fine = [at for at, shard in enumerate(shards) if shard not in closed]
        put(replies, fine, await _in_pipelines(wire, [packed[at] for at in fine]))
        return replies

    async def _ask_open(self, wire: Wire, shards: Sequence[int]) -> dict[int, Any]:
        """By shard: None, or the error. The other scripts are loaded behind it: who still gets
        NOSCRIPT for one of them finds every shard of his opened when he gets through."""
        assert self.greeting is not None
        sha, arguments = self._scripts.sha("open"), (self.greeting.run_id, *self._opening)
        first, *others = sorted(self._scripts.names(), key=lambda name: name != "open")
        load = [("SCRIPT", "LOAD", self._scripts.text(name)) for name in (first, *others)]
        opens = [("EVALSHA", sha, 1, self._root(shard), *arguments) for shard in shards]
        commands = [load[0], *opens, *load[1:]]
        replies = await wire.ask([pack(command) for command in commands])
        errors = [reply if isinstance(reply, ERRORS) else None for reply in replies]
        loading = next(filter(None, (errors[0], *errors[1 + len(shards) :])), None)
        return {shard: loading or error for shard, error in zip(shards, errors[1:], strict=False)}


def put(replies: list[Any], at: Iterable[int], values: Iterable[Any]) -> None:
    for place, value in zip(at, values, strict=True):
        replies[place] = value


async def _in_pipelines(wire: Wire, packed: Sequence[bytes]) -> list[Any]:
    replies: list[Any] = []
    for begin in range(0, len(packed), PIPELINE):
        replies += await wire.ask(packed[begin : begin + PIPELINE])
    return replies
