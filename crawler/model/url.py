"""The form of a URL that is fetched, and its parts.

Rule: parsing is WHATWG's, by ada, as browsers do it. Links that are plain already, nine in
ten, skip ada: a pattern proves that it would change nothing. A fetch form is ASCII, http or
https, with a path, without fragment, user name or password, and never has the default port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from hashlib import sha256
from string import ascii_letters, digits
from types import MappingProxyType
from typing import Final, NamedTuple

import ada_url
import xxhash
from publicsuffixlist import PublicSuffixList

from crawler.model.choices import HostUnit
from crawler.model.types import HostKey

MAX_TEXT_CHARS: Final = 4096
"""Longer texts are not parsed: twice the longest URL we fetch, and punycode takes quadratic
time (1.5 ms at this length, 6 ms at twice this)."""

# What ada leaves alone in a path and in a query, short of brackets and quotes.
_PLAIN: Final = r"A-Za-z0-9!$%&()*+,\-.;=@_~"
# A segment beginning with a dot, or a dot in disguise, may be a dot segment: ada's work.
_SEGMENT: Final = r"(?!\.|%2[eE])"
_REST: Final = rf"(?:/{_SEGMENT}[{_PLAIN}:]*+)*+(?:\?[{_PLAIN}:/?]*+)?+"
# Punycode labels and other numeric hosts have rules of their own: ada's work.
_NAME: Final = r"(?:(?!xn--)[a-z0-9\-]++\.)++[a-z]{2,}+"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# Never the default of either scheme; above 64999 it is ada's work.
_PORT: Final = ":(?!(?:80|443)/)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3})(?=/)"
_HOST: Final = rf"(?:{_NAME}|(?:{_BYTE}\.){{3}}{_BYTE})(?:{_PORT})?+"

_is_whole = re.compile(rf"https?://{_HOST}(?=/){_REST}").fullmatch
_is_rooted = re.compile(rf"(?=/)(?!//){_REST}").fullmatch
_is_relative = re.compile(rf"((?:\.\./)*+){_SEGMENT}[{_PLAIN}]++{_REST}").fullmatch

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HTTP: Final = ("http://", "https://")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Base(NamedTuple):
    """A page's URL, cut where links are joined to it."""

    authority: str
    directory: str  # of its path, "/" at both ends


class UrlParts(NamedTuple):
    """A fetch form taken apart."""

    scheme: str
    hostname: str  # an IPv6 address keeps its brackets
    port: int  # the scheme's own if the URL names none
    authority: str  # "scheme://host[:port]", the default port left out: whose robots.txt it is
    path: str  # begins with "/"
    query: str  # without "?"; empty if there is none


def fetch_form(text: str, base: str | None = None) -> str | None:
    """The URL to fetch for *text*, read against *base*, itself a URL.
    None: not a URL, or not http(s)."""
    head, mark, _ = text.partition("#")
    if base is None:
        return head if _is_whole(head) else _parsed(head + mark)
    if _is_rooted(head):
        start = _cut(base)
        return start.authority + head if start else None
    if _is_whole(head):
        return head
    if relative := _is_relative(head):
        start = _cut(base)
        return _climbed(start, head, relative.end(1)) if start else None
    # The mark stays: a space before it belongs to the URL, one at the end does not.
    return _parsed(head + mark, base)


def split(url: str) -> UrlParts:
    """The parts of a fetch form."""
    authority = authority_of(url)
    scheme, _, host = authority.partition("://")
    hostname, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):  # the colons of "[::1]" begin no port
        hostname, port = host, ""
    path, _, query = url[len(authority) :].partition("?")
    return UrlParts(
        scheme, hostname, int(port) if port else _DEFAULT_PORTS[scheme], authority, path, query
    )


def authority_of(url: str) -> str:
    """What comes before the path of a fetch form."""
    return url[: url.index("/", 8)]  # 8: past "http://" and into the host


def _parsed(text: str, base: str | None = None) -> str | None:
    if len(text) > MAX_TEXT_CHARS:
        return None
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)  # what browsers read in a lone surrogate's place
    try:
        url = ada_url.normalize_url(text) if base is None else ada_url.join_url(base, text)
    except ValueError:
        return None
    if not url.startswith(_HTTP):
        return None
    return _without_credentials(url.partition("#")[0])


def _without_credentials(url: str) -> str:
    if "@" not in url:
        return url
    authority = authority_of(url)
    scheme, _, host = authority.partition("://")
    return f"{scheme}://{host.rpartition('@')[2]}{url[len(authority) :]}"


@lru_cache(maxsize=256)  # a page asks 40 times in a row for the same one
def _cut(base: str) -> _Base | None:
    url = _parsed(base)
    if url is None:
        return None
    authority = authority_of(url)
    path = url[len(authority) :].partition("?")[0]
    return _Base(authority, path[: path.rindex("/") + 1])


def _climbed(base: _Base, text: str, up_chars: int) -> str:
    if not up_chars:
        return base.authority + base.directory + text
    above = base.directory.rsplit("/", 1 + up_chars // len("../"))[0]  # the root has no parent
    return f"{base.authority}{above}/{text[up_chars:]}"


# Which names are one site's, and which are one unit of politeness.
#
# Rule: the public suffix list is the one bundled with publicsuffixlist, its private part
# included ("a.github.io" and "b.github.io" are two owners). Nothing is fetched; the file is
# read once, when first needed.


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


# Query parameters that follow the reader about and never choose what a page shows.
#
# Rule: exact names of one vendor's click or campaign marks, those that privacy tools agree on.
# A name that some site uses for content ("ref", "source", "mc") is not here. The list is our
# own: none of the published ones, whose licences differ from ours, was copied.

_NAMES: Final = """
gclid gclsrc dclid gbraid wbraid srsltid _ga _gl
fbclid igshid igsh
msclkid twclid ttclid li_fat_id epik
yclid ysclid _openstat
mc_cid mc_eid mkt_tok
_hsenc _hsmi __hstc __hssc __hsfp hsctatracking
oly_anon_id oly_enc_id vero_id vero_conv rb_clickid s_cid wickedid irclickid
ml_subscriber ml_subscriber_hash _branch_match_id _kx
bsft_aaid bsft_clkid bsft_ek bsft_eid bsft_mid bsft_mime_type bsft_tv bsft_uid
mtm_campaign mtm_cid mtm_content mtm_group mtm_keyword mtm_medium mtm_placement mtm_source
pk_campaign pk_cid pk_content pk_keyword pk_kwd pk_medium pk_source
itm_campaign itm_content itm_medium itm_source itm_term
"""
TRACKING_NAMES: Final = frozenset(_NAMES.split())
"""In lower case. By line: Google, Meta, other advertisers, Yandex, mail campaigns, HubSpot,
affiliate and mail networks (2), Blueshift, Matomo, Matomo under its old name, inner campaigns."""

TRACKING_PREFIX: Final = "utm_"
"""Its members are coined freely (utm_id, utm_social, utm_brand), and all mean a campaign."""


def is_tracking(name: str) -> bool:
    """Is *name*, of a query parameter, one of these?"""
    name = name.lower()
    return name in TRACKING_NAMES or name.startswith(TRACKING_PREFIX)


# The form of a URL that is compared, and its key.
#
# Rule: this form is never fetched. Each rule below names what it may merge; those that could
# merge different pages are off until a setting turns them on.


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
