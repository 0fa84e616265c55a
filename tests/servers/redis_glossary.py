"""The glossary of keys, held against what a server was asked.

Rule: it knows the glossary as docs/redis-keys.md shows it, and how Redis' commands name their keys;
nothing of our own code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from crawler.shared.keys import (
    CRAWL_KEYS,
    SHARD_KEYS,
    RedisKey,
)
from tests.servers.redis_monitor import Asked

KINDS: Final = {
    "hash": "HGET HMGET HSET HSETNX HDEL HINCRBY HLEN HKEYS HVALS HGETALL HRANDFIELD HSCAN",
    "list": "LPUSH RPUSH LPOP LLEN LRANGE LTRIM",
    "zset": "ZADD ZREM ZSCORE ZRANGE ZRANGEBYSCORE ZCARD ZSCAN",
    "set": "SADD SREM SMEMBERS SISMEMBER SCARD",
    "string": "GET SET GETRANGE STRLEN APPEND",
    "stream": "XADD XLEN XRANGE XTRIM",
    "": "DEL EXISTS TYPE PTTL PEXPIRE RENAME",
}
OF_KIND: Final = {name: kind for kind, names in KINDS.items() for name in names.split()}
WITHOUT_KEYS: Final = {
    *("AUTH", "CLIENT", "ECHO", "HELLO", "INFO", "PING", "SCRIPT", "SELECT", "TIME"),
}
READING: Final = {
    *(
        "HGET",
        "HMGET",
        "HLEN",
        "HSCAN",
        "LLEN",
        "LRANGE",
        "ZSCAN",
        "SISMEMBER",
        "GET",
        "PTTL",
    ),
    *WITHOUT_KEYS - {"SCRIPT"},
}
"""What changes nothing, and is bounded."""


class Glossary:
    """Of the crawl *name*, whose spider is `web`."""

    def __init__(self, name: str) -> None:
        self._values = {
            "<root>": rf"{re.escape(name)}:\{{\d+\}}",
            "<name>": re.escape(name),
            "<spider>": "web",
            "<front>": r"\d\d?",
            "<bucket>": r"\d+",
        }
        self._known = [(self._pattern(key.name), key) for key in (*SHARD_KEYS, *CRAWL_KEYS)]

    def entries(self, key: str) -> list[RedisKey]:
        """Those that *key* can be: one, if all is well."""
        return [entry for pattern, entry in self._known if pattern.fullmatch(key)]

    def strangers(self, asked: Iterable[Asked]) -> Iterator[str]:
        """Yield what is not as the glossary has it. A script names all its keys, or the root of all
        of them."""
        named = [""]
        for each in asked:
            if each.name in {"EVALSHA", "EVAL"}:
                named = [key.decode("latin-1") for key in each.words[3 : 3 + int(each.words[2])]]
            elif each.name not in WITHOUT_KEYS:
                key = each.words[1].decode("latin-1")
                kinds = [entry.kind for entry in self.entries(key)]
                if len(kinds) != 1:
                    yield f"{each.name} {key}: in the glossary {len(kinds)} times"
                elif OF_KIND[each.name] not in {"", *kinds}:
                    yield f"{each.name} {key}: said to be a {kinds[0]}"
                if each.in_script and key not in named and not key.startswith(f"{named[0]}:"):
                    yield f"{each.name} {key}: in a script on {named[0]}"

    def _pattern(self, name: str) -> re.Pattern[str]:
        parts = re.split(r"(<\w+>)", name)
        texts = [
            self._values.get(part, ".+") if part.startswith("<") else re.escape(part)
            for part in parts
        ]
        return re.compile("".join(texts), re.DOTALL)
