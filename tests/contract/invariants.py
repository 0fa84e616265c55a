"""How the containers of the two-tier frontier must agree. Reads everything: for tests only."""

from __future__ import annotations

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import (
    FrontEntry,
    HostPlace,
    HostRecord,
    decode_candidate,
    decode_entry,
    decode_host,
)
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import HostKey, Standing

ALL = 1_000_000


def check(frontier: TwoTierFrontier, store: OrderedStore) -> None:
    hosts = {
        HostKey(keys.name_of(key)): decode_host(packed) for key, packed in _all(store, keys.HOST)
    }
    queued = [decode_candidate(packed) for _, packed in _all(store, keys.QUEUED)]
    counts = frontier.counts()
    assert len(queued) == counts.waiting == sum(record.waiting() for record in hosts.values())
    assert len(_all(store, keys.LATER)) == counts.later
    assert len(_all(store, keys.OPEN)) == counts.leased
    assert len(_all(store, keys.REFUSED)) == counts.refused
    _check_places(hosts, frontier, store)
    for active in frontier._scheduler.active:
        on_disk = frontier._queues.head(active.host, active.record, active.level, len(active.head))
        assert list(active.head) == list(on_disk), "the head in memory is the head on disk"


def _check_places(
    hosts: dict[HostKey, HostRecord], frontier: TwoTierFrontier, store: OrderedStore
) -> None:
    entries = {
        (standing, decode_entry(packed))
        for standing in Standing
        for _, packed in _all(store, keys.FRONTS[standing])
    }
    resting = {key[9:].decode() for key, _ in _all(store, keys.RESTING)}
    markers = {keys.name_of(key) for key, _ in _all(store, keys.ACTIVE)}
    active = {one.host for one in frontier._scheduler.active}
    assert markers == active, "the marker on disk says who is in memory"
    for host, record in hosts.items():
        filed = (record.pace.standing, FrontEntry(host, record.generation)) in entries
        assert (record.place is HostPlace.FRONT) <= filed, f"{host} waits in no queue"
        assert (record.place is HostPlace.RESTING) == (host in resting)
        assert (record.place is HostPlace.ACTIVE) == (host in active)
        if record.place is HostPlace.EMPTY:
            assert record.best_level() is None, f"{host} has URLs and no turn"
        if record.place is HostPlace.FRONT:
            assert record.level == record.best_level(), f"{host} is filed below its best"


def _all(store: OrderedStore, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return store.scan(prefix, keys.after(prefix), ALL)
