"""What patterns of URLs have brought, as those see it who only look.

Rule: as in visit.py.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from crawler.policy.yields import NOTHING, OTHER, Yield
from crawler.storage.inspection import Named
from crawler.storage.redis import keys
from crawler.storage.redis.ops import shard_of
from crawler.storage.redis.visit.visit import Visit
from crawler.storage.redis.worker.shared_yields import MOST_PATTERNS, field_of

_KEPT: Final = Struct("<IIId")  # as note.lua packs it
_OTHER_FIELD: Final = b""


def brought(visit: Visit, it: Named, pattern: str) -> tuple[str, Yield]:
    """Under which pattern it counts, and what that has brought. Raises ForeignData."""
    key = keys.yields(visit.name, shard_of(it.domain, len(visit.shards)), it.host)
    packed = visit.ask(key, "HGET", field_of(pattern))
    if packed is None and visit.ask(key, "HLEN") >= MOST_PATTERNS:
        pattern, packed = OTHER, visit.ask(key, "HGET", _OTHER_FIELD)
    if packed is None:
        return pattern, NOTHING
    with visit.reading(key):
        return pattern, Yield(*_KEPT.unpack(packed))
