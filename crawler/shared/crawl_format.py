"""The format of a shared crawl: what it was begun with, on which all its workers must agree.

Rule: the first worker writes it once. A worker changes nothing in Redis before it has checked it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import msgspec
from publicsuffixlist import PSLFILE

from crawler.config.settings import Config
from crawler.model.types import ConfigError
from crawler.model.url import digest_of_list
from crawler.policy.admission import identity_of_urls
from crawler.shared.keys import SCHEMA

MAX_SHARDS: Final = 1024
SUFFIXES: Final = "suffixes="
"""The prefix of the digest of the public suffix list, in the identity of a crawl."""


class CrawlFormat(msgspec.Struct, frozen=True):
    """The format of a shared crawl as it is stored in Redis."""

    shards: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARDS)]
    levels: int
    identity: tuple[str, ...]  # which settings the keys of URLs and hosts were made with
    key_seed: int = 0  # seeds the hash of URLs, so that a page cannot choose URLs that collide
    schema: str = SCHEMA
    spider: str = ""  # the spider whose requests are waiting; empty if it is not known
    begun: bool = True  # whether all shards were there once (owned/leader.py)


_decode: Final = msgspec.json.Decoder(CrawlFormat).decode
encode_format: Final = msgspec.json.Encoder().encode


def new_format(
    shards: int, levels: int, identity: tuple[str, ...], spider: str = ""
) -> CrawlFormat:
    seed = secrets.randbits(64)
    return CrawlFormat(shards, levels, identity, seed, spider=spider, begun=False)


def read_format(kept: bytes, where: str) -> CrawlFormat:
    """Decode the format of the crawl at *where*. Raises ConfigError if this version cannot
    read it."""
    try:
        crawl = _decode(kept)
    except msgspec.MsgspecError as broken:
        raise ConfigError(
            f"{where} is no format of a crawl of ours ({broken}). Choose another"
            " CRAWLER_FRONTIER_NAME, or remove that key"
        ) from broken
    if crawl.schema != SCHEMA:
        raise ConfigError(
            f"{where} has schema {crawl.schema}, and this version reads {SCHEMA}: finish the crawl"
            " with the version that began it, or choose another CRAWLER_FRONTIER_NAME"
        )
    return crawl


def refuse_other_identity(theirs: Iterable[str], ours: Collection[str], where: str) -> None:
    """Raise ConfigError if the crawl at *where* was begun with another identity (*theirs*)."""
    changed = sorted(set(theirs) ^ set(ours))
    if changed and all(each.startswith(SUFFIXES) for each in changed):
        here = next((each for each in changed if each in ours), "none")
        raise ConfigError(
            f"{where} was begun with another public suffix list: {', '.join(changed)}; here:"
            f" {here}. The list decides the shard of a host: install the same version of"
            " publicsuffixlist on all machines"
        )
    if changed:
        raise ConfigError(
            f"{where} was begun with other rules of which URLs are the same:"
            f" {', '.join(changed)}. Set them as they were, or begin another crawl"
        )


def check_format(kept: bytes, ours: CrawlFormat, where: str) -> CrawlFormat:
    """Decode the format of the crawl at *where*. Raises ConfigError if a worker with *ours* cannot
    join it."""
    crawl = read_format(kept, where)
    if crawl.spider and ours.spider and crawl.spider != ours.spider:
        raise ConfigError(
            f"the crawl at {where} is one of the spider {crawl.spider}: give {ours.spider} another"
            " CRAWLER_FRONTIER_NAME"
        )
    if crawl.shards != ours.shards:
        raise ConfigError(
            f"the crawl at {where} was begun with {crawl.shards} shards, the setting"
            f" CRAWLER_FRONTIER_SHARDS has {ours.shards}: it is fixed for a crawl"
        )
    refuse_other_identity(crawl.identity, ours.identity, f"the crawl at {where}")
    if crawl.levels > ours.levels:
        raise ConfigError(
            f"the crawl at {where} has {crawl.levels} levels, the setting {ours.levels}:"
            " CRAWLER_LEVEL_SHARES may grow between runs, not shrink"
        )
    return crawl


def identity_of_shards(config: Config) -> tuple[str, ...]:
    """Return the identity of a shared crawl. Unlike that of a data directory, it includes the
    public suffix list, which decides the shard of a host: with two lists a host would be in two."""
    return (*identity_of_urls(config), f"{SUFFIXES}{list_digest()}")


@cache
def list_digest() -> str:
    """Return the digest of the installed public suffix list."""
    return digest_of_list(Path(PSLFILE).read_bytes())
