"""The workers of a crawl: which are alive, and their names.

Rule: each worker writes its record once a second. The reply has three numbers about all workers:
how many are alive, how many are starting, and the lowest mark that they have read.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.model.choices import ListState
from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import ALIVE_S, WorkerRecord
from crawler.shared.connection import Argument
from crawler.shared.keys import Scripts

MAX_SILENT_REPORTED: Final = 20  # silent workers that are reported at once
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerRecord).decode


class Membership:
    """Announces this worker once a second, and keeps how many are alive."""

    def __init__(
        self,
        nodes: Nodes,
        scripts: Scripts,
        name: str,
        make_record: Callable[[], WorkerRecord],
    ) -> None:
        """*name* is that of the crawl; *make_record* returns what this worker announces."""
        self._nodes = nodes
        self._scripts = scripts
        self._crawl = name
        self._key = keys.workers(name)
        self._make_record = make_record
        self._lowest_mark = -1
        self._now = 0.0  # epoch seconds by the server, at the last `announce`
        self.live = 0  # live workers, this one among them
        self.starting = 0  # live workers that have not added their seeds yet
        self.silent_count = 0  # workers that are neither alive nor have left in good order

    async def announce(self) -> bool:
        """Announce this worker, and read the numbers about the others. Returns False if the server
        cannot be asked now."""
        try:
            time = await self._nodes.checked_command(self._key, "TIME")
            self._now = int(time[0]) + int(time[1]) / 1e6
            me = replace(self._make_record(), at=self._now)
            reply = await self._nodes.checked_command(
                self._key, *announcement(self._scripts, self._crawl, me)
            )
            self.live, self.starting = int(reply[1]), int(reply[2])
            self._lowest_mark = int(float(reply[3]))
            self.silent_count = max(0, int(reply[4]) - self.live)
        except StoreUnavailable:
            return False
        return True

    async def leave(self) -> None:
        """Remove this worker from the live ones. If that fails, it expires after ALIVE_S."""
        with suppress(CrawlerError):
            await self._nodes.checked_command(
                self._key,
                *announcement(self._scripts, self._crawl, self._make_record(), leaves=True),
            )

    async def silent(self, names: Iterable[str]) -> dict[str, int]:
        """Return which of *names* are silent, and how many links each last had on its disk."""
        found = {}
        for name in islice(names, MAX_SILENT_REPORTED):
            kept = await self._nodes.checked_command(self._key, "HGET", self._key, name)
            last = _read(kept)
            if last is None or not last.is_alive(self._now):
                found[name] = last.outbox if last else 0
        return found

    async def chosen_list(self, digest: str, *, added: int = 0) -> tuple[ListState, int]:
        """Return how far the list with *digest* is, which this run fetches, and its number;
        *added*: the number under which this worker has added it. Raises StoreUnavailable."""
        state, number = await self._say_of_list(digest, *(("added", added) if added else ("asks",)))
        return ListState(state.decode()), number

    async def end_lists(self) -> None:
        """End all such lists: nothing is left to fetch. If that fails, the next run does."""
        with suppress(StoreUnavailable):
            await self._say_of_list("", "over")

    async def _say_of_list(self, digest: str, *said: Argument) -> tuple[bytes, int]:
        names, me = keys.chosen(self._crawl), self._make_record().name
        script = ("EVAL", self._scripts.text("chosen"), len(names), *names)
        state, number = await self._nodes.checked_command(
            self._key, *script, me, digest, ALIVE_S, *said
        )
        return state, number

    def all_have_read(self, mark: int) -> bool:
        """Return whether every live worker has read the opened hosts up to the mark *mark*."""
        return self.live > 0 and self._lowest_mark >= mark


def announcement(
    scripts: Scripts,
    crawl: str,
    me: WorkerRecord,
    *,
    leaves: bool = False,
    expected: bytes | None = None,
) -> tuple[Argument, ...]:
    """Return the command of the script `announce`. If the record under the name is not *expected*,
    nothing is written."""
    record = b"" if leaves else _encode(me)
    names = keys.announced(crawl)
    script = ("EVAL", scripts.text("announce"), len(names), *names)
    only_if = () if expected is None else (expected,)
    return (*script, me.name, record, me.state, me.opened_mark, ALIVE_S, *only_if)


def _read(kept: bytes | None) -> WorkerRecord | None:
    try:
        return _decode(kept or b"")
    except msgspec.MsgspecError:
        return None


ALIVE_WITHIN_S: Final = 3.0  # a live worker announces itself every second


class PeerRecord(NamedTuple):
    """The last announcement of a worker."""

    packed: bytes  # as stored in the hash; empty if there is none
    record: WorkerRecord | None  # None if *packed* cannot be decoded
    silent_s: float  # since then, by the server's clock

    @property
    def is_alive(self) -> bool:
        return self.record is not None and self.silent_s < ALIVE_S


class WorkerNames:
    """The names of the live workers of one crawl. They are unique, because each worker overwrites
    the record under its name. A name is free if it was not announced for ALIVE_S, or last by a dead
    session of the same worker; it is taken atomically. All methods raise a Fault."""

    def __init__(self, nodes: Nodes, crawl: str) -> None:
        self._nodes = nodes
        self._key = keys.workers(crawl)
        self._crawl = crawl
        self._scripts = Scripts()

    async def read(self, name: str) -> PeerRecord:
        kept = await self._nodes.checked_command(self._key, "HGET", self._key, name) or b""
        try:
            record = _decode(kept)
        except msgspec.MsgspecError:
            return PeerRecord(kept, None, 0.0)
        return PeerRecord(kept, record, await self._now() - record.at)

    async def refuse_taken(self, name: str, dead: Collection[str]) -> PeerRecord:
        """Return the record under *name*. Raises ConfigError if another live worker has it, or one
        of the *dead* sessions is alive, in a copy of our data directory."""
        peer = await self.read(name)
        if peer.record is None or not peer.is_alive:
            return peer
        if peer.record.session not in dead or await self.is_alive(name, peer.record.session):
            raise _name_taken(peer.record, peer.silent_s)
        return peer

    async def is_alive(self, name: str, session: str) -> bool:
        """Return whether *session* is alive. One that was just killed has a fresh record, so this
        waits ALIVE_WITHIN_S for the next."""
        first = await self.read(name)
        if first.record is None or not first.is_alive or first.record.session != session:
            return False
        if _is_gone(first.record):
            return False
        await asyncio.sleep(ALIVE_WITHIN_S)
        return (await self.read(name)).packed != first.packed

    async def take(self, me: WorkerRecord, last: PeerRecord) -> None:
        """Take the name of *me*, under which *last* was stored when it was found to be free. Raises
        ConfigError if another worker has taken it meanwhile."""
        now = await self._now()
        mine = replace(me, at=now)
        command = announcement(self._scripts, self._crawl, mine, expected=last.packed)
        if (await self._nodes.checked_command(self._key, *command))[0]:
            return
        await self.refuse_taken(me.name, {last.record.session} if last.record else ())

    async def leave(self, me: WorkerRecord) -> None:
        """Give back the name of *me*, taken a moment ago."""
        command = announcement(self._scripts, self._crawl, me, leaves=True)
        await self._nodes.checked_command(self._key, *command)

    async def refuse_other_signature(self, name: str, signs_as: str | None) -> None:
        """Raise ConfigError if a live worker, but that called *name*, signs its requests otherwise
        than *signs_as*: servers would see one crawl as two."""
        if signs_as is None:
            return
        now = await self._now()
        for kept in await self._nodes.checked_command(self._key, "HVALS", self._key):
            other = _read(kept)
            if other is None or other.name == name or not other.is_alive(now):
                continue
            if other.signs_as not in (None, signs_as):
                raise _signs_otherwise(other, signs_as)

    async def _now(self) -> float:
        time = await self._nodes.checked_command(self._key, "TIME")
        return int(time[0]) + int(time[1]) / 1e6


def _is_gone(worker: WorkerRecord) -> bool:
    """Return whether the process of *worker* is known to have ended; that is known only on its
    machine. Our own pid counts as ended: a container that restarts has the same one."""
    if worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return worker.pid == os.getpid()


def _name_taken(other: WorkerRecord, silent_s: float) -> ConfigError:
    return ConfigError(
        f"a worker named {other.name} takes part in this crawl already (process {other.pid} on"
        f" {other.host}, seen {max(silent_s, 0.0):.1f} s ago): give each its own"
        " CRAWLER_WORKER_NAME, or none. If that one has just died without its data directory,"
        f" try again in {ALIVE_S:.0f} s"
    )


def _signs_otherwise(other: WorkerRecord, ours: str) -> ConfigError:
    def said(signs_as: str | None) -> str:
        thumbprint, _, agent = (signs_as or "").partition(" ")
        return f"signs requests for {agent} by the key {thumbprint}" if agent else "signs none"

    return ConfigError(
        f"the worker {other.name} (process {other.pid} on {other.host}) {said(other.signs_as)}, and"
        f" this one {said(ours)}: give all workers of the crawl the same CRAWLER_SIGNING_KEY and"
        " CRAWLER_SIGNATURE_AGENT. To change them, stop all first; one that has just died counts"
        f" for {ALIVE_S:.0f} s"
    )
