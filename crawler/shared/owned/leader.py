"""The plan in Redis, which one worker makes and all follow, and who may begin a shard.

Who decides: one worker, the leader, has a lease of the plan, renewed at each step, and writes a
plan that all read. If each worker made a plan of what it reads itself, two that read at different
moments would have two plans: a shard would be released to a worker that does not want it, and
moved again within its stay. A leader costs one small script a worker and second, and reading all
shards only once. What may go wrong with it:

- It dies or stands still: after its lease of LEAD_S another one leads, and goes on with the plan.
- It goes on after that, or two lead after a failover: a plan is written only under the token of the
  lead that Redis has, and only as the next one of the plan that it was made from.
- Redis lost its last second: the plan is an older one, and the leader makes the next one of that.
- Redis lost everything: the plan is made of who has the shards now, so none is moved.
- Clocks jump: no time of one machine is compared with that of another, plans have ages. Only the
  lease of the lead is by the server's clock, and there a jump makes at worst another leader.
- The server of the plan is down, while those of shards are up: after LATE_S each worker claims what
  is free by itself (`ShardHolder`), so a crawl does not stand still for want of a plan.

Whatever a plan says, the claim of a shard is the fence: it is refused while another owner's lease
runs, and what was written under it is not written once more under another one.

Who may begin a shard that is not in Redis: the worker that the plan names, as long as the format of
the crawl has `begun` false. The leader sets it when all shards are there, and nobody takes it back.
A server that came back empty has lost the format too, perhaps; then each worker that knows that the
crawl was begun writes it again within a second, also over that of a newcomer, which took the server
for a new one: so a leader that knows of no such worker makes its first plan after BEGIN_WAIT_S.
Until then the owners of the shards have claimed them and fill them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from crawler.model.types import StoreUnavailable
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.connection import Argument
from crawler.shared.crawl_format import CrawlFormat, encode_format, read_format
from crawler.shared.faults import ForeignData, OutOfMemory
from crawler.shared.owned.plan import BALANCED_EVERY_S, Planner, ShardPlan, ShardUse
from crawler.shared.owned.readings import new_token, read_uses
from crawler.shared.owned.scripts import OwnedScripts

STEP_S: Final = 1.0  # from one step of a worker to the next
LEAD_S: Final = 5.0
LATE_S: Final = 20.0
BEGIN_WAIT_S: Final = 3 * STEP_S
MISSING_S: Final = 60.0
"""If a shard of a begun crawl is not there for so long, nobody has it: its owner fills an empty
server again within its lease, or never."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ShardPlan).decode


class CrawlBegin:
    """Whether the shards of a crawl are being begun, or were there before."""

    def __init__(
        self, nodes: Nodes, crawl: CrawlFormat, now_s: Callable[[], float], wait_s: float
    ) -> None:
        """*crawl*: the format with which this worker has joined, or which it has written. *wait_s*:
        BEGIN_WAIT_S, or 0 for a server that was started for this crawl."""
        self.is_begun = crawl.begun  # as far as we know
        self._nodes = nodes
        self._key = keys.format_key(nodes.name)
        self._crawl = crawl
        self._now_s = now_s
        self._wait_s = wait_s
        self._since_s = inf  # since when the format says that they are being begun

    async def check(self) -> None:
        """Read the format, and write it again, if a server has lost it. Raises ForeignData if this
        name has another crawl by now, or a Fault."""
        kept = await self._ask("GET", self._key)
        stored = None if kept is None else read_format(kept, self._key)
        if stored is not None and replace(stored, begun=self._crawl.begun) != self._crawl:
            if stored.begun or not self.is_begun:
                raise ForeignData(
                    f"{self._key} in Redis has another crawl by now, which was begun after this"
                    " worker joined: start the worker again to take part in that"
                )
            await self.note_begun()  # a newcomer took our server, which came back empty, for new
        elif stored is None:
            self._since_s = inf
            await self._ask("SET", self._key, self._packed(self.is_begun), "NX")
        elif stored.begun:
            self.is_begun = True
        elif self.is_begun:
            await self.note_begun()
        else:
            self._since_s = min(self._since_s, self._now_s())

    def may_begin(self) -> bool:
        """Return whether shards that are not there may be begun, as far as this worker knows by its
        last `check`."""
        return not self.is_begun and self._now_s() - self._since_s >= self._wait_s

    async def note_begun(self) -> None:
        await self._ask("SET", self._key, self._packed(True))
        self.is_begun = True

    def _packed(self, begun: bool) -> bytes:
        return encode_format(replace(self._crawl, begun=begun))

    async def _ask(self, *command: Argument) -> Any:
        return await self._nodes.checked_command(self._key, *command)


class PlanLeader:
    """Reads the plan, and makes the next one while this worker leads."""

    def __init__(
        self,
        nodes: Nodes,
        scripts: OwnedScripts,
        crawl: CrawlFormat,
        worker: str,
        now_s: Callable[[], float],
        begin_wait_s: float = BEGIN_WAIT_S,
    ) -> None:
        """*now_s*: the steady clock."""
        self.plan = ShardPlan()  # as last read
        self._begin = CrawlBegin(nodes, crawl, now_s, begin_wait_s)
        self._nodes = nodes
        self._script = scripts.text("plan")
        self._key = plan_key(nodes.name)
        self._shards = crawl.shards
        self._token = new_token(worker)
        self._now_s = now_s
        self._planner: Planner | None = None  # while this worker leads
        self._number = 0  # of the plan that it goes on with
        self._written_at_s = -inf
        self._read_at_s = now_s()
        self._missing_since_s: dict[int, float] = {}
        # A lead that is given up while a step waits for a reply would be taken again by its end.
        self._stepping = asyncio.Lock()

    @property
    def leads(self) -> bool:
        return self._planner is not None

    def is_late(self) -> bool:
        """Return whether no plan could be read for long."""
        return self._now_s() - self._read_at_s >= LATE_S

    def may_begin_shards(self) -> bool:
        """Return whether a shard that is not there may be begun by whom the plan names."""
        return self._begin.may_begin()

    async def step(self) -> None:
        """Read the plan, and make the next one if no other worker does. Raises a Fault that waiting
        does not repair."""
        async with self._stepping:
            try:
                await self._begin.check()
                if await self._read_plan():
                    await self._lead()
            except StoreUnavailable:
                self._planner = None

    async def leave(self) -> None:
        """Leave the lead to another worker, if this one has it, after a step that is under way."""
        async with self._stepping:
            if self.leads:
                self._planner = None
                await self._nodes.command(self._key, *self._command(b"", lead_s=0.0))

    async def _read_plan(self) -> bool:
        """Return whether this worker leads."""
        leads, number, stored = await self._ask(b"")
        now_s = self._now_s()
        try:
            self.plan = _decode(stored) if stored else ShardPlan()
        except msgspec.MsgspecError:
            self.plan = ShardPlan()
        if not leads:
            self._planner = None
        elif self._planner is None or number != self._number:
            self._planner, self._number = Planner(self._shards, self.plan, now_s), number
            self._written_at_s = -inf
        self._read_at_s = now_s
        return bool(leads)

    async def _lead(self) -> None:
        uses = await read_uses(self._nodes, self._nodes.name, self._shards)
        alive = keys.announced(self._nodes.name)[1]
        found = await self._nodes.checked_command(alive, "ZRANGE", alive, 0, -1)
        if not self._begin.is_begun:
            if all(use is not None and use.is_there for use in uses):
                with suppress(OutOfMemory):  # it is noted when there is room
                    await self._begin.note_begun()
            elif not self._begin.may_begin():
                return
        self._refuse_missing(uses)
        assert self._planner is not None, "it leads until this step ends"
        now_s = self._now_s()
        workers = frozenset(each.decode("utf-8", "replace") for each in found)
        plan = self._planner.plan(workers, uses, now_s)
        # Ages are as old as the plan is, for the next leader.
        is_old = now_s - self._written_at_s >= BALANCED_EVERY_S
        if not is_old and plan.by_shard() == self.plan.by_shard():
            return
        leads, number, _ = await self._ask(_encode(plan))
        if not leads or number != self._number + 1:
            self._planner = None  # another one leads, or the server has lost a plan
            return
        self.plan, self._number, self._written_at_s = plan, number, now_s

    def _refuse_missing(self, uses: Sequence[ShardUse | None]) -> None:
        """Raise ForeignData if a shard of a begun crawl is lost for good."""
        now_s = self._now_s()
        missing = [at for at, use in enumerate(uses) if use is not None and not use.is_there]
        self._missing_since_s = {
            at: self._missing_since_s.get(at, now_s) for at in missing if self._begin.is_begun
        }
        for at, since_s in self._missing_since_s.items():
            if now_s - since_s >= MISSING_S:
                raise ForeignData(
                    f"Redis has lost the crawl: {keys.root(self._nodes.name, at)} is not there any"
                    " more, and no worker has it. Put the server's data back, or begin another"
                    " crawl"
                )

    async def _ask(self, plan: bytes) -> Any:
        return await self._nodes.checked_command(self._key, *self._command(plan))

    def _command(self, plan: bytes, lead_s: float = LEAD_S) -> tuple[Argument, ...]:
        head = ("EVAL", self._script, 1, self._key, self._token)
        return (*head, round(lead_s * 1000), self._number, plan)


def plan_key(name: str) -> str:
    """A hash: leader (the token of the worker that plans), until (the end of its lease, ms), number
    of the plan, and the plan."""
    return f"{name}:plan"
