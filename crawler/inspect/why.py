"""`why URL`: shows all records of one URL in the frontier and the logs, and what the rules of the
last start decide about it.

Rule: the rules are applied anew, with the settings and arguments of the last start; the verdict at
the time the URL was found is only in the frontier and the logs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.config.settings import (
    PUSHED,
    Config,
    PatternSettings,
    read_arguments,
    with_kept_arguments,
)
from crawler.data.allowed_origins import AllowedOrigins
from crawler.frontier.open import frontier_limits
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate, ConfigError, Outcome
from crawler.model.url import split
from crawler.policy.operator_rules import OperatorRules, Overrides, RuleBudgets, read_rules
from crawler.policy.patterns import (
    FetchAllowed,
    PatternStopped,
    counted_pattern,
    decide,
    deciding_pattern,
    is_barren,
    is_full,
    refusal_of,
)
from crawler.policy.robots_cache import (
    RobotsAllowed,
    RobotsCache,
    RobotsDisallowed,
    RobotsUnreachable,
)
from crawler.policy.scope import Reason, Refusal
from crawler.report.figures import (
    FAR,
    many,
    plain,
    since,
    size,
    until,
)
from crawler.spiders.seeds import SeedList, list_url, open_seeds, survey_seeds
from crawler.view.identity import UrlIdentifier, refuse_other_identity
from crawler.view.port import (
    Inspection,
    KnownUrl,
    NotSearched,
    WaitingUrl,
)


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one URL. Times are epoch seconds; None means that the URL is not in that
    place."""

    url: str
    host: str
    seen: bool
    rule: str  # the rule that refuses it; empty: none
    refused: str  # the refusal as a sentence
    scope_judged: bool  # whether seeds were given, as the scope depends on them
    robots: str  # allowed | disallowed | unreachable | unknown
    robots_detail: str
    waiting: int | None = None  # the number of URLs before it, of its host and level
    level: int | None = None  # its level; 0 is best
    urgent: bool = False  # waits before all levels
    unsearched: int = 0  # waiting URLs of its host that were not searched
    leased_at: float | None = None
    worker: str = ""  # of a shared crawl, that holds the lease
    later_at: float | None = None
    dead_at: float | None = None
    dead_reason: str = ""
    refused_at: float | None = None  # when a rule of the last start refused it, while it waited
    refused_by: str = ""  # that rule
    attempts: int = 0  # failed ones, if it waits
    host_next_at: float | None = None
    outcomes: list[Outcome] = []
    pattern: str = ""  # that its URL is counted under; empty: it is the only one
    pattern_pages: int = 0
    pattern_new: int = 0
    pattern_barren: int = 0  # how many of the last pages brought nothing new
    pattern_try_at: float | None = None  # when a URL of a stopped pattern is tried again
    duplicate_of: str = ""
    kept_at: float | None = None  # when its page was fetched, if others are duplicates of it
    kept_record: str = ""  # where that page is archived
    elsewhere: dict[str, int] = {}  # by worker, the links on its disk
    is_shared: bool = False  # then each worker has its own log
    overridden: dict[str, int] = {}  # by key, the line of the operator's rule that sets it
    seen_as: str = ""  # the same address by another scheme or port, if that is seen and this is not


def why(
    text: str, inspection: Inspection, config: Config, given: Mapping[str, str], now: float
) -> Why:
    """Answer for the URL *text*. *given*: arguments in place of those of the last start, as after
    -a. Raises CrawlerError."""
    refuse_other_identity(inspection.where, inspection.identity, config, inspection.is_shared)
    identifier = UrlIdentifier(config, inspection.key_seed)
    known = identifier.identify(text)
    found, scope_judged = _judged(known, inspection, config, given, now)
    refusal = found if isinstance(found, Refusal) else None
    robots, robots_detail = _robots(known.url, inspection, config, now)
    answer = Why(
        url=known.url,
        host=known.host,
        seen=inspection.is_seen(known),
        rule=refusal.reason if refusal else "",
        refused=refusal.explain() if refusal else "",
        scope_judged=scope_judged,
        robots=robots,
        robots_detail=robots_detail,
        overridden={
            key: rule.line
            for key, rule in _operator_rules(inspection, config).explain(known.url).items()
        },
    )
    if not answer.seen:
        answer = replace(answer, seen_as=_seen_as(known, identifier, inspection))
    if isinstance(found, Candidate):
        answer = _with_pattern(answer, found, known, inspection, config.patterns, now)
        if not answer.seen and not answer.rule:
            answer = _with_budget(answer, known, inspection, config, given)
    answer = _with_place(answer, known, inspection, _operator_rules(inspection, config), now)
    answer = _with_log(answer, known, identifier, inspection)
    return replace(answer, elsewhere=inspection.outbox_counts(), is_shared=inspection.is_shared)


def _seen_as(known: KnownUrl, identifier: UrlIdentifier, inspection: Inspection) -> str:
    """Return the URL that was seen in place of *known*, by another scheme or without its port."""
    parts = split(known.url)
    rest = known.url[len(parts.authority) :]
    for scheme in ("https", "http"):
        other = identifier.identify(f"{scheme}://{parts.hostname}{rest}")
        if other.url != known.url and inspection.is_seen(other):
            return other.url
    return ""


def _judged(
    known: KnownUrl, inspection: Inspection, config: Config, given: Mapping[str, str], now: float
) -> tuple[Candidate | Refusal, bool]:
    """Apply scope and trap rules to the URL, as to a link unless it is a seed. Also returns whether
    the seeds are known."""
    given = {
        name: str(value) for name, value in with_kept_arguments(given, inspection.arguments).items()
    }
    arguments = read_arguments({"seeds": "none", **given})
    seeds = _seeds(given)
    are_known = seeds is not None or arguments.has_pushed_seeds
    if arguments.scope is not ScopeChoice.ANY and not are_known:
        raise ConfigError("a scope is judged from the seeds: give them too, -a seeds=...")
    remembered, seed = inspection.stored_origins(), inspection.key_seed
    origins = AllowedOrigins(config, arguments, remembered, seed, now, is_read_only=True)
    is_seed = False
    if seeds is not None:
        origins.set_seeds(survey_seeds(seeds, arguments.scope))
        is_seed = known.url in seeds.read()
    origins.add_seed_hosts(inspection.opened_hosts(known))
    origins.set_operator_rules(_operator_rules(inspection, config))
    found = origins.admission.candidate(known.url, depth=0 if is_seed else 1)
    if isinstance(found, Refusal) and arguments.requisites:
        needed = origins.admission.candidate(known.url, requisite=1)
        if not isinstance(needed, Refusal):
            found = Refusal(found.reason, f"{found.detail}, and no page needs it to be shown")
    return found, are_known


def _operator_rules(inspection: Inspection, config: Config) -> OperatorRules:
    levels = len(config.frontier.level_shares)
    return read_rules(inspection.operator_rules(config), levels)


def _with_pattern(
    answer: Why,
    found: Candidate,
    known: KnownUrl,
    inspection: Inspection,
    budgets: PatternSettings,
    now: float,
) -> Why:
    text = counted_pattern(found)
    if not text:
        return answer
    pattern, brought = inspection.pattern_stats(known, text)
    answer = replace(
        answer,
        pattern=pattern,
        pattern_pages=brought.pages,
        pattern_new=brought.new,
        pattern_barren=brought.barren,
    )
    decision = (
        decide(pattern, brought, budgets, now) if deciding_pattern(found) else FetchAllowed.OPEN
    )
    if isinstance(decision, PatternStopped):
        refusal = refusal_of(decision)
        answer = replace(answer, rule=refusal.reason, refused=refusal.explain())
    if is_barren(brought, budgets) and not is_full(brought, budgets):
        answer = replace(answer, pattern_try_at=brought.at + budgets.pattern_probe_s)
    return answer


def _with_budget(
    answer: Why,
    known: KnownUrl,
    inspection: Inspection,
    config: Config,
    given: Mapping[str, str],
) -> Why:
    """Add the refusal if the budget of its host or domain is used up."""
    limits = frontier_limits(config, read_arguments({"seeds": "none", **given}))
    host = inspection.host(known.host)
    by_rule = RuleBudgets()
    by_rule.set_rules(_operator_rules(inspection, config))
    limits = dataclasses.replace(limits, rule_budgets=by_rule)
    of_host, of_domain = limits.budgets_of(known.host, known.domain)
    if of_host is not None and host is not None and host.admitted >= of_host:
        is_set = of_host == limits.max_urls_per_host
        said = "CRAWLER_MAX_URLS_PER_HOST" if is_set else "max_urls of a rule"
        used = f"{host.admitted} of {known.host} ({said} is {of_host})"
        refusal = Refusal(Reason.HOST_BUDGET, used)
    elif of_domain is not None and (admitted := inspection.admitted_of_domain(known)) >= of_domain:
        is_set = of_domain == limits.max_urls_per_domain
        said = "CRAWLER_MAX_URLS_PER_DOMAIN" if is_set else "max_urls of a rule"
        used = f"{admitted} of {known.domain} ({said} is {of_domain})"
        refusal = Refusal(Reason.DOMAIN_BUDGET, used)
    else:
        return answer
    return replace(answer, rule=refusal.reason, refused=refusal.explain())


def _seeds(given: Mapping[str, str]) -> SeedList | None:
    """Return the seeds, but not those of a list on the web or that are pushed."""
    argument = given.get("seeds", PUSHED)
    if argument == PUSHED or list_url(argument):
        return None
    return open_seeds(argument)


def _robots(url: str, inspection: Inspection, config: Config, now: float) -> tuple[str, str]:
    agent = config.identity.user_agent_name
    verdict = RobotsCache(inspection.robots, agent, config.robots).verdict(url, now)
    match verdict:
        case RobotsAllowed(_, rule):
            return "allowed", rule
        case RobotsDisallowed(rule):
            return "disallowed", rule
        case RobotsUnreachable(_, reason):
            return "unreachable", reason
    return "unknown", verdict.url


def next_contact(rest_until: float, says: Overrides, rules: OperatorRules, now: float) -> float:
    """Return when a host, or a URL, may be contacted whose host rests until *rest_until*, and of
    which the operator *says* that; FAR if it is paused without end."""
    pauses = (says.paused_until(now), rules.paused_until(now))
    return max(rest_until, *(min(until, FAR) for until in pauses if until is not None), 0.0)


def _with_place(
    answer: Why, known: KnownUrl, inspection: Inspection, rules: OperatorRules, now: float
) -> Why:
    """Add its place in the frontier, searched in the order in which a URL moves on."""
    if host := inspection.host(known.host):
        next_at = next_contact(host.rest_until, rules.of_url(known.url), rules, now)
        answer = replace(answer, host_next_at=next_at)
    match inspection.waiting(known):
        case WaitingUrl(candidate, ahead, is_urgent):
            level = None if is_urgent else candidate.level
            answer = replace(answer, waiting=ahead, level=level, attempts=candidate.attempts)
            return replace(answer, urgent=is_urgent)
        case NotSearched(urls):
            answer = replace(answer, unsearched=urls)
    if leased := inspection.leased(known):
        return replace(answer, leased_at=leased.taken_at, worker=leased.worker)
    if later := inspection.later(known):
        return replace(answer, later_at=later.not_before, attempts=later.attempts)
    if letter := inspection.dead(known):
        return replace(answer, dead_at=letter.at, dead_reason=letter.reason)
    if kept := inspection.refused(known):
        return replace(answer, refused_at=kept.at, refused_by=kept.reason)
    return answer


def _with_log(
    answer: Why, known: KnownUrl, identifier: UrlIdentifier, inspection: Inspection
) -> Why:
    """Add its outcomes, and the original of its content."""

    def is_it(url: str) -> bool:
        return url == known.url or identifier.key(url) == known.key

    outcomes = inspection.outcomes(known, is_it)
    copies = [each for each in outcomes if each.reason == "duplicate"]
    original = copies[-1].original if copies else ""
    answer = replace(answer, outcomes=outcomes, duplicate_of=original)
    if outcomes or not answer.seen:
        return answer
    if owned := inspection.duplicate_owner(known, is_it):
        return replace(answer, kept_at=owned.at, kept_record=owned.record)
    return answer


_SHOWN: Final = 5  # of its outcomes, the latest
_ROBOTS: Final = MappingProxyType(
    {
        "allowed": "robots.txt allows it",
        "disallowed": "robots.txt forbids it",
        "unreachable": "robots.txt is unreachable, so nothing of it may be fetched",
        "unknown": "robots.txt is not known yet; it will be fetched before the page",
    }
)


def why_text(why: Why, now: float) -> Iterator[str]:
    yield plain(why.url, 2048)
    yield f"  {_verdict(why, now)}"
    yield ""
    yield from _whereabouts(why, now)
    yield from _history(why, now)
    yield _rules(why)
    yield from _overridden(why)
    yield from _pattern(why, now)
    detail = f": {plain(why.robots_detail)}" if why.robots_detail else ""
    yield f"  {_ROBOTS[why.robots]}{detail}"


def _verdict(why: Why, now: float) -> str:
    """Return in one sentence what has become of the URL."""
    if why.leased_at is not None:
        return "It is being fetched."
    if why.dead_at is not None:
        return f"Given up: {plain(why.dead_reason)}."
    if why.refused_at is not None:
        return f"Not fetched: a rule refuses it ({plain(why.refused_by)})."
    if why.waiting is not None:
        at = until(why.host_next_at or 0.0, now)
        return f"Not fetched yet: it waits, and its host may be contacted {at}."
    if why.later_at is not None:
        return f"It is fetched again {until(why.later_at, now)}."
    if why.outcomes:
        last = why.outcomes[-1]
        what = "Its last fetch was" if last.status is not None else "Not fetched; decided"
        return f"{what} {since(last.at, now)}: {_outcome(last)}."
    if why.kept_at is not None or why.seen:
        return "It was fetched, or is on its way: its outcome is not on record."
    if why.rule:
        return f"Never queued: {plain(why.refused)}."
    if why.seen_as:
        return f"Never queued: {plain(why.seen_as, 2048)} was, which is another address."
    return "Never queued: no page so far links to it, and it is no seed."


def _whereabouts(why: Why, now: float) -> Iterator[str]:
    yield _seen(why)
    tried = f", after {many(why.attempts, 'failure')}" if why.attempts else ""
    if why.waiting is not None:
        yield f"  waits behind {many(why.waiting, 'URL')} of its host{_level(why)}{tried}"
        yield f"  its host may be contacted {until(why.host_next_at or 0.0, now)}"
    if why.unsearched and not _found(why):
        yield f"  {many(why.unsearched, 'waiting URL')} of its host were not looked at"
    if why.leased_at is not None:
        by = f" by the worker {plain(why.worker)}" if why.worker else ""
        yield (
            f"  leased {since(why.leased_at, now)}{by}: it is being fetched, or was when a run died"
        )
    if why.later_at is not None:
        yield f"  tried again {until(why.later_at, now)}{tried}"
    if why.dead_at is not None:
        yield f"  dead letter, {since(why.dead_at, now)}: {plain(why.dead_reason)}"
    if why.refused_at is not None:
        yield (
            f"  refused by a rule when its turn came, {since(why.refused_at, now)}:"
            f" {plain(why.refused_by)}; a start whose rules admit it puts it back"
        )


def _seen(why: Why) -> str:
    if not why.seen:
        links = sum(why.elsewhere.values())
        waiting = f"; it may be among {many(links, 'link')} on workers' disks" if links else ""
        return f"  not seen: no page so far leads to it, or a rule or budget kept it out{waiting}"
    if _found(why):
        return "  seen"
    if why.is_shared:
        return "  seen; what came of it is in the log of the worker that fetched it"
    return "  seen; nothing more is on record"


def _level(why: Why) -> str:
    return ", before all levels" if why.urgent else f" at level {why.level}"


def _history(why: Why, now: float) -> Iterator[str]:
    for outcome in why.outcomes[-_SHOWN:]:
        yield f"  {since(outcome.at, now)}: {_outcome(outcome)}"
    if any(each.reason == "duplicate" for each in why.outcomes):
        original = plain(why.duplicate_of) or "a page that the archive does not name"
        yield f"  its content is a duplicate of {original}"
    if any(each.reason == "noindex" for each in why.outcomes):
        yield "  its author marked it noindex: only its links are stored (CRAWLER_RESPECT_NOINDEX)"
    near = next((each for each in reversed(why.outcomes) if each.bits is not None), None)
    if near is not None:
        yield f"  its text is that of {plain(near.original)}, but for {near.bits} of 64 bits"
    if why.kept_at is not None:
        record = f", archived at {plain(why.kept_record)}" if why.kept_record else ""
        yield f"  fetched {since(why.kept_at, now)}, with content of its own{record}"


def _outcome(outcome: Outcome) -> str:
    is_in_reason = outcome.status is None or outcome.reason.startswith("status ")
    status = "" if is_in_reason else f"status {outcome.status}"
    target = f"to {plain(outcome.target)}" if outcome.target else ""
    taken = size(outcome.size) if outcome.size else ""
    record = f"archived at {outcome.record}" if outcome.record else ""
    parts = ", ".join(filter(None, [status, target, plain(outcome.reason), taken, record]))
    return f"{outcome.fate.replace('_', ' ')}: {parts or 'no more is known'}"


def _rules(why: Why) -> str:
    unjudged = "" if why.scope_judged else " (its scope is judged with -a seeds=... -a scope=...)"
    if why.rule:
        return f"  refused by the rule {why.rule}: {plain(why.refused)}{unjudged}"
    return f"  the rules admit it{unjudged}"


def _overridden(why: Why) -> Iterator[str]:
    if why.overridden:
        keys = ", ".join(f"{key} (line {line})" for key, line in why.overridden.items())
        yield f"  the operator's rules say of it: {keys}"


def _pattern(why: Why, now: float) -> Iterator[str]:
    if not why.pattern:
        return
    barren = f", the last {why.pattern_barren} not" if why.pattern_barren else ""
    pages = many(why.pattern_pages, "page")
    yield f"  of its pattern {plain(why.pattern)}: {pages}, {why.pattern_new} of them new{barren}"
    if why.pattern_try_at is not None:
        yield f"  one of its pattern may be tried {until(why.pattern_try_at, now)}"


def _found(why: Why) -> bool:
    places = (why.waiting, why.leased_at, why.later_at, why.dead_at, why.kept_at, why.refused_at)
    return bool(why.outcomes) or any(place is not None for place in places)
