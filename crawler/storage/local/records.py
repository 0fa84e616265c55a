"""Small records beside the frontier, in the same store: claims on digests, and robots.txt.

Rule: a record that cannot be read counts as none; it is fetched or claimed again.
"""

from __future__ import annotations

import msgspec

from crawler.core.types import Claim
from crawler.policy.robots_fetch import RobotsRecord
from crawler.policy.soft404 import Soft404Record
from crawler.scheduler import keys
from crawler.scheduler.ports import OrderedStore

_encode = msgspec.msgpack.Encoder().encode
_claim = msgspec.msgpack.Decoder(Claim).decode
_soft_404 = msgspec.msgpack.Decoder(Soft404Record).decode
_robots = msgspec.msgpack.Decoder(RobotsRecord).decode


class Claims:
    """Implements storage.digests.ClaimStore. Claims are written by the frontier's finish."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def claim(self, digest: bytes) -> Claim | None:
        packed = self._store.get(keys.DIGEST + digest)
        if packed is None:
            return None
        try:
            return _claim(packed)
        except msgspec.MsgspecError:
            return None


class Soft404Records:
    """Implements scheduler.probes.Soft404Store."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def get(self, kind: str) -> Soft404Record | None:
        packed = self._store.get(keys.named(keys.SOFT_404, kind))
        if packed is None:
            return None
        try:
            return _soft_404(packed)
        except msgspec.MsgspecError:
            return None

    def put(self, kind: str, record: Soft404Record) -> None:
        self._store.write({keys.named(keys.SOFT_404, kind): _encode(record)})


class RobotsRecords:
    """Implements policy.robots_cache.RobotsStore."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def get(self, authority: str) -> RobotsRecord | None:
        packed = self._store.get(keys.named(keys.ROBOTS, authority))
        if packed is None:
            return None
        try:
            return _robots(packed)
        except msgspec.MsgspecError:
            return None

    def put(self, record: RobotsRecord) -> None:
        self._store.write({keys.named(keys.ROBOTS, record.authority): _encode(record)})
