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
    "hash": "HGET HMGET HSET HSETNX HDEL HINCRBY HLEN HKEYS HGETALL HRANDFIELD HSCAN",
    "list": "LPUSH RPUSH LPOP LLEN LRANGE LTRIM",
    "zset": "ZADD ZREM ZSCORE ZRANGE ZRANGEBYSCORE ZCARD ZSCAN",
    "set": "SADD SREM SMEMBERS SISMEMBER SCARD",
    "string": "GET SET GETRANGE STRLEN APPEND",
    "": "DEL EXISTS TYPE PTTL",
}
OF_KIND: Final = {name: kind for kind, names in KINDS.items() for name in names.split()}
WITHOUT_KEYS: Final = {
    *("AUTH", "CLIENT", "ECHO", "HELLO", "INFO", "PING", "SCRIPT", "SELECT", "TIME"),
}
READING: Final = {
    *(
        "HGET",
        "HLEN",
        "HGETALL",
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
"""What changes nothing, and is bounded: HGETALL is for totals, and for hosts where they are few."""


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
        """What is not as the glossary has it."""
        root = ""
        for each in asked:
            if each.name in {"EVALSHA", "EVAL"}:
                assert each.words[2] == b"1", "one key is named: the root"
                root = each.words[3].decode()
            elif each.name not in WITHOUT_KEYS:
                key = each.words[1].decode("latin-1")
                kinds = [entry.kind for entry in self.entries(key)]
                if len(kinds) != 1:
                    yield f"{each.name} {key}: in the glossary {len(kinds)} times"
                elif OF_KIND[each.name] not in {"", *kinds}:
                    yield f"{each.name} {key}: said to be a {kinds[0]}"
                if each.in_script and not key.startswith(f"{root}:"):
                    yield f"{each.name} {key}: in a script on {root}"

    def _pattern(self, name: str) -> re.Pattern[str]:
        parts = re.split(r"(<\w+>)", name)
        texts = [
            self._values.get(part, ".+") if part.startswith("<") else re.escape(part)
            for part in parts
        ]
        return re.compile("".join(texts), re.DOTALL)
