"""Turns of hosts that workers borrow of each other: the owner of a host is asked through the inbox
of its shard, and answers into one of the asker's.

Rule: an answer comes in time, or the turn was not lent. What is read from an inbox is untrusted: it
is decoded by its schema, or dropped. It may be read twice, late, or by another owner of the shard:
then a host rests longer than it has to, never shorter.

    asker:  TurnQuestion -> inbox of the host's shard
    owner:  the turn is borrowed of its frontier; when Redis has its rest: TurnAnswer -> inbox of a
            shard that the asker has
    asker:  requests; TurnTrouble at once, if an answer asks for a longer rest; TurnEnd
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Final

import msgspec

from crawler.model.types import (
    BorrowedTurn,
    Candidate,
    HostKey,
    NotItsTurn,
    NoTurn,
    Purpose,
    Rest,
)
from crawler.model.url import registered_domain

BORROW_S: Final = 2.0
"""How long a turn is waited for: then what it was for is left out. Guess: a page waits for it, and
the page's host."""
_MOST_LATE: Final = 1_000  # questions whose answers may still come


class TurnQuestion(msgspec.Struct, frozen=True, tag="ask"):
    asker: str  # of its process alone
    number: int
    reply_to: HostKey  # a name in a shard of the asker
    host: HostKey
    until: float  # epoch seconds: as of Frontier.borrow


class TurnAnswer(msgspec.Struct, frozen=True, tag="answer"):
    asker: str
    number: int
    turn: BorrowedTurn | None = None  # None: it is refused
    refusal: NotItsTurn | None = None


class TurnTrouble(msgspec.Struct, frozen=True, tag="trouble"):
    turn: BorrowedTurn
    rest: Rest


class TurnEnd(msgspec.Struct, frozen=True, tag="end"):
    turn: BorrowedTurn
    rest: Rest


TurnMessage = TurnQuestion | TurnAnswer | TurnTrouble | TurnEnd

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(TurnMessage).decode


def pack_message(host: HostKey, message: TurnMessage) -> Candidate:
    """Return *message* as a link, for the owner of the shard of *host*."""
    return Candidate(
        url="",
        key=0,
        host=host,
        domain=registered_domain(host),
        purpose=Purpose.TURN,
        request=_encode(message),
        needs_seen_test=False,
    )


def unpack_message(link: Candidate) -> TurnMessage | None:
    """Return the message in *link*, or None if it cannot be read."""
    try:
        message: TurnMessage = _decode(link.request)
    except msgspec.MsgspecError:
        return None
    return message


class TurnsOfOthers:
    """The questions of one worker."""

    def __init__(self, me: str, push: Callable[[Candidate], object]) -> None:
        """*me*: of this process alone."""
        self._me = me
        self._push = push
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[BorrowedTurn | NotItsTurn]] = {}
        self._late: dict[int, None] = {}  # questions that nothing waits for, the oldest first

    async def borrow(
        self, host: HostKey, until: float, reply_to: HostKey
    ) -> BorrowedTurn | NotItsTurn:
        """Ask the owner of *host*. Returns what it answers within BORROW_S."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[BorrowedTurn | NotItsTurn] = loop.create_future()
        self._waiting[number] = answer
        self._push(pack_message(host, TurnQuestion(self._me, number, reply_to, host, until)))
        try:
            async with asyncio.timeout(BORROW_S):
                return await answer
        except TimeoutError:
            return NotItsTurn(host, NoTurn.ELSEWHERE)
        finally:
            del self._waiting[number]
            if not answer.done() or answer.cancelled():
                self._late[number] = None
                if len(self._late) > _MOST_LATE:
                    del self._late[next(iter(self._late))]

    def on_answer(self, answer: TurnAnswer) -> BorrowedTurn | None:
        """Note *answer*. Returns a turn that came too late, and is to be given back."""
        if answer.asker != self._me:
            return None  # that process has gone, and the host rests
        waiting = self._waiting.get(answer.number)
        if waiting is not None and not waiting.done():
            lent = answer.turn or answer.refusal
            if lent is not None:
                waiting.set_result(lent)
            return None
        if answer.number in self._late:
            del self._late[answer.number]
            return answer.turn
        return None
