"""Robots.txt among workers: fetched once a crawl and day, not once a worker.

Rule: what this worker knows stands on its own disk; Redis hands it on. It is asked before a lease
is used, for authorities of which nothing final is known here. Where Redis does not answer, a
worker knows what it learned itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from crawler.model.types import Lease, Purpose, StoreFull, StoreUnavailable
from crawler.model.url import registered_domain, split
from crawler.policy.robots_cache import RobotsRecord, RobotsState, RobotsStore, holds
from crawler.shared.client import Call
from crawler.shared.codec import pack_robots, read_robots
from crawler.shared.faults import FAULTS
from crawler.shared.shard import shard_of
from crawler.shared.worker.batcher import ShardLink, replies_in_time

MOST_BYTES: Final = 4096
"""Packed. Of 4,231 real files 97.4 % are no longer, and take 380 bytes on the average: a larger one
each worker fetches for itself. So 10,000 hosts of one hostile domain take 40 MB of Redis."""
MOST_AWAITED_BYTES: Final = 65_536
"""Of one that lies on another host, where not every worker comes: 99.9 % of real files."""
UNHEARD: Final = "robots/unheard"
UNREADABLE: Final = "robots/unreadable"
UNSAVED: Final = "robots/unsaved"
FOUND: Final = "robots/from_others"
TOO_LARGE: Final = "it is on another host, and too large to be handed on"


class SharedRobots:
    """Implements policy.robots_cache.RobotsStore."""

    def __init__(
        self,
        local: RobotsStore,
        link: ShardLink,
        now: Callable[[], float],
        most_bytes: int,
        paused: Callable[[StoreUnavailable], None],
    ) -> None:
        """*most_bytes*: of a file as it came. *paused* is called when our disk is full."""
        self._local = local
        self._shards = link.ops.shards
        self._run = link.run
        self._tell = link.tell
        self._is_full = link.is_full
        self._count = link.count
        self._now = now
        self._most_bytes = most_bytes
        self._paused = paused

    def get(self, authority: str) -> RobotsRecord | None:
        return self._local.get(authority)

    def put(self, record: RobotsRecord) -> None:
        authority = record.authority
        is_awaited = _lies_elsewhere(self._local.get(authority))
        self._local.put(record)
        left_ms = int((record.expires_at - self._now()) * 1000)
        if left_ms <= 0:
            return
        shard = _shard_of(authority, self._shards)
        packed = _handed_on(record, is_awaited, self._is_full(shard))
        if packed is not None:
            self._tell(Call(shard, "learn", (authority, left_ms, packed)))

    async def enrich(self, leases: Iterable[Lease]) -> list[str]:
        """Learn what others know, before *leases* are used: the authorities of which something
        else is known from now on."""
        asked: dict[int, set[str]] = defaultdict(set)
        for authority in filter(None, map(_authority, leases)):
            if not _is_final(self._local.get(authority), self._now()):
                asked[_shard_of(authority, self._shards)].add(authority)
        calls = [Call(shard, "robots", tuple(names)) for shard, names in asked.items()]
        replaced: list[str] = []
        for call, reply in zip(
            calls, await replies_in_time(self._run, calls, "robots.txt"), strict=True
        ):
            if isinstance(reply, FAULTS):
                self._count(UNHEARD)
                continue
            for name, packed, left_ms in zip(call.args, reply[1::2], reply[2::2], strict=True):
                if self._hear(str(name), packed, left_ms):
                    replaced.append(str(name))
        return replaced

    def _hear(self, authority: str, packed: bytes, left_ms: int) -> bool:
        """Whether something else is known of it from now on."""
        now, known = self._now(), self._local.get(authority)
        if not packed:
            return self._forgotten(known, now)
        found = read_robots(authority, packed, left_ms, now, self._most_bytes)
        if found is None:
            self._count(UNREADABLE)
        elif _says_more(found, known, now):
            if found.kind is RobotsState.PENDING and found.body is None and known is not None:
                found = replace(found, body=known.body)  # our last good copy
            is_replaced = self._replace(found)
            self._count(FOUND if is_replaced else UNSAVED)
            return is_replaced
        return False

    def _forgotten(self, known: RobotsRecord | None, now: float) -> bool:
        """A verdict that forbids all may be taken back for everybody, by the person who revives
        dead letters: then one fetch decides."""
        if known is None or known.kind is not RobotsState.UNREACHABLE or not holds(known, now):
            return False
        return self._replace(replace(known, expires_at=now))

    def _replace(self, record: RobotsRecord) -> bool:
        """False: our disk is full. It is asked for again before the next lease is used."""
        try:
            self._local.put(record)
        except StoreFull as full:
            self._paused(full)
            return False
        return True


def _handed_on(record: RobotsRecord, is_awaited: bool, is_full: bool) -> bytes | None:
    """What others are told. None: nothing, they can find out for themselves."""
    packed = pack_robots(record)
    most_bytes = MOST_AWAITED_BYTES if is_awaited else 0 if is_full else MOST_BYTES
    if record.body is None or len(packed) <= most_bytes:
        return packed
    if record.kind is not RobotsState.RULES:
        return pack_robots(replace(record, body=None))
    if is_awaited:
        # They never see that file. When in doubt, stay away.
        return pack_robots(
            replace(record, kind=RobotsState.UNREACHABLE, body=None, reason=TOO_LARGE)
        )
    return None


def _authority(lease: Lease) -> str | None:
    """Whose robots.txt decides what *lease* is used for. None: it is no URL of ours."""
    candidate = lease.candidate
    is_robots = candidate.purpose is Purpose.ROBOTS
    try:
        return split(f"{candidate.authority}/" if is_robots else candidate.url).authority
    except (ValueError, KeyError):
        return None


def _shard_of(authority: str, shards: int) -> int:
    """That of its host's URLs."""
    return shard_of(registered_domain(split(f"{authority}/").hostname), shards)


def _lies_elsewhere(record: RobotsRecord | None) -> bool:
    """Whether it is fetched in another host's turn, by whichever worker has that."""
    if record is None or record.kind is not RobotsState.PENDING:
        return False
    return split(record.next_url).hostname != split(f"{record.authority}/").hostname


def _is_final(record: RobotsRecord | None, now: float) -> bool:
    """Whether nobody else can know better. One that forbids all may be taken back."""
    settled = (RobotsState.RULES, RobotsState.ALLOW_ALL)
    return record is not None and record.kind in settled and holds(record, now)


def _says_more(found: RobotsRecord, known: RobotsRecord | None, now: float) -> bool:
    if known is None or not holds(known, now):
        return True
    if known.kind is RobotsState.PENDING and found.kind is RobotsState.PENDING:
        # Each fetch adds to one of the two; ours may not have been told yet.
        return found.tries + found.hops > known.tries + known.hops
    return not _is_final(known, now) and found.kind is not known.kind
