"""Where an answer leads, and when the chain ends."""

from __future__ import annotations

import pytest

from crawler.config.arguments import SeedTerms
from crawler.model.choices import ScopeChoice
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
)
from crawler.policy.addresses import AllowedAddresses
from crawler.policy.admission import Admission, AdmissionSettings
from crawler.policy.redirects import (
    COOKIE_WALL,
    BrokenRedirect,
    FollowRedirect,
    NotARedirect,
    RedirectDecision,
    TooManyRedirects,
    decide_redirect,
    location_text,
)
from crawler.policy.scope import Scope

WAY_IN = Admission(AdmissionSettings(addresses=AllowedAddresses(allow_public=True), key_seed=7))
HOME = Admission(
    AdmissionSettings(
        addresses=AllowedAddresses(allow_public=True),
        key_seed=7,
        scope=Scope(terms=(SeedTerms(scope=ScopeChoice.HOST),), seeds=frozenset({"example.com"})),
    )
)
PAGE = "http://example.com/dir/page?q=1"


def candidate(url: str = PAGE, chain: tuple[int, ...] = ()) -> Candidate:
    found = WAY_IN.candidate(url, depth=2, level=1)
    assert isinstance(found, Candidate)
    return Candidate(found.url, found.key, found.host, found.domain, 2, 1, chain=chain)


def led(
    start: Candidate,
    location: bytes | None,
    status: int = 301,
    way_in: Admission = WAY_IN,
    *,
    is_wall: bool = False,
) -> RedirectDecision:
    return decide_redirect(
        start,
        status,
        location,
        lambda text, base: way_in.candidate(text, base, depth=start.depth, level=start.level),
        is_wall=is_wall,
    )


def followed(start: Candidate, location: bytes, status: int = 301) -> Candidate:
    onward = led(start, location, status)
    assert isinstance(onward, FollowRedirect), onward
    return onward.candidate


@pytest.mark.parametrize(
    ("location", "want"),
    [
        pytest.param(b"http://other.example/x", "http://other.example/x", id="absolute"),
        pytest.param(b"/x?y", "http://example.com/x?y", id="from the root"),
        pytest.param(b"x", "http://example.com/dir/x", id="from the page's directory"),
        pytest.param(b"../x", "http://example.com/x", id="from above it"),
        pytest.param(b"?x", "http://example.com/dir/page?x", id="a query"),
        pytest.param(b"//other.example/x", "http://other.example/x", id="without a scheme"),
        pytest.param(b" /x#part ", "http://example.com/x", id="white space, a fragment"),
        pytest.param(b"HTTPS://EXAMPLE.com:443/x", "https://example.com/x", id="made a fetch form"),
        pytest.param("/ü".encode(), "http://example.com/%C3%BC", id="UTF-8 octets stay"),
        pytest.param(b"/\xfc", "http://example.com/%FC", id="octets of any charset stay"),
        pytest.param(
            "http://bücher.example/".encode(), "http://xn--bcher-kva.example/", id="a host in UTF-8"
        ),
        pytest.param(b"/a b", "http://example.com/a%20b", id="a blank"),
        pytest.param(b"/a\\b", "http://example.com/a/b", id="a backslash, as browsers read it"),
    ],
)
def test_a_location_is_read_against_the_page(location: bytes, want: str) -> None:
    assert followed(candidate(), location).url == want


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_target_inherits_depth_and_level_and_remembers_the_way(status: int) -> None:
    start = candidate(chain=(11, 12))
    target = followed(start, b"http://other.example/x", status)
    assert (target.depth, target.level, target.attempts) == (2, 1, 0)
    assert target.host == HostKey("other.example")
    assert target.chain == (11, 12, start.key)
    assert target.purpose is Purpose.PAGE
    assert target.needs_seen_test


@pytest.mark.parametrize("status", [200, 201, 300, 304, 305, 306, 404, 503])
def test_other_answers_are_pages_wherever_they_point(status: int) -> None:
    assert led(candidate(), b"/x", status) == NotARedirect()


@pytest.mark.parametrize(
    "location",
    [
        pytest.param(None, id="no Location"),
        pytest.param(b"", id="an empty one"),
        pytest.param(b"  ", id="a blank one"),
        pytest.param(b"mailto:a@example.com", id="a mail address"),
        pytest.param(b"javascript:alert(1)", id="a script"),
        pytest.param(b"ftp://example.com/x", id="another protocol"),
        pytest.param(b"http://", id="no host"),
        pytest.param(b"http://[::1", id="no address"),
        pytest.param(b"http://example.com:99999/", id="no port"),
        pytest.param(b"http://\x00\xff/", id="no text"),
        pytest.param(b"/" + b"a" * 9000, id="far too long"),
        pytest.param(b"http://127.0.0.1/", id="an address inside"),
    ],
)
def test_a_redirect_to_nowhere_is_kept_as_a_page(location: bytes | None) -> None:
    onward = led(candidate(), location)
    assert isinstance(onward, BrokenRedirect)
    assert onward.reason


def test_a_target_outside_the_scope_is_not_followed() -> None:
    found = led(candidate(), b"http://other.example/", way_in=HOME)
    assert isinstance(found, BrokenRedirect)
    assert found.target == "http://other.example/"
    assert found.refusal is not None and "give http://" in found.refusal.of_target(found.target)
    assert isinstance(led(candidate(), b"/x", way_in=HOME), FollowRedirect)


def walk(steps: list[bytes]) -> tuple[list[Candidate], RedirectDecision]:
    """Follow *steps* one after the other, in a cycle."""
    at = candidate()
    seen: list[Candidate] = []
    while True:
        onward = led(at, steps[len(seen) % len(steps)])
        if not isinstance(onward, FollowRedirect):
            return seen, onward
        at = onward.candidate
        seen.append(at)
        assert len(seen) < 50


def test_ten_redirects_are_followed_and_no_more() -> None:
    seen, end = walk([b"/%d" % hop for hop in range(20)])
    assert len(seen) == 10
    assert end == TooManyRedirects("more than 10 redirects")


def test_a_page_that_redirects_to_itself_is_asked_three_times() -> None:
    seen, end = walk([PAGE.encode()])
    assert len(seen) == 2
    assert end == TooManyRedirects("a redirect loop")
    assert [target.needs_seen_test for target in seen] == [False, False]


@pytest.mark.parametrize("location", [PAGE.encode(), b"/%d"], ids=["a loop", "without an end"])
def test_a_chain_without_an_end_that_sets_a_cookie_says_so(location: bytes) -> None:
    onward: RedirectDecision = FollowRedirect(candidate())
    for hop in range(20):
        if isinstance(onward, FollowRedirect):
            onward = led(onward.candidate, location.replace(b"%d", b"%d" % hop), is_wall=True)
    assert isinstance(onward, TooManyRedirects)
    assert onward.reason.endswith(f": {COOKIE_WALL}")


def test_a_loop_of_two_is_cut() -> None:
    seen, end = walk([b"/a", b"/b"])
    assert len(seen) == 6
    assert end == TooManyRedirects("a redirect loop")


def test_a_target_in_its_own_chain_is_not_seen_tested_and_counts_a_hop() -> None:
    bounce = followed(candidate(), b"http://login.example/?back")
    back = followed(bounce, PAGE.encode())
    assert bounce.needs_seen_test
    assert not back.needs_seen_test
    assert back.chain == (back.key, bounce.key)


def test_a_target_that_differs_by_tracking_only_has_the_same_key() -> None:
    start = candidate(PAGE + "&utm_source=x")
    target = followed(start, PAGE.encode())
    assert target.key == start.key
    assert not target.needs_seen_test


def test_a_location_is_ascii_afterwards() -> None:
    assert location_text(bytes(range(256))).isascii()
