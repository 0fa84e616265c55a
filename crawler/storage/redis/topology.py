"""Who serves which key of a cluster: 16384 hash slots, each with a node.

Rule: pure. A node is its "host:port".
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from crawler.storage.redis.address import node_name

SLOTS: Final = 16_384
NOBODY: Final = "nobody"  # serves the slot, as far as the cluster told

Owners: TypeAlias = list[str]  # by hash slot


def hash_of(key: str) -> int:
    """Its hash slot. Of a key with braces only what stands between them counts."""
    begin = key.find("{")
    end = key.find("}", begin + 1) if begin >= 0 else -1
    return crc_hqx(key[begin + 1 : end].encode() if end > begin + 1 else key.encode(), 0) % SLOTS


def single(node: str) -> Owners:
    """All slots are at one server."""
    return [node] * SLOTS


def read_slots(reply: Sequence[Any], asked_host: str) -> Owners:
    """Of CLUSTER SLOTS. Raises ValueError (or what comes of a wrong shape)."""
    owners = [NOBODY] * SLOTS
    for begin, end, master, *_ in reply:
        if not 0 <= begin <= end < SLOTS:
            raise ValueError(f"slots {begin} to {end}")
        # A node that does not know its own address says nothing: it is the one that we asked.
        host = master[0].decode() if master[0] not in {None, b"", b"?"} else asked_host
        owners[begin : end + 1] = [node_name(host, int(master[1]))] * (end + 1 - begin)
    return owners


def read_moved(error: str, asked_host: str) -> tuple[int, str]:
    """Of "MOVED 3999 127.0.0.1:6381"."""
    _, hashed, node = error.split(" ")[:3]
    host, _, port = node.rpartition(":")
    return int(hashed) % SLOTS, node_name(host.strip("[]") or asked_host, int(port))
