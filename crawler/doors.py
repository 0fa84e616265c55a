"""What the crawl may reach: known for good only when it is known where it begins.

Rule: a beginning that is literally loopback opens loopback for this crawl, across its restarts,
and nothing else does. As long as the seeds are not read, nothing may be leased: a page fetched
before would have its links judged by bounds that are not known yet. The same holds for the hosts
that other workers of a shared crawl have opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from crawler import rules
from crawler.core.arguments import Arguments
from crawler.core.choices import Scope
from crawler.core.config import Config
from crawler.core.types import Candidate
from crawler.core.url import fetch_form, split
from crawler.policy.addresses import AddressRules, Place, place_of_host
from crawler.policy.admission import Admission, AdmissionRules
from crawler.policy.refusal import Refusal
from crawler.scheduler import keys
from crawler.scheduler.ports import OrderedStore

LOOPBACK: Final = keys.named(keys.DOORS, "loopback")


class Doors:
    admission: Admission
    _rules: AdmissionRules  # of the admission

    def __init__(
        self,
        config: Config,
        arguments: Arguments | None,
        store: OrderedStore,
        key_seed: int,
        now: float,
    ) -> None:
        """*arguments*: of a spider that has seeds. None: it begins wherever its code says. *now*:
        the day that calendars are judged by."""
        self._config = config
        # Without arguments the scope is any: the spider's own code is its bound.
        self._arguments = arguments or Arguments(seeds="none")
        self._store = store
        self._key_seed = key_seed
        self._now = now
        self._loopback = store.get(LOOPBACK) is not None
        self._lent = False
        self._hosts: set[str] = set()
        self._seeds_known = arguments is None
        self._others_known = True
        self._hang()

    @property
    def known(self) -> bool:
        return self._seeds_known and self._others_known

    def open_for(self, urls: Iterable[str]) -> None:
        """Take *urls*, all of the seeds as fetch forms, as where the crawl begins."""
        hosts = {split(url).hostname for url in urls}
        if any(place_of_host(host) is Place.LOOPBACK for host in hosts):
            self._open_loopback()
        self._hosts |= hosts
        self._lent = False
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
        if any(place_of_host(host) is Place.LOOPBACK for host in new) and not self._loopback:
            self._open_loopback()
            self._hang()
        elif new:
            self._rules = replace(self._rules, scope=self._rules.scope.wider(new))
            self.admission = Admission(self._rules)

    def unopened(self, urls: Iterable[str]) -> set[str]:
        """Hosts of *urls*, fetch forms of seeds, that must be opened before these are admitted."""
        hosts = {split(url).hostname for url in urls} - self._hosts
        if self._arguments.scope is Scope.ANY:
            return {host for host in hosts if place_of_host(host) is Place.LOOPBACK}
        return hosts

    def open_also(self, text: str) -> None:
        """Where a spider of its own begins."""
        url = fetch_form(text)
        if url is None or self._loopback:
            return
        if place_of_host(split(url).hostname) is Place.LOOPBACK:
            self._open_loopback()
            self._hang()

    def lend(self, url: str) -> None:
        """Let the list of seeds be fetched from loopback, until it is known where it leads."""
        self._lent = place_of_host(split(url).hostname) is Place.LOOPBACK
        self._hang()

    def admits(self, ip: str, hostname: str) -> bool:
        """May *ip*, which *hostname* led to, be connected to?"""
        return self._addresses.admits(ip, hostname)

    def robots(self, url: str, authority: str) -> Candidate | Refusal:
        return self.admission.robots(url, None, authority)

    def _open_loopback(self) -> None:
        if not self._loopback:
            self._store.write({LOOPBACK: b""})
        self._loopback = True

    def _hang(self) -> None:
        self._addresses = AddressRules(
            allow_public=self._config.may_go_public,
            allow_loopback=self._loopback or self._lent,
            inside=self._config.fetch.allow_inside,
        )
        seeds = frozenset(self._hosts)
        self._rules = rules.admission_rules(
            self._config, self._arguments, self._addresses, seeds, self._key_seed, self._now
        )
        self.admission = Admission(self._rules)
