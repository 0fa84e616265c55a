"""The form of a URL that is compared, and its key.

Rule: this form is never fetched. Each rule below names what it may merge; those that could
merge different pages are off until a setting turns them on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from string import ascii_letters, digits
from types import MappingProxyType
from typing import Final

import xxhash

from crawler.core.tracking import is_tracking
from crawler.core.url import UrlParts, split


class Rule(StrEnum):
    """What is done to a URL before it is compared."""

    PERCENT = "percent"
    DOT = "dot"
    SPACE = "space"
    EMPTY = "empty"
    TRACKING = "tracking"
    SORT = "sort"
    SESSION = "session"
    SLASH = "slash"
    WWW = "www"
    HTTPS = "https"


MERGES: Final = MappingProxyType(
    {
        Rule.PERCENT: "/%7euser and /~user; /a%2fb and /a%2Fb; ?a[]=1 and ?a%5B%5D=1",
        Rule.DOT: "example.com. and example.com",
        Rule.SPACE: "?q=a%20b and ?q=a+b",
        Rule.EMPTY: "/page? and /page; ?a=1& and ?a=1",
        Rule.TRACKING: "/page?utm_source=news and /page",
        Rule.SORT: "?b=2&a=1 and ?a=1&b=2 (values of one name keep their order)",
        Rule.SESSION: "/page;jsessionid=1A2B and /page",
        Rule.SLASH: "/news/ and /news",
        Rule.WWW: "www.example.com and example.com",
        Rule.HTTPS: "http://example.com/ and https://example.com/",
    }
)
"""Every rule, by an example of the URLs it takes for one."""

ALWAYS: Final = frozenset({Rule.PERCENT, Rule.DOT, Rule.SPACE, Rule.EMPTY})
USUAL: Final = frozenset({Rule.TRACKING, Rule.SORT})
_REACHES_PLAIN: Final = frozenset({Rule.SESSION, Rule.SLASH, Rule.WWW, Rule.HTTPS})


@dataclass(frozen=True, slots=True)
class CanonicalRules:
    """The rules of one crawl. Another choice gives other keys: it is fixed when a crawl begins."""

    on: frozenset[Rule] = USUAL
    plain_stays: bool = field(init=False)  # no rule of these changes a URL without "?" and "%"

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", self.on | ALWAYS)
        object.__setattr__(self, "plain_stays", not self.on & _REACHES_PLAIN)


# Nothing for the rules that are always on: no "?", no "%", no dot at the host's end.
_is_plain = re.compile(r"https?://[^/:]*+(?<!\.)[:/][A-Za-z0-9\-._~!$&'()*+,;=:@/]*+").fullmatch

_UNRESERVED: Final = frozenset("-._~" + digits + ascii_letters)
# A stray "%" is encoded too, or "%%34%31" would become "%41" now and "A" the next time.
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")

# 22: 128 random bits in base 64. Anything shorter may choose what the page shows.
_SESSION_VALUE: Final = re.compile(r"[0-9A-Za-z_\-]{22,}")
_SESSION_NAME: Final = re.compile(r"jsessionid|phpsessid|aspsessionid[a-z]{8}|cfid|cftoken", re.I)
_MAYBE_SESSION_NAME: Final = re.compile(r"sid|sessid|sessionid|session_id", re.I)
_SESSION_PATH: Final = re.compile(
    r";jsessionid=[^/;]*"  # Java servlets
    r"|/\((?:[A-Za-z]\([0-9A-Za-z]{24}\))+\)(?=/)",  # ASP.NET, a directory of its own
    re.I,
)


def key_of(canonical_url: str, seed: int) -> int:
    """The unsigned 64-bit key. *seed* is the crawl's secret: who does not know it cannot make
    two URLs collide to hide one."""
    return xxhash.xxh3_64_intdigest(canonical_url.encode(), seed)


def canonical(url: str, rules: CanonicalRules) -> str:
    """The compared form of a fetch form."""
    if rules.plain_stays and _is_plain(url):
        return url
    parts = split(url)
    path = _path(_escaped(parts.path), rules.on)
    query = _query(_escaped(parts.query), rules.on) if parts.query else ""
    return _authority(parts, rules.on) + path + ("?" + query if query else "")


def _authority(parts: UrlParts, on: frozenset[Rule]) -> str:
    scheme, name = parts.scheme, parts.hostname
    port = parts.authority[len(f"{scheme}://{name}") :]
    name = name.rstrip(".") or name
    if Rule.WWW in on:
        # "www.com" is a name of its own.
        while name.startswith("www.") and "." in name[4:]:
            name = name[4:]
    return f"{'http' if Rule.HTTPS in on else scheme}://{name}{port}"


def _path(path: str, on: frozenset[Rule]) -> str:
    if Rule.SESSION in on:
        path = _SESSION_PATH.sub("", path)
    if Rule.SLASH in on:
        path = path.rstrip("/") or "/"
    return path


def _query(query: str, on: frozenset[Rule]) -> str:
    pairs = [pair.partition("=") for pair in query.replace("%20", "+").split("&") if pair]
    if Rule.TRACKING in on:
        pairs = [pair for pair in pairs if not is_tracking(pair[0])]
    if Rule.SESSION in on:
        pairs = [pair for pair in pairs if not _is_session(pair[0], pair[2])]
    if Rule.SORT in on:
        pairs.sort(key=lambda pair: pair[0])
    return "&".join(["".join(pair) for pair in pairs])


def _is_session(name: str, value: str) -> bool:
    if _SESSION_NAME.fullmatch(name):
        return True
    return bool(_MAYBE_SESSION_NAME.fullmatch(name) and _SESSION_VALUE.fullmatch(value))


def _escaped(text: str) -> str:
    return _ESCAPE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    token = found[0]
    if len(token) == 3:
        char = chr(int(token[1:], 16))
        return char if char in _UNRESERVED else token.upper()
    return "".join([f"%{byte:02X}" for byte in token.encode()])
