"""The mirror of one shard in Redis: the frontier's own write batches, numbered.

Rule: no socket and no clock here. What is noted is in the local store already; a batch has whole
commits, and batches are written in the order of their numbers. So what Redis has of a shard is the
store as it was after some commit, never a mixture.

Not mirrored is what a frontier makes anew when it opens (the places of hosts, the runs of seen
keys), and robots.txt, which the next owner fetches again. Waiting URLs come with their cash; what
the last owner had noted in memory of later links to them, and not added yet, is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from math import inf
from struct import pack, unpack
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from crawler.frontier import records as keys
from crawler.frontier.port import DurableStore
from crawler.frontier.records import decode_urls, encode
from crawler.frontier.seen import stored_keys
from crawler.frontier.staging import slices
from crawler.model.types import Candidate, HostKey
from crawler.shared.codec import Packer, pack_candidate, unpack_candidate
from crawler.shared.connection import Argument
from crawler.shared.owned.scripts import SEEN_KEYS, PlainCommand

Changes: TypeAlias = dict[bytes, bytes | None]
"""Records that were written at once; None: deleted."""

AS_THEY_ARE: Final = (
    *(keys.HOST, keys.OPEN, keys.LATER, keys.DOMAIN, keys.DEAD, keys.REFUSED),
    *(keys.ARRIVED, keys.UNDECIDED, keys.PATTERN, keys.ADDRESS),
    *(keys.GONE, keys.DATED, keys.SPILLED, keys.SEED_TALLY, keys.LISTED, keys.QUEUE),
)
"""Records that are fields of the hash of their letter."""

_FIELDS: Final = frozenset(prefix[0] for prefix in (*AS_THEY_ARE, keys.QUEUED))
_QUEUED, _OPEN, _ARRIVED = keys.QUEUED[0], keys.OPEN[0], keys.ARRIVED[0]
_LATER: Final = keys.LATER[0]
_ADMITTED_KEYS, _TOTALS = keys.ADMITTED_KEYS[0], keys.TOTALS[0]
_MIRRORED: Final = _FIELDS | {_ADMITTED_KEYS, _TOTALS}
_ALL_KINDS: Final = (*sorted(map(chr, _FIELDS)), SEEN_KEYS)
_ARGS: Final = 1000  # of one command: a script cannot unpack more than 8,000
# Of an element of the list of seen keys: eight fill a node of 8 kB, which is 8.1 B a key. One of 4
# kB is alone in an allocation of 5 kB.
_SEEN_BYTES: Final = 1016
_FULL: Final = 5_000  # records of a batch, after which another one begins: 1 to 5 MB
_SLICE: Final = 500  # records read at once when all are sent again
_NAME_END: Final = 10  # behind the host in the name of a chunk: 0, its level, its number


class _Links(msgspec.Struct, array_like=True, gc=False):
    """A chunk of ordinary links, in columns: unpacked in a third of the time, and 3 bytes a URL
    less than one by one. All else that they have is the default of a Candidate."""

    begin: str  # of all of them, before the host: "https://"
    domain: str
    ends: list[str]  # behind the host
    depths: list[int]
    keys: bytes  # eight bytes each
    cash: bytes  # two bytes each


_LINKS, _ONE_BY_ONE = b"l", b"o"  # the first byte of a packed chunk
_decode_links = msgspec.msgpack.Decoder(_Links).decode
_decode_packed = msgspec.msgpack.Decoder(list[bytes]).decode
_BEGINS: Final = ("https://", "http://")
_DEFAULTS: Final = tuple(
    str(each) if isinstance(each, StrEnum) else each
    for each in astuple(Candidate("", 0, HostKey(""), ""))[6:-1]
)
"""The fields of a Candidate between its level and its cash, as they are packed."""


def pack_chunk(name: bytes, chunk: bytes) -> bytes:
    """Return a chunk of waiting URLs without what its *name* says: host and level. The record
    repeats them for each URL: 169 bytes for one of 90, here 74."""
    urls = decode_urls(chunk)
    host, level = _queue_of(name)
    domain = urls[0].domain
    for begin in _BEGINS:
        stem = begin + host
        if all(_is_link(each, stem, host, domain, level) for each in urls):
            ends = [each.url[len(stem) :] for each in urls]
            keys_of = pack(f"<{len(urls)}Q", *(each.key for each in urls))
            depths = [each.depth for each in urls]
            cash = pack(f"<{len(urls)}H", *(each.cash for each in urls))
            return _LINKS + encode(_Links(begin, domain, ends, depths, keys_of, cash))
    packer = Packer(host, domain)
    return _ONE_BY_ONE + encode([_packed(each, packer, domain) for each in urls])


def _is_link(url: Candidate, stem: str, host: HostKey, domain: str, level: int) -> bool:
    return url.url.startswith(stem) and url == Candidate(
        url.url, url.key, host, domain, url.depth, level, cash=url.cash
    )


def _packed(url: Candidate, packer: Packer, domain: str) -> bytes:
    is_usual = url.domain == domain and not url.may_be_archived
    return packer.pack(url) if is_usual else pack_candidate(url)


def unpack_chunk(name: bytes, packed: bytes) -> tuple[int, bytes]:
    """Return how many URLs a packed chunk has, and the chunk as the record has it. Raises
    msgspec.MsgspecError, ValueError or struct.error if *packed* is none."""
    host, level = _queue_of(name)
    if packed.startswith(_LINKS):
        links = _decode_links(packed[1:])
        stem, domain, count = links.begin + host, links.domain, len(links.ends)
        keys_of, cash = unpack(f"<{count}Q", links.keys), unpack(f"<{count}H", links.cash)
        columns = zip(links.ends, keys_of, links.depths, cash, strict=True)
        # As Candidates, which take twice as long to make as tuples.
        rows = [
            (stem + end, key, host, domain, depth, level, *_DEFAULTS, each)
            for end, key, depth, each in columns
        ]
        return count, encode(rows)
    urls = [unpack_candidate(each, host, level) for each in _decode_packed(packed[1:])]
    return len(urls), encode(urls)


def _queue_of(name: bytes) -> tuple[HostKey, int]:
    """Return host and level of a chunk with this *name*."""
    return HostKey(name[:-_NAME_END].decode()), name[1 - _NAME_END]


@dataclass(slots=True)
class Batch:
    """Whole commits, as commands."""

    number: int
    totals: bytes  # empty: as they are
    commands: Sequence[PlainCommand]
    leases: frozenset[bytes]  # the names of those that it opens
    is_first: bool = False  # it replaces all that Redis has, whatever batch was the last there
    made_in: int = 0  # a round of sending
    acked_at_s: float = inf


def keys_of(batches: Iterable[Batch]) -> Iterator[int]:
    """Yield the keys of seen URLs that *batches* write."""
    for batch in batches:
        for command in batch.commands:
            if command.kind == SEEN_KEYS and command.word == "RPUSH":
                for piece in command.args:
                    assert isinstance(piece, bytes)
                    yield from stored_keys(piece).tolist()


class Mirror:
    """The changes of one shard that no batch has yet, merged: of two to one record the later."""

    def __init__(self, seq: int, on_noted: Callable[[], None]) -> None:
        """*seq*: the number of the last batch in Redis. *on_noted* is called when there is
        something to be sent."""
        self.number = seq  # of the last batch that was made
        self.root_fields: dict[str, bytes] = {}
        """Fields of the root of the shard that are sent again with all of it."""
        self._on_noted = on_noted
        self._made: list[Batch] = []
        self._begin()
        self._is_first = False

    def _begin(self) -> None:
        self._fields: dict[int, dict[bytes, bytes | None]] = {kind: {} for kind in _FIELDS}
        self._seen: list[bytes] = []
        self._totals = b""
        self._commands: list[PlainCommand] = []
        self._is_empty = True

    @property
    def position(self) -> int:
        """The number of the batch that has the last of what was noted."""
        return self.number + (not self._is_empty)

    def note(self, changes: Changes) -> None:
        """Note what the local store has written."""
        self._is_empty = False
        fields = self._fields
        for key, value in changes.items():
            kind = key[0]
            if kind in _FIELDS:
                pending, name = fields[kind], keys.name_of_record(key)
                if value is None and kind == _ARRIVED and name in pending:
                    del pending[name]  # written once, and not sent yet
                else:
                    pending[name] = value
            elif kind == _ADMITTED_KEYS:
                if value is not None:  # else they are in a run now
                    self._seen.append(value)
            elif kind == _TOTALS and value is not None:
                self._totals = value
        if sum(map(len, fields.values())) >= _FULL:
            self._make()
        self._on_noted()

    def note_command(self, command: PlainCommand) -> None:
        """Put *command*, on the root of the shard, into the next batch."""
        self._is_empty = False
        self._commands.append(command)

    def note_root_field(self, field: str, value: bytes) -> None:
        self.root_fields[field] = value
        self.note_command(PlainCommand("HSET", "", (field, value)))

    def note_last_command(self, command: PlainCommand) -> None:
        """Note *command*, after which nothing of what is noted later is in the same batch."""
        self.note_command(command)
        self._make()

    def opens_unsent(self, lease: bytes) -> bool:
        """Return whether the record of *lease*, a name, is in no batch yet."""
        return self._fields[_OPEN].get(lease) is not None

    def unsent_keys(self) -> list[int]:
        """Return the keys of seen URLs that are in no batch that was taken."""
        return [*keys_of(self._made), *stored_keys(b"".join(self._seen)).tolist()]

    def take(self, *, even_empty: bool = False) -> list[Batch]:
        """Return the batches of all that was noted since the last call. *even_empty*: one at
        least, which renews the lease of the shard."""
        if not self._is_empty or (even_empty and not self._made):
            self._make()
        made, self._made = self._made, []
        return made

    def begin_again(self) -> None:
        """Forget all that is not sent, and begin with a batch that removes what Redis has of the
        shard: all of it will be noted again."""
        self._made = []
        self._begin()
        self._is_first = True
        for kind in _ALL_KINDS:
            self.note_command(PlainCommand("DEL", kind, ()))
        self.note_command(PlainCommand("HSET", "", ("filling", 1)))
        for field, value in self.root_fields.items():
            self.note_root_field(field, value)

    def _make(self) -> None:
        self.number += 1
        opened = self._fields[_OPEN]
        leases = frozenset(name for name, value in opened.items() if value is not None)
        commands = list(chain(self._commands, self._commands_of_records()))
        self._made.append(Batch(self.number, self._totals, commands, leases, self._is_first))
        self._begin()
        self._is_first = False

    def _commands_of_records(self) -> Iterator[PlainCommand]:
        for kind, pending in self._fields.items():
            put: list[Argument] = []
            for name, value in pending.items():
                if value is not None:
                    put += (name, pack_chunk(name, value) if kind == _QUEUED else value)
            deleted = [name for name, value in pending.items() if value is None]
            yield from _in_parts("HSET", chr(kind), put)
            yield from _in_parts("HDEL", chr(kind), deleted)
        seen = b"".join(self._seen)
        pieces = [seen[at : at + _SEEN_BYTES] for at in range(0, len(seen), _SEEN_BYTES)]
        yield from _in_parts("RPUSH", SEEN_KEYS, pieces)


def _in_parts(word: str, kind: str, args: Sequence[Argument]) -> Iterator[PlainCommand]:
    for at in range(0, len(args), _ARGS):
        yield PlainCommand(word, kind, args[at : at + _ARGS])


class MirroredStore:
    """Implements port.DurableStore: a local store whose writes are noted by the mirrors of their
    shards. It is always ahead of Redis by what is not acknowledged."""

    def __init__(self, local: DurableStore) -> None:
        self._local = local
        self.mirrors: dict[bytes, Mirror] = {}
        """By shard. What is written of another one is not noted: it is being dropped."""

    def get(self, key: bytes) -> bytes | None:
        return self._local.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self._local.scan(start, stop, limit)

    def write(self, changes: Changes) -> None:
        self._local.write(changes)
        of_shards: defaultdict[bytes, Changes] = defaultdict(dict)
        for key, value in changes.items():
            kind = key[0]
            if kind in _MIRRORED:
                shard = keys.shard_in(key) if kind == _LATER else key[keys.SHARD_AT]
                of_shards[shard][key] = value
        for shard, noted in of_shards.items():
            if (mirror := self.mirrors.get(shard)) is not None:
                mirror.note(noted)

    def sync(self) -> None:
        self._local.sync()

    def close(self) -> None:
        self._local.close()


def all_changes(store: DurableStore, shard: bytes) -> Iterator[Changes]:
    """Yield all records of a shard that are mirrored, as they are when they are yielded, in slices
    that take some milliseconds: for a mirror that begins again."""
    totals = keys.TOTALS + shard
    yield {totals: store.get(totals)}
    for prefix in (*AS_THEY_ARE, keys.QUEUED, keys.ADMITTED_KEYS):
        begin = prefix if prefix == keys.LATER else prefix + shard
        for found in slices(store, begin, _SLICE):
            yield {key: value for key, value in found if keys.shard_in(key) == shard}
