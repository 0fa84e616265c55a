"""Whether an answer is a redirect, and whether it is followed.

Rule: a target is a new candidate for its own host, never fetched on the spot. One whose key is in
its own chain (http to https, tracking stripped, a cookie bounce) skips the seen test, which would
refuse it for the very URL that leads to it; it still counts as a hop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.model.types import Candidate
from crawler.model.url import fetch_form
from crawler.policy.refusal import Refusal

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
MAX_HOPS: Final = 10

MAX_VISITS: Final = 3
"""Visits to one key in one chain. Two are usual, three happen (http, https, www with one key for
all), a fourth is a loop, of which not all ten hops are followed."""
_SHOWN_CHARS: Final = 200  # of a target that is no URL


COOKIE_WALL: Final = "it sets a cookie, and none is sent back (COOKIES_ENABLED is False)"
"""What is wrong with a chain without an end of which an answer has set a cookie."""


class FollowRedirect(msgspec.Struct, frozen=True):
    """The URL has moved; *candidate* is added in its place."""

    candidate: Candidate


class TooManyRedirects(msgspec.Struct, frozen=True):
    """The URL is given up: a dead letter with this reason."""

    reason: str


class BrokenRedirect(msgspec.Struct, frozen=True):
    """The target cannot be fetched; the answer is kept as a page."""

    reason: str
    target: str = ""  # empty: it names none
    refusal: Refusal | None = None


class NotARedirect(msgspec.Struct, frozen=True):
    """The answer is a page."""


RedirectDecision = FollowRedirect | TooManyRedirects | BrokenRedirect | NotARedirect


def decide_redirect(
    candidate: Candidate,
    status: int,
    location: bytes | None,
    admit: Callable[[str, str], Candidate | Refusal],
    max_hops: int = MAX_HOPS,
    *,
    is_wall: bool = False,
) -> RedirectDecision:
    """Decide where the answer to *candidate* leads. *location* is the header as received; *admit*
    judges a URL text read against a base, as links are judged. *is_wall*: an answer of its chain,
    or this one, sets a cookie that is not kept."""
    if status not in REDIRECTS:
        return NotARedirect()
    if not location or not location.strip():
        return BrokenRedirect("a redirect without a Location")
    chain, why = (*candidate.chain, candidate.key), f": {COOKIE_WALL}" if is_wall else ""
    if len(chain) > max_hops:
        return TooManyRedirects(f"more than {max_hops} redirects{why}")
    text = location_text(location)
    found = admit(text, candidate.url)
    if isinstance(found, Refusal):
        target = fetch_form(text, candidate.url) or text[:_SHOWN_CHARS]
        return BrokenRedirect(f"its Location is not followed: {found.explain()}", target, found)
    if chain.count(found.key) >= MAX_VISITS:
        return TooManyRedirects(f"a redirect loop{why}")
    filtered = found.needs_seen_test and found.key not in chain
    moved = replace(
        found,
        chain=chain,
        needs_seen_test=filtered,
        seed=candidate.seed_url,
        cash=candidate.cash,
    )
    return FollowRedirect(moved)


def location_text(location: bytes) -> str:
    """Return a Location header as a URL text. Octets beyond ASCII are escaped one by one, as in
    browsers: only the server knows its charset, and decoding would have to guess it."""
    octets = location.strip()
    return "".join(chr(octet) if octet < 0x80 else f"%{octet:02X}" for octet in octets)
