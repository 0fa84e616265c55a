"""How many URLs of a registered domain may be admitted an hour, by how many others link to it.

Source: STAR, in H.-T. Lee, D. Leonard, X. Wang and D. Loguinov, "IRLbot: Scaling to 6 Billion Pages
and Beyond" (WWW 2008): the domains to which most other domains link get most, by their rank; all
others the same few. So neither a site of endless pages nor one of endless host names takes the
crawl.

Rule: pure. Domains to which equally many link share the worst of their ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import accumulate
from math import ceil, log, log2
from typing import Final

from xxhash import xxh3_64_intdigest

EXACT: Final = 32
"""Domains that link to another are known one by one up to so many, and counted by a sketch from
then on. Four bytes each."""
_REGISTERS: Final = 128
"""Of a sketch, a byte each: the count is off by 9 % (1.04 / sqrt(128))."""
_VOTER_BYTES: Final = 4
_MOST_RANK: Final = 26  # of a register: there are 25 bits beside those that choose it
_ALPHA: Final = 0.7213 / (1 + 1.079 / _REGISTERS)
_STEPS: Final = 8  # classes of in-degrees in a doubling, from EXACT on

_OF_NETWORK: Final = 16
"""Votes that one network may cast for a domain: many sites share an address, and few of them are a
farm; but a farm of a thousand bought domains is mostly on a few machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRules:
    """STAR's constants, as published."""

    least: int = 10  # URLs a round of a domain of no rank
    most: int = 10_000  # of the first domain
    ranked: int = 10_000  # domains, whose budgets fall from the most to the least
    round_s: float = 3600.0  # guess; not published
    # Of a budget, that are kept for later rounds; of more, a sample.
    kept_rounds: int = 20
    # Hosts of a domain, in all, for each URL a round: from 100 to 100,000 (Common Crawl's limits
    # are 100 to 500,000, also by rank).
    hosts_per_url: int = 10

    def of_rank(self, rank: int) -> int:
        """Return how many URLs a round a domain of *rank* gets, from 1, the best."""
        if rank >= self.ranked:
            return self.least
        return self.most - (self.most - self.least) * (rank - 1) // max(self.ranked - 1, 1)


def voter(domain: str, network: str) -> bytes:
    """Return what *domain* votes as: for itself, or as one of the few voters of its *network*;
    empty: that is not known."""
    of_domain = xxh3_64_intdigest(domain.encode())
    if network:
        of_domain = xxh3_64_intdigest(f"{network} {of_domain % _OF_NETWORK}".encode())
    return (of_domain & 0xFFFFFFFF).to_bytes(_VOTER_BYTES)


def network_of(address: str) -> str:
    """Return the network of an IP *address* as far as one owner is likely: /24, or /48 of IPv6.
    Empty: it is no address."""
    try:
        ip = ip_address(address)
    except ValueError:
        return ""
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip_network((ip, 24 if ip.version == 4 else 48), strict=False))


def with_voter(voters: bytes, vote: bytes) -> bytes:
    """Return *voters* of a domain, one by one or a sketch, with *vote* too: the same if it was
    known.

    Source of the sketch: HyperLogLog (Flajolet and others, 2007)."""
    size = len(voters)
    if size <= EXACT * _VOTER_BYTES:
        at = voters.find(vote)
        while at % _VOTER_BYTES and at > 0:
            at = voters.find(vote, at + 1)
        if at >= 0:
            return voters
        if size < EXACT * _VOTER_BYTES:
            return voters + vote
        registers = bytearray(_REGISTERS + 1)
        for at in range(0, size, _VOTER_BYTES):
            _register(registers, voters[at : at + _VOTER_BYTES])
    else:
        registers = bytearray(voters)
    return bytes(registers) if _register(registers, vote) else voters


def _register(registers: bytearray, vote: bytes) -> bool:
    """Note *vote*. Returns whether it was not known."""
    bits = int.from_bytes(vote)
    at, rest = bits % _REGISTERS, bits // _REGISTERS
    rank = _MOST_RANK - rest.bit_length()
    if registers[at] >= rank:
        return False
    registers[at] = rank
    return True


def count_voters(voters: bytes) -> int:
    """Return how many domains link to one, about."""
    if len(voters) <= EXACT * _VOTER_BYTES:
        return len(voters) // _VOTER_BYTES
    registers = voters[:_REGISTERS]
    empty = registers.count(0)
    # By value, which takes a tenth of the time that one by one does.
    held = sum([registers.count(value) * 2.0**-value for value in range(_MOST_RANK + 1)])
    estimate = _ALPHA * _REGISTERS**2 / held
    if empty and estimate <= 2.5 * _REGISTERS:
        estimate = _REGISTERS * log(_REGISTERS / empty)
    return max(EXACT + 1, round(estimate))


def degree_class(degree: int) -> int:
    """Return the class of domains to which about as many link, from 0, none."""
    return degree if degree <= EXACT else EXACT + ceil(_STEPS * log2(degree / EXACT))


@dataclass(frozen=True, slots=True)
class RankTable:
    """The ranks of domains by their classes, as of some moment."""

    ranks: tuple[int, ...]  # by class, the worst rank that one of it has

    @classmethod
    def of(cls, domains: Sequence[int], share: float = 1.0) -> RankTable:
        """Return the ranks if there are so many *domains* of each class, from class 0 on, and these
        are a *share* of all."""
        worse = list(accumulate(reversed(domains)))
        return cls(tuple(ceil(each / share) for each in reversed(worse)))

    def rank(self, number: int) -> int:
        """Return the rank of a domain of class *number*, from 1."""
        if number >= len(self.ranks):
            return 1
        return max(self.ranks[number], 1)
