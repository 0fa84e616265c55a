"""What the crawl may reach: known for good only when the seeds are.

Rule: before the seeds are read nothing of loopback is open; a seed that is literally loopback
opens loopback for this crawl, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable

from crawler import rules
from crawler.core.arguments import Arguments
from crawler.core.config import Config
from crawler.core.types import Candidate
from crawler.core.url import fetch_form, split
from crawler.policy.addresses import AddressRules, Place, place_of_host
from crawler.policy.admission import Admission
from crawler.policy.refusal import Refusal


class Doors:
    def __init__(self, config: Config, arguments: Arguments, key_seed: int) -> None:
        self._config = config
        self._arguments = arguments
        self._key_seed = key_seed
        self._hosts: frozenset[str] = frozenset()
        self.open_for([])

    def open_for(self, urls: Iterable[str]) -> None:
        """Take *urls*, all of the seeds as fetch forms, as where the crawl begins."""
        self._open(frozenset(split(url).hostname for url in urls))

    def open_also(self, text: str) -> None:
        """Where a spider of its own begins."""
        url = fetch_form(text)
        if url is not None and split(url).hostname not in self._hosts:
            self._open(self._hosts | {split(url).hostname})

    def _open(self, hosts: frozenset[str]) -> None:
        self._hosts = hosts
        self._addresses = AddressRules(
            allow_public=bool(self._config.identity.contact),
            allow_loopback=any(place_of_host(host) is Place.LOOPBACK for host in hosts),
            inside=self._config.fetch.allow_inside,
        )
        self.admission = Admission(
            rules.admission_rules(
                self._config, self._arguments, self._addresses, hosts, self._key_seed
            )
        )

    def admits(self, ip: str, hostname: str) -> bool:
        """May *ip*, which *hostname* led to, be connected to?"""
        return self._addresses.admits(ip, hostname)

    def robots(self, url: str, authority: str) -> Candidate | Refusal:
        return self.admission.robots(url, None, authority)
