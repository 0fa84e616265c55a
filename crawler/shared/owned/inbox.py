"""The inboxes of owned shards: links of a page for a shard that another worker owns, or none.

Rule: no socket and no clock here. An entry has a name of its sender's, so a repeat changes nothing;
its owner deletes by name what it has read, in the batch of the commit that has the links, or in a
later one. So a link is in an inbox or in the mirror of its shard, or its page is not finished.

    sender: links -> an entry of their shard's inbox -> acknowledged -> the verdict of their page
    owner:  entry -> its links are added, committed -> the entry is deleted, after or with that

A sender keeps what was acknowledged until it surely is on the disk of the server, and sends it
again if that has restarted. The seen test drops what an owner reads twice. What no owner had read
for KEPT_S is lost with a server that comes back empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from crawler.frontier.seen import RecentKeys
from crawler.frontier.shards import shard_of
from crawler.model.types import Candidate, CrawlerError, Purpose, StoreUnavailable
from crawler.shared.codec import (
    MAX_BATCH_BYTES,
    Packer,
    pack_candidate,
    split_links,
    unpack_candidate,
)
from crawler.shared.faults import FAULTS, Fault, ForeignData, OutOfMemory
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.owned.mirror import Mirror
from crawler.shared.owned.scripts import (
    INBOX,
    Command,
    InboxCommands,
    PlainCommand,
    Sending,
    ShardCommands,
    read_push_reply,
)
from crawler.shared.worker.outbox import OutboxBatch, Overflow

VERDICT_DELAY_S: Final = 4.0
"""The delay of verdicts. If several servers crash, a verdict must not survive links before it.
Redis writes its file each second, and up to 2 s later while its disk is slow."""
MAX_UNSENT_LINKS: Final = 20_000  # in memory (8 MB); more go into the outbox
ACKNOWLEDGED_LINKS: Final = 1 << 17
"""Links remembered as acknowledged, at most: 1 MB. Of eight links in nine that a crawl found before
most are among so many."""
KEPT_S: Final = 10.0
"""For how long what was acknowledged is kept: a server writes its file each second, and half as
late again at worst; a replica lags by what its master bounds."""
_CHECK_S: Final = 2.0  # the interval of asking a server that may lose some whether it restarted
ENTRY_LINKS: Final = 100  # at most, some 8 kB: an owner reads whole entries
_COMMAND_ENTRIES: Final = 500
_DRAIN_S: Final = 1.0  # the interval of looks into the outbox
LINKS_PER_BATCH: Final = 1000  # of a shard that are sent and not yet dropped from the outbox
_DRAINED_BATCHES: Final = 32  # of the outbox, until they are on the disk of their server: 8,000/s
POLL_S: Final = 0.5  # for an inbox whose shard is not written to: 1 us of the server's time
_PAGE_ENTRIES: Final = 50  # read at once: mostly 200 links, 5,000 at worst, in 15 ms

# The first byte of an entry: links of pages, or URLs that were pushed from outside, which the owner
# reports on.
_LINKS: Final = b"l"
_PUSHED: Final = b"p"


def links_by_shard(found: Sequence[Candidate], shards: int) -> dict[int, list[Candidate]]:
    by_shard: dict[int, list[Candidate]] = {}
    known: dict[str, int] = {}
    for candidate in found:
        shard = known.get(candidate.domain)
        if shard is None:
            shard = known[candidate.domain] = shard_of(candidate.domain, shards)
        by_shard.setdefault(shard, []).append(candidate)
    return by_shard


class AcknowledgedLinks:
    """The links that a server counted as seen lately: found once more, they are not sent again.

    A lost one would be missing for good, so nothing is kept that may be new to its server: links
    of a call with some over budget, and after a restart of any server, all of them. Acts of the
    operator make no URL new: one that was forgotten is still counted as seen.
    """

    def __init__(self) -> None:
        self._keys = RecentKeys(ACKNOWLEDGED_LINKS)

    def clear(self) -> None:
        self._keys.clear()

    def add(self, acknowledged: Iterable[Candidate]) -> None:
        keys = [link.key for link in acknowledged if _is_plain(link)]
        self._keys.add(np.array(keys, np.uint64))

    def without(self, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the links of *found* that are to be sent."""
        tested = np.fromiter((link.key for link in found), np.uint64, len(found))
        are_known = self._keys.contain(tested).tolist()
        return [
            link
            for link, is_known in zip(found, are_known, strict=True)
            if not (is_known and _is_plain(link))
        ]


_PAGE: Final = Purpose.PAGE  # each look-up of a member of an enumeration takes 0.1 us


def _is_plain(link: Candidate) -> bool:
    """Return whether *link* was found on a page, to be fetched at its turn if it is new."""
    return (
        link.depth > 0
        and link.needs_seen_test
        and link.level != URGENT_LEVEL
        and link.purpose is _PAGE
        and not (link.not_before or link.request or link.seed or link.is_sitemap)
    )


class _Group(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Links of one host: what the queues of a shard know, and so `pack_candidate` leaves out."""

    host: str
    level: int
    not_before: float
    links: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode_groups = msgspec.msgpack.Decoder(list[_Group]).decode


def pack_links(links: Iterable[Candidate], *, are_pushed: bool = False) -> bytes:
    """Return *links* as an entry. *are_pushed*: they were pushed from outside."""
    groups: dict[tuple[str, str, int, float], list[Candidate]] = {}
    for link in links:
        groups.setdefault((link.host, link.domain, link.level, link.not_before), []).append(link)
    packed = []
    for (host, domain, level, not_before), some in groups.items():
        pack = Packer(host, domain).pack
        bodies = [pack_candidate(link) if link.may_be_archived else pack(link) for link in some]
        packed.append(_Group(host, level, not_before, bodies))
    return (_PUSHED if are_pushed else _LINKS) + _encode(packed)


def unpack_links(entry: bytes) -> list[Candidate]:
    """Return the links of *entry*. Raises ForeignData if it has none."""
    try:
        if not entry.startswith((_LINKS, _PUSHED)):
            raise ValueError("it is of a kind that this version does not know")
        return [
            replace(link, not_before=group.not_before) if group.not_before else link
            for group in _decode_groups(entry[1:])
            for link in (unpack_candidate(each, group.host, group.level) for each in group.links)
        ]
    except (msgspec.MsgspecError, ValueError) as error:
        raise ForeignData(
            f"an entry of an inbox of the crawl in Redis cannot be read: {error}"
        ) from error


@dataclass(slots=True, eq=False)
class _Push:
    """An entry on its way into an inbox."""

    begin: int  # how many links were noted before its first one
    name: bytes
    entry: bytes
    links: Sequence[Candidate]  # until it is acknowledged
    batch: OutboxBatch | None  # of the outbox, which has its links as long as it is named here
    acked_at_s: float = inf


class ShardPushes:
    """What one worker sends to the inbox of one shard. Positions are numbers of links, in the order
    in which they were noted. Times are of the worker's steady clock."""

    def __init__(
        self, commands: InboxCommands, names: Iterator[bytes], known: AcknowledgedLinks
    ) -> None:
        self.commands = commands
        self.fault: Fault | None = None  # of the last try to send anything
        self.position = 0  # of the last link that was noted
        self.run: bytes | None = None  # of the server, for which what it has is known
        self._names = names
        self._known = known
        self._waiting: list[Candidate] = []  # in no entry yet
        self._unsent: list[_Push] = []  # not acknowledged
        self._kept: deque[_Push] = deque()  # acknowledged
        self._refused: list[_Push] = []  # of those that are not acknowledged
        self._stored: list[_Push] = []  # in the outbox, which may not survive all yet
        self._asked: list[list[_Push]] = []
        self._asks_run = False
        self._is_doubtful = False  # the server has restarted, perhaps
        self._acked_before = 0  # until the server restarted
        self._answered_at_s = -inf  # when a command that it answered in this run was sent

    @property
    def acked(self) -> int:
        """The position up to which a server or the outbox has all."""
        begins = [pushes[0].begin for pushes in (self._unsent, self._stored) if pushes]
        return min(begins, default=self.position - len(self._waiting))

    @property
    def is_idle(self) -> bool:
        """Whether a server or the outbox has all that was noted."""
        return not (self._waiting or self._unsent or self._stored)

    @property
    def settled(self) -> int:
        """The position up to which all is surely on disk: the server answered long after it."""
        sure_at_s = self._answered_at_s - VERDICT_DELAY_S
        begins = (push.begin for push in self._kept if push.acked_at_s > sure_at_s)
        return min(self.acked, min(begins, default=self.acked))

    @property
    def unsent_links(self) -> int:
        """How many links are in memory only."""
        return len(self._waiting) + sum(len(push.links) for push in self._unsent)

    @property
    def has_stored(self) -> bool:
        """Whether links in the outbox wait for `note_secured`."""
        return bool(self._stored)

    @property
    def is_unsure(self) -> bool:
        """Whether the server lacks what it had acknowledged, or may lack it. Nothing that was made
        later may be sent to this server before: a verdict would be there without its links."""
        return self._is_doubtful or self.acked < self._acked_before

    def doubt(self) -> None:
        """Ask the server of which run it is before anything else: it may have restarted."""
        self._is_doubtful = bool(self._kept)

    def is_due(self, now_s: float) -> bool:
        """Return whether there is something to be sent."""
        is_to_be_sent = self._waiting or self._unsent or self._is_doubtful
        return bool(is_to_be_sent) or self._is_check_due(now_s)

    def _is_check_due(self, now_s: float) -> bool:
        return bool(self._kept) and now_s >= self._answered_at_s + _CHECK_S

    def note(self, links: Sequence[Candidate], batch: OutboxBatch | None = None) -> None:
        """Note *links*, which are those of *batch*, or in no outbox."""
        if batch is not None:
            self._make()
        self.position += len(links)
        self._waiting += links
        if batch is not None:
            self._make(batch)

    def _make(self, batch: OutboxBatch | None = None) -> None:
        """Make entries of what waits."""
        begin = self.position - len(self._waiting)
        for links in split_links(self._waiting, ENTRY_LINKS):
            self._unsent.append(_Push(begin, next(self._names), pack_links(links), links, batch))
            begin += len(links)
        self._waiting = []

    def next_commands(self, now_s: float, round_number: int) -> list[Sending]:
        """Return what is to be sent in this round. Call `on_replies` before the next call."""
        self._make()
        self._asked = list(_in_commands(self._unsent))
        self._asks_run = self._is_doubtful or (not self._asked and self._is_check_due(now_s))
        commands = [self.commands.get_run()] if self._asks_run else []
        for pushes in self._asked:
            entries = [(push.name, push.entry) for push in pushes]
            commands.append(self.commands.push(self.run or b"", entries))
        # Before all batches of the round: these may have verdicts, and nothing that links need.
        return [Sending(0, command) for command in commands]

    def command_to_post(self) -> Command | None:
        """Return what waits, to be sent without waiting for a reply: for what must not be lost with
        this process. It is sent again later, under the same names, as if it had not been."""
        self._make()
        unsent = [(push.name, push.entry) for push in self._unsent[-1:]]
        return self.commands.push(self.run or b"", unsent) if unsent else None

    def on_replies(self, replies: Sequence[Any], sent_at_s: float, now_s: float) -> bytes | None:
        """Take the replies to the last commands, each of which may be a Fault: then it is not known
        whether it was carried out. Return the run of the server, if it is another one by now."""
        self.fault = next((reply for reply in replies if isinstance(reply, FAULTS)), None)
        last_run = self.run
        pushed = iter(replies)
        if self._asks_run and not isinstance(run := next(pushed), FAULTS):
            self._on_run(run or b"", sent_at_s)
        for pushes, reply in zip(self._asked, pushed, strict=True):
            if isinstance(reply, OutOfMemory):
                self._refused += pushes
            elif not isinstance(reply, FAULTS):
                run = read_push_reply(reply)
                self._on_run(self.run if run is None else run, sent_at_s)
                if run is None:
                    self._on_acked(pushes, now_s)
        self._unsent = [push for push in self._unsent if push.acked_at_s == inf]
        return self.run if last_run not in (None, self.run) else None

    def _on_run(self, run: bytes | None, sent_at_s: float) -> None:
        """Note that the server answers in this *run*."""
        self._is_doubtful = False
        if run == self.run:
            self._answered_at_s = sent_at_s
            while self._kept and self._kept[0].acked_at_s < sent_at_s - KEPT_S:
                self._kept.popleft()
            return
        if self.run is not None:
            self._known.clear()
        self._acked_before = max(self._acked_before, self.acked)
        self.run = run
        for push in self._kept:
            push.acked_at_s = inf
        self._unsent = sorted([*self._kept, *self._unsent], key=lambda push: push.begin)
        self._kept.clear()

    def _on_acked(self, pushes: Iterable[_Push], now_s: float) -> None:
        for push in pushes:
            push.acked_at_s = now_s
            self._known.add(push.links)
            push.links = ()
            self._kept.append(push)

    def take_unsent(self, *, even_others: bool) -> list[_Push]:
        """Return the entries that were refused, *even_others*: all that are not acknowledged. They
        are sent until `note_stored`."""
        if even_others:
            self._make()
        refused, self._refused = self._refused, []
        return list(self._unsent) if even_others else refused

    def note_stored(self, push: _Push) -> None:
        """Note that the links of *push* are in the outbox."""
        self._unsent.remove(push)
        if push.batch is None:
            self._stored.append(push)

    def note_dropped(self, batch: OutboxBatch) -> None:
        """Note that the outbox has the links of *batch* no more."""
        for push in self._kept:
            if push.batch is batch:
                push.batch = None

    def note_secured(self) -> None:
        """Note that what was stored survives all that the outbox survives."""
        self._stored = []


def _in_commands(pushes: Iterable[_Push]) -> Iterator[list[_Push]]:
    part: list[_Push] = []
    filled = 0
    for push in pushes:
        if part and (len(part) == _COMMAND_ENTRIES or filled + len(push.entry) > MAX_BATCH_BYTES):
            yield part
            part, filled = [], 0
        part.append(push)
        filled += len(push.entry)
    if part:
        yield part


class NotedLinks(NamedTuple):
    """Links of a page that some shard will have when `pushes.acked` has come to *position*."""

    pushes: ShardPushes
    position: int


class _Drained(NamedTuple):
    """A batch of the outbox that was sent."""

    batch: OutboxBatch
    noted: NotedLinks


class LinkPushes:
    """What one worker sends to all inboxes. It bounds the links in memory: with more, all go into
    the outbox on disk, as do those that a server has no memory for."""

    def __init__(
        self,
        commands_of: Callable[[int], InboxCommands],
        shards: int,
        sender: bytes,
        overflow: Overflow,
        on_fault: Callable[[CrawlerError], None],
    ) -> None:
        """*sender*: random bytes, of this process alone. *on_fault* is called with what keeps links
        from a server that is full, or from our disk."""
        self.overflow = overflow
        self.on_fault = on_fault
        self.is_congested = False  # our disk has no room for them either
        self._commands_of = commands_of
        self._shards = shards
        self._names = (sender + number.to_bytes(6) for number in count())
        self._of_shard: dict[int, ShardPushes] = {}
        self._known = AcknowledgedLinks()
        self._draining: dict[int, _Drained] = {}
        self._drain_at_s = -inf

    def __iter__(self) -> Iterator[ShardPushes]:
        return iter(self._of_shard.values())

    def add(self, found: Sequence[Candidate]) -> list[NotedLinks]:
        """Note the links *found*, but for those that were acknowledged lately."""
        noted = []
        for shard, links in links_by_shard(found, self._shards).items():
            pushes = self._pushes(shard)
            pushes.note(self._known.without(links))
            noted.append(NotedLinks(pushes, pushes.position))
        return noted

    def forget_known(self) -> None:
        """Send each link again, even if it was acknowledged lately: rules or budgets have changed,
        so that what an owner refused may be admitted now."""
        self._known.clear()

    def _pushes(self, shard: int) -> ShardPushes:
        if shard not in self._of_shard:
            pushes = ShardPushes(self._commands_of(shard), self._names, self._known)
            self._of_shard[shard] = pushes
        return self._of_shard[shard]

    def is_idle(self) -> bool:
        """Return whether all that was noted is acknowledged, or safe in the outbox."""
        return all(pushes.is_idle for pushes in self._of_shard.values())

    def store_all(self) -> None:
        """Put all that is not acknowledged into the outbox, for the next start. Raises
        StoreUnavailable; then its pages are not finished either."""
        for pushes in self:
            for push in pushes.take_unsent(even_others=True):
                self._store(pushes, push)

    def store_unsent(self) -> None:
        """Put links into the outbox: those that were refused, and if there are too many, all. Not
        to be called while commands are under way."""
        links = sum(pushes.unsent_links for pushes in self)
        self.is_congested = False
        for pushes in self:
            even_others = links > MAX_UNSENT_LINKS or self.overflow.is_full(pushes.commands.shard)
            unsent = pushes.take_unsent(even_others=even_others)
            if unsent and isinstance(pushes.fault, OutOfMemory):
                self.on_fault(pushes.fault)
            for push in unsent:
                try:
                    self._store(pushes, push)
                except StoreUnavailable as refused:
                    self.is_congested = True
                    self.on_fault(refused)
                    return

    def _store(self, pushes: ShardPushes, push: _Push) -> None:
        if push.batch is None:
            self.overflow.outbox.put(push.links or unpack_links(push.entry))
        else:
            self._draining.pop(pushes.commands.shard, None)  # it is there, and stays
        pushes.note_stored(push)

    @property
    def has_stored(self) -> bool:
        """Whether links in the outbox are not secured."""
        return any(pushes.has_stored for pushes in self)

    def note_secured(self) -> None:
        for pushes in self:
            pushes.note_secured()

    def drain(self, now_s: float) -> None:
        """Send links from the outbox to shards whose servers have room. They stay there until they
        are surely on the server's disk: their page is finished."""
        outbox = self.overflow.outbox
        if now_s < self._drain_at_s or not len(outbox):
            return
        self._drain_at_s = now_s + _DRAIN_S
        for shard, (batch, (pushes, position)) in list(self._draining.items()):
            if pushes.settled >= position:
                try:
                    outbox.drop(batch)
                except StoreUnavailable as full:  # a full disk prevents deletions as well
                    self.on_fault(full)
                    return
                pushes.note_dropped(batch)
                del self._draining[shard]
        skip = {shard for shard in range(self._shards) if self.overflow.is_full(shard)}
        skip |= self._draining.keys()
        while len(self._draining) < _DRAINED_BATCHES:
            head = outbox.head(LINKS_PER_BATCH, skip)
            if head is None:
                return
            shard = head.queue.shard
            skip.add(shard)
            pushes = self._pushes(shard)
            pushes.note(head.links, head)
            self._draining[shard] = _Drained(head, NotedLinks(pushes, pushes.position))


class InboxEntry(NamedTuple):
    name: bytes
    links: list[Candidate]
    are_pushed: bool  # from outside


class InboxReader:
    """Reads the inbox of a shard that this worker owns. It is of one claim: what was taken and not
    deleted when the shard is lost or handed over is read by the next owner."""

    def __init__(self, commands: ShardCommands, mirror: Mirror) -> None:
        self.commands = commands
        self.fault: Fault | None = None  # of the last try to read
        self.asked_at_s = -inf
        self._mirror = mirror
        # The entries that were read, and the number of the batch that deletes each; inf: none does
        # yet. They are not read again before it is acknowledged.
        self._taken: dict[bytes, float] = {}
        self._length = 0  # of the inbox, when it was last known
        self._cursor = b"0"
        self._asks_page = False

    def is_due(self, now_s: float) -> bool:
        """Return whether there is something to be read, or to be looked for."""
        if isinstance(self.fault, ForeignData):
            return False
        return self.has_unread or now_s >= self.asked_at_s + POLL_S

    @property
    def has_unread(self) -> bool:
        """Whether there are entries that were not read."""
        return len(self._taken) < self._length

    @property
    def taken(self) -> int:
        """How many entries were read and are not deleted yet."""
        return len(self._taken)

    def note_length(self, entries: int, asked_at_s: float) -> None:
        """Note how many *entries* the inbox had."""
        self._length, self.asked_at_s = entries, asked_at_s

    def note_acked(self, number: int) -> None:
        """Note that all batches up to this *number* are acknowledged."""
        if self._taken:
            self._taken = {name: at for name, at in self._taken.items() if at > number}

    def next_command(self, now_s: float) -> Command:
        """Return a command that reads a page of entries, or how many there are. Call `on_reply`
        before the next call."""
        self.asked_at_s = now_s
        self._asks_page = self.has_unread
        key = self.commands.key(INBOX)
        if not self._asks_page:
            return ("HLEN", key)
        return ("HSCAN", key, self._cursor, "COUNT", _PAGE_ENTRIES)

    def on_reply(self, reply: Any) -> list[InboxEntry]:
        """Take the reply, and return the entries that were not read before. Call `delete` when what
        they have is committed."""
        self.fault = reply if isinstance(reply, FAULTS) else None
        if self.fault is not None:
            return []
        if not self._asks_page:
            self._length = reply
            return []
        cursor, flat = reply
        try:
            page = [
                InboxEntry(name, unpack_links(entry), entry.startswith(_PUSHED))
                for name, entry in dict(zip(flat[::2], flat[1::2], strict=True)).items()
                if name not in self._taken
            ]
        except ForeignData as fault:
            self.fault = fault
            return []
        if cursor == b"0" and not page:
            self._length = len(self._taken)  # until it is known again
        self._cursor = cursor
        self._taken.update((entry.name, inf) for entry in page)
        return page

    def delete(self, names: Iterable[bytes]) -> None:
        """Delete entries, what they have being committed: in the batch of the commit, or later."""
        deleted = list(names)
        self._mirror.note_command(PlainCommand("HDEL", INBOX, deleted))
        self._taken.update(dict.fromkeys(deleted, self._mirror.position))
