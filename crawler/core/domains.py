"""Which names are one site's, and which are one unit of politeness.

Rule: the public suffix list is the one bundled with publicsuffixlist, its private part
included ("a.github.io" and "b.github.io" are two owners). Nothing is fetched; the file is
read once, when first needed.
"""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha256

from publicsuffixlist import PublicSuffixList

from crawler.core.choices import HostUnit
from crawler.core.types import HostKey


@lru_cache(maxsize=16_384)  # a look-up costs 5 us, an entry 250 bytes
def registered_domain(hostname: str) -> str:
    """The part of *hostname* that somebody registered: "a.b.example.co.uk" -> "example.co.uk".
    IP addresses, public suffixes and names of one label are their own."""
    name = hostname.rstrip(".")
    if is_ip(name):
        return name
    return _suffixes().privatesuffix(name) or name


def host_key(hostname: str, unit: HostUnit) -> HostKey:
    """The unit of politeness that *hostname* belongs to. "example.com." is "example.com":
    the two names reach one server."""
    if unit is HostUnit.DOMAIN:
        return HostKey(registered_domain(hostname))
    return HostKey(hostname.rstrip("."))


def is_ip(hostname: str) -> bool:
    """Is it an IP address, an IPv6 one with or without brackets? No name that ada lets pass
    has a colon, or a number as its last label."""
    return ":" in hostname or hostname.rpartition(".")[2].isdigit()


def digest_of_list(text: bytes) -> str:
    """Of its rules: a version that brings nothing but a new date is the same list."""
    lines = (line.strip() for line in text.splitlines())
    listed = b"\n".join(line for line in lines if line and not line.startswith(b"//"))
    return sha256(listed).hexdigest()[:8]


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()
