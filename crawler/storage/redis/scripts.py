"""The operations, as Lua: one a file, those on a shard or on a feed each behind a prelude.

Rule: a file's first line is its shebang and stays the first. The clock is a part of its own, so
that tests can tell the time.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Final

OPERATIONS: Final = (
    *("open", "add", "lease", "release", "finish", "beat", "mine", "bury", "rest", "revive"),
    *(
        "reserve",
        "claim",
        "near",
        "owner",
        "robots",
        "learn",
        "note",
        "yields",
        "look",
        "outbox",
        "repair",
    ),
    *("sift", "trim", "readmit"),
)
FEED: Final = ("feed_take", "feed_hold", "feed_refuse", "feed_length")
CRAWL: Final = ("open_doors", "announce")
"""On keys that are no shard's: sent as text, with all their keys named."""


class Scripts:
    def __init__(self, clock: str | None = None) -> None:
        """*clock*: Lua that defines `wall()`, in place of the server's own clock."""
        self._clock = clock or _source("clock")

    def names(self) -> tuple[str, ...]:
        """Of those on a shard."""
        return OPERATIONS

    def text(self, name: str) -> str:
        return self._texts[name]

    def sha(self, name: str) -> str:
        return self._shas[name]

    @cached_property
    def _texts(self) -> dict[str, str]:
        shard, feed = (f"{self._clock}\n{_source(name)}" for name in ("shard", "feed"))
        return {
            name: _behind(prelude, _source(name))
            for prelude, names in ((shard, OPERATIONS), (feed, FEED), (self._clock, CRAWL))
            for name in names
        }

    @cached_property
    def _shas(self) -> dict[str, str]:
        return {name: sha1(text.encode()).hexdigest() for name, text in self._texts.items()}


def _behind(prelude: str, operation: str) -> str:
    shebang, _, rest = operation.partition("\n")
    return f"{shebang}\n{prelude}\n{rest}"


def _source(name: str) -> str:
    # importlib: in an egg there is no folder to open a file in.
    return (files("crawler.storage.redis") / "lua" / f"{name}.lua").read_text("utf-8")
