"""Questions of many pages, asked together.

Rule: whoever asks waits for his own answer only, and gets one. What he asked is not sent if he
went away before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from crawler.shared.client import Call
from crawler.shared.faults import Unreachable
from crawler.shared.shard import Ops

Run: TypeAlias = Callable[[Sequence[Call]], Awaitable[list[Any]]]
"""For each call its reply or a Fault, as Nodes.run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLink:
    """How a part of this worker speaks with the shards."""

    ops: Ops
    run: Run
    tell: Callable[[Call], None]
    """Sends a call some time soon, after what it was told before, until it is acknowledged."""
    is_full: Callable[[int], bool]  # whether a shard's server is: it is told what it must know
    count: Callable[[str], None]  # counts one more


Question = TypeVar("Question")
_Asked: TypeAlias = tuple[Sequence[Question], asyncio.Future[list[Any]]]

GATHER_S: Final = 0.02
"""A question alone takes 190 us of CPU; at 300 a second, gathered for 5 ms, 97, for 20 ms 51, and
at 1,000 a second 26. What waits is a page whose host rests already: it loses nothing."""


class Batcher(Generic[Question]):
    """Bound: the questions of those who wait. Several batches may be under way."""

    def __init__(self, run: Callable[[Sequence[Question]], Awaitable[list[Any]]]) -> None:
        """*run*: for each question its reply or a Fault."""
        self._run = run
        self._asked: list[_Asked[Question]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Any:
        """Its reply, or a Fault."""
        return (await self.ask_all((question,)))[0]

    async def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """For each as in `ask`."""
        answers = asyncio.get_running_loop().create_future()
        self._asked.append((questions, answers))
        if len(self._asked) == 1:
            sending = asyncio.create_task(self._send())
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        found: list[Any] = await answers
        return found

    async def _send(self) -> None:
        await asyncio.sleep(GATHER_S)
        asked, self._asked = self._asked, []
        waiting = [each for each in asked if not each[1].done()]
        together = [question for questions, _ in waiting for question in questions]
        try:
            replies = await self._run(together) if together else []
        except Exception as bug:
            for _, answers in waiting:
                if not answers.done():
                    answers.set_exception(bug)
            return
        begin = 0
        for questions, answers in waiting:
            end = begin + len(questions)
            if not answers.done():
                answers.set_result(replies[begin:end])
            begin = end


# Questions that leases wait for: a server that is slow must not hold up those of the others.

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
