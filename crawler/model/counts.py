"""What a crawl counts, as values that add: URLs by state, of its frontier, and what has happened,
of its processes and runs. Whatever shows figures of a crawl shows these.

Rule: how two values of a field become one stands at the field, and nothing is added by hand
elsewhere: shards, workers and runs are summed with `+`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Annotated, Any, Final, Self, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

Addition = Callable[[Any, Any], Any]
"""Makes the value of a sum of those of its parts."""


class Sums:
    """Structs that are added field by field: numbers and such structs as they are, mappings by
    their keys. Any other field has an `Annotated` with its `Addition`."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        kind: type = type(self)
        values = {
            name: add(getattr(self, name), getattr(other, name))
            for name, add in _additions(kind).items()
        }
        total: Self = kind(**values)
        return total


@cache
def _additions(kind: type) -> dict[str, Addition]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _addition(hint, f"{kind.__name__}.{name}") for name, hint in hints.items()}


def _addition(hint: Any, field: str) -> Addition:
    of = get_origin(hint) or hint
    if of is Annotated:
        addition: Addition = hint.__metadata__[0]
        return addition
    if of is dict:
        return add_by_key
    if issubclass(of, int | float | Sums):
        return operator.add
    raise TypeError(f"{field} does not say how it is added")


def add_by_key(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**some, **{name: some.get(name, 0) + n for name, n in more.items()}}


def add_by_place(some: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(some, more, fillvalue=0)))


def first(most: int) -> Addition:
    """Keep the first *most* of all rows."""
    return lambda some, more: [*some, *more][:most]


def largest(most: int, column: str, *names: str) -> Addition:
    """Make rows with the same *names* one row with the sum of *column*, and all else of the latest;
    keep those with the *most* of it."""

    def add(some: Sequence[msgspec.Struct], more: Sequence[msgspec.Struct]) -> list[msgspec.Struct]:
        sums: dict[tuple[object, ...], int] = {}
        latest: dict[tuple[object, ...], msgspec.Struct] = {}
        for row in (*some, *more):
            name = tuple(getattr(row, each) for each in names)
            sums[name] = sums.get(name, 0) + getattr(row, column)
            latest[name] = row
        kept = sorted(sums, key=lambda name: -sums[name])[:most]
        return [replace(latest[name], **{column: sums[name]}) for name in kept]

    return add


class Counts(Sums, msgspec.Struct, frozen=True):
    """The URLs of a frontier by their states. Those of the shards of a crawl add; its workers all
    see the same."""

    waiting: int = 0  # URLs that wait, later ones not among them
    later: int = 0  # URLs with a date in the future, and pages that are visited again
    leased: int = 0  # leases not finished
    hosts_active: int = 0  # hosts in memory
    seen: int = 0  # URLs ever admitted
    done: int = 0
    dead: int = 0
    refused: int = 0  # waiting URLs that a rule or budget of this start refuses
    # Found URLs of which it is not known yet whether they are new; in a shared crawl with the links
    # on the disks of workers, until Redis can take them.
    undecided: int = 0
    levels: Annotated[tuple[int, ...], add_by_place] = ()  # of `waiting`, by level
    again: int = 0  # of `later`, pages that were visited before
    spilled: int = 0  # URLs that wait for a budget
    capped: int = 0  # of these, such that no round brings room: their budgets in all are used
    spilled_domains: int = 0  # domains with spilled URLs
    sampled_out: int = 0  # URLs over a budget that were not kept, ever

    @property
    def to_fetch(self) -> int:
        """How many URLs may be fetched yet, those under way and later visits not among them."""
        spilled = self.spilled - self.capped
        return self.waiting + self.later - self.again + self.undecided + spilled

    @property
    def left(self) -> int:
        """How many URLs are not finished: as long as there are some, the crawl is not over."""
        return self.to_fetch + self.leased


TOP_HOSTS: Final = 10
TOP_OVER_BUDGET: Final = 5
FIRST_DEAD: Final = 5
TOTALS: Final = ("pages", "bytes", "errors", "duplicates")
"""The figures of a process that are shown wherever there are any."""


class HostPages(msgspec.Struct, frozen=True):
    host: str
    pages: int


class HostChanges(msgspec.Struct, frozen=True):
    host: str
    changes: int  # found on its pages that were visited again


ROUND_SETTING: Final = "CRAWLER_DOMAIN_BUDGET"
"""The setting of budgets a round; those of the first domains are larger."""


class OverBudget(msgspec.Struct, frozen=True):
    """The links of one host or domain that exceeded its budget of URLs, in all or a round."""

    setting: str
    limit: int
    name: str  # of the host or domain
    links: int
    rank: int = 0  # of the domain, from 1, the best; 0: a budget in all

    @property
    def is_of_round(self) -> bool:
        return self.setting == ROUND_SETTING


class DeadUrl(msgspec.Struct, frozen=True):
    url: str
    reason: str


class Figures(Sums, msgspec.Struct, frozen=True):
    """What a process has counted in one run. Those of workers and of runs add."""

    counters: dict[str, int] = {}  # by the names that CrawlStats gives them
    top_hosts: Annotated[list[HostPages], largest(TOP_HOSTS, "pages", "host")] = []
    over_budget: Annotated[
        list[OverBudget], largest(TOP_OVER_BUDGET, "links", "setting", "name")
    ] = []
    dead: Annotated[list[DeadUrl], first(FIRST_DEAD)] = []  # given up in this run
    top_changes: Annotated[list[HostChanges], largest(TOP_HOSTS, "changes", "host")] = []

    def __getitem__(self, name: str) -> int:
        return self.counters.get(name, 0)

    def below(self, prefix: str) -> dict[str, int]:
        """Return the counters whose names begin with *prefix*, without it, sorted."""
        return {
            name.removeprefix(prefix): n
            for name, n in sorted(self.counters.items())
            if name.startswith(prefix)
        }

    @property
    def pages(self) -> int:
        """How many answers were kept, of any status."""
        return self["pages"]

    @property
    def bytes(self) -> int:
        """The bytes of bodies, as they were sent."""
        return self["bytes"]

    @property
    def errors(self) -> int:
        """How many fetches failed, each attempt counted."""
        return sum(self.below("error/").values())

    @property
    def duplicates(self) -> int:
        return self["duplicates"]

    @property
    def totals(self) -> dict[str, int]:
        """The figures that TOTALS names."""
        return {name: getattr(self, name) for name in TOTALS}
