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
