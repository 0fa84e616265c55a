"""A shared crawl as a tool looks at it: what it was begun with, and its keys in slices.

Rule: looking changes nothing, not even the scripts that a server knows. No key that can be large
is read at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import error as struct_error
from typing import Any, Final, Self

import msgspec

from crawler.core.errors import ConfigError
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import ForeignData
from crawler.storage.redis.connection.link import Link
from crawler.storage.redis.connection.nodes import Nodes
from crawler.storage.redis.crawl_format import known
from crawler.storage.redis.scripts import Scripts

SLICE: Final = 1000
"""Entries of one answer: a millisecond of a server at most."""
_LISTS: Final = 50  # of 10 to 200 entries each


class Visit:
    """Raises a Fault: it cannot be asked, or is not ours; ConfigError: there is no such crawl."""

    def __init__(self, address: Address, name: str, opening: tuple[Argument, ...]) -> None:
        """*opening*: as of Nodes, for what does change something."""
        self.name = name
        self.where = f"the crawl {name} in Redis at {address}"
        key = keys.format_key(name)
        with Link(Nodes(address, Scripts(), name, 1, opening)) as link:
            kept = link.command(key, "GET", key)
        if kept is None:
            raise ConfigError(
                f"Redis at {address} has no crawl {name}: none has begun there, or its"
                " CRAWLER_FRONTIER_NAME is another"
            )
        self.format = known(kept, key)
        self.shards = range(self.format.shards)
        self.link = Link(Nodes(address, Scripts(), name, self.format.shards, opening))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def ask(self, key: str, command: str, *args: Argument) -> Any:
        return self.link.command(key, command, key, *args)

    def ask_each(self, asks: Sequence[tuple[str, str]]) -> list[Any]:
        """Pairs of command and key, all on their way together."""
        return self.link.ask([(key, (command, key)) for command, key in asks])

    def pairs(self, key: str) -> Iterator[list[tuple[bytes, bytes]]]:
        """Fields and values of a hash. What is there all the time comes, some of it twice."""
        for found in self._slices("HSCAN", key):
            yield list(zip(found[::2], found[1::2], strict=True))

    def scored(self, key: str, match: str = "*") -> Iterator[list[tuple[bytes, float]]]:
        """Of a zset, in no order; else as `pairs`."""
        for found in self._slices("ZSCAN", key, match):
            yield list(zip(found[::2], map(float, found[1::2]), strict=True))

    def lists(self, names: Sequence[str]) -> Iterator[bytes]:
        """Entries of many lists that are short, each for itself."""
        for begin in range(0, len(names), _LISTS):
            part = names[begin : begin + _LISTS]
            for found in self.link.ask([(key, ("LRANGE", key, 0, -1)) for key in part]):
                yield from found

    def now(self) -> float:
        """Epoch seconds by the server that also tells the workers."""
        told = self.link.command(keys.workers(self.name), "TIME")
        return int(told[0]) + int(told[1]) / 1e6

    @contextmanager
    def reading(self, key: str) -> Iterator[None]:
        """What is read in it was under *key*, and must be ours. Raises ForeignData."""
        try:
            yield
        except (msgspec.MsgspecError, struct_error, ValueError) as broken:
            raise ForeignData(
                f"{self.where}: under {key} is what this version does not write ({broken})"
            ) from broken

    def _slices(self, command: str, key: str, match: str = "*") -> Iterator[list[bytes]]:
        cursor: bytes = b"0"
        while True:
            cursor, found = self.ask(key, command, cursor, "MATCH", match, "COUNT", SLICE)
            yield found
            if cursor == b"0":
                return
