"""What Redis says of all shards, read from outside: who has each, how much waits there, and whether
anything is left of the crawl.

Rule: reading changes nothing, and holds no shard. The shards are read one after the other while
they change, so one reading is no state of the crawl; `is_over` says what two of them prove.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from crawler.frontier import records as keys
from crawler.frontier.records import (
    FrontierTotals,
    OpenRecord,
    decode_open,
    decode_totals,
)
from crawler.model.choices import LaterVisits
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS
from crawler.shared.keys import root
from crawler.shared.owned.plan import ShardUse
from crawler.shared.owned.scripts import INBOX

OUTBOXES: Final = "outboxes"
"""The kind of the set of workers that have links on their own disks, beside the records of any one
shard whose server answers."""
_LEFT: Final = (
    *(keys.QUEUED, keys.OPEN, keys.ARRIVED, keys.UNDECIDED),
    INBOX.encode(),
)
"""The hashes of which each field is something that is left. They are counted themselves: a counter
that drifted would end the crawl early, or never (decision 31)."""


def new_token(worker: str, session: str = "") -> str:
    """Return the token of a claim of *worker*: its name, its session and a random part."""
    return f"{token_begin(worker, session)}{secrets.token_hex(8)}"


def token_begin(worker: str, session: str) -> str:
    """Return how all tokens of a session begin."""
    return f"{worker}/{session}."


def worker_of(token: bytes) -> str | None:
    """Return the worker whose claim has this token."""
    return token.decode("utf-8", "replace").rpartition("/")[0] or None


async def read_uses(nodes: Nodes, name: str, shards: int) -> list[ShardUse | None]:
    """Return how each shard is used, or None where its server does not answer. One pipeline for
    each server."""
    asks = [(at, ("HMGET", root(name, at), "owner", "seq", "totals")) for at in range(shards)]
    replies = await nodes.commands(asks)
    return [None if isinstance(reply, FAULTS) else _use_of(*reply) for reply in replies]


def _use_of(owner: bytes | None, seq: bytes | None, totals: bytes | None) -> ShardUse:
    try:
        waiting = decode_totals(totals).waiting if totals else 0
    except msgspec.MsgspecError:
        waiting = 0  # its owner will say so
    return ShardUse(worker_of(owner or b""), max(0, waiting), seq is not None)


async def leases_of(nodes: Nodes, owners: Sequence[str]) -> list[OpenRecord]:
    """Return the open leases in shards whose owner's token begins with one of *owners*. What cannot
    be read is left out."""
    begins = tuple(each.encode() for each in owners)
    if not begins:
        return []
    asks = [(at, ("HGET", root(nodes.name, at), "owner")) for at in range(nodes.shards)]
    tokens = enumerate(await nodes.commands(asks))
    own = [at for at, token in tokens if isinstance(token, bytes) and token.startswith(begins)]
    kind = keys.OPEN.decode()
    opened = [(at, ("HVALS", f"{root(nodes.name, at)}:{kind}")) for at in own]
    found: list[OpenRecord] = []
    for packed in await nodes.commands(opened):
        with suppress(msgspec.MsgspecError):
            found += [] if isinstance(packed, FAULTS) else map(decode_open, packed)
    return found


async def read_totals(nodes: Nodes) -> list[FrontierTotals]:
    """Return the counters of all shards, as their owners wrote them last. It opens no shard. Raises
    a Fault."""
    roots = [root(nodes.name, at) for at in range(nodes.shards)]
    asks = (nodes.command(each, "HGET", each, "totals") for each in roots)
    found = []
    for reply in await asyncio.gather(*asks):
        if isinstance(reply, FAULTS):
            raise reply
        with suppress(msgspec.MsgspecError):  # its owner will say so
            found.append(decode_totals(reply) if reply else FrontierTotals())
    return found


@dataclass(frozen=True, slots=True)
class ShardRest:
    """What is left of one shard, and how often it was written to."""

    is_left: bool  # something is, or it is not known
    writes: tuple[bytes | None, ...]  # run of its server, number of its last batch
    outboxes: frozenset[str]  # workers with links on their disks, noted here


async def read_rests(
    nodes: Nodes, name: str, shards: int, visits: LaterVisits = LaterVisits.AS_DUE
) -> list[ShardRest] | None:
    """Return what is left of each shard, or None if a server does not answer. *visits*: which later
    visits this run makes. If not all, its owner knows what is left of them."""
    asks: list[tuple[int, tuple[str, ...]]] = []
    for at in range(shards):
        of_shard = root(name, at)
        asks.append((at, ("HMGET", of_shard, "run", "seq", "lost", "filling", "totals")))
        asks.append((at, ("HLEN", f"{of_shard}:{keys.SPILLED.decode()}")))
        asks.append((at, ("HLEN", f"{of_shard}:{keys.LATER.decode()}")))
        asks += [(at, ("HLEN", f"{of_shard}:{kind.decode()}")) for kind in _LEFT]
        asks.append((at, ("SMEMBERS", f"{of_shard}:{OUTBOXES}")))
    replies = await nodes.commands(asks)
    if any(isinstance(reply, FAULTS) for reply in replies):
        return None
    width = len(asks) // shards
    return [_rest_of(replies[at : at + width], visits) for at in range(0, len(replies), width)]


def _rest_of(replies: Sequence[Any], visits: LaterVisits) -> ShardRest:
    (run, seq, lost, filling, packed), spilled, later, *lengths, outboxes = replies
    # Of a server that restarted, the owner knows more than is there; so it does of one that came
    # back empty.
    is_doubtful = seq is None or lost is not None or filling is not None
    names = frozenset(each.decode("utf-8", "replace") for each in outboxes)
    totals = _totals_of(packed)
    # Of what is spilled, all but what is over a budget in all will be released by a round, or by
    # idle slots. Only the counters of the owner tell the two apart.
    is_released = spilled > 0 and totals.spilled > totals.capped
    again = 0 if visits is LaterVisits.AS_DUE else totals.again
    is_left = is_doubtful or any(lengths) or is_released or later > again
    return ShardRest(is_left, (run, seq), names)


def _totals_of(packed: bytes | None) -> FrontierTotals:
    try:
        return decode_totals(packed) if packed else FrontierTotals()
    except msgspec.MsgspecError:
        return FrontierTotals()  # its owner will say so


def is_over(first: Sequence[ShardRest], second: Sequence[ShardRest]) -> bool:
    """Return whether the crawl is over, by two readings, the *second* of which began when the
    *first* one was complete; if no URL can come from elsewhere: from seeds, feeds, operators.

    A shard has the same writes in both, so no batch came between the two, and what only batches
    remove, an entry of an inbox among them, was not there in between either: it would still be. So
    both readings show the same moment, the one between them, of all shards: nothing waits, is
    leased or undecided, and no link is in an inbox. What a worker knows and Redis does not is
    nothing either then: a page whose links are under way still has its lease, an entry is in its
    inbox until the batch that has its URLs, and links on a disk are noted before their page is
    finished.
    """
    return all(
        not (before.is_left or after.is_left or before.outboxes or after.outboxes)
        and before.writes == after.writes
        for before, after in zip(first, second, strict=True)
    )
