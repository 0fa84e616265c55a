"""What of our candidates a URL Frontier keeps, and what is made of the URLs that it serves.

Rule: pure. A URL Frontier knows a URL by its exact string and keeps texts with it. Ours has, under
`g`, the packed candidate; what another crawler has put there is kept and sent back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.frontier.records import decode_candidate, encode
from crawler.model.types import Again, Candidate, HostKey, Purpose, UnstorableRequest
from crawler.policy.refusal import Refusal
from crawler.policy.revisits import after_visit, longest_days, pack_rate, prior, unpack_rate

PACKED: Final = "g"
DEAD: Final = "dead"  # why a URL was given up
REFUSED: Final = "refused"  # why our rules did not admit it
MOST_PACKED: Final = 56_000
"""Characters. Our own server keeps 64 kB with a URL, and a candidate may grow."""
_MOST_KEPT: Final = 60_000
"""The same, with the metadata of another crawler."""
FIRST: Final = 1
"""The date of what goes before all others of its queue; 0 would say that it is done."""
_DAY_S: Final = 86_400.0
_LEAST_DAYS: Final = 1.0 / 24


class RemoteUrl(msgspec.Struct, frozen=True, gc=False):
    """A URL as a URL Frontier keeps it."""

    url: str
    key: str  # of its queue: our HostKey, or what another crawler has chosen
    metadata: Mapping[str, Sequence[str]] = {}

    @property
    def is_ours(self) -> bool:
        return PACKED in self.metadata

    @property
    def size(self) -> int:
        """The characters of its texts."""
        metadata = self.metadata.items()
        return len(self.url) + sum(len(name) + sum(map(len, texts)) for name, texts in metadata)


class Place(NamedTuple):
    """Where a URL belongs by our settings."""

    host: HostKey
    domain: str


def remote_url(candidate: Candidate, mark: Callable[[], int]) -> RemoteUrl:
    """Return what a URL Frontier is given for *candidate*. What is more than its URL is told apart
    behind a #: *mark* returns a number for one that is fetched whether it is known or not. Raises
    UnstorableRequest if it is too large."""
    name = candidate.url
    if not candidate.needs_seen_test:
        name += f"#{mark():016x}"
    elif candidate.request:
        name += f"#{candidate.key:016x}"
    elif candidate.purpose is Purpose.CHECK:
        name += "#check"
    packed = _packed(candidate)
    if len(packed) > MOST_PACKED:
        raise UnstorableRequest(
            f"{candidate.url}: its request has {len(packed):,} characters when packed; a URL"
            f" Frontier is given {MOST_PACKED:,} at most"
        )
    return RemoteUrl(name, candidate.host, {PACKED: (packed,)})


def with_candidate(url: RemoteUrl, candidate: Candidate) -> RemoteUrl:
    """Return *url* with *candidate*, all else as it was. If another crawler has put more with it
    than leaves room for that, it is left out, as the URL alone says enough."""
    kept = as_done(url)
    found = RemoteUrl(url.url, url.key, {**kept.metadata, PACKED: (_packed(candidate),)})
    return kept if not url.is_ours and found.size > _MOST_KEPT else found


def _packed(candidate: Candidate) -> str:
    return b64encode(encode(candidate)).decode()


def as_done(url: RemoteUrl) -> RemoteUrl:
    """Return *url* as it is kept when nothing more is to be done about it."""
    left_out = (PACKED, DEAD, REFUSED)
    kept = {name: values for name, values in url.metadata.items() if name not in left_out}
    return RemoteUrl(url.url, url.key, kept)


def as_ended(url: RemoteUrl, how: str, reason: str) -> RemoteUrl:
    """Return *url* as it is kept when it was not fetched for good: *how* is DEAD or REFUSED."""
    return RemoteUrl(url.url, url.key, {**url.metadata, how: (reason,)})


def candidate_of(
    url: RemoteUrl,
    place_of: Callable[[str], Place | None],
    admit: Callable[[str], Candidate | Refusal],
) -> Candidate | Refusal:
    """Return the candidate that *url* was put with, if it fits its URL and our settings; else what
    *admit* makes of the URL, as of any link."""
    packed = url.metadata.get(PACKED)
    if packed:
        try:
            found = decode_candidate(b64decode(packed[0], validate=True))
        except (ValueError, msgspec.MsgspecError):
            return admit(url.url)
        is_same = found.url == url.url.partition("#")[0]
        if is_same and place_of(found.url) == (found.host, found.domain):
            return found
    return admit(url.url)


def visited_again(candidate: Candidate, again: Again, usual_days: float) -> tuple[Candidate, float]:
    """Return *candidate* for its next visit, and its date in epoch seconds: without one of its own,
    after as many days as it takes to change in the mean, by what its visits have found."""
    before, history = candidate.history, again.history
    rate = (before and unpack_rate(before.rate)) or prior(1.0 / usual_days)
    if before is not None and again.is_changed is not None:
        days = max(0, history.visited_at - before.visited_at) / _DAY_S
        rate = after_visit(rate, days, again.is_changed)
    days = min(max(rate.days / rate.shape, _LEAST_DAYS), longest_days(usual_days))
    at = again.at if again.at is not None else history.visited_at + days * _DAY_S
    page = replace(
        candidate,
        not_before=at,
        attempts=0,
        chain=(),
        may_be_archived=False,
        chosen=False,
        history=replace(history, rate=pack_rate(rate)),
    )
    return page, at
