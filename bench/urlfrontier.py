"""`python -m bench.urlfrontier`: what the server of the URL Frontier protocol takes and gives a
second, over our frontier as a share of the same server over dictionaries.

Rule: the server is a process of its own, and each figure is of both in turn, several times within
the same minutes: what else the machine does hits both. A call is measured as its client sees it;
the server's CPU time stands beside it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc
import grpc.aio

from bench.urlfrontier_dict import DictCrawls
from crawler.data.data_dir import DataDir
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.frontier.port import FrontierLimits
from crawler.model.types import CrawlerError
from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier import urlfrontier_pb2_grpc as rpc
from crawler.urlfrontier.client import known, url_info
from crawler.urlfrontier.frontier_crawls import FrontierCrawls
from crawler.urlfrontier.port import Crawls
from crawler.urlfrontier.server import FrontierServer

KINDS: Final = ("dict", "frontier")
BARS: Final = {"PutDiscovered": 0.75, "PutURLs known": 0.6, "GetURLs": 0.6}
FLAT: Final = 1.3  # a call with the most queues takes so many times one with the fewest
_BATCH: Final = 50
_STREAMS: Final = 4
_QUEUES: Final = 1_000
_PER_QUEUE: Final = 10


@dataclass(frozen=True, slots=True)
class Measured:
    items_per_s: float
    server_us: float  # of CPU, for each item


def crawls_of(kind: str, folder: Path) -> Crawls:
    """Return what keeps the URLs, with its files in *folder*."""
    if kind == "dict":
        return DictCrawls()

    def fail(error: CrawlerError) -> None:
        raise error

    room = DiskRoom(WaitWarnings(), str(folder), lambda: False)
    return FrontierCrawls(DataDir(folder), FrontierLimits(), time.time, room, fail)


async def serve(kind: str, folder: Path) -> None:
    server = FrontierServer(crawls_of(kind, folder))
    print(await server.start("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()


class Target:
    """A server that is measured."""

    def __init__(self, kind: str, stub: Any, pid: int) -> None:
        self.kind = kind
        self.stub = stub
        self._pid = pid
        self._crawls = 0

    def new_crawl(self) -> str:
        self._crawls += 1
        return f"c{self._crawls}"

    async def measured(self, items: int, work: Awaitable[None]) -> Measured:
        begun, cpu = time.perf_counter(), self._cpu_s()
        await work
        taken_s = time.perf_counter() - begun
        return Measured(items / taken_s, (self._cpu_s() - cpu) / items * 1e6)

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def exchange(call: Any, messages: Iterable[Any]) -> None:
    """Send a stream, and read an acknowledgement of each message."""
    sent = acks = 0

    async def send() -> None:
        nonlocal sent
        for message in messages:
            await call.write(message)
            sent += 1
        await call.done_writing()

    sending = asyncio.create_task(send())
    async for _ack in call:
        acks += 1
    await sending
    if acks != sent:
        raise SystemExit(f"{acks} of {sent} messages were acknowledged")


def urls(count: int, queues: int = _QUEUES) -> Iterator[str]:
    return (
        f"http://h{number % queues}.example.com/some/path/of/usual/length/{number}.html"
        for number in range(count)
    )


def batches(found: Iterator[str], crawl: str, size: int) -> Iterator[pb.DiscoveredBatch]:
    while part := list(islice(found, size)):
        infos = [url_info(url, key=url.split("/", 3)[2], crawl_id=crawl) for url in part]
        yield pb.DiscoveredBatch(ID=part[0], items=infos)


async def put_discovered(target: Target, count: int) -> Measured:
    crawl = target.new_crawl()
    # To make a crawl, with its files, takes as long as thousands of URLs.
    await exchange(target.stub.PutDiscovered(), batches(iter(["http://first.example/"]), crawl, 1))
    messages = list(batches(urls(count), crawl, _BATCH))
    return await target.measured(count, exchange(target.stub.PutDiscovered(), messages))


async def fill(target: Target, count: int, queues: int = _QUEUES) -> str:
    """Make a crawl of *count* URLs, and return its name."""
    crawl = target.new_crawl()
    await exchange(target.stub.PutDiscovered(), batches(urls(count, queues), crawl, 200))
    await target.stub.CountURLs(pb.CountUrlParams(crawlID=crawl))  # what was put is admitted now
    return crawl


async def put_known(target: Target, count: int) -> Measured:
    """Over four streams: pages that were fetched, each to be fetched again in a day or never."""
    crawl, later = await fill(target, count), int(time.time()) + 86_400
    metadata = {"fetch.statusCode": ["200"], "depth": ["2"]}
    items = [
        known(
            url_info(url, key=url.split("/", 3)[2], crawl_id=crawl, metadata=metadata),
            later if number % 2 else 0,
        )
        for number, url in enumerate(urls(count))
    ]
    parts = [items[number::_STREAMS] for number in range(_STREAMS)]

    async def put() -> None:
        await asyncio.gather(*[exchange(target.stub.PutURLs(), part) for part in parts])

    return await target.measured(count, put())


async def get(target: Target, crawl: str, per_queue: int) -> Measured:
    """Get URLs of 1,000 queues, all of them due."""
    params = pb.GetParams(
        max_queues=_QUEUES, max_urls_per_queue=per_queue, delay_requestable=600, crawlID=crawl
    )

    async def take() -> None:
        got = 0
        async for _info in target.stub.GetURLs(params):
            got += 1
        if got != _QUEUES * per_queue:
            raise SystemExit(f"{got} of {_QUEUES * per_queue} URLs came")

    return await target.measured(_QUEUES * per_queue, take())


async def get_of_new(target: Target) -> Measured:
    return await get(target, await fill(target, _QUEUES * _PER_QUEUE), _PER_QUEUE)


@contextmanager
def server_process(kind: str, folder: Path) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "bench.urlfrontier", "--serve", kind, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


async def rates(ports: dict[str, tuple[int, int]], given: Namespace) -> bool:
    channels = {
        kind: grpc.aio.insecure_channel(f"127.0.0.1:{port}") for kind, (port, _) in ports.items()
    }
    targets = [
        Target(kind, rpc.URLFrontierStub(channels[kind]), pid)  # type: ignore[no-untyped-call]  # made by grpc
        for kind, (_, pid) in ports.items()
    ]
    works: dict[str, Callable[[Target], Awaitable[Measured]]] = {
        "PutDiscovered": lambda target: put_discovered(target, given.urls),
        "PutURLs known": lambda target: put_known(target, given.urls // 5),
        "GetURLs": get_of_new,
    }
    good = True
    for name, work in works.items():
        found: dict[str, list[Measured]] = {kind: [] for kind in KINDS}
        for _ in range(given.rounds):
            for target in targets:
                found[target.kind].append(await work(target))
        ratio = median(
            ours.items_per_s / theirs.items_per_s
            for ours, theirs in zip(found["frontier"], found["dict"], strict=True)
        )
        good &= ratio >= BARS[name]
        figures = ", ".join(
            f"{kind} {median(each.items_per_s for each in of_kind):,.0f}/s"
            f" ({median(each.server_us for each in of_kind):.1f} us of CPU)"
            for kind, of_kind in found.items()
        )
        print(f"{name}: {figures}; {ratio:.2f} of it (bar {BARS[name]})", flush=True)
    if given.queues:
        good &= await flat(targets, given)
    for channel in channels.values():
        await channel.close()
    return good


async def flat(targets: Sequence[Target], given: Namespace) -> bool:
    """Print what a call for a URL of each of 1,000 queues takes among few queues and many."""
    good = True
    for target in targets:
        few = [await get(target, await fill(target, _QUEUES), 1) for _ in range(given.rounds)]
        crawl = await fill(target, given.queues, given.queues)
        many = [await get(target, crawl, 1) for _ in range(given.rounds)]
        few_s, many_s = (
            _QUEUES / median(each.items_per_s for each in measured) for measured in (few, many)
        )
        good &= target.kind == "dict" or many_s / few_s <= FLAT
        print(
            f"GetURLs, {target.kind}: {few_s * 1e3:.0f} ms among {_QUEUES:,} queues,"
            f" {many_s * 1e3:.0f} among {given.queues:,}; {many_s / few_s:.2f} times (bar {FLAT})",
            flush=True,
        )
    return good


def main() -> int:
    parser = ArgumentParser(prog="python -m bench.urlfrontier", description=__doc__)
    parser.add_argument("--urls", type=int, default=50_000, help="of a round of PutDiscovered")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--queues",
        type=int,
        default=0,
        help="also: is GetURLs flat up to so many, 1,000 a round or more",
    )
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "FOLDER"), help="be the server")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve[0], Path(given.serve[1])))
        return 0
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process("dict", Path(folder)) as of_dict,
        server_process("frontier", Path(folder)) as of_frontier,
    ):
        good = asyncio.run(rates({"dict": of_dict, "frontier": of_frontier}, given))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
