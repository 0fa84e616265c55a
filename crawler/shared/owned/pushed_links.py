"""Puts URLs that were pushed from outside into the inboxes of their shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from crawler.frontier.shards import shard_of
from crawler.model.types import Candidate
from crawler.shared.client import Nodes
from crawler.shared.codec import split_links
from crawler.shared.faults import FAULTS, OutOfMemory, Unreachable
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.owned.inbox import (
    ENTRY_LINKS,
    VERDICT_DELAY_S,
    links_by_shard,
    pack_links,
)
from crawler.shared.owned.scripts import InboxCommands, OwnedScripts, read_push_reply
from crawler.shared.worker.feeds import SentCandidates

_NAME_BYTES: Final = 14  # as long as a name of LinkPushes


class InboxDelivery:
    """Whether a URL is new is for its owner to decide, later."""

    def __init__(self, nodes: Nodes, *, is_ack_durable: bool) -> None:
        """*is_ack_durable* means that what a server acknowledges is on its disk."""
        scripts = OwnedScripts()
        self._nodes = nodes
        self._is_ack_durable = is_ack_durable
        self._commands = [InboxCommands(scripts, nodes.name, at) for at in range(nodes.shards)]

    @property
    def durable_after_s(self) -> float:
        """After so long what was acknowledged is on the server's disk, or the server restarted."""
        return 0.0 if self._is_ack_durable else VERDICT_DELAY_S

    def shard(self, candidate: Candidate) -> int:
        return shard_of(candidate.domain, self._nodes.shards)

    async def add(self, found: Iterable[Candidate], is_urgent: bool) -> SentCandidates:
        """Return what was acknowledged, and the shards that could not be asked. Raises a Fault that
        waiting cannot repair."""
        links = [replace(each, level=URGENT_LEVEL) if is_urgent else each for each in found]
        by_shard = links_by_shard(links, self._nodes.shards)
        asked = [(shard, self._commands[shard].get_run()) for shard in by_shard]
        known = zip(by_shard, await self._nodes.commands(asked), strict=True)
        runs = {shard: run or b"" for shard, run in known if _is_answer(run)}
        pushes = [
            (shard, self._commands[shard].push(run, [_entry(part)]))
            for shard, run in runs.items()
            for part in split_links(by_shard[shard], ENTRY_LINKS)
        ]
        replies = await self._nodes.commands(pushes)
        for (shard, _), reply in zip(pushes, replies, strict=True):
            # A server that has restarted meanwhile takes it the next time.
            if not _is_answer(reply) or read_push_reply(reply) is not None:
                runs.pop(shard, None)
        return SentCandidates(runs, frozenset(by_shard.keys() - runs.keys()))

    async def restarted_shards(self, runs: dict[int, bytes]) -> set[int] | None:
        """Return the shards whose servers are in another run now, or None if not all answer."""
        asks = [(shard, self._commands[shard].get_run()) for shard in runs]
        replies = await self._nodes.commands(asks)
        if not all(map(_is_answer, replies)):
            return None
        return {shard for shard, run in zip(runs, replies, strict=True) if run != runs[shard]}


def _entry(links: Sequence[Candidate]) -> tuple[bytes, bytes]:
    """Return an entry with its name: the same again, as long as no owner has read it, if the reply
    is lost."""
    entry = pack_links(links, are_pushed=True)
    return sha256(entry).digest()[:_NAME_BYTES], entry


def _is_answer(reply: object) -> bool:
    """Return False if the call must be repeated later. Raises Faults that waiting cannot repair."""
    if isinstance(reply, FAULTS) and not isinstance(reply, OutOfMemory | Unreachable):
        raise reply
    return not isinstance(reply, FAULTS)
