"""Challenges: which answers of a guard are ones, and which only come through it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from crawler.page.challenge import challenge_of, is_html

PAGE = "<!DOCTYPE html><html><head><title>{}</title></head><body>{}</body></html>"
CLOUDFLARE = {"server": "cloudflare", "cf-ray": "8f1"}


def service(status: int, headers: Mapping[str, str], text: str = "", title: str = "") -> str:
    body = PAGE.format(title, text) if text or title else ""
    return challenge_of(status, lambda name: headers.get(name, ""), body.encode())


@pytest.mark.parametrize(
    ("expected", "status", "headers", "text"),
    [
        ("Cloudflare", 403, {"cf-mitigated": "challenge"}, ""),
        ("Cloudflare", 429, {"cf-mitigated": "Challenge"}, "too many"),
        ("Cloudflare", 503, {}, "<script>window._cf_chl_opt={}</script>"),
        ("Cloudflare", 403, CLOUDFLARE, '<span class="cf-error-code">1020</span>'),
        ("Cloudflare", 402, {"crawler-price": "USD 0.01"}, ""),
        ("Akamai", 403, {"server": "AkamaiGHost"}, "Access Denied. Reference&#32;#18.2d351ab8"),
        ("Akamai", 403, {}, "You don't have permission. Reference&#32;#18.2d351ab8"),
        ("Akamai", 403, {"server": "AkamaiGHost"}, ""),
        ("Imperva", 403, {"x-iinfo": "1-2"}, '<iframe src="/_Incapsula_Resource?x">'),
        ("Imperva", 200, {"x-iinfo": "1-2"}, "Request unsuccessful. Incapsula incident ID: 4"),
        ("DataDome", 403, {"x-datadome": "protected", "x-dd-b": "2"}, ""),
        ("DataDome", 405, {}, '<script src="https://ct.captcha-delivery.com/c.js"></script>'),
        ("DataDome", 200, {"x-datadome": "protected", "x-dd-b": "2"}, ""),
        ("DataDome", 403, {}, "<script>var dd={'rt':'c'}</script>"),
        ("HUMAN", 429, {}, "Access to this page has been denied"),
        ("HUMAN", 403, {}, "<script>window._pxAppId = 'PX'</script>"),
        ("AWS WAF", 202, {"x-amzn-waf-action": "challenge"}, ""),
        ("AWS WAF", 405, {"x-amzn-waf-action": "captcha"}, ""),
        (
            "CloudFront",
            403,
            {"x-cache": "Error from cloudfront"},
            "request could not be satisfied",
        ),
        ("Sucuri", 403, {"x-sucuri-id": "1"}, "Sucuri Website Firewall - Access Denied"),
        ("Kasada", 429, {"x-kpsdk-ct": "a"}, ""),
        ("Vercel", 429, {"x-vercel-mitigated": "challenge"}, ""),
        ("Vercel", 403, {}, "Vercel Security Checkpoint"),
        ("Reddit", 403, {}, "Please wait for verification"),
        ("Google", 302, {"location": "https://consent.google.com/ml?continue=x"}, ""),
        ("Reblaze", 247, {}, ""),
        ("a guard", 418, {}, ""),
        ("Anubis", 200, {"set-cookie": "techaro.lol-anubis-cookie-verification=1"}, "wait"),
        ("Anubis", 200, {}, '<script id="anubis_challenge" type="application/json">{}</script>'),
        ("Anubis", 307, {"location": "https://a.example/.within.website/?redir=%2F"}, ""),
        ("SiteGround", 202, {"sg-captcha": "challenge"}, ""),
        ("F5", 200, {}, "The requested URL was rejected. Your support ID is: 12"),
        ("Google", 302, {"location": "https://www.google.com/sorry/index?continue=x"}, ""),
        ("a captcha", 403, {}, '<div class="g-recaptcha"></div>'),
    ],
)
def test_a_challenge_is_known_by_what_only_it_has(
    expected: str, status: int, headers: Mapping[str, str], text: str
) -> None:
    assert service(status, headers, text) == expected


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        pytest.param(200, CLOUDFLARE, "<p>a page", id="a page through a guard"),
        pytest.param(403, CLOUDFLARE, "<p>no", id="the server's own 403 through it"),
        pytest.param(404, {"server": "AkamaiGHost"}, "Access Denied", id="no page"),
        pytest.param(200, {}, '<form><div class="g-recaptcha">', id="a form"),
        pytest.param(200, {}, "<p>unusual traffic from your computer network", id="an article"),
        pytest.param(200, {}, "<code>_cf_chl_opt</code>", id="an article about challenges"),
        pytest.param(200, {"x-datadome": "protected"}, "<p>a page", id="watched, and let through"),
        pytest.param(403, {"x-cache": "Error from cloudfront"}, "AccessDenied", id="missing"),
        pytest.param(200, {}, "<p>Your support ID is 12", id="a help page"),
    ],
)
def test_what_only_comes_through_a_guard_is_none(
    status: int, headers: Mapping[str, str], text: str
) -> None:
    assert service(status, headers, text) == ""


def test_a_challenge_is_known_without_a_page_and_in_utf_16() -> None:
    headers = {"server": "cloudflare"}
    assert (
        challenge_of(403, lambda name: headers.get(name, ""), b"error code: 1020") == "Cloudflare"
    )
    anubis = '<html><script id="anubis_challenge">'.encode("utf-16")
    assert challenge_of(200, lambda name: "", anubis) == "Anubis"


def test_the_body_counts_in_pages_only() -> None:
    rules = b"User-agent: *\nDisallow: /cdn-cgi/challenge-platform/h/g/orchestrate\n"
    assert challenge_of(403, lambda name: "", rules) == ""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<!doctype html><title>x", True),
        (b"\xef\xbb\xbf\r\n  <html>", True),
        (b"<?xml version='1.0'?><Error>", True),
        (b"<!-- a shop --><body>", True),
        (b"<p>", True),
        (b"", False),
        (b"User-agent: *", False),
        (b"# <html>\nUser-agent: *", False),
        (b"<!-- written as HTML -->\nUser-agent: *\nDisallow: /", False),
        (b"<3\nUser-agent: *", False),
    ],
)
def test_html_is_known_by_its_first_tag(body: bytes, expected: bool) -> None:
    assert is_html(body) is expected
