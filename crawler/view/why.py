"""`why URL`: shows all records of one URL in the frontier and the logs, and what the rules of the
last start decide about it.

Rule: the rules are applied anew, with the settings and arguments of the last start; the verdict at
the time the URL was found is only in the frontier and the logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from dataclasses import replace as replace_url
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.config.arguments import PUSHED, Arguments, read_arguments, with_kept_arguments
from crawler.config.settings import Config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.data.local_stores import RobotsRecords
from crawler.data.operator_files import Act
from crawler.engine.seeds import Seeds, list_url, open_seeds, survey_seeds
from crawler.frontier.budgets import is_kept
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import DeadLetter, GoneRecord, RefusedRecord
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate, ConfigError, Outcome, Purpose, SeedsError
from crawler.model.url import fetch_form, key_of_check, split
from crawler.policy.admission import Admission
from crawler.policy.operator_rules import OperatorRules, read_rules
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
from crawler.policy.priority import NO_CASH
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.robots_cache import (
    RobotsAllowed,
    RobotsCache,
    RobotsDisallowed,
    RobotsUnreachable,
)
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.policy.seeds import seed_url, url_of
from crawler.policy.validators import fault_of
from crawler.view.budgets import DomainBudgetView, DomainRow, limits_in_force
from crawler.view.fresh import PageVisits, page_visits
from crawler.view.hosts import HostQuery
from crawler.view.identity import UrlIdentifier, refuse_other_identity
from crawler.view.port import (
    CrawlView,
    HostState,
    LaterUrl,
    LeasedUrl,
    SpilledUrl,
    UrlRecord,
    WaitingUrl,
)
from crawler.view.rows import next_contact

_ANY_REQUEST: Final = b"?"  # a spider's own; what it is decides nothing


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one URL. Times are epoch seconds; None means that the URL is not in that
    place."""

    url: str
    host: str
    seen: bool
    undecided: bool = False  # it was found, and it is not known yet whether it is new
    rule: str  # the rule that refuses it; empty: none
    refused: str  # the refusal as a sentence
    scope_judged: bool  # whether the seeds are known, where the scope depends on them
    robots: str  # allowed | disallowed | unreachable | unknown
    robots_detail: str
    seed: str = ""  # the first one in whose scope it is, if that has an end
    waiting: int | None = None  # the number of URLs before it, of its host and level
    level: int | None = None  # its level; 0 is best
    urgent: bool = False  # waits before all levels
    cash: int = NO_CASH  # of a URL that waits, as policy.priority has it
    domain: DomainRow | None = None  # of a found URL, if its domain is known or has a budget
    spilled: int | None = None  # it waits for the budget of its domain: the number before it
    sampled_out: bool = False  # if it was found over that budget, it is not kept
    leased_at: float | None = None
    worker: str = ""  # of a shared crawl, that holds the lease
    later_at: float | None = None
    dead_at: float | None = None
    dead_reason: str = ""
    refused_at: float | None = None  # when a rule of the last start refused it, while it waited
    refused_by: str = ""  # that rule
    attempts: int = 0  # failed ones, if it waits
    host_next_at: float | None = None
    condition_fault: str = ""  # what is wrong with its host's answers whether pages have changed
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
    is_check: bool = False  # it waits, or was given up, as a link that is only checked
    is_shared: bool = False  # then each worker has its own log
    overridden: dict[str, int] = {}  # by key, the line of the operator's rule that sets it
    visits: PageVisits | None = None  # if it was visited before, and is visited again
    seen_as: str = ""  # the same address by another scheme or port, if that is seen and this is not


def why(text: str, view: CrawlView, config: Config, given: Mapping[str, str]) -> Why:
    """Answer for the URL *text*. *given*: arguments in place of those of the last start, as after
    -a. Raises CrawlerError."""
    return _Question(text, view, config, given).answer()


class _Question:
    """The question after one URL, and by what it is answered."""

    def __init__(
        self, text: str, view: CrawlView, config: Config, given: Mapping[str, str]
    ) -> None:
        refuse_other_identity(view.crawl, config)
        self._view, self._config, self._now = view, config, view.now()
        self._identifier = UrlIdentifier(config, view.crawl.key_seed)
        self._url = self._identifier.identify(text)
        last = view.last_start()
        # A spider of one's own names its URLs: the rules for found links do not concern them.
        is_begun = last.settings is not None
        self._is_named = is_begun and last.arguments is None and not given
        self._has_arguments = bool(given) or last.arguments is not None
        started = with_kept_arguments(given, last.arguments or {})
        self._given = {name: str(value) for name, value in started.items()}
        self._rules = read_rules(view.rules(), len(config.frontier.level_shares))
        self._grounds = view.grounds(self._url)

    def answer(self) -> Why:
        url, view = self._url, self._view
        record = view.url(url, self._identifier.is_form_of(url))
        check = replace_url(url, key=key_of_check(url.key))
        if record.place is None and not record.is_undecided:
            of_check = view.url(check, self._identifier.is_form_of(url))
            record = of_check if of_check.place or of_check.is_undecided else record
        found, seed, scope_judged = self._judged(record)
        refusal = found if isinstance(found, Refusal) else None
        robots, robots_detail = self._robots()
        is_seen = any(view.seen([url, check]))
        answer = Why(
            url=url.url,
            host=url.host,
            seen=is_seen,
            rule=refusal.reason if refusal else "",
            refused=refusal.explain() if refusal else "",
            scope_judged=scope_judged,
            seed=seed,
            robots=robots,
            robots_detail=robots_detail,
            overridden={key: rule.line for key, rule in self._rules.explain(url.url).items()},
            seen_as="" if is_seen else self._seen_as(),
            elsewhere={worker.name: worker.outbox for worker in view.workers() if worker.outbox},
            is_shared=view.crawl.is_shared,
        )
        host = next(iter(view.hosts(HostQuery(host=url.host))), None)
        if isinstance(found, Candidate):
            answer = self._with_pattern(answer, found)
            if not self._is_named:
                answer = self._with_budget(answer, host, record)
        if host is not None:
            overrides = self._rules.of_url(url.url)
            next_at = next_contact(host.rest_until, overrides, self._rules, self._now)
            fault = fault_of(host.visits.conditional).words
            answer = replace(answer, host_next_at=next_at, condition_fault=fault)
        answer = _with_outcomes(_with_place(answer, record), record)
        if isinstance(record.place, LaterUrl) and record.place.candidate.history is not None:
            visits = page_visits(url, record, self._rules, view, self._config)
            answer = replace(answer, visits=visits, later_at=visits.due_at)
        elif isinstance(record.place, GoneRecord):
            visits = page_visits(url, record, self._rules, view, self._config)
            answer = replace(answer, visits=visits)
        return answer

    def _seen_as(self) -> str:
        """Return the URL that was seen in place of this one, by another scheme or without its
        port."""
        parts = split(self._url.url)
        rest = self._url.url[len(parts.authority) :]
        others = [
            other
            for scheme in ("https", "http")
            if (other := self._identifier.identify(f"{scheme}://{parts.hostname}{rest}")).url
            != self._url.url
        ]
        seen = zip(others, self._view.seen(others), strict=True)
        return next((other.url for other, is_seen in seen if is_seen), "")

    def _judged(self, record: UrlRecord) -> tuple[Candidate | Refusal, str, bool]:
        """Apply scope and trap rules to the URL, as to a link unless it is a seed, a seed leads
        there, or a spider's code names it. Also returns the seed whose scope decides, and whether
        the seeds are known that a scope depends on."""
        url, view = self._url, self._view
        started = start_rules(
            *(view, self._config, self._given, self._rules),
            *(self._grounds.remembered, self._grounds.opened_hosts, self._now),
        )
        arguments, seeds, origins = started.arguments, started.seeds, started.origins
        is_seed = _is_of_seed(record) or url.url in started.added
        if seeds is not None:
            is_seed = is_seed or url.url in map(url_of, seeds.read())
        known = getattr(record.place, "candidate", None)
        found = origins.admission.candidate(
            url.url,
            depth=0 if is_seed else known.depth if known else 1,
            request=_ANY_REQUEST if self._is_named else b"",
            beyond=known.beyond if known else 0,
        )
        if isinstance(found, Refusal) and arguments.requisites:
            needed = origins.admission.candidate(url.url, requisite=1)
            if not isinstance(needed, Refusal):
                found = Refusal(found.reason, f"{found.detail}, and no page needs it to be shown")
        if isinstance(found, Refusal) and arguments.check_external:
            check = origins.admission.check(url.url, url.url, 1)
            if isinstance(check, Candidate):
                found = Refusal(found.reason, f"{found.detail}; links to it are checked")
        seed = _seed_of(url.url, origins.admission, seeds) if seeds is not None else ""
        return found, seed, started.are_known

    def _with_pattern(self, answer: Why, found: Candidate) -> Why:
        text, budgets = counted_pattern(found), self._config.patterns
        if not text:
            return answer
        pattern, brought = self._view.pattern_stats(self._url, text)
        answer = replace(
            answer,
            pattern=pattern,
            pattern_pages=brought.pages,
            pattern_new=brought.new,
            pattern_barren=brought.barren,
        )
        decision: FetchAllowed | PatternStopped = FetchAllowed.OPEN
        if deciding_pattern(found):
            decision = decide(pattern, brought, budgets, self._now)
        if isinstance(decision, PatternStopped):
            refusal = refusal_of(decision)
            answer = replace(answer, rule=refusal.reason, refused=refusal.explain())
        if is_barren(brought, budgets) and not is_full(brought, budgets):
            answer = replace(answer, pattern_try_at=brought.at + budgets.pattern_probe_s)
        return answer

    def _with_budget(self, answer: Why, host: HostState | None, found: UrlRecord) -> Why:
        """Add the budget of its domain, whether it was sampled out, and the refusal if a budget in
        all is used up."""
        arguments = self._given if self._has_arguments else None
        limits, known = limits_in_force(self._config, arguments, self._rules), self._grounds.domain
        view = DomainBudgetView(limits, self._view.degrees(), self._now)
        domain = view.row(self._url.domain, known)
        if domain.budget is not None or domain.spilled or domain.sampled_out:
            answer = replace(answer, domain=domain)
        if answer.seen or answer.rule:
            return answer
        if found.place is None and domain.sampled_out and not is_kept(self._url.key, known):
            answer = replace(answer, sampled_out=True)
        of_host, of_domain = limits.budgets_of(self._url.host, self._url.domain)
        admitted = known.admitted
        if of_host is not None and host is not None and host.admitted >= of_host:
            is_set = of_host == limits.max_urls_per_host
            said = "CRAWLER_MAX_URLS_PER_HOST" if is_set else "max_urls of a rule"
            used = f"{host.admitted} of {self._url.host} ({said} is {of_host})"
            refusal = Refusal(Reason.HOST_BUDGET, used)
        elif of_domain is not None and admitted >= of_domain:
            is_set = of_domain == limits.max_urls_per_domain
            said = "CRAWLER_MAX_URLS_PER_DOMAIN" if is_set else "max_urls of a rule"
            used = f"{admitted} of {self._url.domain} ({said} is {of_domain})"
            refusal = Refusal(Reason.DOMAIN_BUDGET, used)
        else:
            return answer
        return replace(answer, rule=refusal.reason, refused=refusal.explain())

    def _robots(self) -> tuple[str, str]:
        records = RobotsRecords(self._grounds.remembered)
        robots = RobotsCache(records, self._config.identity.user_agent_name, self._config.robots)
        verdict = robots.verdict(self._url.url, self._now)
        match verdict:
            case RobotsAllowed(_, rule):
                return "allowed", rule
            case RobotsDisallowed(rule):
                return "disallowed", rule
            case RobotsUnreachable(_, reason):
                return "unreachable", reason
        return "unknown", verdict.url


@dataclass(frozen=True, slots=True)
class StartRules:
    """By what the last start of a crawl judges URLs."""

    arguments: Arguments
    seeds: Seeds | None  # None: they are not to be read here
    added: set[str]  # URLs that operators have added as seeds
    origins: AllowedOrigins
    are_known: bool  # whether the seeds are, where the scope depends on them


def start_rules(
    view: CrawlView,
    config: Config,
    given: Mapping[str, str],
    rules: OperatorRules,
    remembered: OrderedStore,
    opened_hosts: AbstractSet[str],
    now: float,
) -> StartRules:
    """Return by what the start with the arguments *given* judges. *remembered*: what it allowed,
    may be written to. *opened_hosts*: of seeds that came while it ran. Raises CrawlerError."""
    arguments = read_arguments({"seeds": "none", **given})
    terms = TermsOfSeeds(arguments.terms)
    seeds = _seeds(given, terms, needs_them=arguments.scope is not ScopeChoice.ANY)
    are_known = seeds is not None or arguments.has_pushed_seeds
    if arguments.scope is not ScopeChoice.ANY and not are_known:
        raise ConfigError("a scope is judged from the seeds: give them too, -a seeds=...")
    added = _added(view)
    origins = AllowedOrigins(
        *(config, arguments, remembered, view.crawl.key_seed, now), is_read_only=True
    )
    if seeds is not None:
        origins.set_seeds(survey_seeds(seeds))
    origins.add_seed_hosts(set(opened_hosts) | origins.places_of(added))
    origins.set_operator_rules(rules)
    is_any = arguments.scope is ScopeChoice.ANY
    return StartRules(arguments, seeds, added, origins, are_known or is_any)


def _seeds(given: Mapping[str, str], terms: TermsOfSeeds, *, needs_them: bool) -> Seeds | None:
    """Return the seeds, but not those of a list on the web, that are pushed, or whose file is gone.
    Raises SeedsError for the latter if the scope *needs_them*."""
    argument = given.get("seeds", PUSHED)
    if argument == PUSHED or list_url(argument):
        return None
    try:
        return open_seeds(argument, terms)
    except SeedsError:
        if needs_them:
            raise
        return None


def _seed_of(url: str, admission: Admission, seeds: Seeds) -> str:
    """Return the first of *seeds* that *url* belongs to; empty if it belongs to none, or to those
    that lead anywhere."""
    place = admission.place_of(url)
    if place is None or not place.unit:
        return ""
    name = place.unit.lstrip("*.").partition("/")[0].partition("?")[0]
    for line in seeds.read():
        seed = url_of(line)
        own = admission.place_of(seed) if seed is not None and name in seed else None
        if seed is not None and own is not None and own.unit == place.unit:
            return seed
    return ""


def _is_of_seed(record: UrlRecord) -> bool:
    """Return whether it is known of a URL that it is a seed, or that one redirected there."""
    candidate = getattr(record.place, "candidate", None)
    is_first = candidate is not None and candidate.depth == 0 and not candidate.is_sitemap
    return is_first or any(outcome.seed for outcome in record.outcomes)


def _added(view: CrawlView) -> set[str]:
    """Return the URLs that operators have added as seeds."""
    acts = (act for act in view.audit() if isinstance(act, Act) and act.verb == "add")
    forms = (fetch_form(seed_url(text)) for act in acts for text in act.targets)
    return {url for url in forms if url is not None}


def _with_place(answer: Why, record: UrlRecord) -> Why:
    candidate = getattr(record.place, "candidate", None)
    is_check = candidate is not None and candidate.purpose is Purpose.CHECK
    answer = replace(answer, is_check=is_check)
    match record.place:
        case WaitingUrl(candidate, ahead, is_urgent):
            level = None if is_urgent else candidate.level
            answer = replace(answer, waiting=ahead, level=level, attempts=candidate.attempts)
            return replace(answer, urgent=is_urgent, cash=candidate.cash)
        case SpilledUrl(_, ahead):
            answer = replace(answer, spilled=ahead)
        case LeasedUrl(taken_at, _, worker):
            answer = replace(answer, leased_at=taken_at, worker=worker)
        case LaterUrl(candidate):
            answer = replace(answer, later_at=candidate.not_before, attempts=candidate.attempts)
        case DeadLetter(at=at, reason=reason):
            answer = replace(answer, dead_at=at, dead_reason=reason)
        case RefusedRecord(at=at, reason=reason):
            answer = replace(answer, refused_at=at, refused_by=reason)
    return replace(answer, undecided=record.is_undecided)


def _with_outcomes(answer: Why, record: UrlRecord) -> Why:
    """Add what became of it, and the original of its content."""
    copies = [each for each in record.outcomes if each.reason == "duplicate"]
    original = copies[-1].original if copies else ""
    answer = replace(answer, outcomes=record.outcomes, duplicate_of=original)
    if record.owner is None:
        return answer
    return replace(answer, kept_at=record.owner.at, kept_record=record.owner.record)
