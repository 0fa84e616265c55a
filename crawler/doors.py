"""What the crawl may reach: known for good only when it is known where it begins.

Rule: a beginning that is literally loopback opens loopback for this crawl, across its restarts,
and nothing else does. As long as the seeds are not read, nothing may be leased: a page fetched
before would have its links judged by bounds that are not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crawler import rules
from crawler.core.arguments import Arguments
from crawler.core.config import Config
from crawler.core.types import Candidate
from crawler.core.url import fetch_form, split
from crawler.policy.addresses import AddressRules, Place, place_of_host
from crawler.policy.admission import Admission
from crawler.policy.refusal import Refusal
from crawler.scheduler import keys
from crawler.scheduler.ports import OrderedStore

LOOPBACK: Final = keys.named(keys.DOORS, "loopback")


class Doors:
    def __init__(
        self,
        config: Config,
        arguments: Arguments | None,
        store: OrderedStore,
        key_seed: int,
    ) -> None:
        """*arguments*: of a spider that has seeds. None: it begins wherever its code says."""
        self._config = config
        # Without arguments the scope is any: the spider's own code is its bound.
        self._arguments = arguments or Arguments(seeds="none")
        self._store = store
        self._key_seed = key_seed
        self._loopback = store.get(LOOPBACK) is not None
        self._lent = False
        self._hosts: frozenset[str] = frozenset()
        self.known = arguments is None
        self._hang()

    def open_for(self, urls: Iterable[str]) -> None:
        """Take *urls*, all of the seeds as fetch forms, as where the crawl begins."""
        self._hosts = frozenset(split(url).hostname for url in urls)
        if any(place_of_host(host) is Place.LOOPBACK for host in self._hosts):
            self._open_loopback()
        self._lent = False
        self.known = True
        self._hang()

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
            allow_public=bool(self._config.identity.contact),
            allow_loopback=self._loopback or self._lent,
            inside=self._config.fetch.allow_inside,
        )
        self.admission = Admission(
            rules.admission_rules(
                self._config, self._arguments, self._addresses, self._hosts, self._key_seed
            )
        )
