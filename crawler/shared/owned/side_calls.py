"""Sends what workers share beside the frontier: claims on contents, fingerprints of pages.

Rule: nothing waits for it. A call is sent until it is acknowledged, and once more if its server has
restarted within KEPT_S: a server may lose its last second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from crawler.model.types import CrawlerError
from crawler.shared.client import Call, Nodes
from crawler.shared.faults import FAULTS, OutOfMemory, Unreachable
from crawler.shared.owned.inbox import KEPT_S
from crawler.shared.worker.outgoing import GATHER_S, RETRY_S, SideQueue


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
