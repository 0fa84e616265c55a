"""The hosts of a shared crawl, as those see them who only look.

Rule: as in visit.py. Which are the busiest no structure tells: every host is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

from crawler.core.domains import registered_domain
from crawler.core.types import HostKey
from crawler.storage.inspection import HostState
from crawler.storage.redis import keys
from crawler.storage.redis.ops import shard_of
from crawler.storage.redis.shard_records import ShardHost, read_host
from crawler.storage.redis.visit.visit import Visit


def busiest(visit: Visit, top: int) -> list[HostState]:
    best: dict[HostKey, HostState] = {}  # by name: a scan may tell some twice
    for shard in visit.shards:
        key = keys.hosts(visit.name, shard)
        for found in visit.pairs(key):
            with visit.reading(key):
                records = [(HostKey(host.decode()), read_host(packed)) for host, packed in found]
            best |= {state.host: state for state in _states(visit, shard, records)}
            leading = nlargest(top, best.values(), key=lambda state: state.waiting)
            best = {state.host: state for state in leading}
    return list(best.values())


def host_state(visit: Visit, host: HostKey) -> HostState | None:
    shard = shard_of(registered_domain(host), len(visit.shards))
    record = host_record(visit, shard, host)
    return None if record is None else _states(visit, shard, [(host, record)])[0]


def host_record(visit: Visit, shard: int, host: HostKey) -> ShardHost | None:
    key = keys.hosts(visit.name, shard)
    packed = visit.ask(key, "HGET", host)
    with visit.reading(key):
        return None if packed is None else read_host(packed)


def _states(
    visit: Visit, shard: int, records: Sequence[tuple[HostKey, ShardHost]]
) -> list[HostState]:
    queues = [
        (host, keys.queue(visit.name, shard, front, host))
        for host, record in records
        for front in record.fronts
    ]
    lengths = visit.ask_each([("LLEN", key) for _, key in queues])
    waiting = dict.fromkeys((host for host, _ in records), 0)
    for (host, _), length in zip(queues, lengths, strict=True):
        waiting[host] += length
    return [
        HostState(
            host=host,
            waiting=waiting[host],
            place=record.place.name.lower(),
            rest_until=record.rest_until,
            pace=record.pace,
            admitted=record.admitted,
        )
        for host, record in records
    ]
