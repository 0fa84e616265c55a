"""The operator's rules: what `rules.toml` says about a host, a domain, or a pattern of URLs.

Rule: pure. They override the settings of the crawl. The narrowest target decides, each key for
itself: a URL over a pattern, a pattern over a host, a host over its domain; of equal ones the last
in the file. A file with an error is refused as a whole, with the line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from typing import Any, Final

from crawler.config.readers import (
    InvalidValue,
    Kind,
    choice,
    flag,
    integer,
    list_of,
    number,
    revisit_mode,
    text,
)
from crawler.config.toml_lines import TomlLines
from crawler.model.choices import RenderChoice, RevisitChoice, RevisitMode
from crawler.model.page import LinkKind
from crawler.model.types import ConfigError
from crawler.model.url import authority_of, registered_domain, split
from crawler.policy.targets import UrlTarget, read_target

MAX_RULES: Final = 100_000
"""Targets in one file: 100 MB when they are read."""
MAX_TEXT_BYTES: Final = 16 << 20
_AUTHORITIES: Final = 16_384  # whose rules are cached
_FOREVER: Final = float("inf")


def _until() -> Kind[float]:
    """Accept True (for ever), False (not at all), or a date and time with its offset."""

    def read(value: object) -> float:
        if isinstance(value, bool):
            return _FOREVER if value else 0.0
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise InvalidValue("a time without an offset: write 2026-12-01T08:00:00Z for UTC")
            return value.astimezone(UTC).timestamp()
        if isinstance(value, date):
            raise InvalidValue("a date without a time: write 2026-12-01T08:00:00Z")
        raise ValueError

    return Kind("true, false, or a time such as 2026-12-01T08:00:00Z", "time", read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the rules say about one URL. None: what the settings say."""

    refuse: bool | None = None
    paused: float | None = None  # until then, epoch seconds; 0: not paused
    delay_s: float | None = None
    crawl_delay_s: float | None = None
    connections: int | None = None
    level: int | None = None
    revisit: RevisitMode | None = None
    max_bytes: int | None = None
    max_urls: int | None = None
    budget: int | None = None
    follow_kinds: tuple[LinkKind, ...] | None = None
    credentials: str | None = None
    render: RenderChoice | None = None

    def paused_until(self, now: float) -> float | None:
        """Return until when the URL may not be fetched, or None if it may be now."""
        return self.paused if self.paused is not None and self.paused > now else None


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a rule may have."""

    kind: Kind[Any]
    meaning: str


KEYS: Final[Mapping[str, Key]] = {
    "refuse": Key(flag(), "Fetch nothing of it. What waits is kept, for when the rule has gone."),
    "paused": Key(_until(), "Fetch nothing of it until then. It keeps its place."),
    "delay_s": Key(
        number("seconds"),
        "Its rest after each fetch, in place of one by how long fetches take. Failures, Retry-After"
        " and crawl-delay still make it longer.",
    ),
    "crawl_delay_s": Key(number("seconds"), "In place of the Crawl-delay in its robots.txt."),
    "connections": Key(
        integer("fetches", least=1),
        "Most fetches at once of each of its hosts, while the server stays fast, as"
        " CRAWLER_PACED_CONNECTIONS. One, where a delay_s or a crawl-delay holds.",
    ),
    "level": Key(integer("level"), "The priority of its URLs; 0 is the best."),
    "revisit": Key(revisit_mode(), "When its pages are visited again, as CRAWLER_REVISIT."),
    "max_bytes": Key(integer("bytes", least=1), "Longest body; what is longer is cut off."),
    "max_urls": Key(
        integer("URLs"),
        "Its budget, in place of CRAWLER_MAX_URLS_PER_HOST (of a host) or"
        " CRAWLER_MAX_URLS_PER_DOMAIN (of a registered domain, `*.example.org`).",
    ),
    "budget": Key(
        integer("URLs"),
        "URLs of a registered domain (`*.example.org`) a round, in place of that of its rank.",
    ),
    "follow_kinds": Key(
        list_of(choice(LinkKind)),
        "Kinds of links followed from its pages, as CRAWLER_FOLLOW_KINDS.",
    ),
    "credentials": Key(
        text("a name", "name", r"[A-Za-z0-9_.-]{1,64}"),
        "Name of the credentials that are sent to it over https.",
    ),
    "render": Key(
        choice(RenderChoice), "Whether a browser runs the scripts of its pages, as CRAWLER_RENDER."
    ),
}
"""The keys of a rule, beside `for`, its targets, and `note`, free text."""
_NOT_KEYS: Final = frozenset({"for", "note"})
KEYS_OF_CRAWL: Final[Mapping[str, Key]] = {
    "paused": Key(_until(), "Fetch nothing at all until then."),
    "concurrency": Key(integer("fetches", least=1), "Fetches at once, as CONCURRENT_REQUESTS."),
    "revisits_per_day": Key(
        number("visits", least=1), "The budget, as CRAWLER_REVISITS_PER_DAY, from now on."
    ),
    "stopped": Key(_until(), "Crawls that were started before then end."),
}
"""The keys of the whole crawl, before the first rule."""


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """One rule of the file."""

    targets: tuple[UrlTarget, ...]
    overrides: Overrides
    line: int
    note: str = ""


class OperatorRules:
    """All rules of one file, by URL."""

    def __init__(
        self,
        rules: Iterable[OperatorRule] = (),
        paused: float | None = None,
        concurrency: int | None = None,
        revisits_per_day: float | None = None,
        stopped: float | None = None,
    ) -> None:
        self.rules = tuple(rules)
        self.paused = paused  # the whole crawl, until then
        self.concurrency = concurrency
        self.revisits_per_day = revisits_per_day
        self.stopped = stopped  # processes that were started before then end
        by_host: dict[str, list[tuple[int, OperatorRule]]] = {}
        by_domain: dict[str, list[tuple[int, OperatorRule]]] = {}
        self._patterns: list[tuple[int, UrlTarget, OperatorRule]] = []
        for order, rule in enumerate(self.rules):
            for target in rule.targets:
                if target.host is not None:
                    by_host.setdefault(target.host, []).append((order, rule))
                elif target.domain is not None:
                    by_domain.setdefault(target.domain, []).append((order, rule))
                else:
                    self._patterns.append((order, target, rule))
        self._by_host, self._by_domain = by_host, by_domain
        self._of_authority = lru_cache(maxsize=_AUTHORITIES)(self._find_of_authority)

    def __bool__(self) -> bool:
        return bool(self.rules)

    @cached_property
    def visits_again(self) -> bool:
        """Whether a rule lets pages be visited again."""
        once = (None, RevisitChoice.ONCE)
        return any(rule.overrides.revisit not in once for rule in self.rules)

    def paused_until(self, now: float) -> float | None:
        """Return until when nothing may be fetched, or None if the crawl is not paused."""
        return self.paused if self.paused is not None and self.paused > now else None

    def of_url(self, url: str) -> Overrides:
        """Return what the rules say about *url*, a fetch form."""
        if not self.rules:
            return _NOTHING
        of_host, patterns = self._of_authority(authority_of(url))
        if patterns:
            matching = (rule for target, rule in patterns if target.matches(url))
            return _merged(of_host, matching)
        return of_host

    def of_host(self, hostname: str) -> Overrides:
        """Return what the rules say about all URLs of *hostname*."""
        return _merged(_NOTHING, self._rules_of_host(hostname)) if self.rules else _NOTHING

    def budgets(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return the budgets in all of hosts and of registered domains that the rules set, and
        those of domains a round."""
        hosts, domains = (
            _last_of(rules, lambda overrides: overrides.max_urls)
            for rules in (self._by_host, self._by_domain)
        )
        return hosts, domains, _last_of(self._by_domain, lambda overrides: overrides.budget)

    def explain(self, url: str) -> dict[str, OperatorRule]:
        """Return for each key that the rules set for *url* the rule that decides."""
        deciding: dict[str, OperatorRule] = {}
        patterns = self._of_authority(authority_of(url))[1]
        matching = [rule for target, rule in patterns if target.matches(url)]
        for rule in (*self._rules_of_host(split(url).hostname), *matching):
            said = {name for name in KEYS if getattr(rule.overrides, name) is not None}
            deciding |= dict.fromkeys(said, rule)
        return deciding

    def _find_of_authority(
        self, authority: str
    ) -> tuple[Overrides, tuple[tuple[UrlTarget, OperatorRule], ...]]:
        """Return what is said about all URLs of *authority*, and the patterns that some of them may
        match, the widest first."""
        hostname = split(authority + "/").hostname
        patterns = [each for each in self._patterns if each[1].may_match_host(hostname)]
        patterns.sort(key=lambda each: (each[1].is_exact, each[0]))
        return self.of_host(hostname), tuple((target, rule) for _, target, rule in patterns)

    def _rules_of_host(self, hostname: str) -> Iterator[OperatorRule]:
        """Yield the rules about *hostname* and the domains that it is in, the widest first."""
        name = hostname.rstrip(".")
        labels = name.split(".")
        for begin in range(len(labels) - 1, -1, -1):
            for _, rule in self._by_domain.get(".".join(labels[begin:]), ()):
                yield rule
        for _, rule in self._by_host.get(name, ()):
            yield rule


Budgets = tuple[int | None, int | None]
"""How many URLs of a host and of its registered domain may be admitted. None: any number."""


class RuleBudgets:
    """The budgets of hosts and registered domains that the rules set, as they are now."""

    def __init__(self) -> None:
        self._hosts: dict[str, int] = {}
        self._domains: dict[str, int] = {}
        self._rounds: dict[str, int] = {}
        self.generation = 0  # of the budgets
        self.are_any = False

    def set_rules(self, rules: OperatorRules) -> None:
        """Let *rules* count from now on."""
        budgets = rules.budgets()
        if budgets != (self._hosts, self._domains, self._rounds):
            self._hosts, self._domains, self._rounds = budgets
            self.are_any = bool(self._hosts or self._domains)
            self.generation += 1

    def of(self, host: str, domain: str, by_settings: Budgets) -> Budgets:
        """Return the budgets of *host* and *domain*: those *by_settings* where no rule sets one."""
        return self._hosts.get(host, by_settings[0]), self._domains.get(domain, by_settings[1])

    def per_round(self, domain: str) -> int | None:
        """Return how many URLs of *domain* a round a rule allows; None: none says that."""
        return self._rounds.get(domain)


def _last_of(
    rules: Mapping[str, Sequence[tuple[int, OperatorRule]]],
    budget: Callable[[Overrides], int | None],
) -> dict[str, int]:
    """Return the *budget* of each name, by the last rule about it that sets one."""
    return {
        name: said[-1]
        for name, about in rules.items()
        if (said := [each for _, rule in about if (each := budget(rule.overrides)) is not None])
    }


_NOTHING: Final = Overrides()
NO_RULES: Final = OperatorRules()


def _merged(base: Overrides, rules: Iterable[OperatorRule]) -> Overrides:
    """Return *base* with what *rules* say in its place, the last of them first."""
    said: dict[str, Any] = {}
    for rule in rules:
        said |= {
            name: value for name in KEYS if (value := getattr(rule.overrides, name)) is not None
        }
    return replace(base, **said) if said else base


# The file.


def read_rules(written: str, levels: int) -> OperatorRules:
    """Read the text of `rules.toml` for a crawl with so many *levels*. Raises ConfigError, which
    names the line."""
    if len(written) > MAX_TEXT_BYTES:
        raise ConfigError(f"rules.toml is over {MAX_TEXT_BYTES >> 20} MB")
    try:
        document = tomllib.loads(written)
    except (ValueError, RecursionError) as broken:  # also of a number without end
        raise ConfigError(f"rules.toml is not TOML: {broken}") from broken
    lines = TomlLines(written, "rule")
    tables = document.pop("rule", [])
    of_crawl = {
        name: _read(name, value, KEYS_OF_CRAWL, lines.of_key(name, 0))
        for name, value in document.items()
    }
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise ConfigError("rules.toml: write each rule under a line [[rule]]")
    if len(tables) > MAX_RULES:
        raise ConfigError(f"rules.toml has {len(tables):,} rules; at most {MAX_RULES:,} are read")
    rules = [_read_rule(table, number, lines, levels) for number, table in enumerate(tables)]
    return OperatorRules(rules, **of_crawl)


def _read_rule(table: dict[str, Any], number: int, lines: TomlLines, levels: int) -> OperatorRule:
    line = lines.of_table(number)
    named = table.get("for")
    texts = [named] if isinstance(named, str) else named
    if not (isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts)):
        raise ConfigError(
            f"rules.toml line {line}: the rule does not say what it is for:"
            ' for = "www.example.org", "*.example.org", "example.org/cart/*", or a list of these'
        )
    try:
        targets = tuple(map(read_target, texts))
    except ValueError as error:
        at = lines.of_key("for", line)
        raise ConfigError(f"rules.toml line {at}: {error}") from None
    note = table.get("note", "")
    if not isinstance(note, str):
        raise ConfigError(f"rules.toml line {lines.of_key('note', line)}: note is no text")
    said = {
        name: _read(name, value, KEYS, lines.of_key(name, line))
        for name, value in table.items()
        if name not in _NOT_KEYS
    }
    overrides = Overrides(**said)
    for key in ("max_urls", "connections", "budget"):
        if getattr(overrides, key) is not None and not all(map(_may_have_budget, targets)):
            at = lines.of_key(key, line)
            raise ConfigError(
                f"rules.toml line {at}: {key} is for a host (www.example.org) or a registered"
                " domain (*.example.org)"
            )
    if overrides.budget is not None and any(each.domain is None for each in targets):
        at = lines.of_key("budget", line)
        raise ConfigError(
            f"rules.toml line {at}: budget is for a registered domain (*.example.org)"
        )
    if overrides.level is not None and overrides.level >= levels:
        at = lines.of_key("level", line)
        raise ConfigError(
            f"rules.toml line {at}: level is {overrides.level}; this crawl has 0 to {levels - 1}"
        )
    return OperatorRule(targets, overrides, line, note)


def _may_have_budget(target: UrlTarget) -> bool:
    if target.domain is not None:
        return registered_domain(target.domain) == target.domain
    return target.host is not None


def _read(name: str, value: object, known: Mapping[str, Key], line: int) -> Any:
    key = known.get(name)
    if key is None:
        raise ConfigError(
            f"rules.toml line {line}: there is no key {name!r}; there are {', '.join(known)}"
        )
    try:
        return key.kind.read(value)
    except (ValueError, OverflowError) as error:
        detail = f" ({error})" if isinstance(error, InvalidValue) else ""
        raise ConfigError(
            f"rules.toml line {line}: {name} is {value!r}; want {key.kind.expected}{detail}"
        ) from None
