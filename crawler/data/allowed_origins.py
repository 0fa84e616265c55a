"""Which origins the crawl may reach: complete only when its seeds are known.

Rule: only a URL that the user named (a seed typed or in a local file, the URL of a list of seeds, a
start request of a spider) allows its own origin on loopback; no fetched list, pushed URL, redirect
or link does. Nothing is leased before all seeds are known, those of other workers among them: the
links of a page fetched earlier would be judged by an incomplete scope.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from crawler.config.arguments import Arguments
from crawler.config.settings import Config
from crawler.data.local_stores import LocalSeedLimits
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.model.choices import LaterVisits, OnlyChoice, RevisitChoice, RoundKind
from crawler.model.types import Candidate, Outcome, Purpose
from crawler.model.url import fetch_form
from crawler.policy.addresses import (
    MOST_ORIGINS,
    AllowedAddresses,
    Origin,
    loopback_origin,
    origin_text,
)
from crawler.policy.admission import Admission, AdmissionSettings, admission_settings
from crawler.policy.link_checks import ExternalResult
from crawler.policy.name_set import NameSet
from crawler.policy.operator_rules import NO_RULES, OperatorRules, Overrides, RuleBudgets
from crawler.policy.priority import CashPrioritizer, Prioritizer
from crawler.policy.ranks import Ranks
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.scope import SeedHosts, place_of_seed
from crawler.policy.seed_terms import TermsOfSeeds

_OF_CHOICE: Final = frozenset({Reason.NOT_CHOSEN, Reason.CHOSEN_TWICE})
_LOGGED: Final = 20  # origins named in one log line
_NAMED_LOGGED: Final = 100  # refused requests of a spider, for each rule
logger = logging.getLogger(__name__)


class AllowedOrigins:
    """The addresses and hosts that the crawl may reach, and what admission judges by."""

    admission: Admission
    _settings: AdmissionSettings  # of *admission*

    def __init__(
        self,
        config: Config,
        arguments: Arguments | None,
        store: OrderedStore,
        key_seed: int,
        now: float,
        *,
        is_read_only: bool = False,
        rule_budgets: RuleBudgets | None = None,
        ranks: Ranks | None = None,
        prioritizer: Prioritizer | None = None,
    ) -> None:
        """*arguments*: None for a spider whose own code makes the start requests. *now*: the date
        that calendars are judged by. *is_read_only*: read what the last start allowed, from another
        process. *rule_budgets*: those of the frontier, which follow the operator's rules. *ranks*:
        of domains or hosts, from outside. *prioritizer*: None for one who asks for no levels."""
        self._config = config
        # Without arguments the scope is any: the spider's own code limits the crawl.
        self._arguments = arguments or Arguments(seeds="none")
        self._only_chosen = self._arguments.only_chosen  # asked for six times a page
        self._chosen: set[int] = set()  # keys of the URLs of a list that were added
        self._list_number = 0  # of that list; 0: nothing waits of an earlier one
        self._list_is_known = is_read_only or not self._arguments.only_list
        self._store = store
        self._key_seed = key_seed
        self._now = now
        # The start requests of a spider without arguments are sent one by one, while URLs of the
        # last run may be leased already. With arguments only the seeds of this start count.
        kept = store.scan(keys.LOOPBACK, keys.prefix_end(keys.LOOPBACK), MOST_ORIGINS)
        self._stored_keys = {key for key, _ in kept}
        is_open = arguments is None or is_read_only
        names = (keys.name_of(key) for key in self._stored_keys if is_open)
        self._opened = frozenset(map(_read_origin, names))
        self._scope = SeedHosts(TermsOfSeeds(self._arguments.terms)).scope()  # by its seeds
        self._listed = NameSet()  # their loopback origins that are not in `_opened`
        self._seed_hosts: set[str] = set()  # of those received while the crawl ran
        self._seeds_are_known = arguments is None
        self._others_are_known = True
        self.operator = NO_RULES  # the rules of `rules.toml` in force
        self._rule_budgets = rule_budgets
        self._ranks = ranks
        levels = len(config.frontier.level_shares)
        self._prioritizer = prioritizer or CashPrioritizer(levels)
        self._logged: Counter[str] = Counter()  # refused requests, by rule
        self._rebuild()
        self.seed_limits = LocalSeedLimits(
            lambda url: self.admission.place_with_limits(url), key_seed
        )

    @property
    def is_complete(self) -> bool:
        return self._seeds_are_known and self._others_are_known and self._list_is_known

    def set_seeds(self, hosts: SeedHosts, *, fetched: bool = False) -> None:
        """Set the seeds, by the *hosts* of all of them. *fetched*: their list came from the
        network, so they allow no loopback."""
        if not fetched:
            self._listed = hosts.more_loopback()
            self._allow_loopback(hosts.loopback, len(self._listed))
        stale = self._stored_keys - {
            keys.named(keys.LOOPBACK, origin_text(each)) for each in self._opened
        }
        if stale:
            self._store.write(dict.fromkeys(stale))
        self._scope = hosts.scope()
        self._seeds_are_known = True
        self._rebuild()

    def wait_for_other_seeds(self) -> None:
        """Wait for the hosts that other workers allow. Until `add_seed_hosts`, `is_complete` is
        False."""
        self._others_are_known = False

    def add_seed_hosts(self, hosts: Iterable[str]) -> None:
        """Add *hosts* of seeds that this or another worker received while the crawl ran."""
        self._others_are_known = True
        self.open_hosts(hosts)

    def open_hosts(self, hosts: Iterable[str]) -> None:
        """Let the crawl reach *hosts*, as those of seeds."""
        new = set(hosts) - self._seed_hosts
        self._seed_hosts |= new
        if new:
            self._settings = replace(self._settings, scope=self._settings.scope.with_seeds(new))
            self.admission = Admission(self._settings)

    def set_operator_rules(self, operator: OperatorRules) -> None:
        """Judge by *operator*, the rules of `rules.toml`, from now on."""
        self.operator = operator
        if self._rule_budgets is not None:
            self._rule_budgets.set_rules(operator)
        self._settings = replace(self._settings, operator=operator)
        self.admission = Admission(self._settings)

    @property
    def visits_again(self) -> bool:
        """Whether pages are visited again as they are due, by the settings or a rule."""
        return self.later_visits is LaterVisits.AS_DUE

    @property
    def later_visits(self) -> LaterVisits:
        """Which pages that were visited before are visited in this run."""
        match self._arguments.only:
            case OnlyChoice.NEW:
                return LaterVisits.LISTS
            case OnlyChoice.CHANGED:
                return LaterVisits.EACH
            case _ if self._only_chosen or self._arguments.round_kind is RoundKind.NEW:
                return LaterVisits.NONE
        is_once = self._config.revisits.revisit is RevisitChoice.ONCE
        is_any = not is_once or self.operator.visits_again
        return LaterVisits.AS_DUE if is_any else LaterVisits.NONE

    def note_chosen(self, added: Iterable[int]) -> None:
        """Note the keys of URLs of the list that this run fetches, and that were added: where such
        a one waits since another run found it, it is not fetched twice."""
        self._chosen.update(added)

    def end_chosen(self, number: int) -> None:
        """Note that the whole list with *number* was noted. Until then `is_complete` is False: what
        waits and is in the list would be kept for another run, and fetched a second time."""
        self._list_number, self._list_is_known = number, True

    def choice_refusal(self, candidate: Candidate) -> Refusal | None:
        """Refuse what this run was not asked for: checks of links out of the scope, or where it
        fetches only what failed, or the URLs of a list, all else."""
        if candidate.purpose is Purpose.CHECK and not self._arguments.check_external:
            return Refusal(Reason.NOT_CHOSEN, "check_external is no")
        if not self._only_chosen or candidate.purpose is Purpose.ROBOTS:
            return None
        has_failed = candidate.attempts > 0 and self._arguments.only is OnlyChoice.FAILED
        is_in_list = candidate.key in self._chosen
        is_of_earlier = 1 < candidate.chosen < self._list_number
        if has_failed or (candidate.chosen and not (is_in_list and is_of_earlier)):
            return None
        if is_in_list:
            return Refusal(Reason.CHOSEN_TWICE, f"-a only={self._arguments.only}")
        return Refusal(Reason.NOT_CHOSEN, f"-a only={self._arguments.only}")

    def overrides_of(self, url: str) -> Overrides:
        """Return what the operator says about *url*, a fetch form."""
        return self.operator.of_url(url)

    def places_of(self, urls: Iterable[str]) -> set[str]:
        """Return what *urls*, fetch forms of seeds, bring into the scope."""
        return {place_of_seed(url, self._settings.scope.mode) for url in urls}

    def places_outside_scope(self, urls: Iterable[str]) -> set[str]:
        """Return the places of those of *urls*, fetch forms of seeds, that are not in the scope
        yet."""
        has_place = self._settings.scope.has_place
        return self.places_of(url for url in urls if not has_place(url))

    def allow_start_url(self, text: str) -> None:
        """Allow the origin of a start request, or of the URL of a list of seeds, on loopback."""
        url = fetch_form(text)
        origin = loopback_origin(url) if url is not None else None
        if origin is not None and self._allow_loopback({origin}):
            self._rebuild()

    def log_refused(self, url: str, rule: str, why: str) -> None:
        """Log that *rule* refuses *url*, which a spider's code names, and that no errback is
        called."""
        self._logged[rule] += 1
        count = self._logged[rule]
        if count <= _NAMED_LOGGED:
            last = "; further ones by this rule are only counted" if count == _NAMED_LOGGED else ""
            logger.warning("Not fetched: %s: %s: %s%s", url, rule, why, last)

    def admits(self, ip: str, hostname: str, port: int) -> bool:
        """Return whether *ip*, an address of *hostname*, may be connected to."""
        return self._addresses.admits(ip, hostname, port)

    def robots_candidate(self, url: str, authority: str) -> Candidate | Refusal:
        return self.admission.robots_candidate(url, None, authority)

    def _allow_loopback(self, origins: AbstractSet[Origin], unnamed: int = 0) -> bool:
        """Allow *origins* on loopback, and return whether any was not before. *unnamed*: how many
        others their list allows."""
        origins = origins - self._opened
        if not origins:
            return False
        self._opened |= origins
        names = sorted(map(origin_text, origins))
        self._store.write({keys.named(keys.LOOPBACK, name): b"" for name in names})
        others = len(names) + unnamed - _LOGGED
        more = f" and {others} more" if others > 0 else ""
        logger.info(
            "Loopback addresses that may be fetched from: %s%s", ", ".join(names[:_LOGGED]), more
        )
        return True

    def _rebuild(self) -> None:
        self._addresses = AllowedAddresses(
            allow_public=self._config.may_go_public,
            opened=self._opened,
            listed=self._listed,
            inside=self._config.fetch.allow_inside,
        )
        of_start = admission_settings(
            self._config,
            self._scope,
            self._addresses,
            self._key_seed,
            self._now,
            self._ranks,
        )
        scope = of_start.scope.with_seeds(self._seed_hosts)
        self._settings = replace(
            of_start, scope=scope, operator=self.operator, prioritizer=self._prioritizer
        )
        self.admission = Admission(self._settings)


class CurrentRules:
    """Implements port.LeaseRules. Judges waiting URLs as links are judged, and logs each refused
    one as an outcome, with the rule."""

    def __init__(
        self,
        origins: AllowedOrigins,
        log: Callable[[Iterable[Outcome]], None],
        count: Callable[[str, int], None],
        now: Callable[[], float],
        *,
        are_kept: bool = True,
    ) -> None:
        """*log* writes outcomes; *count* adds to a counter of the run, by its name. *are_kept*:
        whether the frontier keeps what is refused."""
        self._are_kept = are_kept
        self._origins = origins
        self._log = log
        self._count = count
        self._has_refused = False
        self._now = now

    @property
    def are_complete(self) -> bool:
        return self._origins.is_complete

    @property
    def later_visits(self) -> LaterVisits:
        return self._origins.later_visits

    @property
    def visits_per_day(self) -> float | None:
        return self._origins.operator.revisits_per_day

    def refusal(self, candidate: Candidate) -> Refusal | None:
        origins = self._origins
        refusal = origins.choice_refusal(candidate) or origins.admission.refusal(candidate)
        return refusal or origins.seed_limits.refusal(candidate, self._now())

    def on_refused(self, urls: Sequence[tuple[Candidate, Refusal]]) -> None:
        for candidate, refusal in urls:
            if candidate.request:
                self._origins.log_refused(candidate.url, refusal.reason, refusal.advise())
        if not self._has_refused:
            self._has_refused = True
            fate = (
                "kept for a start that admits them" if self._are_kept else "done, for all crawlers"
            )
            logger.info(
                "Waiting URLs that the rules of this start refuse are %s; the first: %s: %s",
                fate,
                urls[0][0].url,
                urls[0][1].explain(),
            )
        at = round(self._now(), 3)
        # What waits for another run has no outcome in this one.
        judged = [each for each in urls if each[1].reason not in _OF_CHOICE]
        self._log(
            Outcome(
                at=at,
                url=candidate.url,
                host=candidate.host,
                fate="refused",
                reason=f"{refusal.reason}: {refusal.explain()}",
                attempts=candidate.attempts,
                depth=candidate.depth,
                external=ExternalResult.UNKNOWN if candidate.purpose is Purpose.CHECK else "",
            )
            for candidate, refusal in judged
        )
        self._count("fate/refused", len(judged))
        for reason, count in Counter(refusal.reason for _, refusal in urls).items():
            self._count(f"refused_waiting/{reason}", count)

    def on_readmitted(self, urls: int) -> None:
        self._count("readmitted", urls)


def _read_origin(written: str) -> Origin:
    hostname, _, port = written.rpartition(":")
    return hostname, int(port or 0)
