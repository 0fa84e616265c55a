"""Every key of a shared crawl: its name, type, meaning and growth; and the texts of the scripts on
keys outside the shards.

Rule: all keys of a shard have the same part in braces, so they are in one hash slot of a cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Final

SCHEMA: Final = "5"
URGENT_LEVEL: Final = -1
"""The level of a Candidate that is to go before all others of its host."""
_HASH_TAG: Final = re.compile(r"^[^{]*\{[^}]+\}")


@dataclass(frozen=True, slots=True)
class RedisKey:
    name: str  # <name>: CRAWLER_FRONTIER_NAME; <root>: of a shard; <spider>: the spider's name
    kind: str
    meaning: str
    growth: str


SHARD_KEYS: Final = (
    RedisKey(
        "<root>",
        "hash",
        "Owner and its lease, number of its last batch, counters, run of the server.",
        "one",
    ),
    RedisKey("<root>:inbox", "hash", "Links that workers send to the owner.", "what is unread"),
    RedisKey("<root>:h", "hash", "Host to its record: queues, rest, pace.", "known hosts"),
    RedisKey("<root>:b", "hash", "Chunks of waiting URLs, packed.", "waiting URLs"),
    RedisKey("<root>:s", "list", "Keys of admitted URLs, eight bytes each.", "URLs seen"),
    RedisKey("<root>:o", "hash", "Open leases.", "fetches under way"),
    RedisKey("<root>:l", "hash", "Later URLs, by their date.", "retries and revisits"),
    RedisKey("<root>:u", "hash", "URLs that were found a moment ago.", "a second's links"),
    RedisKey("<root>:v", "hash", "URLs that may be seen already.", "some seconds' links"),
    RedisKey("<root>:d", "hash", "Dead letters.", "URLs given up"),
    RedisKey("<root>:x", "hash", "URLs that a rule refused at their turn.", "URLs refused"),
    RedisKey("<root>:G", "hash", "Pages that are gone.", "200,000 a worker"),
    RedisKey("<root>:S", "hash", "Where pages that have dates wait.", "pages of sitemaps"),
    RedisKey("<root>:c", "hash", "Domain to its record: budget, who links to it.", "known domains"),
    RedisKey("<root>:O", "hash", "Chunks of URLs over a domain's budget.", "URLs spilled"),
    RedisKey("<root>:L", "hash", "What was fetched of seeds with limits.", "such seeds"),
    RedisKey("<root>:y", "hash", "Statistics of patterns of URLs.", "patterns of URLs"),
    RedisKey("<root>:U", "hash", "URLs that were updated or lent: their place.", "such URLs"),
    RedisKey("<root>:Q", "hash", "Hosts of these: leases, blocks, delays.", "such hosts"),
    RedisKey("<root>:A", "hash", "Until when addresses of hosts rest.", "addresses, if grouped"),
    RedisKey(
        "<root>:w:<address>",
        "hash",
        "Which worker has an address, and who waits for it; expires.",
        "addresses, if grouped",
    ),
    RedisKey("<root>:outboxes", "set", "Workers that have links on their own disks.", "workers"),
    RedisKey(
        "<root>:g:<bucket>", "list", "Claims: pages that own a digest, 10-40.", "different pages"
    ),
    RedisKey("<root>:n", "hash", "Archive files, by their number and back.", "archive files"),
    RedisKey(
        "<root>:v:<digest>", "string", "Reservation of a digest; expires.", "fetches under way"
    ),
    RedisKey(
        "<root>:a:<table>:<quarter>",
        "string",
        "Fingerprints of pages that share a quarter of theirs.",
        "different texts",
    ),
    RedisKey(
        "<root>:names",
        "hash",
        "Addresses of names, if shared; until when, as text; expires.",
        "names, a million in all",
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
    RedisKey(
        "{<name>:workers}:chosen",
        "hash",
        "Worker to its list (`only=LIST`), and how far that is; the lists that are not over.",
        "workers with a list",
    ),
    RedisKey(
        "{<name>:workers}:longest",
        "hash",
        "Worker to its hosts with most left to do.",
        "100 hosts a worker",
    ),
    RedisKey("<name>:plan", "hash", "Which worker is to have which shard.", "one"),
    RedisKey("<name>:rounds", "hash", "The round, and what workers say of it.", "workers"),
    RedisKey("<name>:opened", "zset", "Hosts that pushed seeds opened, in order.", "hosts pushed"),
    RedisKey("<name>:urgent", "list", "Pushed URLs that go before all others.", "what was pushed"),
    RedisKey("{<name>:urgent}:taken", "hash", "Items taken and not yet added.", "what is taken"),
    RedisKey(
        "{<name>:urgent}:refused", "list", "Items that cannot be used, and why.", "1,000 at most"
    ),
    RedisKey("<name>:changes", "stream", "The change feed of all workers.", "100,000 at most"),
    RedisKey(
        "{<name>:changes}:sent",
        "hash",
        "Feed of a worker to its last entry in the feed of all; and the last number of that.",
        "workers",
    ),
    RedisKey("{<name>:changes}:taken", "hash", "Consumer to what it has taken.", "consumers"),
    RedisKey("{<name>:changes}:purged", "stream", "The feed, while it is purged.", "one script"),
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


def claims(name: str, shard: int, bucket: int) -> str:
    return f"{root(name, shard)}:g:{bucket}"


def key_files(name: str, shard: int) -> str:
    return f"{root(name, shard)}:n"


def near(name: str, shard: int, table: int, quarter: int) -> str:
    return f"{root(name, shard)}:a:{table}:{quarter}"


def names(name: str, shard: int) -> str:
    return f"{root(name, shard)}:names"


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


def chosen(name: str) -> tuple[str, str]:
    """Return the keys of the script `chosen`, in its order."""
    beside = f"{{{workers(name)}}}"
    return f"{beside}:alive", f"{beside}:chosen"


def longest(name: str) -> str:
    return f"{{{workers(name)}}}:longest"


def opened_hosts(name: str) -> str:
    return f"{name}:opened"


def urgent(name: str) -> str:
    return f"{name}:urgent"


def changes(name: str) -> tuple[str, str, str, str]:
    """Return the keys of the scripts on the change feed, in their order."""
    stream = f"{name}:changes"
    return stream, f"{{{stream}}}:sent", taken(stream), f"{{{stream}}}:purged"


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

FEED_SCRIPTS: Final = ("feed_take", "feed_hold", "feed_refuse", "feed_length")
CHANGES_SCRIPTS: Final = ("add_changes", "move_consumer", "forget_consumer", "purge_changes")
CRAWL_SCRIPTS: Final = ("open_hosts", "announce", "chosen")
"""Scripts on keys outside the shards: sent as text, with all their keys named."""


class Scripts:
    def __init__(self, clock: str | None = None) -> None:
        """*clock* is Lua code that defines `wall()` in place of the server's own clock."""
        self._clock = clock or source("clock")

    def text(self, name: str) -> str:
        return self._texts[name]

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {
            name: with_prelude(self._clock, prelude, source(name))
            for prelude, names in (
                (source("feed"), FEED_SCRIPTS),
                (source("changes"), CHANGES_SCRIPTS),
                ("", CRAWL_SCRIPTS),
            )
            for name in names
        }


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
