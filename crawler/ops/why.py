"""`why URL`: everything that is known about one URL, and what the rules say of it today.

Rule: the rules are asked again, with the settings and arguments given now; what they said
when the URL was met is told by the frontier and by the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from crawler import rules
from crawler.core.arguments import read_arguments
from crawler.core.canonical import canonical, key_of
from crawler.core.choices import Scope
from crawler.core.config import Config
from crawler.core.domains import host_key
from crawler.core.errors import ConfigError
from crawler.core.outcome import Outcome
from crawler.core.types import HostKey
from crawler.core.url import fetch_form, split
from crawler.doors import Doors
from crawler.policy.refusal import Refusal
from crawler.policy.robots_cache import Allowed, Disallowed, RobotsCache, Unreachable
from crawler.spiders.seeds import list_url, read_seeds
from crawler.storage.local.inspection import Inspection


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. Times are epoch seconds; None: it is not there."""

    url: str
    host: str
    seen: bool
    rule: str  # that refuses it; empty: none does
    refused: str  # the same in words
    scope_judged: bool  # seeds were given, without which there is no scope
    robots: str  # allowed | disallowed | unreachable | unknown
    robots_detail: str
    waiting: int | None = None  # how many URLs of its host and level are before it
    leased_at: float | None = None
    later_at: float | None = None
    dead_at: float | None = None
    dead_reason: str = ""
    attempts: int = 0  # failed ones, of what waits
    host_next_at: float | None = None
    outcomes: list[Outcome] = []
    duplicate_of: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A URL as the frontier knows it."""

    url: str
    host: HostKey
    key: int


class Namer:
    """From a text to the identity that one data directory knows it by."""

    def __init__(self, config: Config, key_seed: int) -> None:
        self._canonical = rules.canonical_rules(config)
        self._unit = config.politeness.host_unit
        self._seed = key_seed

    def key(self, url: str) -> int:
        """Of a fetch form."""
        return key_of(canonical(url, self._canonical), self._seed)

    def named(self, text: str) -> Named:
        """Raises ConfigError if *text* is no URL."""
        url = fetch_form(text)
        if url is None:
            raise ConfigError(f"{text!r} cannot be read as an http or https URL")
        return Named(url, host_key(split(url).hostname, self._unit), self.key(url))


def why(
    text: str, inspection: Inspection, config: Config, given: Mapping[str, str], now: float
) -> Why:
    """*given*: arguments of the crawl, as after -a. Raises CrawlerError."""
    seed = inspection.format.key_seed
    namer = Namer(config, seed)
    asked = namer.named(text)
    refusal, scope_judged = _judged(asked.url, inspection, config, given)
    robots, robots_detail = _robots(asked.url, inspection, config, now)
    answer = Why(
        url=asked.url,
        host=asked.host,
        seen=inspection.is_seen(asked.key),
        rule=refusal.reason if refusal else "",
        refused=refusal.explain() if refusal else "",
        scope_judged=scope_judged,
        robots=robots,
        robots_detail=robots_detail,
    )
    return _with_log(_with_place(answer, asked, inspection), asked, namer, inspection)


def _judged(
    url: str, inspection: Inspection, config: Config, given: Mapping[str, str]
) -> tuple[Refusal | None, bool]:
    """Judged as a link, unless it is a seed."""
    arguments = read_arguments({"seeds": "none", **given})
    seeds = _seeds(given)
    if arguments.scope is not Scope.ANY and not seeds:
        raise ConfigError("a scope is judged from the seeds: give them too, -a seeds=...")
    doors = Doors(config, arguments, inspection.remembered(), inspection.format.key_seed)
    if seeds:
        doors.open_for(seeds)
    found = doors.admission.candidate(url, depth=0 if url in seeds else 1)
    return found if isinstance(found, Refusal) else None, bool(seeds)


def _seeds(given: Mapping[str, str]) -> tuple[str, ...]:
    """None of a list that would have to be fetched."""
    if "seeds" not in given or list_url(given["seeds"]):
        return ()
    return read_seeds(given["seeds"]).urls


def _robots(url: str, inspection: Inspection, config: Config, now: float) -> tuple[str, str]:
    agent = config.identity.user_agent_name
    verdict = RobotsCache(inspection.robots, agent, config.robots).verdict(url, now)
    match verdict:
        case Allowed(_, rule):
            return "allowed", rule
        case Disallowed(rule):
            return "disallowed", rule
        case Unreachable(_, reason):
            return "unreachable", reason
    return "unknown", verdict.url


def _with_place(answer: Why, asked: Named, inspection: Inspection) -> Why:
    """Where in the frontier it is."""
    record = inspection.host(asked.host)
    if record is not None:
        answer = msgspec.structs.replace(answer, host_next_at=record.rest_until)
    if waiting := inspection.waiting(asked.host, asked.key):
        return msgspec.structs.replace(
            answer, waiting=waiting.ahead, attempts=waiting.candidate.attempts
        )
    if leased := inspection.leased(asked.key):
        return msgspec.structs.replace(answer, leased_at=leased.taken_at)
    if later := inspection.later(asked.key):
        return msgspec.structs.replace(answer, later_at=later.not_before, attempts=later.attempts)
    letters = (letter for _, letter in inspection.dead() if letter.candidate.key == asked.key)
    if letter := next(letters, None):
        return msgspec.structs.replace(answer, dead_at=letter.at, dead_reason=letter.reason)
    return answer


def _with_log(answer: Why, asked: Named, namer: Namer, inspection: Inspection) -> Why:
    """What came of it so far."""

    def is_it(url: str) -> bool:
        return url == asked.url or namer.key(url) == asked.key

    outcomes = inspection.outcomes(asked.host, is_it)
    copies = [each for each in outcomes if each.reason == "duplicate"]
    original = inspection.original(copies[-1].record) if copies else ""
    return msgspec.structs.replace(answer, outcomes=outcomes, duplicate_of=original)
