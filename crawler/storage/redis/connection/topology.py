"""Who serves which key of a cluster: 16384 hash slots, each with a node.

Rule: pure. A node is its "host:port".
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from typing import Any, Final, TypeAlias

from crawler.storage.redis.connection.address import node_name

SLOTS: Final = 16_384
NOBODY: Final = "nobody"  # serves the slot, as far as the cluster told

Owners: TypeAlias = list[str]  # by hash slot
_MOVED: Final = re.compile(r"MOVED (?P<hashed>[0-9]{1,5}) (?P<host>\S*):(?P<port>[0-9]{1,5})\b")


def hash_of(key: str) -> int:
    """Its hash slot. Of a key with braces only what stands between them counts."""
    begin = key.find("{")
    end = key.find("}", begin + 1) if begin >= 0 else -1
    return crc_hqx(key[begin + 1 : end].encode() if end > begin + 1 else key.encode(), 0) % SLOTS


def single(node: str) -> Owners:
    """All slots are at one server."""
    return [node] * SLOTS


def read_slots(reply: Any, asked_host: str) -> Owners | None:
    """Of CLUSTER SLOTS. None: it is no map, or one of a node that knows of nobody."""
    owners = single(NOBODY)
    try:
        for begin, end, master, *_ in reply:
            # A node that does not know its own address says nothing: it is the one we asked.
            host = master[0].decode() if master[0] not in {None, b"", b"?"} else asked_host
            owners[begin : end + 1] = [node_name(host, int(master[1]))] * (end + 1 - begin)
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return owners if len(owners) == SLOTS and owners != single(NOBODY) else None


def read_moved(error: str, asked_host: str) -> tuple[int, str] | None:
    """Of "MOVED 3999 127.0.0.1:6381". None: it says nothing of the kind."""
    found = _MOVED.match(error)
    if found is None or int(found["hashed"]) >= SLOTS:
        return None
    host = found["host"].strip("[]") or asked_host
    return int(found["hashed"]), node_name(host, int(found["port"]))
