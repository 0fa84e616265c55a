"""What an operator's word is about: a host, a domain with all hosts below it, or URLs.

Rule: in a pattern `*` stands for any text, in the host for any text of a host. There are no regular
expressions, so that no pattern takes more than linear time.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import printable
from typing import Final
from urllib.parse import quote

from crawler.model.types import HostKey
from crawler.model.url import fetch_form, split

WANT: Final = (
    "want a host (www.example.org), a domain with all hosts below it (*.example.org), a URL, or a"
    " pattern with * for any text (example.org/cart/*)"
)
_MAX_CHARS: Final = 4096
_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """The URLs that an operator means: those of one host, of one domain, or those that a pattern
    matches."""

    text: str  # as it was written, without white space at its ends
    host: str | None = None
    domain: str | None = None
    _schemes: tuple[str, ...] = _SCHEMES
    _hosts: tuple[str, ...] = ()  # the texts between the stars of its host
    _port: str | None = None  # None: any
    _rests: tuple[str, ...] = ()  # the texts between the stars of its path and query

    @property
    def is_exact(self) -> bool:
        """Whether it is one URL, perhaps with either scheme."""
        return len(self._hosts) == len(self._rests) == 1

    def matches(self, url: str) -> bool:
        """Return whether *url*, a fetch form, is one of those meant. O(n)."""
        parts = split(url)
        if not self.may_match_host(parts.hostname):
            return False
        if self.host is not None or self.domain is not None:
            return True
        return (
            parts.scheme in self._schemes
            and (self._port is None or self._port == str(parts.port))
            and _matches(self._rests, url[len(parts.authority) :])
        )

    def may_concern(self, host: HostKey) -> bool:
        """Return whether URLs of *host*, a host or registered domain, may be among those meant."""
        name = self.host or self.domain
        return self.may_match_host(host) or name is None or name.endswith(f".{host}")

    def may_match_host(self, hostname: str) -> bool:
        """Return whether URLs of *hostname* may be among those meant."""
        name = hostname.rstrip(".")
        if self.host is not None:
            return name == self.host
        if self.domain is not None:
            return name == self.domain or name.endswith(f".{self.domain}")
        return _matches(self._hosts, name)


def read_target(text: str) -> UrlTarget:
    """Return what *text* means. Raises ValueError with the reason."""
    text = text.strip()
    if not text or len(text.split()) != 1 or len(text) > _MAX_CHARS:
        raise ValueError(f"{text[:80]!r} is no target: {WANT}")
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "", text
    if scheme and scheme.lower() not in (*_SCHEMES, "*"):
        raise ValueError(
            f"{text[:80]!r} has the scheme {scheme[:20]}: only http and https are fetched"
        )
    authority, slash, path = rest.partition("/")
    if not (slash or mark):
        if authority.startswith("*.") and "*" not in authority[2:]:
            return UrlTarget(text, domain=_host(authority[2:], text))
        if "*" not in authority and _port(authority) is None:
            return UrlTarget(text, host=_host(authority, text))
    if not authority.strip("*.") and not path.strip("*"):
        raise ValueError(f"{text[:80]!r} means all URLs: {WANT}")
    if "#" in path:
        raise ValueError(
            f"{text[:80]!r} has a fragment, which no request has: leave out what follows #"
        )
    schemes = (scheme.lower(),) if scheme and scheme != "*" else _SCHEMES
    port = _port(authority)
    hosts = authority if port is None else authority[: -len(port) - 1]
    rests = f"/{path}" if slash else "/*"
    if "*" not in authority:
        hosts = _host(hosts, text)
        if "*" not in rests and (url := fetch_form(f"https://{hosts}{rests}")):
            rests = url[len(split(url).authority) :]
    elif not hosts.isascii():
        raise ValueError(f"{text[:80]!r}: write a host with * in its ASCII form (xn--...)")
    return UrlTarget(
        text,
        _schemes=schemes,
        _hosts=tuple(hosts.lower().split("*")),
        _port=port,
        _rests=tuple(quote(rests, safe=printable).split("*")),
    )


def _host(name: str, text: str) -> str:
    """Return *name* as it stands in fetch forms."""
    is_name = bool(name.strip(".")) and (":" not in name or name.startswith("["))
    url = fetch_form(f"http://{name}/") if is_name else None
    if url is None or split(url).path != "/":
        raise ValueError(f"{text[:80]!r} is no target: {WANT}")
    return split(url).hostname.rstrip(".")


def _port(authority: str) -> str | None:
    """Return the port that *authority* names, or None."""
    _, colon, port = authority.rpartition(":")
    return port if colon and port.isdecimal() and port.isascii() else None


def _matches(parts: tuple[str, ...], text: str) -> bool:
    """Return whether *text* is *parts* with any text between them."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in parts[1:-1]:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
