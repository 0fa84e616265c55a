"""Challenges: which answers are ones, by the table of signatures, and which only come through a
guard; and the table of a user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from crawler.model.types import ConfigError
from crawler.page.challenge import (
    SHORT_BYTES,
    Challenge,
    Reception,
    Signatures,
    is_html,
    read_signatures,
)

PAGE = "<!DOCTYPE html><html><head><title>{}</title></head><body>{}</body></html>"
CLOUDFLARE = {"server": "cloudflare", "cf-ray": "8f1"}
OURS = Signatures()
DATA = Path(__file__).parent.parent / "data" / "no_challenges"


def challenge(
    status: int, headers: Mapping[str, str], body: bytes, table: Signatures = OURS
) -> Challenge | None:
    kept = {name.title().encode(): [value.encode()] for name, value in headers.items()}
    return table.challenge_of(status, kept, body)


def reception(status: int, headers: Mapping[str, str], text: str = "", title: str = "") -> str:
    found = challenge(status, headers, PAGE.format(title, text).encode() if text or title else b"")
    return f"{found.reception}: {found.name}" if found else ""


@pytest.mark.parametrize(
    ("expected", "status", "headers", "text"),
    [
        ("Cloudflare", 403, {"cf-mitigated": "challenge"}, ""),
        ("Cloudflare", 429, {"cf-mitigated": "Challenge"}, "too many"),
        ("Cloudflare", 503, {}, "<script>window._cf_chl_opt={}</script>"),
        ("Cloudflare", 403, CLOUDFLARE, '<span class="cf-error-code">1020</span>'),
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
    assert reception(status, headers, text) == f"not welcome: {expected}"


@pytest.mark.parametrize(
    ("expected", "status", "headers", "text"),
    [
        ("status 429", 429, {}, ""),
        ("status 429", 429, {"retry-after": "120"}, "<h1>Too Many Requests</h1>"),
        ("status 429", 429, {"x-ratelimit-remaining": "0"}, ""),
        ("status 429", 429, {"server": "Varnish"}, "Too many requests (f061ab2)"),
        ("status 429", 429, CLOUDFLARE, "slow down"),
        ("status 429", 429, {"via": "1.1 varnish"}, "<p>You have made too many requests."),
        ("status 429", 429, {}, "<form><input type='password'><div class='g-recaptcha'></form>"),
        ("Cloudflare's rate limit", 429, CLOUDFLARE, '<span class="cf-error-code">1015</span>'),
        ("status 503", 503, {}, ""),
        ("status 503", 503, {"server": "nginx"}, "<h1>503 Service Temporarily Unavailable</h1>"),
        ("status 503", 503, {"server": "Apache"}, "The server is temporarily unable to service"),
        ("status 503", 503, {"retry-after": "3600"}, "Briefly unavailable for maintenance."),
        ("status 503", 503, {"x-varnish": "1"}, "<h1>Error 503</h1><p>Guru Meditation:"),
        ("status 503", 503, {"x-cache": "Error from cloudfront"}, "could not be satisfied"),
        ("status 503", 503, {"server": "AkamaiGHost"}, "Service Unavailable - DNS failure"),
        ("status 503", 503, CLOUDFLARE, "the site's own error, through its guard"),
        ("status 503", 503, {"server": "HAProxy"}, "No server is available to handle this."),
    ],
)
def test_too_fast_is_no_challenge(
    expected: str, status: int, headers: Mapping[str, str], text: str
) -> None:
    assert reception(status, headers, text) == f"too fast: {expected}"


@pytest.mark.parametrize(
    ("expected", "status", "headers", "text"),
    [
        ("login", 401, {"www-authenticate": 'Basic realm="private"'}, ""),
        ("login", 401, {"www-authenticate": "Bearer"}, ""),
        ("login", 401, {}, "<form><input type='password'></form>"),
        ("login", 401, CLOUDFLARE, "<h1>Unauthorized</h1>"),
        ("login", 407, {"proxy-authenticate": "Basic"}, ""),
        ("payment", 402, {}, "<h1>Payment Required</h1>"),
        ("Cloudflare's pay per crawl", 402, {"crawler-price": "USD 0.01"}, ""),
        ("Cloudflare's pay per crawl", 402, {"crawler-error": "InvalidPrice"}, ""),
        ("forbidden", 403, {}, ""),
        ("forbidden", 403, {"server": "Apache"}, "You don't have permission to access this."),
        ("forbidden", 403, {"server": "nginx"}, "<h1>403 Forbidden</h1>"),
        ("forbidden", 403, CLOUDFLARE, "the server's own 403 through its guard"),
        ("forbidden", 403, {}, '<div class="g-recaptcha"></div><input type="password">'),
        ("forbidden", 403, {"x-sucuri-id": "1"}, "CSRF verification failed."),
        ("forbidden", 451, {}, "Unavailable for legal reasons"),
        ("login", 302, {"location": "/login?next=/a"}, ""),
        ("login", 302, {"location": "https://a.example/accounts/login/?next=/a"}, ""),
        ("login", 303, {"location": "/index.php?title=Special:UserLogin&returnto=A"}, ""),
        ("login", 307, {"location": "https://a.example/wp-login.php?redirect_to=b"}, ""),
        ("login", 302, {"location": "/users/sign_in"}, ""),
    ],
)
def test_one_page_may_be_for_others(
    expected: str, status: int, headers: Mapping[str, str], text: str
) -> None:
    assert reception(status, headers, text) == f"this page only: {expected}"


def test_only_a_challenge_and_a_price_for_crawlers_close_a_host_for_its_robots_txt() -> None:
    assert Challenge(Reception.NOT_WELCOME, "Anubis").closes_host
    priced = challenge(402, {"crawler-price": "USD 0.01"}, b"")
    assert priced is not None and priced.closes_host
    forbidden = challenge(403, {}, b"")
    assert forbidden is not None and not forbidden.closes_host


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        pytest.param(200, CLOUDFLARE, "<p>a page", id="a page through a guard"),
        pytest.param(404, {"server": "AkamaiGHost"}, "Access Denied", id="no page"),
        pytest.param(200, {}, '<form><div class="g-recaptcha">', id="a form"),
        pytest.param(200, {}, "<p>unusual traffic from your computer network", id="an article"),
        pytest.param(200, {}, "<code>_cf_chl_opt</code>", id="an article about challenges"),
        pytest.param(200, {"x-datadome": "protected"}, "<p>a page", id="watched, and let through"),
        pytest.param(200, {}, "<p>Your support ID is 12", id="a help page"),
        pytest.param(200, {"x-iinfo": "1-2"}, "<p>a page", id="a page through Imperva"),
        pytest.param(
            200,
            {"set-cookie": "__cf_bm=1, _abck=2, ak_bmsc=3"},
            "<p>a page",
            id="cookies of guards",
        ),
        pytest.param(200, {}, '<div id="root"></div><script src=a.js>', id="a shell of scripts"),
        pytest.param(
            200,
            {},
            '<form><input type="password"><div class="cf-turnstile" data-sitekey="1"></div>'
            '<script src="https://challenges.cloudflare.com/turnstile/v0/api.js"></script>',
            id="a login with Turnstile",
        ),
        pytest.param(
            200,
            {},
            '<form><div class="h-captcha"></div><script src="https://js.hcaptcha.com/1/api.js">',
            id="a form with hCaptcha",
        ),
        pytest.param(302, {"location": "/en/"}, "", id="a redirect"),
        pytest.param(404, {}, "<h1>Access Denied", id="missing"),
        pytest.param(500, {}, "<h1>Error", id="broken"),
    ],
)
def test_what_only_comes_through_a_guard_is_none(
    status: int, headers: Mapping[str, str], text: str
) -> None:
    assert reception(status, headers, text) == ""


def test_a_challenge_is_known_without_a_page_and_in_utf_16() -> None:
    plain = challenge(403, {"server": "cloudflare"}, b"error code: 1020")
    assert plain == Challenge(Reception.NOT_WELCOME, "Cloudflare")
    anubis = '<html><script id="anubis_challenge">'.encode("utf-16")
    assert challenge(200, {}, anubis) == Challenge(Reception.NOT_WELCOME, "Anubis")


def test_the_body_counts_in_pages_only() -> None:
    rules = b"User-agent: *\nDisallow: /cdn-cgi/challenge-platform/h/g/orchestrate\n"
    found = challenge(403, {}, rules)
    assert found is not None and found.name == "forbidden"


def test_a_long_page_is_one_by_its_head_only() -> None:
    long = PAGE.format("", '<script id="anubis_challenge">' + "text " * SHORT_BYTES).encode()
    assert challenge(200, {}, long) is None
    assert challenge(200, {"set-cookie": "session=1"}, long) is None
    assert challenge(200, {"set-cookie": "techaro.lol-anubis-auth=; Max-Age=0"}, long) is not None


@pytest.mark.parametrize("file", sorted(DATA.glob("*.html")), ids=lambda file: file.stem)
@pytest.mark.parametrize("status", [200, 401, 403])
def test_forms_and_refusals_of_real_products_are_no_challenges(file: Path, status: int) -> None:
    found = challenge(status, {}, b"<!doctype html>" + file.read_bytes())
    assert found is None if status == 200 else found is not None
    assert found is None or found.reception is Reception.THIS_PAGE


OWN = """
[[signature]]
name = "our guard"
status = [200, 403]
header = "X-Guard"
value = ["stop", "wait"]

[[signature]]
name = "the shop's queue"
verdict = "too fast"
body = "You are in the queue"
also = ["queue-it", "shop"]
without = "skip"

[[signature]]
name = "a teapot"
verdict = "none"
status = 418
"""


def test_the_rows_of_a_user_go_before_ours() -> None:
    own = Signatures(read_signatures(OWN, "own.toml"))
    queue = b"<p>You are in the queue of our shop"
    assert challenge(200, {"x-guard": "STOP"}, b"<p>", own) == ("not welcome", "our guard")
    assert challenge(200, {"x-guard": "go"}, b"<p>", own) is None
    assert challenge(200, {}, queue, own) == ("too fast", "the shop's queue")
    assert challenge(200, {}, queue + b" <a>skip", own) is None
    assert challenge(418, {}, b"", own) is None
    assert challenge(403, {"cf-mitigated": "challenge"}, b"", own) == ("not welcome", "Cloudflare")


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("[[signature]\n", "f is not TOML: "),
        ("a = 1\n", "f: write each row under a line [[signature]], and nothing else"),
        ("[[signature]]\nstatus = 403\n", "f line 1: the row has no name of 1 to 64 letters"),
        (
            '[[signature]]\nname = "a"\nstatus = 1\n\n',
            "f line 3: status is 1; want a status such as 403, or a list",
        ),
        (
            '[[signature]]\nname = "a"\nstatus = 403\n[[signature]]\nname = "b"\nbodi = "x"\n',
            "f line 6: there is no key 'bodi'; there are name, verdict, status, header, value",
        ),
        (
            '[[signature]]\nname = "a"\nverdict = "bad"\nstatus = 403\n',
            'f line 3: verdict is \'bad\'; want one of "not welcome", "too fast"',
        ),
        ('[[signature]]\nname = "a"\n', "f line 2: 'a' would be every answer"),
        (
            '[[signature]]\nname = "a"\nstatus = 403\nvalue = "x"\n',
            "f line 4: value without header says nothing",
        ),
        (
            '[[signature]]\nname = "a"\nheader = "a b"\n',
            "f line 3: header is 'a b'; want the name of one, such as x-guard",
        ),
        (
            '[[signature]]\nname = "a"\nbody = [""]\n',
            "f line 3: body is ['']; want a text, or a list of texts",
        ),
    ],
)
def test_an_error_in_a_table_names_its_line(written: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_signatures(written, "f")
    assert str(raised.value).startswith(error)


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
