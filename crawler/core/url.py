"""The form of a URL that is fetched, and its parts.

Rule: parsing is WHATWG's, by ada, as browsers do it. Links that are plain already, nine in
ten, skip ada: a pattern proves that it would change nothing. A fetch form is ASCII, http or
https, with a path, without fragment, user name or password, and never has the default port.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import ada_url

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
