"""The write batch of one frontier call: its changes are staged here and written at once.

Rule: `get` and `host` see staged changes. Nothing reaches the store before `commit`, which writes
all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import (
    FrontierTotals,
    HostRecord,
    QueueEnds,
    decode_host,
    decode_totals,
    encode,
)
from crawler.model.types import ConfigError, HostKey, StoreUnavailable


class WriteBatch:
    """Staged changes over a store. The record of an active host is one object, which all callers
    share."""

    def __init__(self, store: OrderedStore, levels: int) -> None:
        self._store = store
        self._levels = levels
        self._staged: dict[bytes, bytes | None] = {}
        self._changed_hosts: dict[HostKey, HostRecord] = {}
        self._active_hosts: dict[HostKey, HostRecord] = {}
        self._failure: StoreUnavailable | None = None
        self.totals = self._read_totals()

    def get(self, key: bytes) -> bytes | None:
        if key in self._staged:
            return self._staged[key]
        return self._store.get(key)

    def has(self, names: Sequence[bytes]) -> list[bool]:
        """Return for each of *names* whether it is in the store; staged changes do not count."""
        return self._store.has(names)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Scan the store, without staged changes."""
        return self._store.scan(start, stop, limit)

    def put(self, key: bytes, value: bytes) -> None:
        self._staged[key] = value

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._staged.update(pairs)

    def delete(self, key: bytes) -> None:
        self._staged[key] = None

    def delete_all(self, names: Iterable[bytes]) -> None:
        self._staged.update(dict.fromkeys(names))

    def host(self, host: HostKey) -> HostRecord:
        """Return the record of *host* to be changed in place; the commit writes it."""
        record = self._changed_hosts.get(host)
        if record is None:
            record = self._changed_hosts[host] = self.peek(host)
        return record

    def peek(self, host: HostKey) -> HostRecord:
        """Return the record of *host*, or a new one; changes to it are not written."""
        known = self._active_hosts.get(host) or self._changed_hosts.get(host)
        if known is not None:
            return known
        packed = self._store.get(keys.named(keys.HOST, host))
        record = decode_host(packed) if packed else HostRecord([])
        record.queue_ends += [QueueEnds() for _ in range(self._levels - len(record.queue_ends))]
        return record

    def pin_record(self, host: HostKey) -> None:
        """Keep the record in memory while its host is active."""
        self._active_hosts[host] = self.host(host)

    def unpin_record(self, host: HostKey) -> None:
        del self._active_hosts[host]

    def next_number(self) -> int:
        return self.next_numbers(1)[0]

    def next_numbers(self, count: int) -> range:
        first = self.totals.next_number
        self.totals.next_number += count
        return range(first, first + count)

    def _read_totals(self) -> FrontierTotals:
        packed = self._store.get(keys.TOTALS)
        totals = decode_totals(packed) if packed else FrontierTotals(front=[])
        if len(totals.front) > self._levels:
            raise ConfigError(
                f"this crawl was begun with {len(totals.front)} levels, the setting has"
                f" {self._levels}: CRAWLER_LEVEL_SHARES may grow between runs, not shrink"
            )
        for front in totals.fronts():
            front += [QueueEnds() for _ in range(self._levels - len(front))]
        return totals

    def commit(self, now: float) -> None:
        """Write all staged changes. Raises StoreUnavailable; from then on memory may be ahead of
        the disk, so every later commit raises it too."""
        if self._failure is not None:
            raise self._failure
        if not self._staged and not self._changed_hosts:
            return
        for host, record in self._changed_hosts.items():
            self._staged[keys.named(keys.HOST, host)] = encode(record)
        self.totals.clock = max(self.totals.clock, now)
        self._staged[keys.TOTALS] = encode(self.totals)
        try:
            self._store.write(self._staged)
        except StoreUnavailable as broken:
            self._failure = broken
            raise
        finally:
            self._staged = {}
            self._changed_hosts = {}
