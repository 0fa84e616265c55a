"""The servers of a shared frontier for one who waits for each answer: tools and tests.

Rule: the asynchronous one, turned by hand. Whatever breaks, breaks here in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar

from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.connection.nodes import Nodes
from crawler.storage.redis.totals import Totals

T = TypeVar("T")


class Link:
    """Where a loop runs already, `Nodes` is what to use."""

    def __init__(self, nodes: Nodes) -> None:
        """Opens *nodes*, which nobody else uses. Raises a Fault."""
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        try:
            self._turn(nodes.open())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Replies in the order of *calls*. All were asked; raises the first Fault among them."""
        return _fine(self._turn(self._nodes.run(calls)))

    def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        """Plain commands on keys of shards; as `run`."""
        return _fine(self._turn(self._nodes.commands(asks)))

    def command(self, key: str, *command: Argument) -> Any:
        """*command*, asked where *key* is. Raises a Fault."""
        return _fine([self._turn(self._nodes.command(key, *command))])[0]

    def ask(self, asks: Sequence[tuple[str, tuple[Argument, ...]]]) -> list[Any]:
        """Plain commands, each asked where its key is, all on their way together. Unlike `commands`
        it opens no shard, so it changes nothing. Raises the first Fault among the replies."""
        return _fine(self._turn(self._ask(asks)))

    def totals(self) -> list[Totals]:
        """Of all shards. Raises a Fault."""
        shards = range(self._nodes.shards)
        replies = self.commands(
            [(n, ("HGETALL", keys.totals(self._nodes.name, n))) for n in shards]
        )
        return [Totals.read(dict(zip(each[::2], each[1::2], strict=True))) for each in replies]

    def close(self) -> None:
        if not self._loop.is_closed():
            self._turn(self._nodes.close())
            self._loop.close()

    async def _ask(self, asks: Sequence[tuple[str, tuple[Argument, ...]]]) -> list[Any]:
        return await asyncio.gather(*(self._nodes.command(key, *command) for key, command in asks))

    def _turn(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(_having_read(work))


async def _having_read(work: Coroutine[Any, Any, T]) -> T:
    """Between two calls nobody turned the loop: first see what connections have ended."""
    for _ in range(3):
        await asyncio.sleep(0)
    return await work


def _fine(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, FAULTS):
            raise reply.with_traceback(None)
    return replies
