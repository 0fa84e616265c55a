"""The keys of an owned shard in Redis, the scripts on them, and their commands and replies.

Rule: all keys of a shard are in one slot of a cluster, and a command names all that it touches. The
scripts know batches and owners, and nothing of URLs.

    <root>          hash: owner (the token of the last claim), until (the end of its lease, ms),
                    lease (its length, ms), seq (the number of the last batch), totals, run (of the
                    server), restarted (when it was noted first that this is another one, ms), inbox
                    (how many pushes have written to its inbox), acts (which acts of operators were
                    carried out in it, acts.py), and while they are so: lost (a restart may have
                    lost some), filling (it is filled again)
    <root>:inbox    hash: entries that workers send to its owner, by names of theirs (inbox.py)
    <root>:b        hash: chunks of waiting URLs, packed, by their records' names
    <root>:s        list: keys of admitted URLs, eight bytes each
    <root>:w:<address>
                    hash: an address that hosts of workers share: owner (the worker that has it),
                    ends (of its slice, ms), free (when it rests no longer, ms), run (of the server
                    when that was written), w:<worker> (one that waits: since when, and when it
                    asked last, ms)
    <root>:<letter> hash: the records of this letter (crawler/frontier/records.py), as they are
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias

from crawler.shared import keys
from crawler.shared.connection import Argument
from crawler.shared.keys import root

Command: TypeAlias = tuple[Argument, ...]

SEEN_KEYS: Final = "s"
INBOX: Final = "inbox"  # "i" has the records of this letter
ACTS: Final = "acts"
_NAMES: Final = ("open", "claim", "apply", "release", "push", "plan", "address", "round")
_CONTENT_NAMES: Final = (
    *("reserve_content", "claim_content", "owner_of_content"),
    *("near", "outbox", "names"),
)
"""Operations on what is not the frontier's: contents, fingerprints, notes of outboxes, names."""


class OwnedScripts:
    """Implements client.ScriptTexts."""

    def __init__(self, clock: str | None = None) -> None:
        """*clock* is Lua code that defines `now_ms()` in place of the server's own clock."""
        self._clock = clock or _source("clock")

    def names(self) -> tuple[str, ...]:
        return (*_NAMES, *_CONTENT_NAMES)

    def text(self, name: str) -> str:
        return self._texts[name]

    def sha(self, name: str) -> str:
        return sha1(self._texts[name].encode()).hexdigest()

    @cached_property
    def _texts(self) -> dict[str, str]:
        prelude = f"{_source('content')}\n{keys.source('claims')}"
        return {
            **{name: self._with_clock(_source(name)) for name in _NAMES},
            **{
                name: self._with_clock(keys.with_prelude("", prelude, keys.source(name)))
                for name in _CONTENT_NAMES
            },
        }

    def _with_clock(self, text: str) -> str:
        """Insert the clock where it is used, behind the shebang, which must stay the first line."""
        shebang, _, rest = text.partition("\n")
        return f"{shebang}\n{self._clock}\n{rest}" if "now_ms()" in rest else text


def _source(name: str) -> str:
    # importlib.resources also reads from an egg, where there is no folder.
    return (files("crawler.shared.owned") / "lua" / f"{name}.lua").read_text("utf-8")


class Sending(NamedTuple):
    """A command to be sent, and the round of sending in which its batch was made."""

    made_in: int
    command: Command


class PlainCommand(NamedTuple):
    """A command of a batch: on the key of a *kind* of records, or on the root if that is ""."""

    word: str
    kind: str
    args: Sequence[Argument]


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """A shard that was claimed, as Redis has it."""

    seq: int  # the number of its last batch
    totals: bytes  # as the frontier wrote them; empty: nothing was written yet
    is_lossy: bool  # a restart of the server may have lost the last second
    is_filling: bool  # its owner died while it filled an empty server: some is lost for good
    ended_s: float  # since the end of its last lease: no request was sent later
    run: bytes  # of the server
    is_owner_dead: bool = False  # certainly: its process ended before this one began


@dataclass(frozen=True, slots=True)
class HeldShard:
    """A shard whose owner has a lease."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Applied:
    seq: int
    is_lossy: bool
    inbox: int  # entries in it


@dataclass(frozen=True, slots=True)
class BatchGap:
    """A batch was not written: it is not the one after *seq*, which is the last one."""

    seq: int


@dataclass(frozen=True, slots=True)
class ServerRestarted:
    """A batch was not written: *run* of the server is another one, and *seq* is the last batch."""

    run: bytes
    seq: int


@dataclass(frozen=True, slots=True)
class ShardTaken:
    """Another owner has claimed the shard."""


@dataclass(frozen=True, slots=True)
class ShardMissing:
    """The server has no such shard: it is new, or came back empty."""


ClaimReply: TypeAlias = ClaimedShard | HeldShard | ShardMissing
ApplyReply: TypeAlias = Applied | BatchGap | ServerRestarted | ShardTaken | ShardMissing


class InboxCommands:
    """The commands of any worker on the inbox of one shard."""

    def __init__(self, scripts: OwnedScripts, name: str, shard: int) -> None:
        """*name*: of the crawl."""
        self.shard = shard
        self._sha = {each: scripts.sha(each) for each in _NAMES}
        self._root = root(name, shard)

    def push(self, run: bytes, entries: Iterable[tuple[bytes, bytes]]) -> Command:
        """Entries, each with its name, to be written in this *run* of the server."""
        args = [part for entry in entries for part in entry]
        return (*self._evalsha("push", self._root, self.key(INBOX)), run, *args)

    def get_run(self) -> Command:
        return ("HGET", self._root, "run")

    def get_acts(self) -> Command:
        return ("HGET", self._root, ACTS)

    def key(self, kind: str) -> str:
        return f"{self._root}:{kind}"

    def _evalsha(self, script: str, *names: str) -> Command:
        return ("EVALSHA", self._sha[script], len(names), *names)


class AddressCommands:
    """The commands of one worker on addresses that hosts of several workers share."""

    def __init__(self, scripts: OwnedScripts, name: str, worker: str) -> None:
        """*name*: of the crawl. *worker*: of its session, that no other one has."""
        self._sha = scripts.sha("address")
        self._name, self._worker = name, worker

    def lease_address(
        self, shard: int, address: str, verb: str, times_s: Iterable[float]
    ) -> Command:
        """*shard*: that has the address. *verb* and *times_s*: see the script."""
        of_shard = root(self._name, shard)
        names = (of_shard, f"{of_shard}:w:{address}")
        times = [round(each * 1000) for each in times_s]
        return ("EVALSHA", self._sha, len(names), *names, self._worker, verb, *times)


class ShardCommands(InboxCommands):
    """The commands of one owner on one shard."""

    def __init__(
        self,
        scripts: OwnedScripts,
        name: str,
        shard: int,
        token: str,
        lease_s: float,
        dead: Sequence[str] = (),
    ) -> None:
        """*name*: of the crawl. *token*: random, of this claim alone: after a failover that lost a
        claim, two numbers might be equal. *dead*: how the tokens of owners begin whose process has
        certainly ended."""
        super().__init__(scripts, name, shard)
        self._dead = dead
        self.lease_s = lease_s
        self._token = token
        self._lease_ms = round(lease_s * 1000)

    def claim(self, *, begins: bool) -> Command:
        """*begins*: whether the shard may be one that is not there yet."""
        head = (self._token, self._lease_ms, int(begins))
        return (*self._evalsha("claim", self._root), *head, *self._dead)

    def apply(
        self,
        run: bytes,
        before: int,
        number: int,
        totals: bytes,
        commands: Iterable[PlainCommand],
    ) -> Command:
        """Batch *number*, to be written after the batch *before*, in this *run* of the server."""
        keys = {"": 1, INBOX: 2}
        args: list[Argument] = []
        for word, kind, rest in commands:
            args += (word, keys.setdefault(kind, len(keys) + 1), len(rest), *rest)
        names = (self._root, *map(self.key, list(keys)[1:]))
        head = (self._token, run, self._lease_ms, before, number, totals)
        return (*self._evalsha("apply", *names), *head, *args)

    def release(self) -> Command:
        return (*self._evalsha("release", self._root), self._token)


def read_claim_reply(reply: Any) -> ClaimReply:
    match reply:
        case [b"ok", seq, totals, is_lossy, is_filling, ended_ms, run, is_dead]:
            flags, ended_s = (bool(is_lossy), bool(is_filling)), ended_ms / 1000
            return ClaimedShard(seq, totals, *flags, ended_s, run, bool(is_dead))
        case [b"held", for_ms]:
            return HeldShard(for_ms / 1000)
    return ShardMissing()


def read_apply_reply(reply: Any) -> ApplyReply:
    match reply:
        case [b"ok", seq, is_lossy, inbox]:
            return Applied(seq, bool(is_lossy), inbox)
        case [b"gap", seq]:
            return BatchGap(seq)
        case [b"restarted", run, seq]:
            return ServerRestarted(run, seq)
        case [b"taken"]:
            return ShardTaken()
    return ShardMissing()


def read_push_reply(reply: Any) -> bytes | None:
    """Return None if the entries were written, or the run of the server, if it is another one: then
    they were not."""
    return reply[1] if reply[0] == b"restarted" else None
