"""The arguments of a crawl, as one frozen value, and what the next start takes over of them.

Rule: what is typed at a start goes before what was kept of the last one; what is other than at the
last start is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from crawler.config.readers import (
    choice,
    contact,
    duration,
    end_of_run,
    flag,
    integer,
    list_of,
    number,
    only,
    or_none,
    pattern,
    read_group,
    refuse_unknown,
    revisit_mode,
    setting,
    settings_of,
    size,
    text,
)
from crawler.model.choices import OnlyChoice, RevisitMode, RoundKind, ScopeChoice
from crawler.model.types import ConfigError

# The arguments of a crawl. Scrapy passes one string a name, so the regular expressions of `allow`
# and `deny` are separated by line breaks, which no URL needs.

SEPARATOR: Final = "\n"
MOST_EXTRA_HOPS: Final = 15
"""As many as are kept with a URL in half a byte."""
REPEATABLE: Final = frozenset({"allow", "deny"})
ROUND_BOUNDS: Final = ("round", "round_per_host", "round_per_domain", "round_hours", "round_floor")
"""One of these makes a run one in rounds."""
PUSHED: Final = "redis"  # in place of seeds: URLs are pushed into the Redis of a shared crawl
RUN_BEGAN: Final = "_run_began"
"""The argument by which `scrapy share` passes its own start, epoch seconds, to its workers."""
OTHER_READS: Final = "_other_reads"
"""The argument by which `scrapy share` tells all workers but the first that the first adds the
seeds that `only` fetches again: they have no seen test, so each worker that adds them has them
fetched once."""
# scrapyd passes the id of its run.
IGNORED_ARGUMENTS: Final = frozenset({"_job", RUN_BEGAN, OTHER_READS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where links may lead."""

    scope: ScopeChoice = setting(
        ScopeChoice.ANY,
        choice(ScopeChoice),
        "Where links may lead: anywhere, to seeds' domains, hosts, folders, by `allow`, nowhere.",
    )
    max_depth: int | None = setting(
        None, or_none(integer("hops")), "Most hops from a seed; 0: seeds only."
    )
    extra_hops: int = setting(
        0, integer("hops", most=MOST_EXTRA_HOPS), "Hops that links may lead beyond the scope."
    )
    allow: tuple[re.Pattern[str], ...] = setting(
        (), list_of(pattern(), SEPARATOR), "Follow only URLs in which one of these is found."
    )
    deny: tuple[re.Pattern[str], ...] = setting(
        (), list_of(pattern(), SEPARATOR), "Follow no URL in which one of these is found."
    )

    def _refuse_boundless(self) -> None:
        if self.scope is ScopeChoice.REGEX and not self.allow:
            raise ConfigError("scope is regex, and no allow says which: add one, as allow=/blog/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedTerms(Bounds):
    """What holds for the URLs in the scope of a seed. Its limits are counted from the first page of
    the seed on, over all starts."""

    max_pages: int | None = setting(
        None, or_none(integer("pages", least=1)), "Most pages that are fetched of the seed, in all."
    )
    max_bytes: int | None = setting(
        None, or_none(size()), "Bytes of these, after which nothing more of the seed is fetched."
    )
    max_time: timedelta | None = setting(
        None, or_none(duration()), "How long after its first page the seed is fetched from."
    )

    def __post_init__(self) -> None:
        self._refuse_boundless()
        limits = [name for name in SEED_LIMITS if getattr(self, name) is not None]
        if limits and self.scope not in _COUNTED_SCOPES:
            raise ConfigError(
                f"{limits[0]} counts what is in the scope of a seed, and {_UNCOUNTED[self.scope]}:"
                f" leave {limits[0]} out, or give the seed the scope prefix, host or domain"
            )

    @property
    def has_limits(self) -> bool:
        """Whether what is fetched under them is counted."""
        return any(getattr(self, name) is not None for name in SEED_LIMITS)


SEED_LIMITS: Final = ("max_pages", "max_bytes", "max_time")
_COUNTED_SCOPES: Final = frozenset({ScopeChoice.PREFIX, ScopeChoice.HOST, ScopeChoice.DOMAIN})
_UNCOUNTED: Final = {
    ScopeChoice.PAGE: "the scope page is one page",
    ScopeChoice.ANY: "the scope any is no seed's own",
    ScopeChoice.REGEX: "what the scope regex holds may be on any host",
}


def terms_of_seed(options: Mapping[str, object], of_crawl: SeedTerms) -> SeedTerms:
    """Return the terms of a seed with these *options*. What they do not say is as for one without,
    *of_crawl*, whose `deny` holds beside that of the seed. Raises ConfigError."""
    rows = settings_of(SeedTerms)
    refuse_unknown("option", options, [row.name for row in rows])
    own: dict[str, Any] = {row.field: row.read(options) for row in rows if row.name in options}
    terms = replace(of_crawl, **own)
    return replace(terms, deny=(*of_crawl.deny, *terms.deny)) if "deny" in own else terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(Bounds):
    """The arguments of one crawl."""

    seeds: str = setting(
        "",
        text(
            "a path, a URL of a list, or URLs with commas between", "path or URLs", r"(?s:.*\S.*)"
        ),
        "Where to start: a path or URL of a list, URLs with commas between; redis: what is pushed.",
    )
    crawl: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "A file that describes the crawl: its seeds, each with options, and these arguments.",
    )
    contact: str | None = setting(
        None, or_none(contact()), "CRAWLER_CONTACT: how to reach you, sent with every request."
    )
    revisit: RevisitMode | None = setting(
        None, or_none(revisit_mode()), "CRAWLER_REVISIT: whether, or how often, pages come again."
    )
    max_pages: int | None = setting(
        None, or_none(integer("pages", least=1)), "Most pages that are fetched."
    )
    max_bytes: int | None = setting(
        None, or_none(size()), "Bytes of bodies, as sent, after which nothing more is fetched."
    )
    max_time: timedelta | None = setting(
        None, or_none(duration()), "How long this run takes at most."
    )
    requisites: bool = setting(
        False,
        flag(),
        "Fetch what pages need to be shown, too, wherever it is: styles, scripts, images.",
    )
    check_external: bool = setting(
        False,
        flag(),
        "Ask once whether there is anything where links lead out of the scope; follow none.",
    )
    known: str = setting(
        "",
        text("the path of an index (.cdxj), or of a folder with some", "path", r"(?s:.*\S.*)?"),
        "Bodies that earlier crawls archived are not archived again: their index, or folder.",
    )
    until: datetime | timedelta | None = setting(
        None,
        or_none(end_of_run()),
        "When the crawl ends at the latest: a date (in UTC), or so long after its start.",
    )

    only: OnlyChoice | str = setting(
        OnlyChoice.ALL,
        only(),
        "Of this run: what is new, known pages that have changed, what failed, or a list's URLs.",
    )
    since: datetime | timedelta | None = setting(
        None,
        or_none(end_of_run()),
        "Of the pages that sitemaps date, only those changed since then, or so long ago.",
    )

    round: int | None = setting(
        None, or_none(integer("URLs", least=1)), "Most URLs that a round fetches."
    )
    round_per_host: int | None = setting(
        None, or_none(integer("URLs", least=1)), "Most URLs of a host that a round fetches."
    )
    round_per_domain: int | None = setting(
        None, or_none(integer("URLs", least=1)), "Most URLs of a registered domain in a round."
    )
    round_hours: float | None = setting(
        None, or_none(number("hours", least=0.001)), "How long a round takes at most."
    )
    round_floor: float | None = setting(
        None,
        or_none(number("pages a second", least=0.001)),
        "A round ends when fewer pages have come over five minutes.",
    )
    rounds: int = setting(1, integer("rounds", least=1), "How many rounds this run has.")
    round_kind: RoundKind = setting(
        RoundKind.BOTH,
        choice(RoundKind),
        "What rounds fetch: URLs never visited, pages that are visited again, or both.",
    )

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ConfigError("no seeds: say where to start, for example -a seeds=seeds.txt")
        self._refuse_boundless()
        is_about_rounds = self.rounds > 1 or self.round_kind is not RoundKind.BOTH
        if is_about_rounds and not self.has_rounds:
            name = "rounds" if self.rounds > 1 else "round_kind"
            raise ConfigError(
                f"{name} is about rounds, and nothing bounds one: add {' or '.join(ROUND_BOUNDS)}"
            )

    @property
    def has_rounds(self) -> bool:
        """Whether this run is in rounds."""
        return any(getattr(self, name) is not None for name in ROUND_BOUNDS)

    @property
    def terms(self) -> SeedTerms:
        """The terms of a seed without options."""
        return SeedTerms(
            scope=self.scope,
            max_depth=self.max_depth,
            extra_hops=self.extra_hops,
            allow=self.allow,
            deny=self.deny,
        )

    @property
    def only_chosen(self) -> bool:
        """Whether this run fetches only what failed, or the URLs of a list."""
        return self.only is OnlyChoice.FAILED or bool(self.only_list)

    @property
    def only_list(self) -> str:
        """The path of the list whose URLs alone this run fetches; empty: there is none."""
        return "" if isinstance(self.only, OnlyChoice) else self.only

    @property
    def has_pushed_seeds(self) -> bool:
        """Whether all seeds are pushed from outside while the crawl runs."""
        return self.seeds == PUSHED

    def dated_since(self, began_at: float) -> float:
        """Return the date before which no page is taken from a sitemap, for a run that began at
        *began_at*, both in epoch seconds; 0: that is not said."""
        if self.since is None:
            return 0.0
        if isinstance(self.since, timedelta):
            return began_at - self.since.total_seconds()
        return self.since.timestamp()

    def ends_at(self, began_at: float) -> float | None:
        """Return when a run that began at *began_at* ends at the latest, both in epoch seconds;
        None: that is not said. Raises ConfigError if it is over then."""
        ends = [each for each in (self.until, self.max_time) if each is not None]
        times = [
            began_at + each.total_seconds() if isinstance(each, timedelta) else each.timestamp()
            for each in ends
        ]
        if isinstance(self.until, datetime) and times[0] <= began_at:
            raise ConfigError(
                f"until is {self.until.isoformat()}, which is past: give a later date, or -a until="
                " for none"
            )
        return min(times, default=None)


def read_arguments(given: Mapping[str, object]) -> Arguments:
    """Read a spider's arguments strictly. Raises ConfigError, whose text names the argument."""
    ours = {name: value for name, value in given.items() if name not in IGNORED_ARGUMENTS}
    refuse_unknown("argument", ours, [row.name for row in settings_of(Arguments)])
    return read_group(Arguments, ours)


SETTINGS_BY_ARGUMENT: Final = {"contact": "CRAWLER_CONTACT", "revisit": "CRAWLER_REVISIT"}
"""Arguments in place of a setting, which goes before them where it is typed."""
RUN_LIMITS: Final = ("max_pages", "max_bytes")
"""What a run fetches at most; several workers divide it among them."""
NOT_KEPT: Final = frozenset(
    {*RUN_LIMITS, "max_time", "only", "since", *ROUND_BOUNDS, "rounds", "round_kind"}
)
"""The arguments that the next start does not take from the last one."""


def with_kept_arguments(given: Mapping[str, object], kept: Mapping[str, str]) -> dict[str, object]:
    """Return *given*, completed from *kept*, the arguments of the last start. An empty argument
    (`-a max_depth=`) is cleared: it is as if it had never been given."""
    merged: dict[str, object] = {name: kept[name] for name in kept if name not in given}
    merged.update((name, value) for name, value in given.items() if value != "" or name == "seeds")
    return merged


def arguments_to_keep(arguments: Mapping[str, object]) -> dict[str, str]:
    """Return the arguments that the next start uses again, as they were given."""
    dropped = NOT_KEPT | IGNORED_ARGUMENTS
    return {name: str(value) for name, value in arguments.items() if name not in dropped}


_SHOWN_CHARS: Final = 400  # of a value: seeds may be a list of a million


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}...")


def describe_changes(given: Mapping[str, object], kept: Mapping[str, str]) -> str:
    """Return in words what a start takes from the last one and what has changed, or ""."""
    taken = [f"{name}={_shown(value)}" for name, value in kept.items() if name not in given]
    other = [
        f"{name}={_shown(value)} (was {_shown(kept.get(name, ''))})"
        for name, value in sorted(arguments_to_keep(given).items())
        if value != kept.get(name, "")
    ]
    parts = []
    if taken:
        parts.append(f"kept of the last start: {', '.join(taken)} (-a NAME= clears one)")
    if other and kept:
        parts.append(f"other than at the last start: {', '.join(other)}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class KeptOfStart:
    """What a start keeps of itself, encoded."""

    arguments: bytes | None  # for the next start; None: the spider takes none of ours
    settings: bytes  # for `why`


def encode_kept(kept: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(kept, enc_hook=str)


def read_kept_settings(packed: bytes | None, where: str) -> dict[str, object] | None:
    """Decode kept settings; None if there are none. Raises ConfigError, whose text names
    *where* they are."""
    try:
        return msgspec.json.decode(packed, type=dict[str, object]) if packed else None
    except msgspec.MsgspecError as broken:
        raise ConfigError(f"{where} cannot be read ({broken}): remove it") from broken


def read_kept(packed: bytes | None, where: str) -> dict[str, str]:
    """Decode kept arguments. Raises ConfigError, whose text names *where* they are."""
    try:
        return msgspec.json.decode(packed, type=dict[str, str]) if packed else {}
    except msgspec.MsgspecError as broken:
        raise ConfigError(
            f"{where} cannot be read ({broken}): remove it, and give all arguments again"
        ) from broken


def join_repeated(pairs: list[str]) -> list[str]:
    """Join the values of one argument (`-a deny=a -a deny=b`): Scrapy would keep only the last."""
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
