"""One server of a shared frontier: its connection, and what is asked over it.

Rule: a connection belongs to one run of the server, and what is asked of its shards is asked
where they are open. Only what was answered NOSCRIPT is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import FAULTS, Fault, Unreachable, fault_of, is_word
from crawler.storage.redis.connection.greeting import Greeting, connect
from crawler.storage.redis.connection.opening import Opening
from crawler.storage.redis.connection.wire import Wire, pack

PIPELINE: Final = 64
"""Commands that go out together: with 50 URLs each some 30 ms of a server."""
OPENINGS: Final = 3  # in one run of ours: a server that forgets faster serves nobody
PATIENCE_S: Final = 0.25
"""How long calls wait for a connection that is made again: longer than a round trip across an
ocean, and short for calls of other servers that go out together with them. Once a connection has
failed only after longer than that, no call waits for the next: it is made in the background."""

MOMENT_S: Final = 0.005  # enough where a connection is refused at once


class Node:
    """Connects when it is first asked, and again whenever it is asked after that broke."""

    def __init__(self, address: Address, opening: Opening) -> None:
        self.name = str(address)
        self.host = address.host
        self.opening = opening
        self.greeting = Greeting(run_id="", is_cluster=False)  # of its last connection
        self._address = address
        self._wire: Wire | None = None
        self._fault: Fault = Unreachable(f"Redis at {self.name} is not connected yet")
        self._connecting: asyncio.Task[None] | None = None
        self._hangs = False  # it did not answer in time when it was last connected to
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._wire is not None and self._wire.broken is None

    async def connected(self, patience_s: float | None = PATIENCE_S) -> Wire | Fault:
        """*patience_s* None: as long as the address allows."""
        if not self.is_connected and not self._is_closed:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            await asyncio.wait(
                {self._connecting}, timeout=MOMENT_S if patience_s and self._hangs else patience_s
            )
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
        times_lost = self.opening.times_lost
        replies = await self._run_on(wire, shards, packed)
        again = [at for at, reply in enumerate(replies) if is_word(reply, "NOSCRIPT")]
        if again and tries > 1:
            if times_lost == self.opening.times_lost:  # else somebody saw that before us
                self.opening.lost()
            await self._run_again(again, replies, shards, packed, tries - 1)
        return replies

    async def open(self) -> list[Fault]:
        """All shards that it serves. Returns what is in the way."""
        wire = await self.connected(patience_s=None)
        if not isinstance(wire, Wire):
            return [wire]
        served = self.opening.served
        answers = await self.opening.open(wire, self.greeting.run_id, served)
        # What has moved meanwhile is opened where it is, before its first call.
        errors = [error for error in answers.values() if not is_word(error, "MOVED")]
        return [fault_of(error, self.name) for error in errors]

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._wire is not None:
            await self._wire.close()

    async def _connect(self) -> None:
        begun_s = asyncio.get_running_loop().time()
        try:
            wire, greeting = await connect(self._address)
        except FAULTS as fault:
            self._fault, self._wire = fault, None
            self._hangs = asyncio.get_running_loop().time() - begun_s > PATIENCE_S
        else:
            if greeting.run_id != self.greeting.run_id:
                self.opening.lost()
            self._wire, self.greeting = wire, greeting
            self._hangs = False
        finally:
            self._connecting = None

    async def _run_on(
        self, wire: Wire, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        closed = await self.opening.open(wire, self.greeting.run_id, shards)
        if not closed:
            return await _in_pipelines(wire, packed)
        replies = [closed.get(shard) for shard in shards]
        fine = [at for at, shard in enumerate(shards) if shard not in closed]
        put(replies, fine, await _in_pipelines(wire, [packed[at] for at in fine]))
        return replies

    async def _run_again(
        self,
        again: Sequence[int],
        replies: list[Any],
        shards: Sequence[int],
        packed: Sequence[bytes],
        tries: int,
    ) -> None:
        rest = [shards[at] for at in again], [packed[at] for at in again]
        put(replies, again, await self.run(*rest, tries))


def put(replies: list[Any], at: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in zip(at, values, strict=True):
        replies[place] = value


async def _in_pipelines(wire: Wire, packed: Sequence[bytes]) -> list[Any]:
    replies: list[Any] = []
    for begin in range(0, len(packed), PIPELINE):
        replies += await wire.ask(packed[begin : begin + PIPELINE])
    return replies
