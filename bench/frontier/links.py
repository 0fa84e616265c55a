"""The links that clients find: of 90 characters, 100 a host, 40 a page, 30 of them to its own host.

Rule: a link is two numbers until it is needed. The same numbers are the same URL in every client,
and no two clients find the same URL as new.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import shake_128
from itertools import islice
from typing import Final, NamedTuple

URL_BYTES: Final = 90
URLS_A_HOST: Final = 100
AT_HOME: Final = 30
ABROAD: Final = 10
ONE_NEW_IN: Final = 9  # on the web 8 of 9 links are known already


class Link(NamedTuple):
    host: int
    number: int


class Client(NamedTuple):
    """Which of how many clients."""

    number: int
    of: int


def domain_of(link: Link) -> str:
    return f"host{link.host:07d}.example"


def url_of(link: Link) -> str:
    """Its end cannot be foretold, so that no way of storing it looks better than it is."""
    stem = f"https://www.{domain_of(link)}/archive/{link.number}-"
    return stem + shake_128(stem.encode()).hexdigest(URL_BYTES)[: URL_BYTES - len(stem)]


class Finder:
    """What one client finds on its pages."""

    def __init__(self, hosts: int, client: Client) -> None:
        self._hosts = hosts
        self._client = client
        self._dice = random.Random(client.number)
        self._found = [0] * hosts

    def new(self, count: int) -> Iterator[Link]:
        """URLs never found before."""
        return (self._fresh(host) for host in islice(self._abroad_and_at_home(), count))

    def mixed(self, count: int) -> Iterator[Link]:
        """One in nine never found before, the others found by this client."""
        for at, host in enumerate(islice(self._abroad_and_at_home(), count)):
            if at % ONE_NEW_IN == 0 or not self._found[host]:
                yield self._fresh(host)
            else:
                yield self._link(host, self._dice.randrange(self._found[host]))

    def _abroad_and_at_home(self) -> Iterator[int]:
        while True:
            yield from [self._dice.randrange(self._hosts)] * AT_HOME
            for _ in range(ABROAD):
                yield self._dice.randrange(self._hosts)

    def _fresh(self, host: int) -> Link:
        self._found[host] += 1
        return self._link(host, self._found[host] - 1)

    def _link(self, host: int, number: int) -> Link:
        return Link(host, number * self._client.of + self._client.number)


def even(hosts: int, count: int, client: Client) -> Iterator[Link]:
    """This client's part of *count* new URLs, as many of each host, in turns of the hosts."""
    return (Link(at % hosts, at // hosts) for at in range(client.number, count, client.of))
