"""A list of seeds: one URL a line, blank lines and lines that begin with "#" left out.

Rule: a line is read as a URL, or named with its number and the reason. A line without a
scheme is read as browsers read what is typed: https, but http for IP addresses, localhost
and hosts with a port; a name without a dot must say its scheme, or any word would be a URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from crawler.core.domains import is_ip
from crawler.core.url import fetch_form

_LINE_END: Final = re.compile(r"\r\n|\n|\r")  # as editors number lines; not U+2028 and the like
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")  # a "#" inside a word begins a fragment
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?!\d+(?:[/?#]|$))")  # no "host:8080"
_TYPED_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:/?#\\@]+)(:\d+)?(?=[/?#\\]|$)")
_CREDENTIALS: Final = re.compile(r"https?:[/\\]*+[^/\\?#@]*+@", re.I)
_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no seed."""

    number: int  # from 1
    text: str  # its beginning
    reason: str


@dataclass(frozen=True, slots=True)
class Seeds:
    """A list of seeds as read."""

    urls: tuple[str, ...]  # fetch forms, in the list's order
    bad: tuple[BadLine, ...]


def parse_seeds(text: str) -> Seeds:
    """Read the text of a list."""
    urls: list[str] = []
    bad: list[BadLine] = []
    for number, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        seed = _COMMENT.sub("", line).strip()
        if not seed:
            continue
        try:
            urls.append(seed_url(seed))
        except ValueError as error:
            bad.append(BadLine(number, seed[:_SHOWN_CHARS], str(error)))
    return Seeds(tuple(urls), tuple(bad))


def seed_url(text: str) -> str:
    """The fetch form of one seed. ValueError: the reason why it is none."""
    if len(text.split()) != 1:
        raise ValueError("white space in the URL")
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() not in {"http", "https"}:
        raise ValueError(f"the scheme is {scheme[1]}, only http and https are fetched")
    text = text if scheme else _with_scheme(text.removeprefix("//"))
    if _CREDENTIALS.match(text):
        raise ValueError("a user name or password in the URL: it would not be sent")
    url = fetch_form(text)
    if url is None:
        raise ValueError("not a URL")
    return url


def _with_scheme(text: str) -> str:
    typed = _TYPED_HOST.match(text)
    if typed is None or not ("." in typed[1] or typed[1] == "localhost" or is_ip(typed[1])):
        raise ValueError("neither a URL nor the name of a host")
    name, port = typed.groups("")
    local = is_ip(name) or f".{name}".endswith(".localhost")
    return f"http://{text}" if (local or port) and port != ":443" else f"https://{text}"
