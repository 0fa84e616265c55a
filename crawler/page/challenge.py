"""Challenges: answers in which a guard before the server refuses a robot or tests who asks.

Rule: a row of the table says what the answer IS. That a guard's cookie, header or script is there
says no more than that it watches: ordinary pages have these, too. The rows are after the vendors'
documentation, Heritrix' BotBlockDetector and the answers recorded by is-antibot.

An ordinary page costs 0.2 us, 2 us if it sets a cookie, and 4 to 8 us if it is so short that it
may be a challenge.
"""

from __future__ import annotations

import re
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from crawler.model.types import HTTP_OK, ConfigError

HEAD_BYTES: Final = 16 * 1024
"""The bytes of a body that are searched."""
SHORT_BYTES: Final = 10 * 1024
"""A longer page of status 2xx is none by its text alone: challenges have little of it, and what
shows them is at its beginning."""
BEGIN_BYTES: Final = 4 * 1024
"""The bytes of such a page that are searched."""

_HTML: Final = re.compile(rb"(?is)(?:\xef\xbb\xbf)?(?:[\s\0]|<!--.*?-->)*+<(?:[a-z?]|!(?!--))")

Headers = dict[bytes, list[bytes]]
"""The values of a head by their names, each Word-Of-A-Name capitalised, as Scrapy keeps them."""


class Reception(StrEnum):
    """How a host has received a request that it did not answer with what was asked for."""

    NOT_WELCOME = "not welcome"  # the host, or a guard before it, wants no robot, or not this one
    TOO_FAST = "too fast"  # the host wants fewer requests
    THIS_PAGE = "this page only"  # for others than us: behind a login, paid for, or private
    NONE = "none"  # an answer like any other, whatever other rows say


class Challenge(NamedTuple):
    """What an answer is instead of what was asked for, and the name of the row that says so."""

    reception: Reception
    name: str

    @property
    def closes_host(self) -> bool:
        """Whether it forbids all of its host if it is sent in place of a robots.txt."""
        return self.reception is Reception.NOT_WELCOME or self.name == PAY_PER_CRAWL


class Signature(NamedTuple):
    """A row of the table: an answer is of it if all is there that it names."""

    name: str
    reception: Reception = Reception.NOT_WELCOME
    statuses: frozenset[int] = frozenset()  # empty: any
    header: bytes = b""  # its name, as in Headers
    values: tuple[bytes, ...] = ()  # one of which is in the header, in lower case
    texts: tuple[bytes, ...] = ()  # one of which is in the first HEAD_BYTES
    also: tuple[bytes, ...] = ()  # and one of these
    without: tuple[bytes, ...] = ()  # and none of these
    is_page: bool = True  # its texts count in HTML only

    def is_of(self, headers: Headers, head: bytes) -> bool:
        """Return whether an answer of one of its statuses has what it names. *head*: of its
        body."""
        if self.header:
            given = dict.get(headers, self.header)  # `Headers.get` of Scrapy takes 1.5 us
            if not given:
                return False
            if self.values and not _has_any(b", ".join(given).lower(), self.values):
                return False
        return not self.texts or (
            _has_any(head, self.texts)
            and (not self.also or _has_any(head, self.also))
            and not _has_any(head, self.without)
        )


def _has_any(head: bytes, texts: Sequence[bytes]) -> bool:
    for text in texts:  # noqa: SIM110  # a call of any takes three times as long
        if text in head:
            return True
    return False


_REFUSALS: Final = frozenset({401, 403, 405, 406, 429, 503})
_FORBIDDEN: Final = frozenset({403})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
PAY_PER_CRAWL: Final = "Cloudflare's pay per crawl"
_PASSWORD: Final = (b"assword",)

SIGNATURES: Final = (
    # Its limit of requests is no challenge, though its page has the same form.
    Signature(
        "Cloudflare's rate limit",
        Reception.TOO_FAST,
        frozenset({429}),
        b"Server",
        (b"cloudflare",),
        (b'cf-error-code">1015', b"error code: 1015"),
        is_page=False,
    ),
    Signature("Cloudflare", header=b"Cf-Mitigated", values=(b"challenge",)),
    Signature("Cloudflare", statuses=_REFUSALS, texts=(b"_cf_chl_opt", b"<title>Just a moment...")),
    Signature(
        "Cloudflare",
        statuses=_REFUSALS,
        texts=(b"/cdn-cgi/challenge-platform/",),
        also=(b"orchestrate",),
    ),
    Signature(
        "Cloudflare",
        statuses=_REFUSALS,
        header=b"Server",
        values=(b"cloudflare",),
        texts=(b'data-translate="block_headline"', b'class="cf-error-code"'),
    ),
    Signature(
        "Cloudflare",
        statuses=_REFUSALS,
        header=b"Server",
        values=(b"cloudflare",),
        texts=(b"error code: 10",),  # the whole body of some
        is_page=False,
    ),
    Signature("Akamai", statuses=_FORBIDDEN, header=b"Server", values=(b"akamaighost",)),
    Signature("Akamai", statuses=_FORBIDDEN, texts=(b"Reference&#32;#", b"Reference&#32;&#35;")),
    Signature("Imperva", texts=(b"<title>Pardon Our Interruption",)),
    Signature(
        "Imperva", header=b"X-Iinfo", texts=(b"Incapsula incident ID:", b"_Incapsula_Resource?")
    ),
    Signature("DataDome", header=b"X-Dd-B"),
    Signature(
        "DataDome",
        statuses=_REFUSALS,
        texts=(b"captcha-delivery.com", b"var dd={", b"Please enable JS and disable any ad bloc"),
    ),
    Signature("HUMAN", statuses=_REFUSALS, header=b"X-Px-Authorization"),
    Signature(
        "HUMAN",
        statuses=_REFUSALS,
        texts=(
            *(b"window._pxAppId =", b"window._pxAppId=", b"captcha.px-cdn.net"),
            b"Access to this page has been denied",
        ),
    ),
    Signature("AWS WAF", header=b"X-Amzn-Waf-Action"),
    Signature("AWS WAF", statuses=frozenset({202, 403, 405}), texts=(b".awswaf.com/",)),
    Signature(
        "CloudFront",
        statuses=_FORBIDDEN,
        header=b"X-Cache",
        values=(b"error from cloudfront",),
        texts=(b"request could not be satisfied",),
    ),
    Signature("Sucuri", statuses=_REFUSALS, texts=(b"Sucuri Website Firewall",)),
    Signature("Kasada", statuses=_REFUSALS, header=b"X-Kasada-Challenge"),
    Signature("Kasada", statuses=_REFUSALS, header=b"X-Kpsdk-Ct"),
    Signature("Kasada", texts=(b"KPSDK.scriptStart",)),
    Signature("Vercel", header=b"X-Vercel-Mitigated"),
    Signature("Vercel", statuses=_REFUSALS, texts=(b"Vercel Security Checkpoint",)),
    Signature(
        "Anubis",
        header=b"Set-Cookie",
        values=(b"techaro.lol-anubis-cookie-verification=",),
        texts=(b"<html",),
    ),
    Signature(
        "Anubis",
        header=b"Set-Cookie",
        values=(b"techaro.lol-anubis-",),
        texts=(b"anubis_challenge", b"/.within.website/"),
    ),
    Signature("Anubis", statuses=_REDIRECTS, header=b"Location", values=(b"/.within.website",)),
    Signature("Anubis", texts=(b'id="anubis_challenge"', b"/.within.website/x/cmd/anubis/")),
    Signature("SiteGround", header=b"Sg-Captcha"),
    Signature("SiteGround", texts=(b"/.well-known/sgcaptcha/",)),
    Signature(
        "DDoS-Guard",
        statuses=_REFUSALS,
        texts=(b"/.well-known/ddos-guard/", b'id="link-ddg"'),
    ),
    Signature("F5", texts=(b"The requested URL was rejected",), also=(b"our support ID is",)),
    Signature("Reblaze", statuses=_REFUSALS, texts=(b"Protected by Reblaze",)),
    Signature("Reblaze", statuses=frozenset({247})),
    Signature("Google", statuses=_REDIRECTS, header=b"Location", values=(b"google.com/sorry/",)),
    Signature("Google", statuses=_REDIRECTS, header=b"Location", values=(b"//consent.google.com",)),
    Signature(
        "Google",
        statuses=frozenset({429, 503}),
        texts=(b"unusual traffic from your computer network",),
    ),
    Signature(
        "Reddit",
        statuses=_REFUSALS,
        texts=(b"blocked by network security.", b"Please wait for verification"),
    ),
    Signature("Weibo", texts=(b"<title>Sina Visitor System",)),
    Signature("LinkedIn", statuses=frozenset({999})),
    Signature("AliExpress", statuses=_REDIRECTS, header=b"Location", values=(b"x5secdata",)),
    Signature("a guard", statuses=frozenset({418})),  # of Douban and others: says nothing of a file
    Signature(
        "a captcha",
        statuses=_REFUSALS - {401},
        texts=(b"g-recaptcha", b"h-captcha", b"hcaptcha.com", b"cf-turnstile"),
        without=_PASSWORD,  # that is a login
    ),
    Signature(PAY_PER_CRAWL, Reception.THIS_PAGE, frozenset({402}), b"Crawler-Price"),
    Signature(PAY_PER_CRAWL, Reception.THIS_PAGE, frozenset({402}), b"Crawler-Error"),
    Signature("status 429", Reception.TOO_FAST, frozenset({429})),
    Signature("status 503", Reception.TOO_FAST, frozenset({503})),
    Signature("login", Reception.THIS_PAGE, frozenset({401, 407})),
    Signature("payment", Reception.THIS_PAGE, frozenset({402})),
    Signature("forbidden", Reception.THIS_PAGE, frozenset({403, 451})),
    Signature(
        "login",
        Reception.THIS_PAGE,
        _REDIRECTS,
        b"Location",
        (b"/login", b"/signin", b"/sign_in", b"/sign-in", b"/wp-login.php", b"userlogin", b"/sso/"),
    ),
)
"""The first row that an answer is of decides. Those of users go before them."""


class _Rows(NamedTuple):
    """The rows for one status, in their order."""

    all: tuple[Signature, ...]
    by_header: tuple[Signature, ...]
    others: tuple[Signature, ...]
    headers: frozenset[bytes]  # of which an answer of a row by_header has one


class Signatures:
    """The table of a crawl."""

    def __init__(self, own: Iterable[Signature] = ()) -> None:
        """*own*: the user's rows."""
        self._table = (*own, *SIGNATURES)
        self._of_status: dict[int, _Rows] = {}  # as many as there are statuses

    def challenge_of(self, status: int, headers: Headers, body: bytes) -> Challenge | None:
        """Return what this answer is instead of what was asked for, or None if it is no such.
        *body* is decoded."""
        rows = self._of_status.get(status) or self._add_rows(status)
        has_header = not rows.headers.isdisjoint(headers)
        is_ok = status in HTTP_OK
        if is_ok and len(body) > SHORT_BYTES:
            candidates = rows.by_header if has_header else ()
        else:
            candidates = rows.all if has_header else rows.others
        if not candidates:
            return None
        head = _head(body, BEGIN_BYTES if is_ok else HEAD_BYTES)
        for row in candidates:
            if row.is_of(headers, head) and not (row.texts and row.is_page and not is_html(body)):
                is_none = row.reception is Reception.NONE
                return None if is_none else Challenge(row.reception, row.name)
        return None

    def _add_rows(self, status: int) -> _Rows:
        fitting = [row for row in self._table if not row.statuses or status in row.statuses]
        by_header = tuple(row for row in fitting if row.header)
        rows = self._of_status[status] = _Rows(
            tuple(fitting),
            by_header,
            tuple(row for row in fitting if not row.header),
            frozenset(row.header for row in by_header),
        )
        return rows


def is_html(body: bytes) -> bool:
    """Return whether *body* is HTML or XML, whatever its declared type: its first text is a tag."""
    return _HTML.match(_head(body)) is not None


def _head(body: bytes, most_bytes: int = HEAD_BYTES) -> bytes:
    head = body[:most_bytes]
    is_utf_16 = head.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    return head.decode("utf-16", "ignore").encode() if is_utf_16 else head


# The rows of users, in a file of TOML.

_RECEPTIONS: Final = ", ".join(f'"{each}"' for each in Reception)
_is_table = re.compile(r"\s*\[\[\s*signature\s*\]\]").match
_KEYS: Final = ("name", "verdict", "status", "header", "value", "body", "also", "without")
_MAX_ROWS: Final = 1000


class _InvalidKey(ValueError):
    """The value of *key* is invalid."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def read_signatures(written: str, file: str) -> tuple[Signature, ...]:
    """Read the rows in the text of *file*. Raises ConfigError, which names the line."""
    try:
        document = tomllib.loads(written)
    except tomllib.TOMLDecodeError as broken:
        raise ConfigError(f"{file} is not TOML: {broken}") from broken
    tables = document.pop("signature", [])
    if document or not (isinstance(tables, list) and all(isinstance(one, dict) for one in tables)):
        raise ConfigError(f"{file}: write each row under a line [[signature]], and nothing else")
    if len(tables) > _MAX_ROWS:
        raise ConfigError(f"{file} has {len(tables):,} rows; at most {_MAX_ROWS:,} are read")
    rows = []
    for number, table in enumerate(tables):
        try:
            rows.append(_row_of(table))
        except _InvalidKey as invalid:
            line = _line_of(written, number, invalid.key)
            raise ConfigError(f"{file} line {line}: {invalid}") from None
    return tuple(rows)


def _row_of(table: dict[str, Any]) -> Signature:
    for key in table:
        if key not in _KEYS:
            raise _InvalidKey(key, f"there is no key {key!r}; there are {', '.join(_KEYS)}")
    name = table.get("name")
    if not (isinstance(name, str) and name.strip() and name.isprintable() and len(name) <= 64):
        raise _InvalidKey("name", 'the row has no name of 1 to 64 letters: name = "our own guard"')
    verdict = table.get("verdict", Reception.NOT_WELCOME)
    if verdict not in set(Reception):
        raise _InvalidKey("verdict", f"verdict is {verdict!r}; want one of {_RECEPTIONS}")
    given = table.get("status", [])
    statuses = given if isinstance(given, list) else [given]
    if not all(type(each) is int and 100 <= each <= 999 for each in statuses):
        raise _InvalidKey("status", f"status is {given!r}; want a status such as 403, or a list")
    header = "".join(_texts(table, "header"))
    texts, values = _texts(table, "body"), _texts(table, "value")
    if not (statuses or header or texts):
        raise _InvalidKey("name", f"{name!r} would be every answer: give status, header or body")
    for key, needs, has_it in (
        ("value", "header", header),
        ("also", "body", texts),
        ("without", "body", texts),
    ):
        if key in table and not has_it:
            raise _InvalidKey(key, f"{key} without {needs} says nothing")
    return Signature(
        name,
        Reception(verdict),
        frozenset(statuses),
        header.title().encode(),
        tuple(value.lower().encode() for value in values),
        tuple(text.encode() for text in texts),
        tuple(text.encode() for text in _texts(table, "also")),
        tuple(text.encode() for text in _texts(table, "without")),
        is_page=False,
    )


def _texts(table: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the texts under *key*: one, or for all keys but header a list of them."""
    given = table.get(key, [])
    texts = [given] if isinstance(given, str) else given
    are_texts = isinstance(texts, list) and all(isinstance(one, str) and one for one in texts)
    if not are_texts or (key in table and not texts):
        raise _InvalidKey(key, f"{key} is {given!r}; want a text, or a list of texts")
    if key == "header" and key in table and not (isinstance(given, str) and _is_token(given)):
        raise _InvalidKey(key, f"header is {given!r}; want the name of one, such as x-guard")
    return tuple(texts)


_is_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch


def _line_of(written: str, number: int, key: str) -> int:
    """Return the line of *key* in the table *number*, or that of its head if it is not there."""
    lines = written.splitlines()
    heads = [at for at, line in enumerate(lines) if _is_table(line)]
    if number >= len(heads):  # written as an array in one line
        return 1
    begin, end = heads[number], [*heads, len(lines)][number + 1]
    is_key = re.compile(rf"\s*(?:{re.escape(key)}|\"{re.escape(key)}\")\s*=").match
    return next((at for at in range(begin, end) if is_key(lines[at])), begin) + 1
