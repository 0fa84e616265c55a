"""Robots.txt shared by the workers: fetched once a day for a crawl, not once by each worker.

Rule: a worker keeps its records on its own disk, and sends them to others through Redis. Before a
lease is used, Redis is asked for authorities without a final record here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from crawler.model.types import Lease, Purpose, StoreFull, StoreUnavailable
from crawler.model.url import registered_domain, split
from crawler.policy.robots_cache import RobotsRecord, RobotsState, RobotsStore, is_valid
from crawler.shared.client import Call
from crawler.shared.codec import pack_robots, read_robots
from crawler.shared.faults import FAULTS
from crawler.shared.shard import shard_of
from crawler.shared.worker.batcher import ShardClient, replies_in_time

MAX_BYTES: Final = 4096
"""The most bytes of a packed file. Of 4,231 real files 97.4 % are no longer, and take 380 bytes on
average; larger ones each worker fetches itself. So 10,000 hosts of a hostile domain take 40 MB."""
MAX_AWAITED_BYTES: Final = 65_536
"""The most for a file on another host, which not every worker visits: 99.9 % of real files."""
UNANSWERED: Final = "robots/unheard"
UNREADABLE: Final = "robots/unreadable"
UNSAVED: Final = "robots/unsaved"
FOUND: Final = "robots/from_others"
TOO_LARGE: Final = "it is on another host, and too large to be handed on"


class SharedRobots:
    """Implements policy.robots_cache.RobotsStore."""

    def __init__(
        self,
        local: RobotsStore,
        link: ShardClient,
        now: Callable[[], float],
        max_bytes: int,
        on_disk_full: Callable[[StoreUnavailable], None],
    ) -> None:
        """A file is at most *max_bytes* long before it is compressed. *on_disk_full* is called
        when our disk is full."""
        self._local = local
        self._shards = link.ops.shards
        self._run = link.run
        self._send_later = link.send_later
        self._is_full = link.is_full
        self._count = link.count
        self._now = now
        self._most_bytes = max_bytes
        self._on_disk_full = on_disk_full

    def get(self, authority: str) -> RobotsRecord | None:
        return self._local.get(authority)

    def put(self, record: RobotsRecord) -> None:
        authority = record.authority
        is_awaited = _is_on_other_host(self._local.get(authority))
        self._local.put(record)
        left_ms = int((record.expires_at - self._now()) * 1000)
        if left_ms <= 0:
            return
        shard = _shard_of(authority, self._shards)
        packed = _packed_for_others(record, is_awaited, self._is_full(shard))
        if packed is not None:
            self._send_later(Call(shard, "put_robots", (authority, left_ms, packed)))

    async def prefetch(self, leases: Iterable[Lease]) -> list[str]:
        """Read the records of *leases* from Redis, before they are used. Returns the authorities
        whose records were replaced."""
        asked: dict[int, set[str]] = defaultdict(set)
        for authority in filter(None, map(_authority, leases)):
            if not _is_final(self._local.get(authority), self._now()):
                asked[_shard_of(authority, self._shards)].add(authority)
        calls = [Call(shard, "get_robots", tuple(names)) for shard, names in asked.items()]
        replaced: list[str] = []
        for call, reply in zip(
            calls, await replies_in_time(self._run, calls, "robots.txt"), strict=True
        ):
            if isinstance(reply, FAULTS):
                self._count(UNANSWERED)
                continue
            for name, packed, left_ms in zip(call.args, reply[1::2], reply[2::2], strict=True):
                if self._accept(str(name), packed, left_ms):
                    replaced.append(str(name))
        return replaced

    def _accept(self, authority: str, packed: bytes, left_ms: int) -> bool:
        """Take the record of *authority* in a reply, and return whether it replaced ours."""
        now, known = self._now(), self._local.get(authority)
        if not packed:
            return self._expire_unreachable(known, now)
        found = read_robots(authority, packed, left_ms, now, self._most_bytes)
        if found is None:
            self._count(UNREADABLE)
        elif _is_newer(found, known, now):
            if found.kind is RobotsState.PENDING and found.body is None and known is not None:
                found = replace(found, body=known.body)  # our last good copy
            is_replaced = self._replace(found)
            self._count(FOUND if is_replaced else UNSAVED)
            return is_replaced
        return False

    def _expire_unreachable(self, known: RobotsRecord | None, now: float) -> bool:
        """Expire our record if it forbids all because the host was unreachable, and Redis has none:
        reviving dead letters removes it there, so that one fetch decides. Returns whether ours was
        replaced."""
        if known is None or known.kind is not RobotsState.UNREACHABLE or not is_valid(known, now):
            return False
        return self._replace(replace(known, expires_at=now))

    def _replace(self, record: RobotsRecord) -> bool:
        """Store *record*. Returns False if our disk is full; then Redis is asked again before the
        next lease is used."""
        try:
            self._local.put(record)
        except StoreFull as full:
            self._on_disk_full(full)
            return False
        return True


def _packed_for_others(record: RobotsRecord, is_awaited: bool, is_full: bool) -> bytes | None:
    """Pack *record* for other workers, or return None if each should fetch the file itself."""
    packed = pack_robots(record)
    most_bytes = MAX_AWAITED_BYTES if is_awaited else 0 if is_full else MAX_BYTES
    if record.body is None or len(packed) <= most_bytes:
        return packed
    if record.kind is not RobotsState.RULES:
        return pack_robots(replace(record, body=None))
    if is_awaited:
        # Others cannot read that file, so for them all of the authority is forbidden.
        return pack_robots(
            replace(record, kind=RobotsState.UNREACHABLE, body=None, reason=TOO_LARGE)
        )
    return None


def _authority(lease: Lease) -> str | None:
    """Return the authority whose robots.txt applies to *lease*, or None if its URL is not valid."""
    candidate = lease.candidate
    is_robots = candidate.purpose is Purpose.ROBOTS
    try:
        return split(f"{candidate.authority}/" if is_robots else candidate.url).authority
    except (ValueError, KeyError):
        return None


def _shard_of(authority: str, shards: int) -> int:
    """Return the shard of the host of *authority*."""
    return shard_of(registered_domain(split(f"{authority}/").hostname), shards)


def _is_on_other_host(record: RobotsRecord | None) -> bool:
    """Return whether *record* waits for a file on another host, which any worker may fetch."""
    if record is None or record.kind is not RobotsState.PENDING:
        return False
    return split(record.next_url).hostname != split(f"{record.authority}/").hostname


def _is_final(record: RobotsRecord | None, now: float) -> bool:
    """Return whether no other worker can have a better record. One that forbids all because the
    host was unreachable may be removed, so it is not final."""
    settled = (RobotsState.RULES, RobotsState.ALLOW_ALL)
    return record is not None and record.kind in settled and is_valid(record, now)


def _is_newer(found: RobotsRecord, known: RobotsRecord | None, now: float) -> bool:
    if known is None or not is_valid(known, now):
        return True
    if known.kind is RobotsState.PENDING and found.kind is RobotsState.PENDING:
        # Each fetch adds to one of the two; ours may not have been sent yet.
        return found.tries + found.hops > known.tries + known.hops
    return not _is_final(known, now) and found.kind is not known.kind
