"""The calls of the scripts on a shard, and the readers of their replies.

Rule: no connection here. Calls and replies hold durations; no time of the caller's clock is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from struct import Struct
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import DeadLetter
from crawler.model.types import (
    Added,
    Candidate,
    Claim,
    ConfigError,
    HostKey,
    Lease,
    OverBudgetLinks,
    Pace,
    Purpose,
    Rest,
    Standing,
    Verdict,
)
from crawler.model.url import registered_domain
from crawler.policy.operator_rules import Budgets
from crawler.shared.client import Call
from crawler.shared.codec import (
    Packer,
    UnreadableLease,
    dead_letter_of,
    finish_args,
    pack_candidate,
    pack_claim,
    split_by_bytes,
    unpack_candidate,
)
from crawler.shared.connection import Argument
from crawler.shared.keys import URGENT_LEVEL

MAX_SHARDS: Final = 1024
MAX_LEVELS: Final = 15  # FRONTS of lua/shard.lua, without the urgent one
BATCH: Final = 50
"""The most URLs of one `add`, which takes a server 0.5 ms at most."""
_SIGN: Final = 1 << 64  # an integer set of Redis holds 64 bits with a sign
_UNFILTERED, _AT_HEAD, _FREE, _LATER, _NOTED, _NAMES_SEEN = 1, 2, 4, 8, 16, 32
_HALF: Final = 1 << 63
_PACKERS: Final = 10_000  # hosts whose Packer is cached, 0.5 kB each
_Group = tuple[list[Any], Callable[[Candidate], bytes]]
"""The arguments of a host's links, and the function that packs them."""
PACE = Struct("<ddHHBBff")
_DELAY = Struct("<d")
_ASKED = Struct("<d")
_NO_TROUBLE: Final = -1.0
_RULES = Struct("<ddddddd")
_MAX_UINT16: Final = 0xFFFF
_ANSWERED: Final = 1 << 15  # beside the pauses: a page of the host was answered once
_HAS_SENT: Final = 1 << 14  # its server has said anything once
_encode = msgspec.msgpack.Encoder().encode


def shard_of(domain: str, shards: int) -> int:
    """Return the shard of a registered domain. All its hosts are there, and so its URL budget and
    the redirects within it."""
    return xxh3_64_intdigest(domain.encode()) % shards


def shard_of_digest(digest: bytes, shards: int) -> int:
    return int.from_bytes(digest[:8]) % shards


def lease_id(shard: int, number: int) -> int:
    return number * MAX_SHARDS + shard


def shard_of_lease(lease: Lease) -> int:
    return lease.id % MAX_SHARDS


@dataclass(frozen=True, slots=True)
class ReleasedLease:
    lease: Lease
    rest: Rest
    age_s: float = 0.0  # since its fetch ended


@dataclass(frozen=True, slots=True)
class FinishedLease:
    lease: Lease
    verdict: Verdict


def _budget_args(budgets: Budgets) -> list[Any]:
    return ["" if limit is None else limit for limit in budgets]


class ShardOperations:
    """Makes the calls of one session."""

    def __init__(
        self,
        session: str,
        shards: int,
        limits: FrontierLimits,
        lease_s: float,
        wait_s: float = 0.0,
    ) -> None:
        """A lease may wait for *wait_s* at its worker before its fetch begins. Raises ConfigError
        if there are more levels than a shard can hold."""
        if len(limits.level_shares) > MAX_LEVELS:
            raise ConfigError(
                f"CRAWLER_LEVEL_SHARES has {len(limits.level_shares)} levels; in Redis there is"
                f" room for {MAX_LEVELS}"
            )
        self.session = session
        self.shards = shards
        self._lease_s = lease_s
        self._packers: dict[str, Packer] = {}
        self._max_front_reads, self._due_slice = limits.max_front_reads, limits.due_slice
        self._shares = ",".join(format(share, "g") for share in limits.level_shares)
        self._max_rest_s = limits.max_rest_s
        self.budgets_of = limits.budgets_of
        self.rule_budgets = limits.rule_budgets
        self.judged_slice = limits.judged_slice
        self._rules = _RULES.pack(
            limits.min_gap_s,
            limits.gap_factor,
            limits.max_gap_s,
            limits.longest_fetch_s,
            limits.max_rest_s,
            wait_s,
            limits.max_retry_after_s,
        )

    def by_budgets(self, found: Sequence[Candidate]) -> Iterable[Sequence[Candidate]]:
        """Return *found* in parts with equal budgets: those of a call are for all of its URLs."""
        if self.rule_budgets is None or not self.rule_budgets.are_any:
            return [found]
        parts: dict[Budgets, list[Candidate]] = {}
        for each in found:
            parts.setdefault(self.budgets_of(each.host, each.domain), []).append(each)
        return parts.values()

    def add(self, found: Iterable[Candidate], now: float) -> list[Call]:
        """Return calls of at most BATCH URLs each, bounded in bytes too; one or more a shard, for
        URLs with equal budgets."""
        return [call for part in split_by_bytes(found) for call in self._add(part, now)]

    def add_pushed(self, found: Iterable[Candidate]) -> list[Call]:
        """As `add`, and the replies name those that were seen before."""
        split = split_by_bytes(found)
        return [call for part in split for call in self._add(part, float("inf"), _NAMES_SEEN)]

    def _add(self, found: Iterable[Candidate], now: float, usual: int = 0) -> list[Call]:
        groups: dict[tuple[str, int, int], _Group] = {}
        for candidate in found:
            flags, level = usual, candidate.level
            unusual = (
                not candidate.needs_seen_test
                or candidate.not_before > now
                or candidate.authority
                or candidate.request
            )
            if unusual or level == URGENT_LEVEL:
                flags = usual | _flags(candidate, now)
            named = (candidate.host, level, flags)
            group = groups.get(named)
            if group is None:
                group = groups[named] = self._group(candidate, flags)
            args, pack = group
            key = candidate.key
            packed_url = pack(candidate)
            if flags & _LATER:
                packed_url = _DELAY.pack(candidate.not_before - now) + packed_url
            args += (key if key < _HALF else key - _SIGN, packed_url)
        return self._batched(args for args, _ in groups.values())

    def _group(self, first: Candidate, flags: int) -> _Group:
        packer = self._packers.get(first.host)
        if packer is None:
            if len(self._packers) >= _PACKERS:
                self._packers.clear()
            packer = self._packers[first.host] = Packer(first.host, first.domain)
        return [first.host, first.domain, first.level + 1, flags, 0], packer.pack

    def add_urgent(self, found: Iterable[Candidate]) -> list[Call]:
        """Add *found* before all other URLs of their hosts and shards, whether they were seen or
        not. They stay urgent in their retries and redirects."""
        return self.add([replace(each, level=URGENT_LEVEL) for each in found], float("inf"))

    def add_at_head(self, target: Candidate, origin: Candidate) -> list[Call]:
        """Add the target of a redirect at the head of its queue. If its key is in the chain of
        *origin* (a cookie bounce, tracking stripped), it meets no seen test and no budget."""
        own = target.key in {origin.key, *origin.chain}
        flags = _flags(target, float("inf")) | _AT_HEAD | (_UNFILTERED | _FREE if own else 0)
        group = [target.host, target.domain, target.level + 1, flags, 1]
        group += [_signed(target.key), pack_candidate(target)]
        return self._batched([group])

    def _batched(self, groups: Iterable[list[Any]]) -> list[Call]:
        calls: list[Call] = []
        open_calls: dict[tuple[int, Budgets], tuple[list[Any], int]] = {}
        for group in groups:
            shard, budgets = shard_of(group[1], self.shards), self.budgets_of(group[0], group[1])
            for part in _parts(group):
                args, filled = open_calls.get((shard, budgets)) or (_budget_args(budgets), 0)
                if filled and filled + part[4] > BATCH:
                    calls.append(Call(shard, "add", tuple(args)))
                    args, filled = _budget_args(budgets), 0
                args += part
                open_calls[shard, budgets] = (args, filled + part[4])
        calls += [Call(shard, "add", tuple(args)) for (shard, _), (args, _) in open_calls.items()]
        return calls

    def lease(self, shard: int, limits: Mapping[Standing, int], most: int | None = None) -> Call:
        """Take leases: of each standing at most its limit, in the order of *limits*; at most
        *most* in total."""
        wanted = ",".join(f"{int(each)}:{limit}" for each, limit in limits.items() if limit)
        args = (self.session, wanted, self._lease_s, self._shares, self._rules)
        most = sum(limits.values()) if most is None else most
        return Call(shard, "lease", (*args, self._max_front_reads, self._due_slice, most))

    def release(self, shard: int, released: Iterable[ReleasedLease]) -> Call:
        """Release leases, all of *shard*."""
        args: list[Any] = [self.session, self._max_rest_s]
        for each in released:
            pace = _pace_after(each.rest)
            args += (each.lease.id // MAX_SHARDS, each.age_s, each.rest.seconds, pace)
        return Call(shard, "release", tuple(args))

    def finish(self, shard: int, finished: Iterable[FinishedLease], now: float) -> Call:
        """Finish leases, all of *shard*. Redirect targets and claims are not in the call: they must
        be sent before it."""
        args: list[Any] = [self.session, self._rules]
        for each in finished:
            word, delay_s, payload = finish_args(each.lease.candidate, each.verdict, now)
            args += (each.lease.id // MAX_SHARDS, word, delay_s, payload)
        return Call(shard, "finish", tuple(args))

    def rest(self, shard: int, released: Iterable[ReleasedLease]) -> Call:
        """Let the hosts of these leases rest at least so long, even if the leases have ended."""
        args: list[Any] = [self._max_rest_s]
        for each in released:
            pace = _pace_after(each.rest)
            args += (each.lease.candidate.host, each.age_s, each.rest.seconds, pace)
        return Call(shard, "rest", tuple(args))

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> list[Call]:
        """End the rests of these hosts that end by then, or before."""
        by_shard: dict[int, list[Any]] = {}
        for host, until in rests.items():
            shard = shard_of(registered_domain(host), self.shards)
            by_shard.setdefault(shard, []).append((host, until - now))
        return [
            Call(shard, "end_rest", tuple(chain.from_iterable(some)))
            for shard, pairs in by_shard.items()
            for some in (pairs[at : at + BATCH] for at in range(0, len(pairs), BATCH))
        ]

    def renew_leases(self, shard: int) -> Call:
        return Call(shard, "renew_leases", (self.session, self._lease_s))

    def check(self, shard: int) -> Call:
        """Ask whether anything is left to fetch in *shard*."""
        return Call(shard, "check", ())

    def repair(
        self, shard: int, conditions: Mapping[str, bytes], counted: Mapping[str, int]
    ) -> Call:
        """Write the counters of *counted*, if the fields of *conditions* have not changed."""
        args: list[Any] = [len(conditions)]
        for pair in (*conditions.items(), *counted.items()):
            args += pair
        return Call(shard, "repair", tuple(args))

    def outbox(self, shard: int, worker: str, has_links: bool) -> Call:
        """Note whether links wait on the disk of *worker*."""
        return Call(shard, "outbox", (worker, int(has_links)))

    def list_leases(self, shard: int) -> Call:
        """Ask which leases the session has; `read_ids` reads the reply."""
        return Call(shard, "list_leases", (self.session,))

    def put_back_unused(self, shard: int, ids: Iterable[int]) -> Call:
        """Put back leases whose reply was lost: nothing was fetched under them."""
        args: list[Any] = [self.session, self._rules]
        for lease in ids:
            args += (lease // MAX_SHARDS, "back", 0, b"")
        return Call(shard, "finish", tuple(args))

    def finish_unreadable(
        self, shard: int, unreadable: Iterable[UnreadableLease], now: float
    ) -> Call:
        """Finish leases whose URLs cannot be decoded as dead letters."""
        args: list[Any] = [self.session, self._rules]
        for each in unreadable:
            args += (each.number, "dead", 0, dead_letter_of(each, now))
        return Call(shard, "finish", tuple(args))

    def return_leases(
        self, shard: int, session: str, archived: Collection[int] | None = None
    ) -> Call:
        """Return leases of a dead *session* to the frontier. *archived* holds the numbers of those
        whose pages are in its archive, or is None if the archive was not searched."""
        numbers = archived or ()
        is_known = int(archived is not None)
        return Call(
            shard, "return_leases", (session, self._rules, self._due_slice, is_known, *numbers)
        )

    def sweep(
        self, shard: int, host: str, domain: str, front: int, judged: Iterable[tuple[bytes, bytes]]
    ) -> Call:
        """Pass over the URLs at the head of a queue, given as they are there, each with what
        becomes of it."""
        return Call(shard, "sweep", (host, domain, front, *chain.from_iterable(judged)))

    def sweep_later(self, shard: int, judged: Iterable[tuple[bytes, bytes]]) -> Call:
        """Decide about URLs with a date, given by their entries, each with what becomes of it."""
        return Call(shard, "sweep_later", tuple(chain.from_iterable(judged)))

    def forget(self, shard: int, what: str, numbers: Iterable[int]) -> Call:
        """Forget dead letters ("dead") or refused URLs ("refused")."""
        return Call(shard, "forget", (what, *numbers))

    def retry_dead(self, shard: int, letters: Iterable[tuple[int, DeadLetter]]) -> Call:
        args: list[Any] = []
        for number, letter in letters:
            again = replace(letter.candidate, attempts=0, not_before=0.0)
            args += (number, again.host, again.level + 1, pack_candidate(again))
        return Call(shard, "retry_dead", tuple(args))

    def remove_refused(
        self, lease: Lease, own: str, most: int, judged: Iterable[tuple[bytes, str]] = ()
    ) -> Call:
        """Remove refused URLs behind the one of *lease*, of which no fetch was begun, and ask for
        *most* more. *judged* holds bodies of its queue, each with the rule that refuses it or "".
        If *own* is a rule, it refuses the lease's own URL, and the lease ends."""
        args: list[Any] = [self.session, lease.id // MAX_SHARDS, lease.candidate.domain, own, most]
        for packed_url, rule in judged:
            args += (packed_url, rule)
        return Call(shard_of_lease(lease), "remove_refused", tuple(args))

    def trim(self, lease: Lease, most: int, rule: str) -> Call:
        """Remove at most *most* URLs from the ends of the queues of the lease's host."""
        domain = lease.candidate.domain
        args = (self.session, lease.id // MAX_SHARDS, domain, most, rule)
        return Call(shard_of_lease(lease), "trim", args)

    def readmit(self, shard: int, budgets: Budgets, refused: Iterable[tuple[int, str]]) -> Call:
        """Queue refused URLs of these *budgets* again, given as their numbers and registered
        domains."""
        args = _budget_args(budgets)
        for number, domain in refused:
            args += (number, domain)
        return Call(shard, "readmit", tuple(args))

    def reservation_owner(self, lease: int) -> str:
        return f"{self.session}/{lease}"

    def reserve(self, digest: bytes, lease: int, hold_s: float) -> Call:
        args = (digest, self.reservation_owner(lease), int(hold_s * 1000))
        return Call(shard_of_digest(digest, self.shards), "reserve_content", args)

    def find_owner(self, mark: bytes) -> Call:
        """Ask for the claim on the digest with this *mark* (`codec.bucket_mark`)."""
        return Call(shard_of_digest(mark, self.shards), "owner_of_content", (mark,))

    def claim(self, digest: bytes, lease: int, claim: Claim | None) -> Call:
        """Claim a content, or if *claim* is None, end its reservation."""
        file, packed = ("", b"") if claim is None else pack_claim(claim)
        args = (digest, self.reservation_owner(lease), file, packed)
        return Call(shard_of_digest(digest, self.shards), "claim_content", args)


def _parts(group: list[Any]) -> Iterable[list[Any]]:
    """Split *group* into pieces of at most BATCH URLs, each with the group's head."""
    if len(group) <= 5 + 2 * BATCH:
        group[4] = (len(group) - 5) // 2
        yield group
        return
    head, entries = group[:4], group[5:]
    for begin in range(0, len(entries), 2 * BATCH):
        piece = entries[begin : begin + 2 * BATCH]
        yield [*head, len(piece) // 2, *piece]


def _flags(candidate: Candidate, now: float) -> int:
    flags = 0 if candidate.needs_seen_test else _UNFILTERED
    if candidate.purpose is Purpose.ROBOTS:
        flags |= _FREE | _AT_HEAD  # another host waits for it
    elif candidate.request:
        flags |= _FREE
    if candidate.level == URGENT_LEVEL:
        flags |= _UNFILTERED | _NOTED | _FREE
    return flags | _LATER if candidate.not_before > now else flags


def _signed(key: int) -> int:
    return key if key < _HALF else key - _SIGN


def _pace_bytes(pace: Pace) -> bytes:
    failures = min(pace.failures, _MAX_UINT16)
    pauses = min(pace.pauses, _HAS_SENT - 1) | pace.answered * _ANSWERED | pace.has_sent * _HAS_SENT
    times = (pace.fetches, pace.log_fetch_s, pace.log_variance)
    return PACE.pack(pace.gap_s, pace.crawl_delay_s, failures, pauses, pace.standing, *times)


def _pace_after(rest: Rest) -> bytes:
    """Return the pace after *rest*, and what the host asked for in its trouble."""
    asked_s = _NO_TROUBLE if rest.asked_s is None else rest.asked_s
    return _pace_bytes(rest.pace) + _ASKED.pack(asked_s)


def with_longest_asked(before: Argument, pace: Argument) -> bytes:
    """Return *pace*, as `_pace_after` packs it, with what the host asked for in the rest *before*,
    if that is longer."""
    assert isinstance(before, bytes) and isinstance(pace, bytes)
    asked_s = max(_ASKED.unpack_from(each, PACE.size)[0] for each in (before, pace))
    return pace[: PACE.size] + _ASKED.pack(asked_s)


# Replies and records of a shard. Workers wrote them, and they are still decoded as untrusted.


@dataclass(frozen=True, slots=True)
class LeaseReply:
    leases: list[Lease]
    wake_s: float | None  # seconds until something is due; None if nothing waits for a time
    has_expired: bool = False  # whether leases of this session have expired
    unreadable: tuple[UnreadableLease, ...] = ()


def read_added(reply: Sequence[Any]) -> Added:
    kept_out = tuple(
        OverBudgetLinks(
            unit.decode("ascii", "replace"), name.decode("utf-8", "replace"), int(links)
        )
        for unit, name, links in zip(reply[5::3], reply[6::3], reply[7::3], strict=True)
    )
    return Added(int(reply[1]), int(reply[2]), int(reply[3]), kept_out=kept_out)


def read_seen_keys(reply: Sequence[Any]) -> list[int]:
    """Read of the reply to `add_pushed` the keys of the URLs that were seen before."""
    return [int(key) % _SIGN for key in reply[4]]


def read_leases(reply: Sequence[Any], shard: int, taken_at: float | None = None) -> LeaseReply:
    """Read the reply to `lease`. *taken_at* is epoch seconds by the worker's clock; if it is None,
    the server's time is taken."""
    wake_s = float(reply[2]) if reply[2] else None
    server_now = float(reply[3])
    leases, unreadable = [], []
    for at in range(4, len(reply), 5):
        number, front, host, pace, packed_url = reply[at : at + 5]
        name = host.decode("utf-8", "replace")
        try:
            candidate = unpack_candidate(packed_url, name, int(front) - 1)
        except (msgspec.MsgspecError, UnicodeError) as broken:
            unreadable.append(UnreadableLease(int(number), name, packed_url, str(broken)))
            continue
        taken = server_now if taken_at is None else taken_at
        leases.append(Lease(lease_id(shard, int(number)), candidate, read_pace(pace), taken))
    return LeaseReply(leases, wake_s, reply[1] == b"lost", tuple(unreadable))


def read_held(reply: Sequence[Any]) -> list[bool]:
    """Read the reply to `release` or `finish`: whether each lease was still held."""
    return [bool(each) for each in reply[1:]]


def read_ids(reply: Sequence[Any], shard: int) -> set[int]:
    return {lease_id(shard, int(number)) for number in reply[1:]}


def read_pace(packed: bytes) -> Pace:
    gap_s, crawl_delay_s, failures, pauses, standing, *times = PACE.unpack(packed)
    return Pace(
        gap_s,
        failures,
        pauses & (_HAS_SENT - 1),
        crawl_delay_s,
        Standing(standing),
        bool(pauses & _ANSWERED),
        bool(pauses & _HAS_SENT),
        *times,
    )


# Readers of the records that lua/shard.lua packs. They raise ValueError, struct.error or
# msgspec.MsgspecError if a record has another form.

FRONTS: Final = 16
_HOST: Final = Struct("<BBHIdI")  # its beginning, before the pace
_WAITING: Final = Struct("<I")  # after the pace
_LEASE: Final = Struct("<dBBH")
_REFUSED: Final = Struct("<dBHB")
_LATER_RECORD: Final = Struct("<6sBH")


class ShardHostPlace(IntEnum):
    """The place of a host, as in lua/shard.lua."""

    EMPTY = 0
    FRONT = 1
    RESTING = 2
    LEASED = 3


@dataclass(frozen=True, slots=True)
class ShardHost:
    """The record of a host, as lua/shard.lua packs it."""

    place: ShardHostPlace
    fronts: list[int]  # those at which it has URLs, the best first
    rest_until: float
    admitted: int
    pace: Pace
    waiting: int  # URLs


@dataclass(frozen=True, slots=True)
class ShardLease:
    """An open lease, as lua/shard.lua packs it."""

    taken_at: float
    candidate: Candidate


def read_host(packed: bytes) -> ShardHost:
    place, _, fronts, _, rest_until, admitted = _HOST.unpack_from(packed)
    pace_end = _HOST.size + PACE.size
    return ShardHost(
        ShardHostPlace(place),
        [front for front in range(FRONTS) if fronts >> front & 1],
        rest_until,
        admitted,
        read_pace(packed[_HOST.size : pace_end]),
        int(_WAITING.unpack_from(packed, pace_end)[0]),
    )


def read_lease(packed: bytes) -> ShardLease:
    taken_at, _, front, length = _LEASE.unpack_from(packed)
    return ShardLease(taken_at, _candidate(packed[_LEASE.size :], length, front))


def read_later(entry: bytes, when: float) -> Candidate:
    _, front, length = _LATER_RECORD.unpack_from(entry)
    return replace(_candidate(entry[_LATER_RECORD.size :], length, front), not_before=when)


def read_refused(packed: bytes) -> tuple[Candidate, str, float]:
    """Return the URL, the rule that refused it, and the time of that in epoch seconds."""
    at, front, length, rule_length = _REFUSED.unpack_from(packed)
    host_end = _REFUSED.size + length
    rule_end = host_end + rule_length
    host = packed[_REFUSED.size : host_end].decode()
    return (
        unpack_candidate(packed[rule_end:], host, front - 1),
        packed[host_end:rule_end].decode(),
        at,
    )


def read_waiting(packed_url: bytes, host: str, front: int) -> Candidate:
    return unpack_candidate(packed_url, host, front - 1)


def _candidate(host_and_body: bytes, length: int, front: int) -> Candidate:
    return unpack_candidate(host_and_body[length:], host_and_body[:length].decode(), front - 1)
