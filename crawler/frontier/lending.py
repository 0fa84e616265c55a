"""What a frontier lends to other crawlers: URLs that are put off until a time, as whoever has them
may never come back.

Rule: nothing of it is in memory. A URL that was lent waits among the later ones, and its host
rests: an update of the URL, or its time, ends that (decision 74).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from crawler.frontier.hosts import ActiveHost, HostScheduler
from crawler.frontier.later import LaterUrls
from crawler.frontier.queues import UrlQueues
from crawler.frontier.records import DeadLetter, ListedUrl, UrlEvent, UrlState, decode_candidate
from crawler.frontier.staging import WriteBatch
from crawler.frontier.url_table import UrlTable
from crawler.model.types import Candidate, HostKey, Purpose, Standing

NOT_LENT: Final = "it waited on a worker that only leases to other crawlers"
_MOST_TURNS: Final = 8  # of a host in one call: 256 URLs
# Bound once, because each look-up of a member of an enumeration takes 0.1 us.
_WAITING: Final = UrlState.WAITING
_PAGE: Final = Purpose.PAGE
_ROBOTS: Final = Purpose.ROBOTS


class LentUrl(NamedTuple):
    """A URL that was lent."""

    host: HostKey
    key: int
    listed: ListedUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """What is lent in one call, and what that means for hosts."""

    per_host: int  # URLs of a host, at most
    until: float  # when they wait again
    rest_until: Callable[[HostKey, Sequence[LentUrl]], float]
    """Returns until when a host rests of which these were lent."""
    held_until: Callable[[str], float | None] | None = None
    """Returns until when the host of a URL gets no turn, or None. None: none is held."""
    set_aside: Callable[[Candidate], None] | None = None
    """Called with what waits no more, as no other crawler can fetch it. None: all can be."""
    most_bytes: int = sys.maxsize  # of URLs and what is kept with them, but for the last of them


@dataclass(slots=True)
class LendingRoom:
    """What more may be taken in a call."""

    left_bytes: int


ENDLESS: Final = LendingRoom(sys.maxsize)


class Lender:
    """Lends URLs of hosts whose turn it is."""

    def __init__(
        self,
        batch: WriteBatch,
        queues: UrlQueues,
        scheduler: HostScheduler,
        later: LaterUrls,
        table: UrlTable,
    ) -> None:
        self._batch = batch
        self._queues = queues
        self._scheduler = scheduler
        self._later = later
        self._table = table

    def lend(
        self,
        active: ActiveHost,
        leased: Collection[int],
        lending: Lending,
        room: LendingRoom,
        now: float,
    ) -> list[LentUrl]:
        """Lend URLs of *active*, whose turn it is, and end the turn. *leased*: the keys of URLs
        that are under a lease."""
        host, lent = active.host, list[LentUrl]()
        if lending.held_until is not None:
            held_until = lending.held_until(decode_candidate(active.head[0]).url)
            if held_until is not None:
                self._scheduler.on_fetch_ended(active, now)
                self._scheduler.set_rest(host, held_until, now)
                return lent
        turn: ActiveHost | None = active
        turns = 0
        while turn is not None:
            self._lend_head(turn, leased, lending, room, lent, now)
            turns += 1
            if len(lent) == lending.per_host or turns == _MOST_TURNS or room.left_bytes <= 0:
                break
            self._scheduler.on_fetch_ended(turn, now)
            turn = self._scheduler.begin_turn(host, now)  # another level, or the next URLs of it
        record = self._batch.host(host)
        if lent:
            if record.pace.standing is Standing.NEW:
                record.pace = replace(record.pace, standing=Standing.ANSWERS)
            rests_until = lending.rest_until(host, lent)
            if turn is None:
                self._scheduler.set_rest(host, rests_until, now)
            else:
                record.rest_until = rests_until
        if turn is not None:
            self._scheduler.on_fetch_ended(turn, now)
        return lent

    def _lend_head(
        self,
        turn: ActiveHost,
        leased: Collection[int],
        lending: Lending,
        room: LendingRoom,
        lent: list[LentUrl],
        now: float,
    ) -> None:
        """Lend URLs of the head of *turn*, and append them to *lent*."""
        host = turn.host
        record, shard = self._batch.host(host), self._batch.shards.of(host)
        before = len(lent)
        while turn.head and len(lent) < lending.per_host and room.left_bytes > 0:
            packed = turn.head.popleft()
            self._queues.drop_head(host, record, turn.level)
            page = decode_candidate(packed)
            if lending.set_aside is not None and (page.purpose is not _PAGE or page.request):
                self._set_aside(page, now)
                lending.set_aside(page)
                continue
            put_later = partial(self._put_lent, page, lending.until)
            listed = self._table.lend_from_queue(page, leased, now, put_later)
            if listed is None:
                self._batch.count(shard, _WAITING, UrlEvent.FORGET)
            else:
                lent.append(LentUrl(host, page.key, listed))
                room.left_bytes -= len(listed.url) + len(listed.kept)
        self._batch.count(shard, _WAITING, UrlEvent.POSTPONE, len(lent) - before)

    def _set_aside(self, page: Candidate, now: float) -> None:
        shard = self._batch.shards.of(page.host)
        if page.purpose is _ROBOTS:
            self._batch.count(shard, _WAITING, UrlEvent.FORGET)
        else:
            self._batch.count(shard, _WAITING, UrlEvent.DROP)
            self._batch.keep_letter(DeadLetter(page, NOT_LENT, now))

    def _put_lent(self, page: Candidate, until: float, kept: bytes) -> bytes:
        return self._later.put(replace(page, not_before=until, request=kept))
