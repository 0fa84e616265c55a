"""What `why URL` says of a URL, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from crawler.model.program import PROGRAM
from crawler.model.types import DISALLOWED, Outcome
from crawler.policy.priority import DOUBLING, NO_CASH, SEED_CASH
from crawler.policy.refusal import Reason
from crawler.report.fresh_text import answer_of, next_visit, visited
from crawler.view.budgets import DomainRow
from crawler.view.formats import many, number, plain, since, size, span, until
from crawler.view.why import Why

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
    yield from _domain(why, now)
    yield from _history(why, now)
    if why.condition_fault:
        yield f"  its host {why.condition_fault}"
    yield _rules(why)
    if why.seed:
        yield f"  it is in the scope of the seed {plain(why.seed, 2048)}"
    yield from _overridden(why)
    yield from _pattern(why, now)
    detail = f": {plain(why.robots_detail)}" if why.robots_detail else ""
    yield f"  {_ROBOTS[why.robots]}{detail}"


def _verdict(why: Why, now: float) -> str:
    """Return in one sentence what has become of the URL."""
    if why.is_check and why.waiting is not None:
        at = until(why.host_next_at or 0.0, now)
        return f"Not checked as an external link yet: it waits, and its host may be asked {at}."
    if why.leased_at is not None:
        return "It is being fetched."
    if why.dead_at is not None:
        return f"Given up: {plain(why.dead_reason)}."
    if why.refused_at is not None:
        return f"Not fetched: a rule refuses it ({plain(why.refused_by)})."
    if why.waiting is not None:
        at = until(why.host_next_at or 0.0, now)
        return f"Not fetched yet: {_failed(why)}it waits, and its host may be contacted {at}."
    if why.visits is not None:
        return next_visit(why.visits, now)
    if why.later_at is not None:
        again = f"{_failed(why)}it is fetched again {until(why.later_at, now)}."
        return again[0].upper() + again[1:]
    if why.outcomes:
        last = why.outcomes[-1]
        if last.external:
            return f"Checked as an external link {since(last.at, now)}: {_checked(last)}."
        what = "Its last fetch was" if last.status is not None else "Not fetched; decided"
        return f"{what} {since(last.at, now)}: {_outcome(last)}."
    if why.kept_at is not None or why.seen:
        return "It was fetched, or is on its way: its outcome is not on record."
    if why.undecided:
        return "Not fetched yet: it was found, and it is not decided yet whether it is new."
    if why.spilled is not None and why.domain is not None:
        return f"Not fetched yet: {_spilled(why, why.domain, now)}."
    if why.rule:
        return f"Never queued: {plain(why.refused)}."
    if why.sampled_out:
        return "Never queued: if it was found, its domain was over its budget; it was not kept."
    if why.seen_as:
        return f"Never queued: {plain(why.seen_as, 2048)} was, which is another address."
    return "Never queued: no page so far links to it, and it is no seed."


def _failed(why: Why) -> str:
    """Return how its last try failed, or nothing if that did not."""
    last = why.outcomes[-1] if why.outcomes else None
    if last is None or last.fate != "retry":
        return ""
    return f"its last try failed ({answer_of(last) or last.failure}); "


def _spilled(why: Why, domain: DomainRow, now: float) -> str:
    if domain.capped:
        full = plain(why.refused) or "its host or domain had its full number of URLs"
        return f"{full}; a start with a larger budget puts it back"
    name = plain(domain.domain)
    if domain.budget is None:
        return f"it waited for the budget of {name}, which has none any more"
    at = until(domain.next_round_at, now) if domain.used >= domain.budget else "now"
    return f"it waits for the budget of {name}, which has room {at}, or when nothing else is due"


def _domain(why: Why, now: float) -> Iterator[str]:
    domain = why.domain
    if domain is None:
        return
    yield f"  {_ranked(domain)}"
    if domain.budget is not None:
        rounds = f"{many(domain.budget, 'URL')} in {span(domain.round_s)} ({domain.budget_by})"
        again = f"; the next round begins {until(domain.next_round_at, now)}" if domain.used else ""
        yield f"  its budget while others wait: {rounds}, {number(domain.used)} used{again}"
    if domain.spilled or domain.sampled_out:
        counted = f"{number(domain.spilled)} spilled, {number(domain.sampled_out)} sampled out"
        yield f"  over budget: {counted}; this one {_this_one(why)}"


def _ranked(domain: DomainRow) -> str:
    """Return which domain it is, and its rank."""
    of = plain(domain.domain)
    if domain.rank_by != "links":
        return f"of {of}, rank {number(domain.rank)} ({domain.rank_by})"
    linked = f"{many(domain.linked_by, 'other domain')} {_links(domain.linked_by)} to it, about"
    return f"of {of}, rank {number(domain.rank)} of {many(domain.ranked, 'domain')}: {linked}"


def _links(domains: int) -> str:
    return "links" if domains == 1 else "link"


def _this_one(why: Why) -> str:
    if why.spilled is not None:
        return f"waits behind {number(why.spilled)} of them"
    if why.seen:
        return "was within it"
    if why.sampled_out:
        return "was not kept, if it was found"
    return "is not among them: not found, or not kept"


def _whereabouts(why: Why, now: float) -> Iterator[str]:
    yield _seen(why)
    tried = f", after {many(why.attempts, 'failure')}" if why.attempts else ""
    if why.waiting is not None:
        yield f"  waits behind {many(why.waiting, 'URL')} of its host{_level(why)}{tried}"
        if why.cash > NO_CASH:
            part = _importance(why.cash)
            yield f"  its importance is {part} of a seed's; those of most come first"
        yield f"  its host may be contacted {until(why.host_next_at or 0.0, now)}"
    if why.leased_at is not None:
        by = f" by the worker {plain(why.worker)}" if why.worker else ""
        yield (
            f"  leased {since(why.leased_at, now)}{by}: it is being fetched, or was when a run died"
        )
    if why.visits is not None and why.visits.visits:
        yield f"  {visited(why.visits, now)}; more: {PROGRAM} frontier fresh URL"
    elif why.later_at is not None:
        yield f"  tried again {until(why.later_at, now)}{tried}"
    if why.dead_at is not None:
        yield f"  dead letter, {since(why.dead_at, now)}: {plain(why.dead_reason)}"
    if why.refused_at is not None:
        yield (
            f"  refused by a rule when its turn came, {since(why.refused_at, now)}:"
            f" {plain(why.refused_by)}; a start whose rules admit it puts it back"
        )


def _seen(why: Why) -> str:
    if why.undecided and not why.seen:
        return "  found; it is admitted when the crawl goes on, or knows that it is new"
    if not why.seen:
        links = sum(why.elsewhere.values())
        waiting = f"; it may be among {many(links, 'link')} on workers' disks" if links else ""
        if why.spilled is not None:
            return "  found, and spilled: over a budget, so it does not count as seen yet"
        return f"  not seen: no page so far leads to it, or a rule or budget kept it out{waiting}"
    if _found(why):
        return "  seen"
    if why.is_shared:
        return "  seen; what came of it is in the log of the worker that fetched it"
    return "  seen; nothing more is on record"


def _level(why: Why) -> str:
    return ", before all levels" if why.urgent else f" at level {why.level}"


def _importance(cash: int) -> str:
    parts = 2.0 ** ((SEED_CASH - cash) / DOUBLING)
    return f"1/{parts:,.0f}" if parts >= 1.5 else f"{1 / parts:.1f}"


def _history(why: Why, now: float) -> Iterator[str]:
    for outcome in why.outcomes[-_SHOWN:]:
        yield f"  {since(outcome.at, now)}: {_outcome(outcome)}"
    if any(each.reason == "duplicate" for each in why.outcomes):
        original = plain(why.duplicate_of) or "a page that the archive does not name"
        yield f"  its content is a duplicate of {original}"
    if any(each.reason == "noindex" for each in why.outcomes):
        yield "  its author marked it noindex: only its links are stored (CRAWLER_RESPECT_NOINDEX)"
    said = next((each.preferences for each in reversed(why.outcomes) if each.preferences), "")
    if said:
        yield f"  its publisher says of its use: {plain(said)}"
    if any(each.reason.startswith(DISALLOWED) for each in why.outcomes):
        yield "  so it is not stored (CRAWLER_REQUIRE_PREFERENCE)"
    near = next((each for each in reversed(why.outcomes) if each.bits is not None), None)
    if near is not None:
        yield f"  its text is that of {plain(near.original)}, but for {near.bits} of 64 bits"
    if why.kept_at is not None:
        record = f", archived at {plain(why.kept_record)}" if why.kept_record else ""
        yield f"  fetched {since(why.kept_at, now)}, with content of its own{record}"


def _checked(outcome: Outcome) -> str:
    found = {"unknown": "not known whether it is there"}.get(outcome.external, outcome.external)
    return f"{found}: {answer}" if (answer := answer_of(outcome)) else found


def _outcome(outcome: Outcome) -> str:
    if outcome.external:
        return f"checked as an external link: {_checked(outcome)}"
    taken = size(outcome.size) if outcome.size else ""
    record = f"archived at {outcome.record}" if outcome.record else ""
    parts = ", ".join(filter(None, [answer_of(outcome), taken, record]))
    return f"{outcome.fate.replace('_', ' ')}: {parts or 'no more is known'}"


_BUDGETS: Final = (Reason.HOST_BUDGET, Reason.DOMAIN_BUDGET)


def _rules(why: Why) -> str:
    unjudged = "" if why.scope_judged else " (its scope is judged with -a seeds=... -a scope=...)"
    if why.rule in _BUDGETS:
        return f"  kept back by the budget {why.rule}: {plain(why.refused)}{unjudged}"
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
