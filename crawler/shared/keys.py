"""Every key of a shared crawl: its name, type, meaning and growth; and the texts of the scripts.

Rule: only this file and lua/shard.lua make key names; a test compares the two. All keys of a shard
have the same part in braces, so they are in one hash slot of a cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Final

SCHEMA: Final = "3"
URGENT: Final = 0
"""The front that is served before all others; level n of a Candidate is front n + 1."""
URGENT_LEVEL: Final = URGENT - 1
"""The level of an urgent Candidate. It keeps it when it is redirected or waits in the outbox."""
_HASH_TAG: Final = re.compile(r"^[^{]*\{[^}]+\}")


@dataclass(frozen=True, slots=True)
class RedisKey:
    name: str  # <name>: CRAWLER_FRONTIER_NAME; <root>: of a shard; <spider>: the spider's name
    kind: str
    meaning: str
    growth: str


SHARD_KEYS: Final = (
    RedisKey("<root>:m", "hash", "Totals, clock, run of the server, turns of the levels.", "one"),
    RedisKey(
        "<root>:h",
        "hash",
        "Host to its record: place, fronts, rest, pace, URLs that wait.",
        "known hosts",
    ),
    RedisKey(
        "<root>:b:<front>:<host>", "list", "The waiting URLs of a host, packed.", "waiting URLs"
    ),
    RedisKey("<root>:f:<front>", "list", "Due hosts that are new, in turn.", "due hosts"),
    RedisKey(
        "<root>:f:<front>:<standing>",
        "list",
        "The same of hosts that answer (1), and of those that failed (2).",
        "due hosts",
    ),
    RedisKey(
        "<root>:r", "zset", "Hosts at rest, by the end of their rest.", "hosts with URLs at rest"
    ),
    RedisKey("<root>:l", "zset", "Later URLs, by their date.", "retries and revisits"),
    RedisKey("<root>:w", "zset", "Sessions with leases, by when they end.", "workers"),
    RedisKey(
        "<root>:e:<session>", "string", "Its leases have ended; expires.", "dead workers of a day"
    ),
    RedisKey(
        "<root>:o:<session>", "hash", "Open leases: what was taken, when.", "fetches under way"
    ),
    RedisKey("<root>:x", "set", "Workers that have links on their own disks.", "workers"),
    RedisKey("<root>:s:<bucket>", "set", "Seen: 100-400 keys of admitted URLs each.", "URLs seen"),
    RedisKey("<root>:d", "hash", "Dead letters, by their number.", "URLs given up"),
    RedisKey("<root>:k", "hash", "URLs that a rule refused at their turn.", "URLs refused"),
    RedisKey("<root>:c", "hash", "URLs admitted of a registered domain.", "domains, with a budget"),
    RedisKey(
        "<root>:g:<bucket>", "list", "Claims: pages that own a digest, 10-40.", "different pages"
    ),
    RedisKey("<root>:n", "hash", "Archive files, by their number and back.", "archive files"),
    RedisKey(
        "<root>:v:<digest>", "string", "Reservation of a digest; expires.", "fetches under way"
    ),
    RedisKey("<root>:t:<authority>", "string", "A robots.txt; expires with it.", "hosts of a day"),
    RedisKey(
        "<root>:y:<host>",
        "hash",
        "Statistics of patterns of URLs.",
        "patterns with 8 pages, 1,000 a host",
    ),
    RedisKey("<root>:z", "zset", "Hosts with most left to do, in seconds.", "200 hosts at most"),
    RedisKey(
        "<root>:a:<table>:<quarter>",
        "string",
        "Fingerprints of pages that share a quarter of theirs.",
        "different texts",
    ),
)
CRAWL_KEYS: Final = (
    RedisKey(
        "<name>:format", "string", "Schema, shards, levels, identity and key of the URLs.", "one"
    ),
    RedisKey("<name>:rules", "hash", "The operator's rules, and their version.", "one"),
    RedisKey("{<name>:rules}:audit", "list", "What operators have done.", "their acts"),
    RedisKey("{<name>:rules}:lock", "string", "The worker that carries out acts; expires.", "one"),
    RedisKey("<name>:arguments", "string", "Arguments of the spider's last start.", "one"),
    RedisKey(
        "<name>:settings", "string", "Settings of the last start that decide about URLs.", "one"
    ),
    RedisKey("<name>:workers", "hash", "Worker to its last record.", "workers"),
    RedisKey(
        "{<name>:workers}:alive",
        "zset",
        "Live workers, by their last announcement.",
        "workers",
    ),
    RedisKey(
        "{<name>:workers}:starting",
        "set",
        "Workers that have not added their seeds yet.",
        "workers",
    ),
    RedisKey(
        "{<name>:workers}:read",
        "zset",
        "Worker to the mark up to which it has read <name>:opened.",
        "workers",
    ),
    RedisKey("<name>:opened", "zset", "Hosts that pushed seeds opened, in order.", "hosts pushed"),
    RedisKey("<name>:urgent", "list", "Pushed URLs that go before all others.", "what was pushed"),
    RedisKey("{<name>:urgent}:taken", "hash", "Items taken and not yet added.", "what is taken"),
    RedisKey(
        "{<name>:urgent}:refused", "list", "Items that cannot be used, and why.", "1,000 at most"
    ),
    RedisKey(
        "<spider>:start_urls", "list, set or zset", "Seeds pushed from outside.", "what was pushed"
    ),
    RedisKey(
        "{<spider>:start_urls}:taken", "hash", "Items taken and not yet added.", "what is taken"
    ),
    RedisKey(
        "{<spider>:start_urls}:refused",
        "list",
        "Items that cannot be used, and why.",
        "1,000 at most",
    ),
)


def root(name: str, shard: int) -> str:
    return f"{name}:{{{shard}}}"


def totals(name: str, shard: int) -> str:
    return f"{root(name, shard)}:m"


def hosts(name: str, shard: int) -> str:
    return f"{root(name, shard)}:h"


def queue(name: str, shard: int, front: int, host: str) -> str:
    return f"{root(name, shard)}:b:{front}:{host}"


def resting(name: str, shard: int) -> str:
    return f"{root(name, shard)}:r"


def longest(name: str, shard: int) -> str:
    return f"{root(name, shard)}:z"


def later(name: str, shard: int) -> str:
    return f"{root(name, shard)}:l"


def sessions(name: str, shard: int) -> str:
    return f"{root(name, shard)}:w"


def leases(name: str, shard: int, session: str) -> str:
    return f"{root(name, shard)}:o:{session}"


def seen(name: str, shard: int, bucket: int) -> str:
    return f"{root(name, shard)}:s:{bucket}"


def dead(name: str, shard: int) -> str:
    return f"{root(name, shard)}:d"


def refused_urls(name: str, shard: int) -> str:
    return f"{root(name, shard)}:k"


def domains(name: str, shard: int) -> str:
    return f"{root(name, shard)}:c"


def outboxes(name: str, shard: int) -> str:
    return f"{root(name, shard)}:x"


def claims(name: str, shard: int, bucket: int) -> str:
    return f"{root(name, shard)}:g:{bucket}"


def key_files(name: str, shard: int) -> str:
    return f"{root(name, shard)}:n"


def near(name: str, shard: int, table: int, quarter: int) -> str:
    return f"{root(name, shard)}:a:{table}:{quarter}"


def robots(name: str, shard: int, authority: str) -> str:
    return f"{root(name, shard)}:t:{authority}"


def pattern_stats(name: str, shard: int, host: str) -> str:
    return f"{root(name, shard)}:y:{host}"


def format_key(name: str) -> str:
    return f"{name}:format"


def arguments(name: str) -> str:
    return f"{name}:arguments"


def settings(name: str) -> str:
    return f"{name}:settings"


def rules(name: str) -> str:
    return f"{name}:rules"


def audit(name: str) -> str:
    return f"{{{name}:rules}}:audit"


def audit_lock(name: str) -> str:
    return f"{{{name}:rules}}:lock"


def workers(name: str) -> str:
    return f"{name}:workers"


def announced(name: str) -> tuple[str, str, str, str]:
    """Return the keys of the script `announce`, in its order."""
    beside = f"{{{workers(name)}}}"
    return workers(name), f"{beside}:alive", f"{beside}:starting", f"{beside}:read"


def opened_hosts(name: str) -> str:
    return f"{name}:opened"


def urgent(name: str) -> str:
    return f"{name}:urgent"


def start_urls(spider: str) -> str:
    return f"{spider}:start_urls"


def taken(feed: str) -> str:
    return f"{_tagged(feed)}:taken"


def refused(feed: str) -> str:
    return f"{_tagged(feed)}:refused"


def can_share_slot(key: str) -> bool:
    """Return whether a second key can be named so that it is in the hash slot of *key*."""
    return not {"{", "}"}.intersection(key) or _HASH_TAG.search(key) is not None


def _tagged(key: str) -> str:
    """Return a prefix for names of keys in the hash slot of *key*. If *key* has a part in braces,
    that decides its slot; otherwise the whole name does, and is put into braces."""
    return key if _HASH_TAG.search(key) else f"{{{key}}}"


# The Lua operations, one a file. What each needs of the prelude of its kind is inserted behind the
# shebang, which must stay the first line: Redis makes all functions of a script anew at each call,
# which for all of the prelude took longer than most operations. The clock is a separate file so
# that tests can replace it.

OPERATIONS: Final = (
    "open",
    "add",
    "lease",
    "release",
    "finish",
    "renew_leases",
    "list_leases",
    "return_leases",
    "rest",
    "end_rest",
    "retry_dead",
    "reserve_content",
    "claim_content",
    "near",
    "owner_of_content",
    "get_robots",
    "put_robots",
    "add_stats",
    "get_stats",
    "check",
    "outbox",
    "repair",
    "remove_refused",
    "trim",
    "readmit",
    "sweep",
    "sweep_later",
    "forget",
)
FEED_SCRIPTS: Final = ("feed_take", "feed_hold", "feed_refuse", "feed_length")
CRAWL_SCRIPTS: Final = ("open_hosts", "announce")
"""Scripts on keys outside the shards: sent as text, with all their keys named."""


class Scripts:
    def __init__(self, clock: str | None = None) -> None:
        """*clock* is Lua code that defines `wall()` in place of the server's own clock."""
        self._clock = clock or source("clock")

    def names(self) -> tuple[str, ...]:
        """Return the names of the operations on a shard."""
        return OPERATIONS

    def text(self, name: str) -> str:
        return self._texts[name]

    def sha(self, name: str) -> str:
        return self._shas[name]

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {
            name: with_prelude(self._clock, prelude, source(name))
            for prelude, names in (
                (f"{source('shard')}\n{source('claims')}", OPERATIONS),
                (source("feed"), FEED_SCRIPTS),
                ("", CRAWL_SCRIPTS),
            )
            for name in names
        }

    @cached_property
    def _shas(self) -> dict[str, str]:
        return {name: sha1(text.encode()).hexdigest() for name, text in self._texts.items()}


def with_prelude(clock: str, prelude: str, operation: str) -> str:
    shebang, _, rest = operation.partition("\n")
    return f"{shebang}\n{clock}\n{_needed(prelude, rest)}{rest}"


def _needed(prelude: str, operation: str) -> str:
    """Return the statements of *prelude* that are no definitions, and the definitions that they and
    *operation* need. A statement begins at the first column; it needs what comes before it."""
    words = _words(operation)
    needed = []
    for statement in reversed(_STATEMENT.findall(_COMMENT.sub("", prelude))):
        defined = _DEFINED.match(statement)
        if defined is None or not words.isdisjoint(_words(defined[1])):
            words |= _words(statement)
            needed.append(statement)
    return "".join(reversed(needed))


_COMMENT: Final = re.compile(r"^[ ]*--.*\n", re.MULTILINE)
_STATEMENT: Final = re.compile(r"^\w.*\n(?:(?:[ )}].*|end.*)?\n)*", re.MULTILINE)
_DEFINED: Final = re.compile(r"local (?:function )?([\w,\s]+?)(?: =|\()")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def source(name: str) -> str:
    # importlib.resources also reads from an egg, where there is no folder.
    return (files("crawler.shared") / "lua" / f"{name}.lua").read_text("utf-8")
