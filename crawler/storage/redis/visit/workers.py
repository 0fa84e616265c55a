"""The workers of a crawl as a person asks for them: who is there, and who is gone for good.

Rule: a worker that is not heard of is not gone: links may wait on its disk, and as long as they
do the crawl does not end. Only a person can know that the disk is lost.
"""

from __future__ import annotations

import msgspec

from crawler.core.errors import ConfigError
from crawler.storage.redis import keys
from crawler.storage.redis.visit.visit import Visit
from crawler.storage.redis.worker.membership import ALIVE_S
from crawler.storage.redis.worker_record import WorkerSaid

_decode = msgspec.json.Decoder(WorkerSaid).decode


def everybody(visit: Visit) -> list[WorkerSaid]:
    """By their names."""
    key = keys.workers(visit.name)
    with visit.reading(key):
        found = {name: _decode(said) for pairs in visit.pairs(key) for name, said in pairs}
    return [found[name] for name in sorted(found)]


def is_alive(worker: WorkerSaid, now: float) -> bool:
    """*now*: by the server's clock, as what it said."""
    return now - worker.at < ALIVE_S


def forget(visit: Visit, name: str) -> WorkerSaid:
    """What it said last: the links on its disk are given up. Should it come back after all, it
    brings them. Raises ConfigError: it is alive, or unknown."""
    key = keys.workers(visit.name)
    said = visit.ask(key, "HGET", name)
    if said is None:
        raise ConfigError(
            f"{visit.where} knows no worker {name}; scrapy frontier workers lists them"
        )
    with visit.reading(key):
        worker = _decode(said)
    now = visit.now()
    if is_alive(worker, now):
        raise ConfigError(
            f"{name} is alive, heard of {now - worker.at:.1f} s ago (process {worker.pid} on"
            f" {worker.host}). Stop it first: its links then stay on its disk, or are told"
        )
    notes = [keys.outboxes(visit.name, shard) for shard in visit.shards]
    visit.link.ask([(note, ("SREM", note, name)) for note in notes])
    visit.ask(key, "HDEL", name)
    return worker
