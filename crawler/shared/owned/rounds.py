"""The rounds of a crawl that workers share: all are in one, and none has more URLs of it than it
has reserved.

Rule: what a worker leases it has reserved before, in slices. A worker that dies keeps what it has
reserved, so a round may have fewer URLs, never more. A worker that has said that it leases no more
leases nothing before it has taken that back: so the next round begins where no lease of the last
one is open. A run that began after the last round was over begins another one. The caps of hosts
and domains are each owner's, as these are in one shard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from crawler.policy.rounds import (
    FLOOR_WINDOW_S,
    RoundCaps,
    RoundEnd,
    RoundProgress,
    progress_of,
)
from crawler.shared.client import Nodes
from crawler.shared.owned.scripts import OwnedScripts

SLICE: Final = 1_000
"""URLs that a worker reserves at most beyond what it leases: as many as it fetches in a second."""


class LedRounds(Protocol):
    """What a worker's frontier does in rounds that all workers are in."""

    number: int
    left: int
    is_over: bool

    @property
    def leased(self) -> int: ...

    def follow(self, number: int, why: str, *, is_over: bool) -> None: ...

    def note_all(self, leased: int, first: int, began_at: float) -> None: ...

    def grant(self, urls: int) -> None: ...

    def give_up(self) -> int: ...

    def has_leased(self) -> bool: ...

    def are_held(self) -> bool: ...

    def pages(self, now: float) -> int: ...


class RoundFollower:
    """Asks for the round, once a second, and for URLs of it."""

    def __init__(
        self,
        nodes: Nodes,
        scripts: OwnedScripts,
        worker: str,
        caps: RoundCaps,
        rounds: LedRounds,
        *,
        lease_s: float,
        run_began_at: float,
        wake: Callable[[], None],
    ) -> None:
        """*worker*: of its session, that no other one has. *lease_s*: after which one that does not
        ask counts no longer. *run_began_at*: epoch seconds by the server's clock; that of a worker
        that is started again is the same. *wake* is called when URLs may be leased that could not
        before."""
        self._nodes, self._key = nodes, rounds_key(nodes.name)
        self._script = scripts.text("round")
        self._worker, self._caps, self._rounds = worker, caps, rounds
        self._said = (0, 0)  # the last round, and the URLs of it of which Redis knows
        self._lease_s, self._run_began_at, self._wake = lease_s, run_began_at, wake

    async def step(
        self, *, may_lease_more: bool, is_busy: bool, has_dates: bool, now: float
    ) -> None:
        """Say how far this worker is. *may_lease_more*: URLs wait that the round may have.
        *is_busy*: leases of it are open, or URLs are still to come here. *has_dates*: URLs wait for
        a date. Raises StoreUnavailable."""
        rounds, caps = self._rounds, self._caps
        if rounds.is_over:
            return
        number = rounds.number
        given_back = 0 if may_lease_more else rounds.give_up()
        wanted = max(0, SLICE - rounds.left) if may_lease_more else 0
        is_done = not (is_busy or (may_lease_more and rounds.left > 0))
        leased = rounds.leased
        before = self._said[1] if self._said[0] == number else 0
        left_over = 2 if has_dates else int(rounds.are_held())
        said = (
            *(self._worker, round(self._lease_s * 1000), number, int(rounds.has_leased())),
            *(int(is_done), given_back if caps.urls is not None else 0, wanted),
            *(rounds.pages(now), -1 if caps.urls is None else caps.urls),
            -1 if caps.seconds is None else round(caps.seconds * 1000),
            -1 if caps.floor is None else round(caps.floor * FLOOR_WINDOW_S),
            *(round(FLOOR_WINDOW_S * 1000), caps.rounds, round(self._run_began_at * 1000)),
            *(left_over, leased - before),
        )
        reply = await self._nodes.checked_command(
            self._key, "EVAL", self._script, 1, self._key, *said
        )
        now_in, got, is_closed, is_over, why, of_all, first, began = reply
        self._said = (number, leased)
        rounds.note_all(of_all, first, began / 1000)
        if now_in != number or is_over:
            rounds.follow(now_in, RoundEnd(why.decode()) if why else "", is_over=bool(is_over))
            self._wake()
        elif is_closed:
            rounds.give_up()
        elif got:
            rounds.grant(got)
            self._wake()

    async def leave(self) -> None:
        """Count no longer, as this worker ends. Raises StoreUnavailable."""
        await self._nodes.checked_command(self._key, "HDEL", self._key, f"w:{self._worker}")


async def read_rounds(nodes: Nodes, caps: RoundCaps) -> RoundProgress | None:
    """Return where a crawl is in its rounds, by *caps*; None: in none. Raises StoreUnavailable."""
    key, names = rounds_key(nodes.name), ("number", "first", "began", "leased")
    found = await nodes.checked_command(key, "HMGET", key, *names)
    number, first, began, leased = [int(each or 0) for each in found]
    if not first:
        return None
    return progress_of(caps, number, first, began / 1000, leased, leased=0, is_over=False)


def rounds_key(name: str) -> str:
    """A hash: number of the round and the first one of the run (0: the next one is), over (when the
    last one of a run was, ms), granted (URLs that workers have reserved), leased, began (ms),
    closed (why nothing more is leased in it), why (the one before was over), w:<worker> (when it
    asked last, ms, and what it said)."""
    return f"{name}:rounds"
