"""Challenges: answers in which a guard before the server refuses a robot or tests who asks.

Rule: a row says that the answer IS a challenge or a block. That a guard's cookie or header is there
says no more than that it watches: ordinary pages have these, too. The rows are after the vendors'
documentation, Heritrix' BotBlockDetector and the answers recorded by is-antibot.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable
from typing import Final, NamedTuple

HEAD_BYTES: Final = 16 * 1024
"""The bytes of a body that are searched."""

_HTML: Final = re.compile(rb"(?is)(?:\xef\xbb\xbf)?(?:[\s\0]|<!--.*?-->)*+<(?:[a-z?]|!(?!--))")


class _Row(NamedTuple):
    service: str
    statuses: frozenset[int] = frozenset()  # empty: any
    header: str = ""  # that there must be
    value: str = ""  # that it must have in it, in lower case
    body: bytes = b""  # a pattern in the first HEAD_BYTES: of a page, unless it begins with \A


_REFUSALS: Final = frozenset({401, 403, 405, 406, 429, 503})

_ROWS: Final = (
    _Row("Cloudflare", header="cf-mitigated", value="challenge"),
    _Row(
        "Cloudflare",
        _REFUSALS,
        body=rb"_cf_chl_opt|/cdn-cgi/challenge-platform/\S{0,200}orchestrate",
    ),
    _Row("Cloudflare", _REFUSALS, body=rb"(?i)<title>\s*Just a moment\.\.\."),
    _Row("Cloudflare", _REFUSALS, "server", "cloudflare", rb"\Aerror code: 1\d\d\d\s*\Z"),
    _Row(
        "Cloudflare",
        _REFUSALS,
        "server",
        "cloudflare",
        rb"data-translate=\"block_headline\"|class=\"cf-error-code\"",
    ),
    _Row("Cloudflare", frozenset({402}), "crawler-price"),
    _Row("Cloudflare", frozenset({402}), "crawler-error"),
    _Row("Akamai", frozenset({403}), "server", "akamaighost"),
    _Row("Akamai", frozenset({403}), body=rb"Reference&#32;(?:#|&#35;)\d+"),
    _Row("Imperva", body=rb"(?i)<title>\s*Pardon Our Interruption"),
    _Row("Imperva", header="x-iinfo", body=rb"Incapsula incident ID:|_Incapsula_Resource\?"),
    _Row("DataDome", header="x-dd-b"),
    _Row(
        "DataDome",
        _REFUSALS,
        body=rb"captcha-delivery\.com|var dd=\{|Please enable JS and disable any ad blocker",
    ),
    _Row("HUMAN", header="x-px-authorization"),
    _Row("HUMAN", _REFUSALS, body=rb"window\._pxAppId\s*=|captcha\.px-cdn\.net"),
    _Row("HUMAN", _REFUSALS, body=rb"Access to this page has been denied"),
    _Row("AWS WAF", header="x-amzn-waf-action"),
    _Row("AWS WAF", frozenset({202, 403, 405}), body=rb"\.awswaf\.com/"),
    _Row(
        "CloudFront",
        frozenset({403}),
        "x-cache",
        "error from cloudfront",
        rb"(?i)request could not be satisfied",
    ),
    _Row("Sucuri", _REFUSALS, body=rb"Sucuri Website Firewall"),
    _Row("Kasada", _REFUSALS, "x-kasada-challenge"),
    _Row("Kasada", _REFUSALS, "x-kpsdk-ct"),
    _Row("Kasada", body=rb"KPSDK\.scriptStart"),
    _Row("Vercel", header="x-vercel-mitigated"),
    _Row("Vercel", _REFUSALS, body=rb"Vercel Security Checkpoint"),
    _Row("Anubis", header="set-cookie", value="techaro.lol-anubis-", body=rb"(?i)<html"),
    _Row("Anubis", header="location", value="/.within.website/"),
    _Row("Anubis", body=rb"id=\"anubis_challenge\"|/\.within\.website/x/cmd/anubis/"),
    _Row("SiteGround", header="sg-captcha"),
    _Row("SiteGround", body=rb"/\.well-known/sgcaptcha/"),
    _Row("DDoS-Guard", _REFUSALS, body=rb"/\.well-known/ddos-guard/|id=\"link-ddg\""),
    _Row("F5", body=rb"(?s)The requested URL was rejected.*Your support ID is"),
    _Row("Reblaze", body=rb"Protected by Reblaze"),
    _Row("Reblaze", frozenset({247})),
    _Row("Google", header="location", value="google.com/sorry/"),
    _Row("Google", frozenset({429, 503}), body=rb"unusual traffic from your computer network"),
    _Row("Google", header="location", value="//consent.google.com"),
    _Row("Reddit", _REFUSALS, body=rb"blocked by network security\.|Please wait for verification"),
    _Row("Weibo", body=rb"<title>\s*Sina Visitor System"),
    _Row("a guard", frozenset({418})),  # of Douban and others; it says nothing of a file
    _Row("AliExpress", header="location", value="x5secdata"),
    _Row("a captcha", _REFUSALS, body=rb"g-recaptcha|h-captcha|hcaptcha\.com|cf-turnstile"),
)


def challenge_of(status: int, header: Callable[[str], str], body: bytes) -> str:
    """Return the service that challenges or blocks us with this answer, or "" if none does.

    *header* returns the values of a header, joined, or ""; *body* is decoded."""
    head = _head(body)
    is_page = _HTML.match(head) is not None
    for row in _ROWS:
        if row.statuses and status not in row.statuses:
            continue
        if row.header and not (given := header(row.header).lower()):
            continue
        if row.value and row.value not in given:
            continue
        if row.body and not (is_page or row.body.startswith(rb"\A")):
            continue
        if row.body and not re.search(row.body, head):
            continue
        return row.service
    return ""


def is_html(body: bytes) -> bool:
    """Return whether *body* is HTML or XML, whatever its declared type: its first text is a tag."""
    return _HTML.match(_head(body)) is not None


def _head(body: bytes) -> bytes:
    head = body[:HEAD_BYTES]
    is_utf_16 = head.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    return head.decode("utf-16", "ignore").encode() if is_utf_16 else head
