"""URLs: the form that is fetched, its parts, its registered domain, the form that is compared.

Rule: URLs are parsed as WHATWG says, by ada; nine in ten links match a pattern of links that ada
would not change, and skip it. A fetch form is ASCII, http or https, has a path, and has no
fragment, user name, password or default port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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

# The characters that ada leaves unchanged in a path and in a query, except brackets and quotes.
_PLAIN: Final = r"A-Za-z0-9!$%&()*+,\-.;=@_~"
# A segment that begins with a dot, escaped or not, may be a dot segment: left to ada.
_SEGMENT: Final = r"(?!\.|%2[eE])"
_REST: Final = rf"(?:/{_SEGMENT}[{_PLAIN}:]*+)*+(?:\?[{_PLAIN}:/?]*+)?+"
# Punycode labels and other numeric hosts have their own rules: left to ada.
_NAME: Final = r"(?:(?!xn--)[a-z0-9\-]++\.)++[a-z]{2,}+"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# Never the default port of either scheme; a port above 64999 is left to ada.
_PORT: Final = ":(?!(?:80|443)/)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3})(?=/)"
_HOST: Final = rf"(?:{_NAME}|(?:{_BYTE}\.){{3}}{_BYTE})(?:{_PORT})?+"

_is_whole = re.compile(rf"https?://{_HOST}(?=/){_REST}").fullmatch
_is_address = re.compile(rf"(https?://)?{_NAME}(?<!localhost)").fullmatch
_is_rooted = re.compile(rf"(?=/)(?!//){_REST}").fullmatch
_is_relative = re.compile(rf"((?:\.\./)*+){_SEGMENT}[{_PLAIN}]++{_REST}").fullmatch

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HTTP: Final = ("http://", "https://")
_NO_BASE: Final = ("data:", "javascript:")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Base(NamedTuple):
    """The parts of a page's URL that relative links are joined to."""

    authority: str
    directory: str  # of its path, "/" at both ends


class UrlParts(NamedTuple):
    """The parts of a fetch form."""

    scheme: str
    hostname: str  # an IPv6 address keeps its brackets
    port: int  # the scheme's own if the URL names none
    authority: str  # "scheme://host[:port]" without the default port; one robots.txt each
    path: str  # begins with "/"
    query: str  # without "?"; empty if there is none


def fetch_form(text: str, base: str | None = None) -> str | None:
    """Return the URL to fetch for *text*, read against *base*, itself a URL. Returns None if it is
    not a URL, or not http(s)."""
    head, mark, _ = text.partition("#")
    if base is None:
        return head if _is_whole(head) else _parse(head + mark)
    if _is_rooted(head):
        start = _split_base(base)
        return start.authority + head if start else None
    if _is_whole(head):
        return head
    if relative := _is_relative(head):
        start = _split_base(base)
        return _join_relative(start, head, relative.end(1)) if start else None
    # The "#" stays: a space before it belongs to the URL, one at the end does not.
    return _parse(head + mark, base)


def base_form(text: str, document: str) -> str:
    """Return the base that *text*, as a page at *document* declares it, makes: of any scheme, as
    in browsers (WHATWG HTML, "frozen base URL"), but for what is no URL, data: and javascript:,
    which are ignored."""
    if (url := fetch_form(text, document)) is not None:
        return url
    if len(text) > MAX_TEXT_CHARS:
        return document
    try:
        other = ada_url.join_url(document, _SURROGATE.sub("\ufffd", text))
    except ValueError:
        return document
    return document if other.startswith(_NO_BASE) else other


def plain_form(text: str) -> str | None:
    """Return the fetch form of *text* if it shows at a glance: *text* itself, or the home page of
    the host that it names. None: `fetch_form` has to tell. A host without scheme gets https."""
    if _is_whole(text):
        return text
    if found := _is_address(text):
        return f"{text}/" if found[1] else f"https://{text}/"
    return None


def split(url: str) -> UrlParts:
    """Return the parts of a fetch form."""
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
    """Return what precedes the path of a fetch form."""
    return url[: url.index("/", 8)]  # 8: past "http://" and into the host


def _parse(text: str, base: str | None = None) -> str | None:
    if len(text) > MAX_TEXT_CHARS:
        return None
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)  # as browsers do with a lone surrogate
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


def fetch_forms(texts: Sequence[str], base: str) -> list[str | None]:
    """Return the fetch form of each of *texts*, read against *base*, a URL."""
    start = _split_base(base)
    if start is None or not texts:
        return [fetch_form(text, base) for text in texts]
    from crawler.model import url_scan  # noqa: PLC0415  # it imports numba: 0.4 s

    authority, directory = start.authority, start.authority + start.directory
    rooted, below, whole = url_scan.ROOTED, url_scan.BELOW, url_scan.WHOLE
    found: list[str | None] = []
    for text, kind in zip(texts, url_scan.kinds_of(texts), strict=True):
        if kind == rooted:
            found.append(authority + text)
        elif kind == below:
            found.append(directory + text)
        elif kind == whole and _is_plain_authority(text[: text.index("/", 8) + 1]):
            found.append(text)
        elif kind == url_scan.OTHER:
            found.append(fetch_form(text, base))
        else:
            head = text.partition("#")[0]
            match kind & ~url_scan.WITH_FRAGMENT:
                case url_scan.WHOLE if _is_plain_authority(head[: head.index("/", 8) + 1]):
                    found.append(head)
                case url_scan.WHOLE:
                    found.append(fetch_form(text, base))
                case url_scan.ROOTED:
                    found.append(authority + head)
                case levels:
                    found.append(_join_relative(start, head, (levels - below) * len("../")))
    return found


@lru_cache(maxsize=1024)  # in pages of one host they are the same again and again
def _is_plain_authority(text: str) -> bool:
    """Return whether *text*, which ends with the "/" of a path, is that of a fetch form."""
    return _is_whole(text) is not None


@lru_cache(maxsize=256)  # called again and again for one page
def _split_base(base: str) -> _Base | None:
    url = fetch_form(base)
    if url is None:
        return None
    authority = authority_of(url)
    path = url[len(authority) :].partition("?")[0]
    return _Base(authority, path[: path.rindex("/") + 1])


def _join_relative(base: _Base, text: str, up_chars: int) -> str:
    if not up_chars:
        return base.authority + base.directory + text
    above = base.directory.rsplit("/", 1 + up_chars // len("../"))[0]  # the root has no parent
    return f"{base.authority}{above}/{text[up_chars:]}"


# Registered domains, by the public suffix list bundled with publicsuffixlist, its private part
# included ("a.github.io" and "b.github.io" have two owners). Nothing is fetched.


@lru_cache(maxsize=16_384)  # a look-up costs 5 us, an entry 250 bytes
def registered_domain(hostname: str) -> str:
    """Return the part of *hostname* that was registered: "a.b.example.co.uk" -> "example.co.uk". IP
    addresses, public suffixes and names of one label are registered domains themselves."""
    name = hostname.rstrip(".")
    if is_ip(name):
        return name
    return _suffixes().privatesuffix(name) or name


def host_key(hostname: str, unit: HostUnit) -> HostKey:
    """Return the unit of politeness of *hostname*. "example.com." is "example.com": the two names
    reach one server."""
    if unit is HostUnit.DOMAIN:
        return HostKey(registered_domain(hostname))
    return HostKey(hostname.rstrip("."))


def is_ip(hostname: str) -> bool:
    """Return whether it is an IP address, IPv6 with or without brackets: no name that ada accepts
    has a colon, or a number as its last label."""
    return ":" in hostname or hostname.rpartition(".")[2].isdigit()


def digest_of_list(text: bytes) -> str:
    """Return a digest of the rules of a suffix list, which a new date alone does not change."""
    lines = (line.strip() for line in text.splitlines())
    listed = b"\n".join(line for line in lines if line and not line.startswith(b"//"))
    return sha256(listed).hexdigest()[:8]


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


# Tracking parameters: exact names of the click and campaign marks of one vendor, on which privacy
# tools agree. A name that some sites use for content ("ref", "source", "mc") is left out. The list
# is our own: no published list was copied, as their licences differ from ours.

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
"""Sites invent names with this prefix (utm_id, utm_social, utm_brand); all mean a campaign."""


def is_tracking(name: str) -> bool:
    """Return whether a query parameter called *name* is a tracking parameter."""
    name = name.lower()
    return name in TRACKING_NAMES or name.startswith(TRACKING_PREFIX)


# The form of a URL that is compared, never fetched, and its key. Rules that could merge different
# pages are off until a setting turns them on.


class UrlRule(StrEnum):
    """A normalization of a URL before it is compared."""

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
        UrlRule.PERCENT: "/%7euser and /~user; /a%2fb and /a%2Fb; ?a[]=1 and ?a%5B%5D=1",
        UrlRule.DOT: "example.com. and example.com",
        UrlRule.SPACE: "?q=a%20b and ?q=a+b",
        UrlRule.EMPTY: "/page? and /page; ?a=1& and ?a=1",
        UrlRule.TRACKING: "/page?utm_source=news and /page",
        UrlRule.SORT: "?b=2&a=1 and ?a=1&b=2 (values of one name keep their order)",
        UrlRule.SESSION: "/page;jsessionid=1A2B and /page",
        UrlRule.SLASH: "/news/ and /news",
        UrlRule.WWW: "www.example.com and example.com",
        UrlRule.HTTPS: "http://example.com/ and https://example.com/",
    }
)
"""For each rule, an example of the URLs that it merges."""

ALWAYS: Final = frozenset({UrlRule.PERCENT, UrlRule.DOT, UrlRule.SPACE, UrlRule.EMPTY})
DEFAULT_RULES: Final = frozenset({UrlRule.TRACKING, UrlRule.SORT})
_REACHES_PLAIN: Final = frozenset({UrlRule.SESSION, UrlRule.SLASH, UrlRule.WWW, UrlRule.HTTPS})


@dataclass(frozen=True, slots=True)
class CanonicalRules:
    """The rules of one crawl. Keys depend on them, so they are fixed when a crawl begins."""

    on: frozenset[UrlRule] = DEFAULT_RULES
    plain_stays: bool = field(init=False)  # the rules change no URL without "?" and "%"

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", self.on | ALWAYS)
        object.__setattr__(self, "plain_stays", not self.on & _REACHES_PLAIN)


# URLs that the rules in ALWAYS leave unchanged: no "?", no "%", no dot at the host's end.
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
    """Return the unsigned 64-bit key. *seed* is the secret of the crawl: without it two URLs
    cannot be made to collide, which would hide one."""
    return xxhash.xxh3_64_intdigest(canonical_url.encode(), seed)


_OF_CHECKS: Final = 0x9E3779B97F4A7C15


def key_of_check(key: int) -> int:
    """Return the key of a check of the URL whose key is *key*. It is another one, so that a URL
    that was only checked is not taken for one that was fetched."""
    return key ^ _OF_CHECKS


def keys_of(canonical_urls: Iterable[str], seed: int) -> list[int]:
    """Return the `key_of` each."""
    digest = xxhash.xxh3_64_intdigest
    return [digest(url.encode(), seed) for url in canonical_urls]


def canonical(url: str, rules: CanonicalRules) -> str:
    """Return the canonical form of a fetch form."""
    if rules.plain_stays and _is_plain(url):
        return url
    parts = split(url)
    path = _path(_normalize_escapes(parts.path), rules.on)
    query = _query(_normalize_escapes(parts.query), rules.on) if parts.query else ""
    return _authority(parts, rules.on) + path + ("?" + query if query else "")


def _authority(parts: UrlParts, on: frozenset[UrlRule]) -> str:
    scheme, name = parts.scheme, parts.hostname
    port = parts.authority[len(f"{scheme}://{name}") :]
    name = name.rstrip(".") or name
    if UrlRule.WWW in on:
        # "www.com" is not "com" with a prefix.
        while name.startswith("www.") and "." in name[4:]:
            name = name[4:]
    return f"{'http' if UrlRule.HTTPS in on else scheme}://{name}{port}"


def _path(path: str, on: frozenset[UrlRule]) -> str:
    if UrlRule.SESSION in on:
        path = _SESSION_PATH.sub("", path)
    if UrlRule.SLASH in on:
        path = path.rstrip("/") or "/"
    return path


def _query(query: str, on: frozenset[UrlRule]) -> str:
    pairs = [pair.partition("=") for pair in query.replace("%20", "+").split("&") if pair]
    if UrlRule.TRACKING in on:
        pairs = [pair for pair in pairs if not is_tracking(pair[0])]
    if UrlRule.SESSION in on:
        pairs = [pair for pair in pairs if not _is_session(pair[0], pair[2])]
    if UrlRule.SORT in on:
        pairs.sort(key=lambda pair: pair[0])
    return "&".join(["".join(pair) for pair in pairs])


def _is_session(name: str, value: str) -> bool:
    if _SESSION_NAME.fullmatch(name):
        return True
    return bool(_MAYBE_SESSION_NAME.fullmatch(name) and _SESSION_VALUE.fullmatch(value))


def _normalize_escapes(text: str) -> str:
    return _ESCAPE.sub(_normalize_escape, text)


def _normalize_escape(found: re.Match[str]) -> str:
    token = found[0]
    if len(token) == 3:
        char = chr(int(token[1:], 16))
        return char if char in _UNRESERVED else token.upper()
    return "".join([f"%{byte:02X}" for byte in token.encode()])
