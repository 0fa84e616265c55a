"""Addresses that hosts of several workers share: one worker at a time has each of them, for a
slice, in which it lets its own hosts take turns (crawler/frontier/groups.py).

Rule: nothing waits for Redis. Who has no address asks, and its hosts wait as for any other fetch
from there. A worker that does not come back keeps an address to the end of its slice, and then the
address rests as after a lost lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from xxhash import xxh3_64_intdigest

from crawler.frontier.groups import AddressUse
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS
from crawler.shared.owned.scripts import AddressCommands, Command

SLICE: Final = 0.5
"""How long a worker has an address that others want, in times of its lease of a shard: of 60 s some
twenty fetches."""
ASK_S: Final = 2.0  # between two questions of one who waits
_PATIENCE_S: Final = 3 * ASK_S  # who has not asked for so long waits no longer
_LOOK_S: Final = 0.05  # between two looks at what is to be asked: questions of so long go together
_USE_LOOK_S: Final = 0.2  # between two looks whether an address that others want is in use
_RENEW_AT: Final = 0.5  # of a slice


class UsesOfAddresses(Protocol):
    """What this worker's frontier does with addresses."""

    def use_of(self, address: str) -> AddressUse: ...

    def note_usable(self, address: str, now: float) -> None: ...


@dataclass(slots=True)
class _Address:
    until_s: float = 0.0  # steady clock: it may be used
    ask_at_s: float = 0.0
    is_contested: bool = False  # others wait for it: its slice is not renewed
    was_held: bool = False  # since it was given back


class LeasedAddresses:
    """The addresses of one worker. Implements frontier.port.AddressLeases. Bound: the addresses
    that its hosts use or wait for."""

    def __init__(
        self,
        nodes: Nodes,
        commands: AddressCommands,
        *,
        steady: Callable[[], float],
        now: Callable[[], float],
        slice_s: float,
        after_s: float,
    ) -> None:
        """*after_s*: how long after the end of a slice a fetch may be under way, or its rest last,
        that was begun in it."""
        self._nodes = nodes
        self._commands = commands
        self._steady, self._now = steady, now
        self._slice_s, self._after_s = slice_s, after_s
        self._addresses: dict[str, _Address] = {}
        self._looks: list[tuple[float, str]] = []  # a heap: when to look at each of them next
        self._has_new = asyncio.Event()

    def may_use(self, address: str) -> bool:
        known = self._addresses.get(address)
        if known is None:
            self._addresses[address] = _Address()
            heappush(self._looks, (self._steady(), address))
            self._has_new.set()
            return False
        return self._steady() < known.until_s

    def note_rest(self, address: str, rest_s: float) -> None:
        """Send a rest that is longer than the one after a process has died, before this returns."""
        known = self._addresses.get(address)
        if rest_s > self._after_s and known is not None and known.was_held:
            shard, command = self._command(address, "ask", rest_s)
            self._nodes.post_command(shard, command, lambda: None)

    async def run(self, uses: UsesOfAddresses) -> None:
        """Ask for addresses, and give them back, until this is cancelled."""
        while True:
            await self.ask(uses)
            self._has_new.clear()
            wait_s = self._looks[0][0] - self._steady() if self._looks else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_new.wait()
            await asyncio.sleep(_LOOK_S)

    async def ask(self, uses: UsesOfAddresses) -> None:
        """Ask for what is wanted now, and give back what is not, once."""
        asked_at_s = self._steady()
        looked_at: list[str] = []
        asked: list[tuple[str, str]] = []
        while self._looks and self._looks[0][0] <= asked_at_s:
            _, address = heappop(self._looks)
            known, use = self._addresses[address], uses.use_of(address)
            verb = self._next(known, use, asked_at_s)
            if verb is None and not (known.was_held or use.is_any):
                del self._addresses[address]
                continue
            looked_at.append(address)
            if verb is not None:
                asked.append((address, verb))
                known.ask_at_s = asked_at_s + ASK_S
        try:
            commands = [
                self._command(address, verb, self._rest_s(address, uses)) for address, verb in asked
            ]
            replies = await self._nodes.commands(commands) if commands else []
            for (address, _), reply in zip(asked, replies, strict=True):
                if not isinstance(reply, FAULTS):
                    self._on_reply(address, reply, asked_at_s, uses)
        finally:
            for address in looked_at:
                if (again := self._addresses.get(address)) is not None:
                    heappush(self._looks, (self._look_at_s(again, asked_at_s), address))

    def _look_at_s(self, known: _Address, now_s: float) -> float:
        """Return when to look at an address again."""
        is_held = now_s < known.until_s
        if is_held and not known.is_contested:
            return known.ask_at_s
        soon_s = now_s + _USE_LOOK_S  # whether it is in use
        return soon_s if known.was_held else max(known.ask_at_s, now_s + _LOOK_S)

    async def give_all(self, uses: UsesOfAddresses) -> None:
        """Give all addresses back: this worker leaves."""
        held = [address for address, known in self._addresses.items() if known.was_held]
        await self._nodes.commands(
            [self._command(address, "give", self._rest_s(address, uses)) for address in held]
        )
        self._addresses.clear()
        self._looks.clear()

    def _next(self, known: _Address, use: AddressUse, now_s: float) -> str | None:
        """Return what is to be sent about an address now."""
        is_held, is_due = now_s < known.until_s, now_s >= known.ask_at_s
        is_idle = not use.is_any and self._now() >= use.rest_until + self._slice_s
        if is_held and not (known.is_contested or is_idle):
            return "ask" if is_due else None
        if use.is_fetched_from:
            return None  # when that is over, it is given back
        if known.was_held and not (is_held and use.is_waited_for):
            return "give"
        if not is_held and use.is_waited_for and is_due:
            return "ask"
        return None

    def _rest_s(self, address: str, uses: UsesOfAddresses) -> float:
        """Return for how long *address* rests yet."""
        return max(0.0, uses.use_of(address).rest_until - self._now())

    def _command(self, address: str, verb: str, rest_s: float) -> tuple[int, Command]:
        known = self._addresses.get(address, _Address())
        held_s = max(0.0, known.until_s - self._steady()) if verb == "ask" else 0.0
        shard = xxh3_64_intdigest(address.encode()) % self._nodes.shards
        times = (self._slice_s, self._after_s, held_s, rest_s, _PATIENCE_S)
        return shard, self._commands.lease_address(shard, address, verb, times)

    def _on_reply(self, address: str, reply: Any, asked_at_s: float, uses: UsesOfAddresses) -> None:
        known = self._addresses.get(address)
        if known is None:
            return
        match reply:
            case [b"held", for_ms, is_contested]:
                known.until_s = asked_at_s + for_ms / 1000
                known.is_contested = bool(is_contested)
                known.ask_at_s = asked_at_s + _RENEW_AT * self._slice_s
                known.was_held = True
                uses.note_usable(address, self._now())
            case [b"busy", for_ms]:
                known.until_s = 0.0
                known.ask_at_s = asked_at_s + min(max(for_ms / 1000, _LOOK_S), ASK_S)
            case [b"given"]:
                known.until_s, known.was_held, known.is_contested = 0.0, False, False
                known.ask_at_s = asked_at_s + _LOOK_S
                if not uses.use_of(address).is_waited_for:
                    del self._addresses[address]
