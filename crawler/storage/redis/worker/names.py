"""Under which name a worker takes part: two that live never have one, for each would hide what the
other says, the links on its disk among it.

Rule: a name is free when nobody was heard of under it for ALIVE_S, or only the last life of who
asks; it is taken in one step, so that of two who begin at once one is refused.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from crawler.core.errors import ConfigError
from crawler.storage.redis import keys
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.scripts import Scripts
from crawler.storage.redis.worker.membership import ALIVE_S, announcement
from crawler.storage.redis.worker_record import WorkerSaid

SPEAKS_S: Final = 3.0  # who lives says so every second
_decode = msgspec.json.Decoder(WorkerSaid).decode


class Nodes(Protocol):
    async def command(self, key: str, *args: Any) -> Any: ...


class Heard(NamedTuple):
    kept: bytes  # as it stands in the hash; empty: nothing
    said: WorkerSaid | None  # None: nothing that we understand
    silent_s: float  # by the server's clock

    @property
    def is_alive(self) -> bool:
        return self.said is not None and self.silent_s < ALIVE_S


class Names:
    """Of one crawl. Raises a Fault: the server cannot be asked."""

    def __init__(self, nodes: Nodes, crawl: str) -> None:
        self._nodes = nodes
        self._key = keys.workers(crawl)
        self._crawl = crawl
        self._scripts = Scripts()

    async def heard(self, name: str) -> Heard:
        kept = await self._ask("HGET", self._key, name) or b""
        try:
            said = _decode(kept)
        except msgspec.MsgspecError:
            return Heard(kept, None, 0.0)
        return Heard(kept, said, await self._now() - said.at)

    async def refuse_taken(self, name: str, dead: Collection[str]) -> Heard:
        """Raises ConfigError: a worker of another session than the *dead* lives under it, or one of
        those does, in a copy of our data directory."""
        heard = await self.heard(name)
        if heard.said is None or not heard.is_alive:
            return heard
        if heard.said.session not in dead or await self.speaks(name, heard.said.session):
            raise _taken(heard.said, heard.silent_s)
        return heard

    async def speaks(self, name: str, session: str) -> bool:
        """Whether *session* lives. One that was just killed looks alive, so it is waited for."""
        first = await self.heard(name)
        if first.said is None or not first.is_alive or first.said.session != session:
            return False
        if _is_gone(first.said):
            return False
        await asyncio.sleep(SPEAKS_S)
        return (await self.heard(name)).kept != first.kept

    async def take(self, me: WorkerSaid, heard: Heard) -> None:
        """*heard*: what stood under the name when it was found to be free. Raises ConfigError:
        somebody else has come meanwhile."""
        now = await self._now()
        said = replace(me, at=now)
        command = announcement(self._scripts, self._crawl, said, expected=heard.kept)
        if (await self._ask(*command))[0]:
            return
        await self.refuse_taken(me.name, {heard.said.session} if heard.said else ())

    async def _now(self) -> float:
        told = await self._ask("TIME")
        return int(told[0]) + int(told[1]) / 1e6

    async def _ask(self, *command: Any) -> Any:
        reply = await self._nodes.command(self._key, *command)
        if isinstance(reply, FAULTS):
            raise reply
        return reply


def _is_gone(worker: WorkerSaid) -> bool:
    """Known only of this machine. A container that starts again has its number again."""
    if worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return worker.pid == os.getpid()


def _taken(other: WorkerSaid, silent_s: float) -> ConfigError:
    return ConfigError(
        f"a worker named {other.name} takes part in this crawl already (process {other.pid} on"
        f" {other.host}, heard of {max(silent_s, 0.0):.1f} s ago): give each its own"
        " CRAWLER_WORKER_NAME, or none. If that one has just died without its data directory,"
        f" try again in {ALIVE_S:.0f} s"
    )
