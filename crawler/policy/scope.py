"""Which URLs belong to this crawl.

Rule: the user's own words decide, a denial over an allowance. A URL that a person named, as
a seed or in a spider's code, is such a word too: it needs no allowance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from crawler.core.choices import Scope as ScopeMode
from crawler.core.domains import registered_domain
from crawler.policy.refusal import Reason, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The bounds of one crawl. Of seeds, only what `host_refusal` needs: their hostnames."""

    mode: ScopeMode = ScopeMode.ANY
    seeds: frozenset[str] = frozenset()
    allow: tuple[re.Pattern[str], ...] = ()  # if any, one must be found in the URL
    deny: tuple[re.Pattern[str], ...] = ()
    max_depth: int | None = None  # hops from a seed; None: no limit
    denied_types: frozenset[str] = frozenset()  # by the end of the path, in lower case
    _bounds: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bounds = frozenset(self._unit(hostname) for hostname in self.seeds)
        object.__setattr__(self, "_bounds", bounds)

    def wider(self, hostnames: Iterable[str]) -> Scope:
        """The same, with these seeds too. Of those before only the bounds are kept: they are not
        looked at again, so 100,000 cost a copy of a set."""
        wider = replace(self, seeds=frozenset(hostnames))
        object.__setattr__(wider, "_bounds", self._bounds | wider._bounds)
        return wider

    def host_refusal(self, hostname: str) -> Refusal | None:
        """Judge a hostname, seeds' own among them."""
        if self.mode is ScopeMode.ANY or self._unit(hostname) in self._bounds:
            return None
        return Refusal(Reason.OUT_OF_SCOPE, f"{hostname} is no {self.mode} of a seed")

    def refusal(self, url: str, path: str, depth: int, named: bool) -> Refusal | None:
        """Judge a URL whose host is in scope. *named*: by a person. Else `allow=/blog/` could
        not begin at the home page, and a spider could not fetch the pictures it asks for."""
        if self.max_depth is not None and depth > self.max_depth:
            return Refusal(Reason.MAX_DEPTH, f"depth {depth} is over {self.max_depth}")
        if self.deny and (found := _first(self.deny, url)):
            return Refusal(Reason.DENIED, f"the pattern is {found.pattern}")
        if named:
            return None
        if self.allow and not _first(self.allow, url):
            return Refusal(Reason.NOT_ALLOWED, " or ".join(each.pattern for each in self.allow))
        # Without a dot in its last segment, what follows is a whole path or holds a "/": no type.
        file_type = path[path.rfind(".") + 1 :].lower()
        if file_type in self.denied_types:
            return Refusal(Reason.FILE_TYPE, f".{file_type}")
        return None

    def _unit(self, hostname: str) -> str:
        if self.mode is ScopeMode.DOMAIN:
            return registered_domain(hostname)
        # Most sites redirect one of the two to the other: a crawl of one name would end there.
        return hostname.rstrip(".").removeprefix("www.")


def _first(patterns: tuple[re.Pattern[str], ...], url: str) -> re.Pattern[str] | None:
    for each in patterns:
        if each.search(url):
            return each
    return None
