"""What the crawl may reach: known for good only when it is known where it begins.

Rule: a URL that a person named (a seed that was typed or stands in a local file, the URL of a list
of seeds, a start request of a spider) opens its own host and port where that is literally
loopback. Nothing else does: no fetched list, no pushed URL, no redirect, no link. As long as the
seeds are not read, nothing may be leased: a page fetched before would have its links judged by
bounds that are not known yet. The same holds for the hosts that other workers have opened.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from crawler.config.settings import Arguments, Config
from crawler.crawl import rules
from crawler.crawl.stats import CrawlStats
from crawler.data.outcomes import OutcomeLog
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate, Outcome
from crawler.model.url import fetch_form, split
from crawler.policy.admission import Admission, AdmissionRules
from crawler.policy.scope import (
    AddressRules,
    Origin,
    Refusal,
    loopback_origin,
)

_TOLD: Final = 20  # origins named in one log line
_ORIGINS: Final = 1000  # of a spider's start requests, read back at its next start
logger = logging.getLogger(__name__)


class AllowedOrigins:
    admission: Admission
    _rules: AdmissionRules  # of the admission

    def __init__(
        self,
        config: Config,
        arguments: Arguments | None,
        store: OrderedStore,
        key_seed: int,
        now: float,
        *,
        is_looking: bool = False,
    ) -> None:
        """*arguments*: of a spider that has seeds. None: it begins wherever its code says. *now*:
        the day that calendars are judged by. *is_looking*: from outside, at what the last start has
        opened."""
        self._config = config
        # Without arguments the scope is any: the spider's own code is its bound.
        self._arguments = arguments or Arguments(seeds="none")
        self._store = store
        self._key_seed = key_seed
        self._now = now
        # The start requests of a spider without arguments come one by one, when URLs of the run
        # before may be leased already. Else the seeds of this start alone count.
        kept = store.scan(keys.DOORS, keys.after(keys.DOORS), _ORIGINS)
        self._kept = {key for key, _ in kept}
        is_open = arguments is None or is_looking
        names = (keys.name_of(key) for key in self._kept if is_open)
        self._opened = frozenset(map(_read_origin, names))
        self._hosts: set[str] = set()
        self._seeds_known = arguments is None
        self._others_known = True
        self._hang()

    @property
    def known(self) -> bool:
        return self._seeds_known and self._others_known

    def open_for(self, urls: Iterable[str], *, fetched: bool = False) -> None:
        """Take *urls*, all of the seeds as fetch forms, as where the crawl begins. *fetched*: their
        list came from the network, and opens nothing."""
        if not fetched:
            self._open(urls)
        stale = self._kept - {keys.named(keys.DOORS, _written(each)) for each in self._opened}
        if stale:
            self._store.write(dict.fromkeys(stale))
        self._hosts |= {split(url).hostname for url in urls}
        self._seeds_known = True
        self._hang()

    def expect_more(self) -> None:
        """Other workers may have opened hosts: nothing is known before `open_more`."""
        self._others_known = False

    def open_more(self, hosts: Iterable[str]) -> None:
        """Where the crawl begins too: hosts of seeds that came while it ran, whoever took them."""
        new = set(hosts) - self._hosts
        self._hosts |= new
        self._others_known = True
        if new:
            self._rules = replace(self._rules, scope=self._rules.scope.wider(new))
            self.admission = Admission(self._rules)

    def unopened(self, urls: Iterable[str]) -> set[str]:
        """Hosts of *urls*, fetch forms of seeds, that must be opened before these are admitted."""
        if self._arguments.scope is ScopeChoice.ANY:
            return set()
        return {split(url).hostname for url in urls} - self._hosts

    def open_also(self, text: str) -> None:
        """Where a spider of its own begins, or the URL of a list of seeds."""
        url = fetch_form(text)
        if url is not None and self._open([url]):
            self._hang()

    def admits(self, ip: str, hostname: str, port: int) -> bool:
        """May *ip*, which *hostname* led to, be connected to?"""
        return self._addresses.admits(ip, hostname, port)

    def robots(self, url: str, authority: str) -> Candidate | Refusal:
        return self.admission.robots(url, None, authority)

    def _open(self, urls: Iterable[str]) -> bool:
        """Whether one of *urls* is loopback that was not open before."""
        origins = {origin for url in urls if (origin := loopback_origin(url))} - self._opened
        if not origins:
            return False
        self._opened |= origins
        names = sorted(map(_written, origins))
        self._store.write({keys.named(keys.DOORS, name): b"" for name in names})
        more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
        logger.info("Loopback that may be fetched from: %s%s", ", ".join(names[:_TOLD]), more)
        return True

    def _hang(self) -> None:
        self._addresses = AddressRules(
            allow_public=self._config.may_go_public,
            opened=self._opened,
            inside=self._config.fetch.allow_inside,
        )
        seeds = frozenset(self._hosts)
        self._rules = rules.admission_rules(
            self._config, self._arguments, self._addresses, seeds, self._key_seed, self._now
        )
        self.admission = Admission(self._rules)


class CurrentRules:
    """Implements scheduler.ports.LeaseRules: what waits is judged as what is found, and what is
    refused goes into the outcome log, with its rule."""

    def __init__(
        self,
        doors: AllowedOrigins,
        outcomes: OutcomeLog,
        tally: CrawlStats,
        now: Callable[[], float],
    ) -> None:
        self._doors = doors
        self._outcomes = outcomes
        self._tally = tally
        self._now = now

    @property
    def known(self) -> bool:
        return self._doors.known

    def refusal(self, it: Candidate) -> Refusal | None:
        return self._doors.admission.refusal(it)

    def refused(self, urls: Sequence[tuple[Candidate, Refusal]]) -> None:
        if not self._tally.counted["fate/refused"]:
            logger.info(
                "Waiting URLs that the rules of this start refuse are kept for a start that admits"
                " them; the first: %s: %s",
                *(urls[0][0].url, urls[0][1].explain()),
            )
        at = round(self._now(), 3)
        self._outcomes.append_all(
            Outcome(
                at=at,
                url=it.url,
                host=it.host,
                fate="refused",
                reason=f"{why.reason}: {why.explain()}",
                attempts=it.attempts,
                depth=it.depth,
            )
            for it, why in urls
        )
        self._tally.count("fate/refused", len(urls))
        for reason, count in Counter(why.reason for _, why in urls).items():
            self._tally.count(f"refused_waiting/{reason}", count)

    def readmitted(self, urls: int) -> None:
        self._tally.count("readmitted", urls)


def _written(origin: Origin) -> str:
    hostname, port = origin
    return f"{hostname}:{port}"


def _read_origin(written: str) -> Origin:
    hostname, _, port = written.rpartition(":")
    return hostname, int(port or 0)
