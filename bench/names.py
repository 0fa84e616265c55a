"""`python -m bench.names`: what a name costs the crawler, and how many are looked up at once.

Rule: prints each figure beside its bar, and ends with 1 where one is missed. The name server is a
process of its own, and takes 50 ms for an answer. Processor time is all of this process, with the
thread of c-ares. Each page is of another host than the one before.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections import deque
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.figures import Figures
from bench.slots import Ours, url
from crawler.download.resolver import (
    AHEAD_S,
    CACHE_SIZE,
    LOOK_S,
    MAX_TTL_S,
    PREFETCHES,
    AresLookup,
    NamePrefetch,
    Resolver,
)
from crawler.model.page import ResolvedName
from crawler.model.types import Lease, Pace, Rest, Standing

NAMES: Final = 10_000
ANSWER_S: Final = 0.05
MOST_LOOKUP_MS: Final = 0.5
MOST_HIT_US: Final = 5.0
MOST_AHEAD_US: Final = 10.0  # of a page, which takes 600 to 900
_IPV4: Final = b"\0\1"
_RECORD: Final = b"\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4\xc0\0\2\1"  # 192.0.2.1, for 300 s


def serve(to: Connection) -> None:
    """Answer each query after ANSWER_S, until killed."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    server.bind(("127.0.0.1", 0))
    to.send(server.getsockname()[1])
    waiting: deque[tuple[float, bytes, Any]] = deque()
    while True:
        wait_s = waiting[0][0] - time.monotonic() if waiting else 1.0
        server.settimeout(max(wait_s, 0.0005))
        try:
            query, client = server.recvfrom(4096)
        except TimeoutError:
            pass
        else:
            end = query.index(b"\0", 12) + 5
            record = _RECORD if query[end - 4 : end - 2] == _IPV4 else b""
            head = query[:2] + b"\x81\x80\0\1\0" + bytes([bool(record)]) + b"\0\0\0\0"
            waiting.append((time.monotonic() + ANSWER_S, head + query[12:end] + record, client))
        while waiting and waiting[0][0] <= time.monotonic():
            _, answer, asker = waiting.popleft()
            server.sendto(answer, asker)


async def look_up(figures: Figures, port: int) -> None:
    names = [f"www.name-{number}.example" for number in range(NAMES)]
    resolver = Resolver(lambda ip, host, port: True, AresLookup((f"127.0.0.1:{port}",)))
    prefetch = NamePrefetch(resolver, lambda within_s: names)
    cpu_s, began_at = time.process_time(), time.perf_counter()
    prefetch.note_request(by_proxy=False)
    while resolver.needs_lookup(names[-1], 0.0):
        await asyncio.sleep(ANSWER_S)
    await asyncio.sleep(2 * ANSWER_S)
    cpu_s, took_s = time.process_time() - cpu_s, time.perf_counter() - began_at
    prefetch.end()
    figures.note("processor time of a new name, ms", 1e3 * cpu_s / NAMES, MOST_LOOKUP_MS)
    figures.note(f"names a second, {PREFETCHES} look-ups at once", NAMES / took_s)
    cpu_s = time.process_time()
    for name in names:
        await resolver.addresses(name, 80)
    cpu_s = time.process_time() - cpu_s
    figures.note("a name in the cache, us", 1e6 * cpu_s / NAMES, MOST_HIT_US)
    await resolver.close()


class _Known:
    """Answers for ever at once, so that only looks are measured."""

    async def __call__(self, name: str) -> ResolvedName:
        return ResolvedName(("192.0.2.1",), MAX_TTL_S)

    async def close(self) -> None:
        """Nothing is under way."""


async def look_ahead(figures: Figures, hosts: int) -> None:
    """Measure what the looks cost whose names are known, of hosts that rest 30 s."""
    rest_s = 30.0
    resolver = Resolver(lambda ip, host, port: True, _Known())
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        ours = Ours(Path(folder))
        ours.add([url(number, number % hosts) for number in range(3 * hosts)], 0.0)
        ours.end_turn(0.0)
        pages, spent_s, now = 0, 0.0, 0.0
        while now < 2 * rest_s:
            began_at = time.process_time()
            shown = ours.frontier.upcoming_hosts(now + AHEAD_S, CACHE_SIZE)
            unknown = [name for name in shown if resolver.needs_lookup(name, AHEAD_S)]
            spent_s += time.process_time() - began_at
            for name in unknown:
                await resolver.addresses(name, 80)
            most = int(hosts / rest_s * LOOK_S)
            for lease in ours.frontier.lease(now, most):
                _release(ours, lease, rest_s, now)
                pages += 1
            ours.end_turn(now)
            now += LOOK_S
        ours.frontier.close()
    what = f"looks ahead for a page, {hosts:,} hosts, us"
    figures.note(what, 1e6 * spent_s / pages, MOST_AHEAD_US)


def _release(ours: Ours, lease: Lease, rest_s: float, now: float) -> None:
    pace = Pace(gap_s=rest_s, standing=Standing.ANSWERS)
    ours.frontier.release(lease, Rest(rest_s, pace), now)


def main() -> int:
    figures = Figures()
    context = get_context("fork")
    receives, sends = context.Pipe(duplex=False)
    server = context.Process(target=serve, args=(sends,), daemon=True)
    server.start()
    try:
        uvloop.run(look_up(figures, receives.recv()))
    finally:
        server.terminate()
    for hosts in (1_000, 18_000):
        asyncio.run(look_ahead(figures, hosts))
    return int(figures.missed)


if __name__ == "__main__":
    sys.exit(main())
