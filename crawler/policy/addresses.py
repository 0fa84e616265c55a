"""Which addresses may be contacted.

Rule: an address is public, loopback, or inside (somebody's own network, or no network at
all), by the registries of special-purpose addresses (IANA, RFC 6890). A name is public until
it is resolved; then its address is judged again, so that a public name cannot lead inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import Final

from crawler.core.domains import is_ip
from crawler.core.url import split
from crawler.policy.refusal import Reason, Refusal

Network = IPv4Network | IPv6Network


class Place(StrEnum):
    """Where an address is."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    INSIDE = "inside"


_LOOPBACK: Final[tuple[Network, ...]] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_INSIDE: Final[tuple[Network, ...]] = (
    IPv4Network("0.0.0.0/8"),  # "this network"; 0.0.0.0 reaches the machine itself
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # carrier-grade NAT, RFC 6598
    IPv4Network("168.63.129.16/32"),  # a public address, but a cloud's host agent answers on it
    IPv4Network("169.254.0.0/16"),  # link-local, and the clouds' metadata service
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.0.0.0/24"),  # protocol assignments
    IPv4Network("192.0.2.0/24"),  # documentation
    IPv4Network("192.88.99.0/24"),  # 6to4 relays, withdrawn by RFC 7526
    IPv4Network("192.168.0.0/16"),
    IPv4Network("198.18.0.0/15"),  # benchmarks
    IPv4Network("198.51.100.0/24"),  # documentation
    IPv4Network("203.0.113.0/24"),  # documentation
    IPv4Network("224.0.0.0/3"),  # multicast, reserved, broadcast
    IPv6Network("2001::/23"),  # protocol assignments, Teredo among them
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation
)

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All that IANA has given out. Unique-local, link-local, multicast and the rest lie outside."""

_CARRIES_IPV4: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64, RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056
)
"""IPv6 networks whose addresses end up at an IPv4 address, and how many bits follow it."""


@lru_cache(maxsize=4096)  # asked at each fetch of a host that is an address: 17 us each time
def place_of_ip(ip: str) -> Place:
    """Where *ip* is. What cannot be read is inside: nobody is let in by a slip."""
    try:
        address = ip_address(ip.partition("%")[0])  # a zone ("fe80::1%eth0") changes nothing
    except ValueError:
        return Place.INSIDE
    if isinstance(address, IPv6Address):
        return _place_of_ipv6(address)
    return _place_of_ipv4(address)


def place_of_host(hostname: str) -> Place:
    """Where a hostname is, as far as can be said without resolving it."""
    if is_ip(hostname):
        return place_of_ip(hostname.strip("[]"))
    name = hostname.rstrip(".")
    local = name == "localhost" or name.endswith(".localhost")  # RFC 6761
    return Place.LOOPBACK if local else Place.PUBLIC


Origin = tuple[str, int]
"""A hostname without brackets and last dot, and a port."""


def loopback_origin(url: str) -> Origin | None:
    """The host and port of *url*, a fetch form, if its host is literally loopback."""
    parts = split(url)
    is_loopback = place_of_host(parts.hostname) is Place.LOOPBACK
    return (_plain(parts.hostname), parts.port) if is_loopback else None


def _plain(hostname: str) -> str:
    return hostname.strip("[]").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRules:
    """What one crawl may contact."""

    allow_public: bool  # the user has said who they are
    opened: frozenset[Origin] = frozenset()  # loopback that a person has named
    inside: tuple[Network, ...] = ()  # admitted though not public

    def refusal(self, hostname: str, port: int) -> Refusal | None:
        """Judge the host of a URL."""
        place = place_of_host(hostname)
        if place is Place.PUBLIC:
            if self.allow_public:
                return None
            return Refusal(Reason.NO_CONTACT, f"{hostname} is not loopback")
        if (_plain(hostname), port) in self.opened:
            return None
        if self._named(hostname if is_ip(hostname) else "127.0.0.1"):
            return None
        where = f"{hostname}:{port}" if place is Place.LOOPBACK else hostname
        return Refusal(Reason.INSIDE_ADDRESS, f"{where} is not public but {place}")

    def admits(self, ip: str, hostname: str, port: int) -> bool:
        """Judge an address that *hostname* resolved to. Only what was opened by its name may be
        loopback: a public name that leads there may be an attack (DNS rebinding)."""
        place = place_of_ip(ip)
        if place is Place.PUBLIC:
            return self.allow_public
        if place is Place.LOOPBACK and (_plain(hostname), port) in self.opened:
            return True
        return self._named(ip)

    def _named(self, ip: str) -> bool:
        try:
            address = ip_address(ip.strip("[]").partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self.inside)


def _place_of_ipv4(address: IPv4Address) -> Place:
    if any(address in network for network in _LOOPBACK):
        return Place.LOOPBACK
    return Place.INSIDE if any(address in network for network in _INSIDE) else Place.PUBLIC


def _place_of_ipv6(address: IPv6Address) -> Place:
    if any(address in network for network in _LOOPBACK):
        return Place.LOOPBACK
    for network, bits in _CARRIES_IPV4:
        if address in network:
            carried = IPv4Address(int(address) >> bits & 0xFFFF_FFFF)
            public = _place_of_ipv4(carried) is Place.PUBLIC
            return Place.PUBLIC if public else Place.INSIDE
    if address not in _GLOBAL_UNICAST or any(address in network for network in _INSIDE):
        return Place.INSIDE
    return Place.PUBLIC
