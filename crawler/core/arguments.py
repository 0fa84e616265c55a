"""What a crawl is told on its command line: where to start and how far to go.

Rule: as strict as settings. Scrapy hands over one string a name, so the regular expressions
of `allow` and `deny` stand on lines of their own: no URL, and so no expression, needs a
line break.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from crawler.core.choices import Scope
from crawler.core.errors import ConfigError
from crawler.core.kinds import choice, many, or_none, pattern, text, whole
from crawler.core.knobs import knob, knobs, read_group, refuse_unknown

SEPARATOR: Final = "\n"
REPEATABLE: Final = frozenset({"allow", "deny"})
PUSHED: Final = "redis"  # in place of seeds: what is pushed into the Redis of a shared crawl
NOT_OURS: Final = frozenset({"_job"})  # scrapyd tells each spider the id of its run


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """One crawl's task."""

    seeds: str = knob(
        "",
        text(
            "a path, a URL of a list, or URLs with commas between", "path or URLs", r"(?s:.*\S.*)"
        ),
        "Where to start: a path or URL of a list, URLs with commas between; redis: what is pushed.",
    )
    max_pages: int | None = knob(
        None, or_none(whole("pages", least=1)), "Most pages that are fetched."
    )
    max_depth: int | None = knob(
        None, or_none(whole("hops")), "Most hops from a seed; 0: seeds only."
    )
    scope: Scope = knob(
        Scope.ANY, choice(Scope), "Follow links anywhere, or to the seeds' hosts or domains only."
    )
    allow: tuple[re.Pattern[str], ...] = knob(
        (), many(pattern(), SEPARATOR), "Follow only URLs in which one of these is found."
    )
    deny: tuple[re.Pattern[str], ...] = knob(
        (), many(pattern(), SEPARATOR), "Follow no URL in which one of these is found."
    )

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ConfigError("no seeds: say where to start, for example -a seeds=seeds.txt")

    @property
    def are_pushed(self) -> bool:
        """Whether all seeds are pushed from outside while the crawl runs."""
        return self.seeds == PUSHED


def read_arguments(given: Mapping[str, object]) -> Arguments:
    """Read a spider's arguments, strictly. Raises ConfigError, whose text names the argument."""
    ours = {name: value for name, value in given.items() if name not in NOT_OURS}
    refuse_unknown("argument", ours, [row.name for row in knobs(Arguments)])
    return read_group(Arguments, ours)


OF_ONE_RUN: Final = frozenset({"max_pages"})  # all others are kept for the next start


def with_kept(given: Mapping[str, object], kept: Mapping[str, str]) -> dict[str, object]:
    """*given*, and of *kept*, the arguments of the last start, those that were not given. An empty
    one (`-a max_depth=`) is cleared: it is as if it had never been given."""
    merged: dict[str, object] = {name: kept[name] for name in kept if name not in given}
    merged.update((name, value) for name, value in given.items() if value != "" or name == "seeds")
    return merged


def to_keep(arguments: Mapping[str, object]) -> dict[str, str]:
    """What the next start is to know of *arguments*, as they were given."""
    passing = OF_ONE_RUN | NOT_OURS
    return {name: str(value) for name, value in arguments.items() if name not in passing}


def differences(given: Mapping[str, object], kept: Mapping[str, str]) -> str:
    """What a start takes from the last one, and what is another now; empty: nothing."""
    taken = [f"{name}={value!r}" for name, value in kept.items() if name not in given]
    other = [
        f"{name}={value!r} (was {kept.get(name, '')!r})"
        for name, value in sorted(to_keep(given).items())
        if value != kept.get(name, "")
    ]
    parts = []
    if taken:
        parts.append(f"kept of the last start: {', '.join(taken)} (-a NAME= clears one)")
    if other and kept:
        parts.append(f"other than at the last start: {', '.join(other)}")
    return "; ".join(parts)


def encode_kept(kept: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(kept)


def read_kept(packed: bytes | None, where: str) -> dict[str, str]:
    """Raises ConfigError: what is at *where* are no arguments."""
    try:
        return msgspec.json.decode(packed, type=dict[str, str]) if packed else {}
    except msgspec.MsgspecError as broken:
        raise ConfigError(
            f"{where} cannot be read ({broken}): remove it, and give all arguments again"
        ) from broken


def join_repeated(pairs: list[str]) -> list[str]:
    """Join what was given twice (`-a deny=a -a deny=b`): Scrapy would keep the last alone."""
    joined: dict[str, str] = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if name in joined and name in REPEATABLE:
            joined[name] += SEPARATOR + value
        elif name in joined:
            raise ConfigError(f"argument {name} is given twice")
        else:
            joined[name] = mark + value
    return [name + value for name, value in joined.items()]
