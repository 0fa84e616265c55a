"""Sends what workers share beside the frontier: claims on contents, fingerprints of pages.

Rule: nothing waits for it. A call is sent until it is acknowledged, and once more if its server has
restarted within KEPT_S: a server may lose its last second.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from crawler.model.types import CrawlerError
from crawler.shared.client import Call, Nodes
from crawler.shared.faults import FAULTS, OutOfMemory, Unreachable
from crawler.shared.owned.inbox import KEPT_S

SHARD_RETRY_S: Final = 2.0  # the interval of attempts at a shard that does not answer
MAX_KEPT_CALLS: Final = {"claim_content": 500, "near": 50}
"""Calls kept for a shard: mostly 0.6 MB of claims, and as much of fingerprints."""
UNSENT_KEY: Final = "untold/"
GATHER_S: Final = 0.05  # items cost less in larger calls
RETRY_S: Final = 0.5


class SideQueue:
    """Calls that wait to be sent. If a server is down for long, the oldest are dropped: at worst a
    page is stored twice, or a near duplicate is missed.

    Bound: MAX_KEPT_CALLS of each kind for a shard."""

    def __init__(self, count: Callable[[str], None]) -> None:
        """*count* adds one to the counter of a kind of dropped calls."""
        self._count = count
        self._calls: defaultdict[int, list[Call]] = defaultdict(list)  # by shard
        self._try_at: dict[int, float] = {}  # monotonic, for shards that did not answer
        self.wake = asyncio.Event()  # set if there is something to send

    def __bool__(self) -> bool:
        return bool(self._calls)

    def send_later(self, call: Call) -> None:
        """Send *call* some time soon, and again until it is acknowledged."""
        self.put(call)
        self.wake.set()

    @property
    def is_waiting_for_retry(self) -> bool:
        """Whether calls wait for a shard that does not answer."""
        return any(shard in self._try_at for shard in self._calls)

    def put(self, call: Call) -> None:
        calls = self._calls[call.shard]
        calls.append(call)
        alike = [at for at, each in enumerate(calls) if each.script == call.script]
        if len(alike) > MAX_KEPT_CALLS.get(call.script, len(alike)):
            del calls[alike[0]]
            self._count(UNSENT_KEY + call.script)

    def take(self, steady: float) -> list[Call]:
        """Remove and return the calls to be sent now."""
        due = [shard for shard in self._calls if self._try_at.get(shard, 0.0) <= steady]
        for shard in due:
            self._try_at.pop(shard, None)
        return [call for shard in due for call in self._calls.pop(shard)]

    def put_back(self, unsent: Sequence[Call], steady: float) -> None:
        """Put back calls that were not acknowledged, before newer ones."""
        shards = {call.shard for call in unsent}
        newer = [self._calls.pop(shard) for shard in shards if shard in self._calls]
        for call in [*unsent, *(call for calls in newer for call in calls)]:
            self.put(call)
        self._try_at.update(dict.fromkeys(shards, steady + SHARD_RETRY_S))

    def on_answer(self, shard: int) -> None:
        self._try_at.pop(shard, None)


class _Acked(NamedTuple):
    call: Call
    server: str
    at_s: float


class SideSender:
    """Sends the calls of a queue in pipelines, from one task."""

    def __init__(
        self,
        nodes: Nodes,
        queue: SideQueue,
        now_s: Callable[[], float],
        on_failed: Callable[[CrawlerError], None],
    ) -> None:
        """*now_s*: the steady clock. *on_failed* is called with an error that waiting does not
        repair."""
        self._nodes = nodes
        self._queue = queue
        self._now_s = now_s
        self._on_failed = on_failed
        self._runs: dict[str, bytes] = {}  # of the servers, as they answered last
        self._kept: deque[_Acked] = deque()
        self._is_sending = False

    def is_idle(self) -> bool:
        return not (self._queue or self._is_sending)

    async def run(self) -> None:
        """Send what is gathered, until this is cancelled."""
        while True:
            await self._queue.wake.wait()
            self._queue.wake.clear()
            await asyncio.sleep(GATHER_S)
            if not await self.send():
                await asyncio.sleep(RETRY_S)
                self._queue.wake.set()

    async def send(self) -> bool:
        """Send all that waits, once. Return False if some of it must be sent again later."""
        self._is_sending = True
        try:
            calls = self._queue.take(self._now_s())
            replies = await self._nodes.run(calls)
        finally:
            self._is_sending = False
        now_s = self._now_s()
        unsent = []
        for call, reply in zip(calls, replies, strict=True):
            if not isinstance(reply, FAULTS):
                self._note_acked(call, reply[0], now_s)
                continue
            unsent.append(call)
            if not isinstance(reply, OutOfMemory | Unreachable):
                self._on_failed(reply)
        while self._kept and self._kept[0].at_s < now_s - KEPT_S:
            self._kept.popleft()
        self._queue.put_back(unsent, now_s)
        return not (unsent or self._queue.is_waiting_for_retry)

    def _note_acked(self, call: Call, run: bytes, now_s: float) -> None:
        server = self._nodes.node_of(call.shard)
        self._queue.on_answer(call.shard)
        if self._runs.setdefault(server, run) != run:
            self._runs[server] = run
            kept, self._kept = self._kept, deque()
            for each in kept:
                if each.server == server:
                    self._queue.send_later(each.call)
                else:
                    self._kept.append(each)
        self._kept.append(_Acked(call, server, now_s))
