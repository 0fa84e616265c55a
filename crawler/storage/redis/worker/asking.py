"""Questions that leases wait for: a server that is slow must not hold up those of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import Unreachable
from crawler.storage.redis.worker.batcher import Run

ASK_S: Final = 1.0  # guess: leases of other servers wait for it too


async def replies_in_time(run: Run, calls: Sequence[Call], about: str) -> list[Any]:
    """For each call its reply or a Fault. *about*: what is asked for, for the fault's text."""
    if not calls:
        return []
    try:
        async with asyncio.timeout(ASK_S):
            return await run(calls)
    except TimeoutError:
        return [Unreachable(f"Redis took too long to tell of {about}")] * len(calls)
