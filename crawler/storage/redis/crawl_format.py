"""What a shared crawl was begun with: all its workers must agree on it.

Rule: written once, by whoever comes first; nothing is changed before it is known to be ours.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Final

import msgspec

from crawler.core.errors import ConfigError
from crawler.storage.redis.keys import SCHEMA
from crawler.storage.redis.ops import MOST_SHARDS


class CrawlFormat(msgspec.Struct, frozen=True):
    shards: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)]
    levels: int
    identity: tuple[str, ...]  # which settings the keys of URLs and hosts were made with
    key_seed: int = 0  # of the hash of URLs: a page cannot choose URLs that collide
    schema: str = SCHEMA


_decode: Final = msgspec.json.Decoder(CrawlFormat).decode
encode_format: Final = msgspec.json.Encoder().encode


def new_format(shards: int, levels: int, identity: tuple[str, ...]) -> CrawlFormat:
    return CrawlFormat(shards, levels, identity, secrets.randbits(64))


def known(kept: bytes, where: str) -> CrawlFormat:
    """The format of the crawl at *where*, if this version can read it. Raises ConfigError."""
    try:
        crawl = _decode(kept)
    except msgspec.MsgspecError as broken:
        raise ConfigError(
            f"{where} is no format of a crawl of ours ({broken}). Choose another"
            " CRAWLER_FRONTIER_NAME, or remove that key"
        ) from broken
    if crawl.schema != SCHEMA:
        raise ConfigError(
            f"{where} has schema {crawl.schema}, this version writes {SCHEMA}. Finish the crawl"
            " with the version that began it"
        )
    return crawl


def agreed(kept: bytes, ours: CrawlFormat, where: str) -> CrawlFormat:
    """The format of the crawl at *where*, if we can take part in it. Raises ConfigError."""
    crawl = known(kept, where)
    if crawl.shards != ours.shards:
        raise ConfigError(
            f"the crawl at {where} was begun with {crawl.shards} shards, the setting"
            f" CRAWLER_FRONTIER_SHARDS has {ours.shards}: it is fixed for a crawl"
        )
    if changed := set(crawl.identity) ^ set(ours.identity):
        raise ConfigError(
            f"the crawl at {where} was begun with other rules of which URLs are the same:"
            f" {', '.join(sorted(changed))}. Set them as they were, or begin another crawl"
        )
    if crawl.levels > ours.levels:
        raise ConfigError(
            f"the crawl at {where} has {crawl.levels} levels, the setting {ours.levels}:"
            " CRAWLER_LEVEL_SHARES may grow between runs, not shrink"
        )
    return crawl
