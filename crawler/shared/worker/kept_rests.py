"""The rests of hosts in trouble, on this worker's disk until their shard has acknowledged them.

Rule: a worker that is killed and starts again sends them before it returns the leases of its last
session, as Redis may have been out of reach when the answer came.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.staging import all_records
from crawler.model.types import HostKey, StoreUnavailable
from crawler.shared.client import Call, Nodes
from crawler.shared.faults import FAULTS

_REST: Final = b"s"  # <host>: a letter that is free in frontier/records.py and outbox.py


class _KeptRest(msgspec.Struct, array_like=True, frozen=True):
    shard: int
    at: float  # epoch seconds
    longest_s: float
    seconds: float
    pace: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_KeptRest).decode


class KeptRests:
    """One for each host, the last."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def put(self, call: Call, now: float) -> None:
        """Keep *call*, the `rest` of one host. Without room on the disk it is not kept."""
        longest_s, host, _, seconds, pace = call.args
        kept = _KeptRest(call.shard, now, float(longest_s), float(seconds), bytes(pace))  # type: ignore[arg-type]  # arguments of other calls are text
        with suppress(StoreUnavailable):
            self._store.write({keys.named(_REST, str(host)): _encode(kept)})

    def drop(self, host: HostKey) -> None:
        with suppress(StoreUnavailable):
            self._store.write({keys.named(_REST, host): None})

    async def resend(self, nodes: Nodes, now: float) -> None:
        """Send all that are kept, with the time that has passed since, and keep them no more.
        Raises the Fault of one that was not carried out."""
        kept = [
            Call(
                rest.shard,
                "rest",
                (rest.longest_s, host, max(0.0, now - rest.at), rest.seconds, rest.pace),
            )
            for key, packed in all_records(self._store, _REST)
            for host, rest in [(keys.name_of(key), _decode(packed))]
        ]
        replies = await nodes.run(kept)
        for reply in replies:
            if isinstance(reply, FAULTS):
                raise reply
        for call in kept:
            self.drop(HostKey(str(call.args[1])))
