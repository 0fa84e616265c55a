"""Puts URLs that were pushed from outside into the inboxes of their shards."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from crawler.frontier.shards import shard_of
from crawler.model.types import Added, Candidate
from crawler.shared.client import Nodes
from crawler.shared.codec import split_links
from crawler.shared.faults import FAULTS, OutOfMemory, Unreachable
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.owned.inbox import ENTRY_LINKS, pack_links
from crawler.shared.owned.scripts import InboxCommands, OwnedScripts, read_push_reply
from crawler.shared.worker.feeds import SentCandidates
from crawler.shared.worker.outgoing import VERDICT_DELAY_S, links_by_shard

_NAME_BYTES: Final = 14  # as long as a name of LinkPushes; random


class InboxDelivery:
    """Implements feeds.PushedDelivery. Whether a URL is new is for its owner to decide, later."""

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
        runs: dict[int, bytes] = {}
        failed: set[int] = set()
        for shard, some in links_by_shard(links, self._nodes.shards).items():
            run = await self._push(shard, some)
            if run is None:
                failed.add(shard)
            else:
                runs[shard] = run
        return SentCandidates(Added(), (), runs, frozenset(failed))

    async def restarted_shards(self, runs: dict[int, bytes]) -> set[int] | None:
        """Return the shards whose servers are in another run now, or None if not all answer."""
        asks = [(shard, self._commands[shard].get_run()) for shard in runs]
        replies = await self._nodes.commands(asks)
        if not all(map(_is_answer, replies)):
            return None
        return {shard for shard, run in zip(runs, replies, strict=True) if run != runs[shard]}

    async def _push(self, shard: int, links: list[Candidate]) -> bytes | None:
        """Return in which run the server took *links*, or None if it did not."""
        commands = self._commands[shard]
        (run,) = await self._nodes.commands([(shard, commands.get_run())])
        if not _is_answer(run):
            return None
        run = run or b""
        for part in split_links(links, ENTRY_LINKS):
            entry = [(secrets.token_bytes(_NAME_BYTES), pack_links(part))]
            (reply,) = await self._nodes.commands([(shard, commands.push(run, entry))])
            if not _is_answer(reply):
                return None
            if read_push_reply(reply) is not None:
                return None  # it has restarted meanwhile
        return bytes(run)


def _is_answer(reply: object) -> bool:
    """Return False if the call must be repeated later. Raises Faults that waiting cannot repair."""
    if isinstance(reply, FAULTS) and not isinstance(reply, OutOfMemory | Unreachable):
        raise reply
    return not isinstance(reply, FAULTS)
