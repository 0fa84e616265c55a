"""Which addresses one crawl may contact."""

from __future__ import annotations

from dataclasses import dataclass, field
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

from crawler.model.url import is_ip, split
from crawler.policy.name_set import NameSet
from crawler.policy.refusal import Reason, Refusal

# Addresses: public, loopback, or inside (a private network, or none at all), by the registries of
# special-purpose addresses (IANA, RFC 6890). A name is public until it is resolved; then its
# address is judged again, so that a public name cannot lead inside.

Network = IPv4Network | IPv6Network


class AddressKind(StrEnum):
    """The kind of network that an address belongs to."""

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
"""All that IANA has allocated. Unique-local, link-local, multicast and the rest lie outside."""

_CARRIES_IPV4: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64, RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056
)
"""IPv6 networks whose addresses hold an IPv4 address, and how many bits follow it."""


@lru_cache(maxsize=4096)  # called at each fetch of a host that is an address: 17 us a call
def address_kind(ip: str) -> AddressKind:
    """Return the kind of *ip*. Text that is no address counts as INSIDE, so that an error admits
    nothing."""
    try:
        address = ip_address(ip.partition("%")[0])  # a zone ("fe80::1%eth0") changes nothing
    except ValueError:
        return AddressKind.INSIDE
    if isinstance(address, IPv6Address):
        return _place_of_ipv6(address)
    return _place_of_ipv4(address)


def host_kind(hostname: str) -> AddressKind:
    """Return the kind of a hostname's address, as far as it is known without resolving it."""
    if is_ip(hostname):
        return address_kind(hostname.strip("[]"))
    name = hostname.rstrip(".")
    local = name == "localhost" or name.endswith(".localhost")  # RFC 6761
    return AddressKind.LOOPBACK if local else AddressKind.PUBLIC


MOST_ORIGINS: Final = 1000
"""Loopback origins that are kept by name, 200 bytes each: of seeds, and of start requests for the
next start of their spider."""

Origin = tuple[str, int]
"""A hostname without brackets and last dot, and a port."""


def loopback_origin(url: str) -> Origin | None:
    """Return the host and port of *url*, a fetch form, or None unless its host is literally
    loopback."""
    parts = split(url)
    is_loopback = host_kind(parts.hostname) is AddressKind.LOOPBACK
    return (_bare_name(parts.hostname), parts.port) if is_loopback else None


def origin_text(origin: Origin) -> str:
    hostname, port = origin
    return f"{hostname}:{port}"


def _bare_name(hostname: str) -> str:
    return hostname.strip("[]").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedAddresses:
    """The addresses that one crawl may contact."""

    allow_public: bool  # if there is a contact address
    opened: frozenset[Origin] = frozenset()  # loopback that a person named
    listed: NameSet = field(default_factory=NameSet, repr=False)  # by `origin_text`: so did a list
    inside: tuple[Network, ...] = ()  # admitted though not public

    def refusal(self, hostname: str, port: int) -> Refusal | None:
        """Judge the host of a URL."""
        place = host_kind(hostname)
        if place is AddressKind.PUBLIC:
            if self.allow_public:
                return None
            return Refusal(Reason.NO_CONTACT, f"{hostname} is not loopback")
        if self._is_opened(hostname, port):
            return None
        if self._is_admitted_inside(hostname if is_ip(hostname) else "127.0.0.1"):
            return None
        where = f"{hostname}:{port}" if place is AddressKind.LOOPBACK else hostname
        return Refusal(Reason.INSIDE_ADDRESS, f"{where} is not public but {place}")

    def admits(self, ip: str, hostname: str, port: int) -> bool:
        """Return whether an address that *hostname* resolved to may be contacted. Loopback must be
        opened by that name: a public name that leads there may be an attack (DNS rebinding)."""
        place = address_kind(ip)
        if place is AddressKind.PUBLIC:
            return self.allow_public
        if place is AddressKind.LOOPBACK and self._is_opened(hostname, port):
            return True
        return self._is_admitted_inside(ip)

    def _is_opened(self, hostname: str, port: int) -> bool:
        origin = _bare_name(hostname), port
        return origin in self.opened or origin_text(origin) in self.listed

    def _is_admitted_inside(self, ip: str) -> bool:
        try:
            address = ip_address(ip.strip("[]").partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self.inside)


def _place_of_ipv4(address: IPv4Address) -> AddressKind:
    if any(address in network for network in _LOOPBACK):
        return AddressKind.LOOPBACK
    return (
        AddressKind.INSIDE if any(address in network for network in _INSIDE) else AddressKind.PUBLIC
    )


def _place_of_ipv6(address: IPv6Address) -> AddressKind:
    if any(address in network for network in _LOOPBACK):
        return AddressKind.LOOPBACK
    for network, bits in _CARRIES_IPV4:
        if address in network:
            carried = IPv4Address(int(address) >> bits & 0xFFFF_FFFF)
            public = _place_of_ipv4(carried) is AddressKind.PUBLIC
            return AddressKind.PUBLIC if public else AddressKind.INSIDE
    if address not in _GLOBAL_UNICAST or any(address in network for network in _INSIDE):
        return AddressKind.INSIDE
    return AddressKind.PUBLIC
