"""The owner of shards: it sends the batches of their mirrors, which renews its leases, and links
for inboxes, reads its own, and sends again what a server has lost.

Rule: OwnedShard and SendingRounds decide, and know neither socket nor clock; ShardSender sends. No
batch is written twice: each is the next one after the last in Redis, or it is refused.

The order of acknowledgements, by which a page and the politeness to its host survive any process
(each -> waits for the acknowledgement of the batch before it):

    a URL's lease -> its request                      (`may_begin`)
    its rest: noted at once, not waited for           (until then the lease stands, and the next
                                                       owner lets the host rest as after a crash)
    its record is synced; its links -> its verdict    (OwnedFrontier._finish: the links are in each
                                                       shard that they are for, or in the outbox)

So a lease that Redis does not have was never used, and a verdict that it has was given after the
links. What a dead owner had not sent is done again by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, takewhile
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from crawler.frontier import records as keys
from crawler.frontier.run_files import Keys
from crawler.model.types import Candidate, CrawlerError, StoreUnavailable
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS, Fault, ForeignData, OutOfMemory
from crawler.shared.owned.inbox import (
    KEPT_S,
    POLL_S,
    VERDICT_DELAY_S,
    InboxEntry,
    InboxReader,
    LinkPushes,
    NotedLinks,
    ShardPushes,
)
from crawler.shared.owned.mirror import Batch, Changes, Mirror, keys_of
from crawler.shared.owned.scripts import (
    Applied,
    BatchGap,
    ClaimedShard,
    ClaimReply,
    Command,
    PlainCommand,
    Sending,
    ServerRestarted,
    ShardCommands,
    ShardMissing,
    ShardTaken,
    read_apply_reply,
    read_claim_reply,
)

logger = logging.getLogger(__name__)

_RENEWED_AT: Final = 1 / 3  # of the lease: then two more may fail
_MARGIN: Final = 1 / 8  # of the lease: what a request may take from its check to the wire
_GATHER_S: Final = 0.02  # commits of so long are one batch
_RETRY_S: Final = 0.25
_READS: Final = 8  # pages of inboxes read in one round
_MAX_TAKEN: Final = 1_000  # entries of inboxes that were read and are not deleted yet
_NO_RUN: Final = b"?"  # a batch for it is refused, and the reply says what the shard has


class OwnedShard:
    """A shard that was claimed: what of its mirror Redis has, and until when this worker
    certainly owns it. Times are of the owner's steady clock."""

    def __init__(
        self,
        commands: ShardCommands,
        claimed: ClaimedShard,
        claimed_at_s: float,
        mirror: Mirror,
        contents: Callable[[], Iterator[Changes]],
    ) -> None:
        """*claimed_at_s*: when the claim was sent. *contents* returns all records of the shard, as
        `mirror.all_changes`."""
        self.commands = commands
        self.mirror = mirror
        self.run = claimed.run  # of the server, for which what it has is known
        self.inbox = InboxReader(commands, mirror)
        self.is_owned = True  # as far as we know
        self.fault: Fault | None = None  # of the last try to send anything
        self._contents = contents
        self._in_redis = claimed.seq  # the number of the last batch there
        self._claimed_at_s = claimed_at_s
        self._leased_until_s = claimed_at_s + commands.lease_s
        self._log: deque[Batch] = deque()  # not acknowledged, or kept to be sent again
        self._is_doubtful = False  # the server has restarted, perhaps
        self._must_be_same_run = False  # or the shard is given up
        self._is_claiming = False
        self._filling: Iterator[Changes] | None = None
        self._filled_at: int | None = None  # the batch with which Redis has all again
        self._acked_before = claimed.seq  # while it is filled
        self._quiet_until_s = inf  # not loaded yet
        self._is_claim_sure = False  # whether no restart of the server can lose the claim any more
        self._loaded_keys: Sequence[Keys] = ()  # until it is
        self._kept_since_s = -inf  # what was acknowledged before is certainly on disk
        self.is_released = False  # in good order
        self._is_releasing = False
        self._resends = True
        self._released_at: int | None = None  # the batch that releases it

    @property
    def acked(self) -> int:
        """The number of the last batch before which Redis lacks nothing. Compare it with
        `mirror.position`."""
        if self._filled_at is None or self._in_redis < self._filled_at:
            is_filling = self._filling is not None or self._filled_at is not None
            return self._acked_before if is_filling else self._in_redis
        return self._in_redis

    def note_loaded(self, quiet_s: float, seen: Sequence[Keys] = ()) -> None:
        """Note that the local store has all of the shard, *seen* among it, the keys of its seen
        URLs. *quiet_s*: for how long after the claim there may be fetches of hosts that it knows
        nothing of."""
        self._quiet_until_s = self._claimed_at_s + quiet_s
        self._loaded_keys = seen

    @property
    def takes_links(self) -> bool:
        """Whether links may be added to the frontier of this shard. Those that are found before go
        to its inbox: a server that loses the claim loses all that was acknowledged under it, and
        the worker can send that again only to an inbox, which is there whoever owns the shard."""
        return self.is_owned and self._is_claim_sure

    def may_lease(self, now_s: float) -> bool:
        """Return whether URLs of the shard may be leased."""
        return self.is_owned and not self._is_releasing and now_s >= self._quiet_until_s

    def may_begin(self, lease_id: int, now_s: float) -> bool:
        """Return whether a request may be sent under this lease: Redis has it, and the shard is
        owned for long enough that the request is on the wire before another one may claim it."""
        name = keys.lease_name(lease_id)
        if not self.is_certain(now_s) or self.mirror.opens_unsent(name):
            return False
        return not any(name in batch.leases for batch in self._after(self.acked))

    def is_certain(self, now_s: float) -> bool:
        """Return whether the shard is owned for long enough that a request that is sent now is on
        the wire before another one may claim it."""
        margin_s = _MARGIN * self.commands.lease_s
        return self.is_owned and now_s < self._leased_until_s - margin_s

    def _after(self, number: int) -> list[Batch]:
        """Return the batches after *number*, in order. Most of the log is older."""
        after = list(takewhile(lambda batch: batch.number > number, reversed(self._log)))
        after.reverse()
        return after

    @property
    def is_unsure(self) -> bool:
        """Whether the server may lack what it had acknowledged."""
        return self._is_doubtful

    def doubt(self) -> None:
        """Ask the server what it has before anything else: it may have restarted."""
        self._is_doubtful = True

    def recent_keys(self) -> list[int]:
        """Return the keys of seen URLs that the next owner may not know, if the shard is lost, or
        the server loses its last second: what was not acknowledged long ago, and if the claim was
        not, what the last owner may have written just before."""
        loaded = chain.from_iterable(each.tolist() for each in self._loaded_keys)
        return [*loaded, *keys_of(self._log), *self.mirror.unsent_keys()]

    def is_due(self, now_s: float) -> bool:
        """Return whether there is something to be sent."""
        return self.is_owned and (
            self._is_doubtful
            or self._is_claiming
            or self._filling is not None
            or self.mirror.position > self._in_redis
            or now_s >= self.renewed_at_s
        )

    @property
    def renewed_at_s(self) -> float:
        """When an empty batch is to renew the lease, if nothing else does."""
        return self._leased_until_s - (1 - _RENEWED_AT) * self.commands.lease_s

    def next_commands(self, now_s: float, round_number: int) -> list[Sending]:
        """Return what is to be sent in this round, in this order. Call `on_replies` before the next
        call."""
        if not self.is_owned:
            return []
        if self._is_claiming:
            return [Sending(round_number, self.commands.claim(begins=True))]
        if self._is_doubtful:
            return [Sending(round_number, self.commands.apply(_NO_RUN, 0, 0, b"", ()))]
        self._fill_some()
        for batch in self.mirror.take(even_empty=now_s >= self.renewed_at_s):
            batch.made_in = round_number
            self._log.append(batch)
        last = self._in_redis
        missing = self._after(last)
        has_next = missing and (missing[0].is_first or missing[0].number == last + 1)
        if not has_next and last < self.mirror.number:
            self._begin_filling()
            return self.next_commands(now_s, round_number)
        return self._applied(missing, last)

    def release_soon(self, *, resends: bool = True) -> None:
        """Release the shard with a last batch: only a server that has all before it takes that.
        What is noted from now on is refused. If the server has lost something before, it is sent
        again; unless *resends* is False: then the shard is left to its next owner as it is."""
        self._is_releasing, self._resends = True, resends
        if self._filling is None:
            self._note_release()

    def _note_release(self) -> None:
        self.mirror.note_last_command(PlainCommand("HSET", "", ("owner", "")))
        self._released_at = self.mirror.number

    def note_loss(self, run: bytes) -> None:
        """Note that another shard of the server was lost, which has what was sent in this *run* of
        the server. If the server has restarted since, it may lack links that it had acknowledged
        there, which no one can send again, and verdicts of this shard were given after them. So
        this shard is given up too: its next owner does again what Redis does not have."""
        if self.run != run:
            self.is_owned = False
        self._must_be_same_run = self._is_doubtful = True

    def command_to_post(self) -> Command | None:
        """Return the batch of what was noted, to be sent without waiting for a reply behind those
        that are under way: for what must not be lost with this process. It is sent again later, as
        if it had not been."""
        made = self.mirror.take()
        self._log += made
        if len(made) != 1:
            return None
        return self._applied(made, made[0].number - 1)[0].command

    def on_replies(self, replies: Sequence[Any], sent_at_s: float, now_s: float) -> bytes | None:
        """Take the replies to the last commands, each of which may be a Fault: then it is not known
        whether it was carried out. Return the run of the server, if it is another one by now."""
        self.fault = next((reply for reply in replies if isinstance(reply, FAULTS)), None)
        if self._is_claiming and self.fault is None:
            self._on_claimed(read_claim_reply(replies[0]), sent_at_s)
            return None
        last_run = self.run
        for reply in replies:
            if isinstance(reply, FAULTS):
                break
            self._is_doubtful = False
            self._on_applied(reply, sent_at_s)
        if not self._is_doubtful:
            self._must_be_same_run = False
        for batch in reversed(self._log):
            if batch.acked_at_s < inf:
                break
            if batch.number <= self._in_redis:
                batch.acked_at_s = now_s
        while self._log and self._log[0].acked_at_s < self._kept_since_s:
            self._log.popleft()
        if self._is_claim_sure:
            self._loaded_keys = ()
        self.inbox.note_acked(self.acked)
        return self.run if self.run != last_run else None

    def _on_applied(self, reply: Any, sent_at_s: float) -> None:
        match read_apply_reply(reply):
            case Applied(seq, is_lossy, inbox):
                self._in_redis = seq
                # Not by the clock alone: a server that did not answer for so long has restarted,
                # perhaps, and what it has lost was acknowledged long ago.
                self._kept_since_s = sent_at_s - KEPT_S
                self._is_claim_sure |= sent_at_s >= self._claimed_at_s + VERDICT_DELAY_S
                self.inbox.note_length(inbox, sent_at_s)
                self._leased_until_s = sent_at_s + self.commands.lease_s
                # Nothing is lost that this owner has sent. Until its quiet time is over, the next
                # owner has to keep one, too.
                if self._released_at is not None and self.acked >= self._released_at:
                    self.is_released, self.is_owned = True, False
                elif is_lossy and sent_at_s >= self._quiet_until_s and not self._is_releasing:
                    self.mirror.note_command(PlainCommand("HDEL", "", ("lost",)))
            case BatchGap(seq):
                self._in_redis = seq  # this one, if its reply was lost; or the server lost some
            case ServerRestarted(run, seq):
                # After the lease another owner may have claimed the shard, and the server have lost
                # that: the next one must know that some is lost.
                is_leased = sent_at_s < self._leased_until_s
                is_late = self._must_be_same_run and run != self.run
                self.is_owned &= self._resends and is_leased and not is_late
                if self.is_owned:
                    self.run, self._in_redis = run, seq
                self._is_claim_sure = True  # it was on disk
            case ShardTaken():
                self.is_owned = False
            case ShardMissing():
                # After the lease the shard may have had another owner before the server lost it:
                # that one fills it, with what it has done since.
                self.run = b""
                may_claim = self._resends and sent_at_s < self._leased_until_s
                self._is_claiming = self.is_owned = may_claim

    def _on_claimed(self, reply: ClaimReply, sent_at_s: float) -> None:
        self._is_claiming = self._is_doubtful = False
        if isinstance(reply, ClaimedShard):
            self.run, self._in_redis = reply.run, reply.seq
            self._leased_until_s = sent_at_s + self.commands.lease_s
            self._begin_filling()
        else:
            self.is_owned = False

    def _begin_filling(self) -> None:
        """Send all of the shard again, slice by slice: Redis has lost more than is kept."""
        self._acked_before = self.acked
        self._filled_at = self._released_at = None
        self._log.clear()
        self.mirror.begin_again()
        self._filling = self._contents()

    def _fill_some(self) -> None:
        if self._filling is None:
            return
        changes = next(self._filling, None)
        if changes is not None:
            self.mirror.note(changes)
            return
        self._filling = None
        self.mirror.note_command(PlainCommand("HDEL", "", ("filling",)))
        self._filled_at = self.mirror.position
        if self._is_releasing:
            self._note_release()

    def _applied(self, batches: Iterable[Batch], last: int) -> list[Sending]:
        """Return the commands of *batches*, the first of which comes after number *last*."""
        asked = []
        for batch in batches:
            command = self.commands.apply(
                self.run, last, batch.number, batch.totals, batch.commands
            )
            asked.append(Sending(batch.made_in, command))
            last = batch.number
        return asked


Line: TypeAlias = OwnedShard | ShardPushes
"""What is sent in an order of its own."""


class Arrived(NamedTuple):
    """What was read of the inbox of a shard. When it is committed, `shard.inbox.delete` the
    entries."""

    shard: OwnedShard
    entries: list[InboxEntry]


class RoundResult(NamedTuple):
    faults: list[Fault]  # of what was sent; none: all servers answered
    arrived: list[Arrived]
    lost: list[OwnedShard]  # shards that have another owner by now
    unreadable: list[ForeignData]


class SendingRounds:
    """What one worker sends, round by round: batches of its shards, pushes into inboxes; and what
    it reads of its own.

    What is sent again after a restart keeps the order in which it was made. A verdict before its
    links, which are in another shard, and another restart between the two would lose them. So of a
    server that has restarted first each shard is asked what it lacks, then it gets the pushes
    again, and then the batches of all shards.
    """

    def __init__(self, pushes: LinkPushes, server_of: Callable[[int], str]) -> None:
        """*server_of* returns the name of the server that has a shard."""
        self.pushes = pushes
        self.shards: dict[int, OwnedShard] = {}
        self._server_of = server_of
        self._round = 0
        self._asked: list[Line] = []  # a line for each command
        self._reading: list[OwnedShard] = []

    def is_due(self, now_s: float) -> bool:
        """Return whether there is something to be sent or read."""
        unsure = self._unsure_servers()
        return bool(self._due(now_s, unsure) or self._next_to_read(now_s, unsure))

    @property
    def renewed_at_s(self) -> float:
        """When something is to be sent even if nothing is noted."""
        return min((shard.renewed_at_s for shard in self.shards.values()), default=inf)

    def next_commands(self, now_s: float) -> list[tuple[int, Command]]:
        """Return what is to be sent in this round, each with its shard, in this order. Call
        `on_replies` before the next call."""
        self._round += 1
        self.pushes.drain(now_s)
        unsure = self._unsure_servers()
        asks = [
            (line, sending)
            for line in self._due(now_s, unsure)
            for sending in line.next_commands(now_s, self._round)
        ]
        asks.sort(key=lambda ask: ask[1].made_in)
        self._asked = [line for line, _ in asks]
        self._reading = self._next_to_read(now_s, unsure)
        return [
            *((line.commands.shard, sending.command) for line, sending in asks),
            *((each.commands.shard, each.inbox.next_command(now_s)) for each in self._reading),
        ]

    def on_replies(self, replies: Sequence[Any], sent_at_s: float, now_s: float) -> RoundResult:
        """Take the replies to the last commands, each of which may be a Fault. Then `self.shards`
        has no shard that is lost."""
        of_line: dict[Line, list[Any]] = defaultdict(list)
        for line, reply in zip(self._asked, replies[: len(self._asked)], strict=True):
            of_line[line].append(reply)
        for line, of_this in of_line.items():
            run = line.on_replies(of_this, sent_at_s, now_s)
            if run is not None:
                self._doubt_others(self._server(line), run)
        faults = [line.fault for line in of_line if line.fault is not None]
        result = RoundResult(faults, [], [], [])
        for shard, reply in zip(self._reading, replies[len(self._asked) :], strict=True):
            entries = shard.inbox.on_reply(reply)
            if entries and shard.is_owned:
                result.arrived.append(Arrived(shard, entries))
            if isinstance(shard.inbox.fault, ForeignData):
                result.unreadable.append(shard.inbox.fault)
        self._note_losses()
        for shard in [each for each in self.shards.values() if not each.is_owned]:
            del self.shards[shard.commands.shard]
            if not shard.is_released:
                result.lost.append(shard)
        return result

    def _note_losses(self) -> None:
        """Note at the other shards of its server that a shard was lost."""
        lost = [each for each in self.shards.values() if not (each.is_owned or each.is_released)]
        for shard in self.shards.values():
            for each in lost:
                if self._server(each) == self._server(shard) and shard.is_owned:
                    shard.note_loss(each.run)

    def _lines(self) -> Iterator[Line]:
        yield from self.pushes
        yield from self.shards.values()

    def _server(self, line: Line) -> str:
        return self._server_of(line.commands.shard)

    def _doubt_others(self, server: str, run: bytes) -> None:
        """Doubt what is known of *server* from before this *run*."""
        for line in self._lines():
            if line.run != run and self._server(line) == server:
                line.doubt()

    def _unsure_servers(self) -> set[str]:
        return {self._server(line) for line in self._lines() if line.is_unsure}

    def _due(self, now_s: float, unsure: Container[str]) -> list[Line]:
        """Return what is to be sent now: to servers that are *unsure*, only what makes it known
        what they have."""
        return [
            line
            for line in self._lines()
            if line.is_due(now_s) and (line.is_unsure or self._server(line) not in unsure)
        ]

    def _next_to_read(self, now_s: float, unsure: Container[str]) -> list[OwnedShard]:
        """Return the shards whose inboxes are to be read now, a bounded number of those that are
        known to have something, and those that are to be looked into."""
        due = [
            shard
            for shard in self.shards.values()
            if shard.may_lease(now_s)
            and shard.inbox.is_due(now_s)
            and self._server(shard) not in unsure
        ]
        full = [shard for shard in due if shard.inbox.has_unread]
        if full and sum(shard.inbox.taken for shard in self.shards.values()) >= _MAX_TAKEN:
            full = []
        full.sort(key=lambda shard: shard.inbox.asked_at_s)
        return full[:_READS] + [shard for shard in due if not shard.inbox.has_unread]


async def claim(nodes: Nodes, commands: ShardCommands, *, begins: bool) -> ClaimReply:
    """Claim a shard; *begins*: or begin it, if it is not there. Raises a Fault."""
    (reply,) = await nodes.commands([(commands.shard, commands.claim(begins=begins))])
    if isinstance(reply, FAULTS):
        raise reply
    return read_claim_reply(reply)


class ShardSender:
    """Sends what the mirrors of this worker's shards have and what goes to inboxes, all of it
    together, renews its leases, and reads its inboxes. One task, however many shards."""

    def __init__(
        self,
        nodes: Nodes,
        now_s: Callable[[], float],
        pushes: LinkPushes,
        *,
        on_lost: Callable[[OwnedShard], None],
        on_arrived: Callable[[Arrived], None],
    ) -> None:
        """*now_s*: the steady clock. *on_lost* is called with a shard that has another owner by
        now: nothing of it is sent any more, and no result under its leases counts. *on_arrived*:
        with what was read of an inbox."""
        self._nodes = nodes
        self._now_s = now_s
        self._pushes = pushes
        self._on_lost = on_lost
        self._on_arrived = on_arrived
        self._sending = SendingRounds(pushes, nodes.node_of)
        self._is_due = asyncio.Event()
        self._rounds = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def add(self, shard: OwnedShard) -> None:
        self._sending.shards[shard.commands.shard] = shard
        self._begin()

    def push(self, found: Sequence[Candidate]) -> list[NotedLinks]:
        """Send the links *found* to the inboxes of their shards."""
        noted = self._pushes.add(found)
        self._begin()
        return noted

    def _begin(self) -> None:
        self.send_soon()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_rounds())

    def send_soon(self) -> None:
        self._is_due.set()

    def post(self, shard: OwnedShard) -> None:
        """Send what the mirror of *shard* has before this returns, as far as the socket takes it:
        for the rest that an answer asks for, which must be kept if this process dies now."""
        if (command := shard.command_to_post()) is not None:
            self._nodes.post_command(shard.commands.shard, command, self.send_soon)

    def post_pushes(self, noted: Sequence[NotedLinks]) -> None:
        """Send what waits for the inboxes of *noted* as `post` does."""
        for pushes, _ in noted:
            if (command := pushes.command_to_post()) is not None:
                self._nodes.post_command(pushes.commands.shard, command, self.send_soon)

    async def wait_until_durable(self) -> None:
        """Return when Redis has all that was noted so far, of all shards and for all inboxes; of
        the latter the outbox may have some. Raises StoreUnavailable if a shard is lost meanwhile.
        """
        of_shards = [(each, each.mirror.position) for each in self._sending.shards.values()]
        await self.wait_until(
            lambda: all(
                shard.acked >= position or not shard.is_owned for shard, position in of_shards
            )
        )
        await self.wait_until_pushed()
        if any(not shard.is_owned and not shard.is_released for shard, _ in of_shards):
            raise StoreUnavailable("a shard of this worker has another owner by now")

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return when it *is_so*, which is asked after each round."""
        async with self._rounds:
            await self._rounds.wait_for(is_so)

    def has_pushed(self) -> bool:
        """Return whether the inboxes or the outbox have all links that were pushed."""
        return self._pushes.is_idle()

    async def wait_until_pushed(self) -> None:
        """Return when the inboxes or the outbox have all links that were pushed before this."""
        positions = [(each, each.position) for each in self._pushes]
        await self.wait_until(lambda: all(each.acked >= at for each, at in positions))

    async def release(self, shard: OwnedShard, *, resends: bool = True) -> None:
        """Send what is left of *shard*, and release it as `OwnedShard.release_soon`. Raises
        StoreUnavailable if it is lost: then its lease has to end."""
        shard.release_soon(resends=resends)
        self.send_soon()
        await self.wait_until(lambda: not shard.is_owned)
        if not shard.is_released:
            raise StoreUnavailable("a shard of this worker was lost before it was released")

    async def close(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _send_rounds(self) -> None:
        try:
            while True:
                if not await self._send_round():
                    await asyncio.sleep(_RETRY_S)
                elif not self._sending.is_due(self._now_s()):
                    self._is_due.clear()
                    await self._wait_until_due()
        except Exception as bug:  # else the crawl would wait for ever
            logger.exception("Nothing can be sent to Redis any more")
            self._pushes.on_fault(CrawlerError(f"nothing can be sent to Redis any more: {bug!r}"))

    async def _wait_until_due(self) -> None:
        wait_s = max(0.0, min(self._sending.renewed_at_s - self._now_s(), POLL_S))
        try:
            async with asyncio.timeout(wait_s):
                await self._is_due.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_GATHER_S)

    async def _send_round(self) -> bool:
        """Return whether the servers answered."""
        self._pushes.store_unsent()  # what a server above its mark is not to get
        sent_at_s = self._now_s()
        asks = self._sending.next_commands(sent_at_s)
        replies = await self._nodes.commands(asks) if asks else []
        result = self._sending.on_replies(replies, sent_at_s, self._now_s())
        for arrived in result.arrived:
            self._on_arrived(arrived)
        for fault in (*result.faults, *result.unreadable):
            if not isinstance(fault, OutOfMemory):  # then the outbox takes the links
                self._pushes.on_fault(fault)
        for shard in result.lost:
            self._on_lost(shard)
        self._pushes.store_unsent()
        await self._secure_outbox()
        async with self._rounds:
            self._rounds.notify_all()
        return not result.faults

    async def _secure_outbox(self) -> None:
        """Make what was stored in the outbox survive this process, and a power cut."""
        overflow = self._pushes.overflow
        if not self._pushes.has_stored or not await overflow.ensure_noted():
            return
        if overflow.sync is not None:
            try:
                await asyncio.to_thread(overflow.sync)
            except StoreUnavailable as fault:
                self._pushes.on_fault(fault)
                return
        self._pushes.note_secured()
