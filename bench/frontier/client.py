"""One client of a measurement, in a process of its own.

Rule: it is told what to do in lines of JSON, and does it in two steps: prepare, and on the word
of the one who measures, act. `python -m bench.frontier.client DRIVER REDIS_URL NUMBER OF`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from bench.frontier.drivers import Driver, Opened
from bench.frontier.links import Client, Finder, Link, even
from bench.frontier.ours import Ours
from bench.frontier.scrapy_redis import ScrapyRedis

DRIVERS: Final[dict[str, Opened]] = {"gossamer": Ours, "scrapy-redis": ScrapyRedis}
LINKS_A_CALL: Final = 2_000  # of 50 pages: what a worker finds in a tenth of a second
LEASES_A_CALL: Final = 100
READ_AHEAD: Final = 20_000  # links that wait in memory while a frontier is filled


Item = TypeVar("Item")


class Act(StrEnum):
    NEW = "new"  # add links that are all new
    MIXED = "mixed"  # add links of which one in nine is new
    FILL = "fill"  # add as many new links of each host; prepared meanwhile
    TURNS = "turns"  # lease, release, finish, again and again
    LEASE = "lease"  # and keep
    SETTLE = "settle"  # release and finish what was kept
    CLAIM = "claim"
    KNOWN = "known"  # count the URLs that were ever new


class Order(msgspec.Struct, frozen=True):
    act: Act
    count: int
    hosts: int = 0


class Report(msgspec.Struct, frozen=True):
    done: int


class Worker:
    def __init__(self, driver: Driver, client: Client) -> None:
        self._driver = driver
        self._client = client
        self._finder = Finder(1, client)
        self._kept: list[Any] = []

    def prepare(self, order: Order) -> Callable[[], Report]:
        """What is left to do when the clock runs."""
        match order.act:
            case Act.NEW | Act.MIXED:
                return self._adding(order)
            case Act.FILL:
                links = even(order.hosts, order.count, self._client)
                return lambda: self._add(map(self._driver.prepare, pieces(links, READ_AHEAD)))
            case Act.TURNS:
                return lambda: self._turns(order.count)
            case Act.LEASE:
                return lambda: self._lease(order.count)
            case Act.SETTLE:
                return self._settle
            case Act.CLAIM:
                return lambda: self._claim(order.count)
            case Act.KNOWN:
                return lambda: Report(self._driver.known())

    def _adding(self, order: Order) -> Callable[[], Report]:
        if order.act is Act.NEW:
            self._finder = Finder(order.hosts, self._client)
            links: Iterable[Link] = self._finder.new(order.count)
        else:
            links = self._finder.mixed(order.count)
        prepared = self._driver.prepare(links)
        return lambda: self._add([prepared])

    def _add(self, prepared: Iterable[list[Any]]) -> Report:
        done = 0
        for each in prepared:
            for piece in pieces(each, LINKS_A_CALL):
                self._driver.add(piece)
                done += len(piece)
        self._driver.settle()
        return Report(done)

    def _turns(self, count: int) -> Report:
        done = 0
        while done < count and (leases := self._driver.lease(min(LEASES_A_CALL, count - done))):
            self._driver.release(leases)
            self._driver.finish(leases)
            done += len(leases)
        self._driver.settle()
        return Report(done)

    def _lease(self, count: int) -> Report:
        kept = self._kept
        while len(kept) < count and (leases := self._driver.lease(LEASES_A_CALL)):
            kept += leases
        return Report(len(kept))

    def _settle(self) -> Report:
        for leases in pieces(self._kept, LEASES_A_CALL):
            self._driver.release(leases)
            self._driver.finish(leases)
        self._driver.settle()
        report = Report(len(self._kept))
        self._kept = []
        return report

    def _claim(self, count: int) -> Report:
        self._driver.claim(count)
        return Report(count)


def pieces(every: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(every)
    while piece := list(islice(rest, size)):
        yield piece


def main(driver: str, url: str, number: str, of: str) -> None:
    client = Client(int(number), int(of))
    worker = Worker(DRIVERS[driver](url, client), client)
    print(flush=True)  # connected
    for line in sys.stdin:
        act = worker.prepare(msgspec.json.decode(line, type=Order))
        print(flush=True)  # prepared
        sys.stdin.readline()
        print(msgspec.json.encode(act()).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
