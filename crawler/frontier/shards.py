"""The shards of a crawl: all hosts of a registered domain are in one, and so its URL budget and the
redirects within it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from xxhash import xxh3_64_intdigest

from crawler.frontier.records import ONE_SHARD, SHARD_BYTES
from crawler.model.types import Candidate
from crawler.model.url import registered_domain

_KNOWN_HOSTS: Final = 100_000  # 200 bytes each: the domain of an unknown one takes some 5 us


def shard_of(domain: str, shards: int) -> int:
    """Return the shard of a registered domain."""
    return xxh3_64_intdigest(domain.encode()) % shards


class Shards:
    """How many shards a crawl has, and which one a host is in."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.are_several = count > 1
        self._of = lru_cache(_KNOWN_HOSTS)(self._find)

    def of(self, host: str) -> bytes:
        """Return the shard of a host, or of a registered domain, as keys have it."""
        return self._of(host) if self.are_several else ONE_SHARD

    def divide(self, urls: Iterable[Candidate]) -> dict[bytes, list[Candidate]]:
        """Return *urls* by their shards, in the order in which they are."""
        if not self.are_several:
            return {ONE_SHARD: list(urls)}
        divided: dict[bytes, list[Candidate]] = {}
        last, of_last = None, []
        for each in urls:
            if (host := each.host) != last:  # most links of a page are for one host
                last, of_last = host, divided.setdefault(self._of(host), [])
            of_last.append(each)
        return divided

    def _find(self, host: str) -> bytes:
        return shard_of(registered_domain(host), self.count).to_bytes(SHARD_BYTES)
