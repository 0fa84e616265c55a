"""How long a host rests, when a failed URL is tried again, and whether our own line is down.

Rule: a host's gap is delay_factor x the last fetch, within [min, max], and never below its
crawl-delay. Neither Retry-After nor crawl-delay is cut by max_delay_s, only by a maximum of its
own.

Who does not welcome us is left alone: three challenges or blocks without a page between them pause
the host for an hour, each probe that is received so for twice as long, and after the fifth probe it
is left until an operator puts it back (`is_left`).

Trouble (429, 5xx, time-outs, no connection) is the host's, not the URL's: it doubles the gap and
adds a full-jitter backoff; five in a row pause the host, and one probe reopens it. A body that
broke off backs off likewise, but does not pause the host, which does answer: one that declares
wrong lengths would be given up though its pages can be read. With each answer the gap eases again,
down to the host's own.
"""

from __future__ import annotations

import dataclasses
import re
from calendar import timegm
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_tz
from enum import StrEnum
from math import log
from operator import attrgetter
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.model.choices import HostUnit
from crawler.model.types import (
    HTTP_OK,
    Answer,
    Candidate,
    Dead,
    HostKey,
    Pace,
    Pacing,
    PutBack,
    Rest,
    RetryAt,
    Standing,
)
from crawler.page.challenge import Challenge, Reception
from crawler.policy.operator_rules import Overrides
from crawler.policy.pacing import (
    least_rest_s,
    pacing_after_answer,
    pacing_after_trouble,
)


def full_jitter_s(failures: int, base_s: float, cap_s: float, random: Random) -> float:
    """Return any time up to base_s doubled with each failure after the first, up to cap_s.

    Full jitter: of the usual schemes the one with the least work for the server and the shortest
    time to success (1,000 simulated clients: 798 calls, against 2,449 without).
    """
    return random.uniform(0.0, min(cap_s, base_s * 2.0 ** min(failures - 1, 60)))


TOO_MANY: Final = frozenset({429, 503})
"""Statuses by which a server says that it is asked too often."""

CHALLENGE, TOO_FAST = "challenge", "too_fast"
"""Errors of an answer by which a host refuses robots, or slows them down."""
WHOLE: Final = frozenset({CHALLENGE, TOO_FAST})
"""Errors of answers that came as a whole."""

HOST_ERRORS: Final = frozenset(
    {"timeout", "connect", "dns", "tls", "disconnect", CHALLENGE, TOO_FAST}
)
"""Errors of the host. A protocol error is one of its page: the host did answer."""

PAUSE_AFTER_CHALLENGES: Final = 3
CHALLENGE_PROBES: Final = 5
"""Of which each is a challenge, after pauses of 1, 2, 4, 8 and 16 hours: then a host is left."""

STORM: Final = 20
"""Plain 403s without a page between them that are a block of all pages (guess: links to a private
folder are fewer in a row, as others of its pages come between). The last three of them count as
challenges, and so does each later one, until a page comes."""

MAX_REMEMBERED_GAP_S: Final = 30.0
"""The most of the last gap that counts for the next one, so that one slow page has no long
effect."""

MOST_TOGETHER_S: Final = 86_400.0
"""The most that the rests after several requests of one turn add up to."""

GIVE_UP_AFTER_PAUSES: Final = 5
"""In a row, of a host that has answered before: after 75 minutes of pauses and probes the next
pause has begun."""

GIVE_UP_NEW_AFTER_PAUSES: Final = 17
"""In a row, of a host that never answered without trouble: after its 21st failure. So a host that
is down for its first 20 requests loses no page."""


MOST_TIMED: Final = 64
"""Up to so many fetches of a host count alike; then the latest count more."""

SHORTEST_FETCH_S: Final = 1e-4


class Circuit(StrEnum):
    """The states of the circuit breaker of a host."""

    CLOSED = "closed"
    OPEN = "open"  # paused, not contacted
    HALF_OPEN = "half open"  # the pause is over: one probe decides


class CircuitEvent(StrEnum):
    """The events of the circuit breaker."""

    ANSWERED = "answered"  # 404 is an answer like any other
    BROKE_OFF = "broke off"  # a part of an answer came
    FAILED = "failed"
    FAILED_OFTEN = "failed often"  # pause_after_failures times in a row
    CHALLENGED = "challenged"  # it does answer; what follows is decided beside this table
    CANCELLED = "cancelled"  # by us: says nothing about the host
    RESTED = "rested"


TRANSITIONS: Final[dict[tuple[Circuit, CircuitEvent], Circuit]] = {
    (Circuit.CLOSED, CircuitEvent.ANSWERED): Circuit.CLOSED,
    (Circuit.CLOSED, CircuitEvent.BROKE_OFF): Circuit.CLOSED,
    (Circuit.CLOSED, CircuitEvent.FAILED): Circuit.CLOSED,
    (Circuit.CLOSED, CircuitEvent.FAILED_OFTEN): Circuit.OPEN,
    (Circuit.CLOSED, CircuitEvent.CHALLENGED): Circuit.CLOSED,
    (Circuit.CLOSED, CircuitEvent.CANCELLED): Circuit.CLOSED,
    (Circuit.CLOSED, CircuitEvent.RESTED): Circuit.CLOSED,
    (Circuit.OPEN, CircuitEvent.RESTED): Circuit.HALF_OPEN,
    (Circuit.HALF_OPEN, CircuitEvent.ANSWERED): Circuit.CLOSED,
    (Circuit.HALF_OPEN, CircuitEvent.BROKE_OFF): Circuit.CLOSED,
    (Circuit.HALF_OPEN, CircuitEvent.FAILED): Circuit.OPEN,
    (Circuit.HALF_OPEN, CircuitEvent.FAILED_OFTEN): Circuit.OPEN,
    (Circuit.HALF_OPEN, CircuitEvent.CHALLENGED): Circuit.CLOSED,
    (Circuit.HALF_OPEN, CircuitEvent.CANCELLED): Circuit.HALF_OPEN,
    (Circuit.HALF_OPEN, CircuitEvent.RESTED): Circuit.HALF_OPEN,  # after a cancelled probe
}
"""A host that is OPEN is not leased, so only the end of its rest can happen to it."""

GAP_FACTORS: Final = {
    CircuitEvent.ANSWERED: 0.7,
    CircuitEvent.BROKE_OFF: 2.0,
    CircuitEvent.FAILED: 2.0,
    CircuitEvent.FAILED_OFTEN: 2.0,
    CircuitEvent.CHALLENGED: 1.0,  # it asks for no slower pace
    CircuitEvent.CANCELLED: 1.0,
}
"""The factor on the last gap before it is compared with the host's own. Simulated with a host that
answers requests within 5 s with 429, without Retry-After: 0.5 refusals for each page, against 2.7
if trouble only adds the backoff and 0.9 if answers halve. Easing more slowly would be better still
there, but every other host would pay longer for one slow page."""

_FAILURES: Final = (CircuitEvent.FAILED, CircuitEvent.FAILED_OFTEN)


_TROUBLE: Final = frozenset(
    {
        CircuitEvent.BROKE_OFF,
        CircuitEvent.FAILED,
        CircuitEvent.FAILED_OFTEN,
        CircuitEvent.CHALLENGED,
    }
)


def circuit(pace: Pace, *, resting: bool = False) -> Circuit:
    """Return the circuit state that a pace stands for."""
    if not pace.pauses:
        return Circuit.CLOSED
    return Circuit.OPEN if resting else Circuit.HALF_OPEN


def is_cancelled(answer: Answer) -> bool:
    """Return whether we ended the request: that says nothing of the host."""
    return answer.error == "cancelled"


def is_trouble(answer: Answer) -> bool:
    """Return whether the host, not the page, is in trouble."""
    if answer.error:
        return answer.error in HOST_ERRORS
    return answer.status is None or answer.status == 429 or answer.status >= 500


def event_of(answer: Answer, pace: Pace, settings: PolitenessSettings) -> CircuitEvent:
    """Return what *answer* means for the host."""
    if answer.error == "cancelled":
        return CircuitEvent.CANCELLED
    if not is_trouble(answer):
        return CircuitEvent.ANSWERED
    if answer.error == CHALLENGE:
        return CircuitEvent.CHALLENGED
    if answer.error == "disconnect" and answer.status is not None:
        return CircuitEvent.BROKE_OFF
    often = pace.failures + 1 >= settings.pause_after_failures
    return CircuitEvent.FAILED_OFTEN if often else CircuitEvent.FAILED


def next_rest(
    pace: Pace,
    answer: Answer,
    settings: PolitenessSettings,
    random: Random,
    begun_at: float | None = None,
) -> Rest:
    """Return how long to leave the host alone after *answer*, and its pace from then on.
    *begun_at*: when its turn began, epoch seconds; None: it says nothing of how fast pages may be
    asked for."""
    event = event_of(answer, pace, settings)
    is_counted = event in _TROUBLE and _is_trouble_counted(pace, begun_at)
    pacing = pace.pacing
    if begun_at is not None and not is_counted:
        pacing = _paced(pace, answer, event, begun_at, settings)
    after = replace(
        pace if is_counted else _count_challenges(_count_failures(pace, event), answer),
        pacing=pacing,
        standing=_standing(pace, answer, event),
        answered=pace.answered or event in (CircuitEvent.ANSWERED, CircuitEvent.BROKE_OFF),
        has_sent=pace.has_sent or answer.status is not None or answer.error == "protocol",
    )
    if event is CircuitEvent.ANSWERED:
        after = _timed(after, answer.duration_s)
    delays = _gaps(pace, pacing, answer.duration_s, event, settings)
    gap_s = max(delays)[0]
    if circuit(after, resting=True) is Circuit.OPEN and event is not CircuitEvent.CANCELLED:
        delays.append((gap_s + _pause_s(after.pauses, settings), "pause"))
    elif event in _TROUBLE:
        tries = after.failures or after.unwelcome
        backoff_s = full_jitter_s(tries, settings.backoff_base_s, settings.backoff_max_s, random)
        gap_s += backoff_s
        delays.append((gap_s, "backoff"))
    if event in _TROUBLE and after.unwelcome >= PAUSE_AFTER_CHALLENGES and not is_left(after):
        # A probe that finds trouble of another kind is no page either.
        delays.append((gap_s + _challenge_pause_s(after.unwelcome, settings), CHALLENGE))
    asked_s = 0.0 if event in _TROUBLE else None
    if answer.retry_after_s is not None:
        asked_s = min(max(answer.retry_after_s, 0.0), settings.max_retry_after_s)
        delays.append((_at_least_s(asked_s, settings, random), "retry-after"))
    seconds, reason = max(delays)
    of_address_s = None
    if settings.host_unit is HostUnit.ADDRESS:
        concern = _OF_ADDRESS if _is_of_address(answer) else _OF_EACH_FETCH
        of_address_s = max(delay_s for delay_s, why in delays if why in concern)
    return Rest(seconds, replace(after, gap_s=gap_s), reason, asked_s, of_address_s)


def rest_after_all(
    pace: Pace,
    answers: Sequence[Answer],
    settings: PolitenessSettings,
    random: Random,
    begun_at: float | None = None,
) -> Rest:
    """Return as `next_rest` after *answers* to requests of one turn, one after the other, of which
    there is one at least: the sum of the rests that would have followed them one by one. Only the
    first may be of a page; its reason is that of the longest."""
    rests: list[Rest] = []
    for answer in answers:
        rest = next_rest(pace, answer, settings, random, begun_at)
        is_page = not rests or answer.error == CHALLENGE
        pace = rest.pace if is_page else with_pages_of(pace, rest.pace)
        rests.append(rest)
    longest = max(rests, key=attrgetter("seconds"))
    return replace(
        longest,
        seconds=max(longest.seconds, min(sum([each.seconds for each in rests]), MOST_TOGETHER_S)),
        pace=pace,
        asked_s=max([each.asked_s for each in rests if each.asked_s is not None], default=None),
        address_s=None
        if longest.address_s is None
        else sum([each.address_s or 0.0 for each in rests]),
    )


def with_pages_of(before: Pace, pace: Pace) -> Pace:
    """Return *pace* with what *before* says of pages."""
    return replace(
        pace,
        unwelcome=before.unwelcome,
        forbidden=before.forbidden,
        has_page=before.has_page,
    )


def decisive(answers: Sequence[Answer]) -> Answer:
    """Return that of *answers*, of one turn, that says most of its host: the last with trouble, or
    the first that we did not cancel."""
    bad = [each for each in answers if is_trouble(each)]
    good = [each for each in answers if not is_cancelled(each)]
    return [*bad[-1:], *good, *answers][0]


# What other hosts on the address of a host rest for, too. The machine has done the work of a fetch,
# whichever name it was for. A crawl-delay is the wish of one site: the hoster has not asked for it,
# and its other customers would wait for it. So are pauses: each host has its own. But a machine
# that says that it is asked too often, or is not reached, means all that asks it: many hosters
# count requests by the address of the client.
_OF_EACH_FETCH: Final = frozenset({"gap", "easing"})
_OF_ADDRESS: Final = _OF_EACH_FETCH | {"backoff", "retry-after"}


def _is_of_address(answer: Answer) -> bool:
    """Return whether the trouble in *answer*, if any, is likely that of the machine, not of one of
    its names."""
    if answer.error == CHALLENGE:
        return False
    return (
        answer.status in TOO_MANY
        or answer.error == TOO_FAST
        or answer.retry_after_s is not None
        or (no_contact(answer) and answer.error != "dns")
    )


def with_challenge(
    answer: Answer, found: Challenge | None, pace: Pace, attempts: int = 0
) -> Answer:
    """Return *answer* with what it is by the table of signatures, as its error. *pace*: of its
    host, before it; *attempts*: those of its URL, before this one."""
    if found is not None and found.reception is Reception.NOT_WELCOME:
        # URLs are tried again after all others of their host: the last ones would be in a row.
        is_known = pace.has_page and attempts > 0 and pace.unwelcome < PAUSE_AFTER_CHALLENGES
        return replace(answer, error=CHALLENGE, detail=found.name, is_known=is_known)
    if found is not None and found.reception is Reception.TOO_FAST and not is_trouble(answer):
        return replace(answer, error=TOO_FAST, detail=found.name)
    if answer.status == 403 and pace.forbidden >= STORM - PAUSE_AFTER_CHALLENGES:
        return replace(answer, error=CHALLENGE, detail=STORM_NAME)
    return answer


STORM_NAME: Final = "a storm of 403s"
LEFT: Final = "its host does not welcome us"
"""The reason of a URL whose host is left."""


def is_left(pace: Pace) -> bool:
    """Return whether the host is sent no request any more, until an operator puts it back."""
    return pace.unwelcome >= PAUSE_AFTER_CHALLENGES + CHALLENGE_PROBES


def as_new(pace: Pace) -> Pace:
    """Return *pace* with its refusals forgotten: an operator has put its host back."""
    return replace(pace, unwelcome=0, forbidden=0)


def with_head(answer: Answer, head: Answer | None) -> Answer:
    """Return *answer* with what its *head*, which had trouble, contained before the rest of it was
    lost: without that a stop, a time-out or a body that broke off would lose the Retry-After."""
    if head is None:
        return answer
    if answer.error == "cancelled":
        return replace(head, duration_s=answer.duration_s)
    if answer.retry_after_s is None:
        return replace(answer, retry_after_s=head.retry_after_s)
    return answer


def overridden(settings: PolitenessSettings, overrides: Overrides) -> PolitenessSettings:
    """Return *settings* with the overrides of a URL in their place."""
    delay_s, crawl_delay_s = overrides.delay_s, overrides.crawl_delay_s
    if delay_s is not None:
        settings = dataclasses.replace(
            settings,
            delay_factor=0.0,
            min_delay_s=delay_s,
            paced_min_delay_s=delay_s,
            max_delay_s=max(delay_s, settings.max_delay_s),
        )
    if crawl_delay_s is not None:
        longest_s = max(crawl_delay_s, settings.max_crawl_delay_s)
        settings = dataclasses.replace(settings, max_crawl_delay_s=longest_s)
    if overrides.connections is not None:
        settings = dataclasses.replace(settings, paced_connections=overrides.connections)
    return settings


def should_give_up(pace: Pace) -> bool:
    """Return whether to give up the host's other URLs: each would take an hour to fail too."""
    return pace.pauses >= (GIVE_UP_AFTER_PAUSES if pace.answered else GIVE_UP_NEW_AFTER_PAUSES)


def _is_trouble_counted(pace: Pace, begun_at: float | None) -> bool:
    """Return whether the last trouble of a host was in the turn that began at *begun_at*: what is
    asked for at once fails at once, and counts as one failure."""
    return pace.pacing is not None and pace.pacing.troubled_at == begun_at


def _count_challenges(pace: Pace, answer: Answer) -> Pace:
    """Count the refusals since the last page. Other answers, such as redirects, are no page."""
    if answer.status is None or answer.error == "cancelled":
        return pace
    if answer.status in HTTP_OK and not answer.error:
        is_as_it_was = pace.has_page and not (pace.unwelcome or pace.forbidden)
        return pace if is_as_it_was else replace(as_new(pace), has_page=True)
    is_challenge = answer.error == CHALLENGE and not answer.is_known
    is_forbidden = answer.status == 403
    if not (is_challenge or is_forbidden):
        return pace
    # No further than is needed, so that each takes one byte.
    return replace(
        pace,
        unwelcome=min(pace.unwelcome + is_challenge, PAUSE_AFTER_CHALLENGES + CHALLENGE_PROBES),
        forbidden=min(pace.forbidden + is_forbidden, STORM),
    )


def _count_failures(pace: Pace, event: CircuitEvent) -> Pace:
    if event is CircuitEvent.CANCELLED:
        return pace
    if event in (CircuitEvent.ANSWERED, CircuitEvent.CHALLENGED):
        return replace(pace, failures=0, pauses=0) if pace.failures or pace.pauses else pace
    if event is CircuitEvent.BROKE_OFF:
        return replace(pace, failures=pace.failures + 1, pauses=0)
    paused = TRANSITIONS[circuit(pace), event] is Circuit.OPEN
    return replace(pace, failures=pace.failures + 1, pauses=pace.pauses + paused)


def _timed(pace: Pace, duration_s: float) -> Pace:
    """Return *pace* with the time of one more fetch in its mean and variance. The second one takes
    the place of the first, which is longer: it connects, among many that do when a crawl begins."""
    fetches = min(pace.fetches + 1, MOST_TIMED)
    value, counted = log(max(duration_s, SHORTEST_FETCH_S)), max(1, fetches - 1)
    off = value - pace.log_fetch_s
    mean = pace.log_fetch_s + off / counted
    variance = pace.log_variance + (off * (value - mean) - pace.log_variance) / counted
    return replace(pace, fetches=fetches, log_fetch_s=mean, log_variance=variance)


def _standing(pace: Pace, answer: Answer, event: CircuitEvent) -> Standing:
    if event is CircuitEvent.CANCELLED:
        return pace.standing
    # A host that reports its trouble at once blocks no slot.
    answered = answer.status is not None or not is_trouble(answer)
    return Standing.ANSWERS if answered and not answer.hung else Standing.FAILS


def _paced(
    pace: Pace,
    answer: Answer,
    event: CircuitEvent,
    begun_at: float,
    settings: PolitenessSettings,
) -> Pacing | None:
    if event is CircuitEvent.CANCELLED:
        return pace.pacing
    if event is CircuitEvent.ANSWERED:
        return pacing_after_answer(pace.pacing, answer.duration_s, begun_at, settings)
    return pacing_after_trouble(
        pace.pacing,
        begun_at,
        settings,
        is_rate=answer.error == TOO_FAST
        or (answer.status in TOO_MANY and answer.error != CHALLENGE),
        was_failing=pace.failures > 0,
    )


def _gaps(
    pace: Pace,
    pacing: Pacing | None,
    fetch_s: float,
    event: CircuitEvent,
    settings: PolitenessSettings,
) -> list[tuple[float, str]]:
    """Return how long a host rests after one request that took *fetch_s*, each with why."""
    # After trouble a host rests as in the first stage.
    stage = None if event in _TROUBLE else pacing
    own_s = least_rest_s(stage, fetch_s, settings)
    asked_s = min(pace.crawl_delay_s, settings.max_crawl_delay_s)
    delays = [(own_s, "gap"), (asked_s, "crawl-delay")]
    if event is CircuitEvent.ANSWERED and pacing is not None and pacing.step and not pace.failures:
        return delays  # a mean of its answers decides, not the last one
    # After a probe that failed the pause is longer, in place of the gap.
    is_failed_probe = circuit(pace) is not Circuit.CLOSED and event in _FAILURES
    factor = 1.0 if is_failed_probe else GAP_FACTORS[event]
    return [*delays, (factor * min(pace.gap_s, MAX_REMEMBERED_GAP_S), "easing")]


def _pause_s(pauses: int, settings: PolitenessSettings) -> float:
    return min(settings.pause_s * 2.0 ** min(pauses - 1, 30), settings.pause_max_s)


def _challenge_pause_s(unwelcome: int, settings: PolitenessSettings) -> float:
    longer = 2.0 ** (unwelcome - PAUSE_AFTER_CHALLENGES)
    return min(settings.challenge_pause_s * longer, settings.challenge_pause_max_s)


def _at_least_s(asked_s: float, settings: PolitenessSettings, random: Random) -> float:
    # Jitter is upward only, so that postponed URLs do not all come back in the same second.
    return asked_s + random.uniform(0.0, min(asked_s / 10, settings.backoff_max_s))


# Whether a URL is tried again after an answer, and when. What may be better next time is tried
# again `retries` times, then it is a dead letter. While the host as a whole is down, its failures
# are not counted against its URLs, which would all be lost in a few minutes. Still no URL is tried
# for ever: in the end the host is given up (`should_give_up`). An answer whose body broke off is
# tried again likewise, but at the last try is kept as it is. Every other answer is final, 404 and
# 410 among them.

_RETRY_BELOW_500: Final = frozenset({408, 429})
RETRY_STATUSES: Final = "408, 429 and 500 to 599"
"""In words, for messages."""

# 429: it refuses all; 502, 503, 504: it cannot handle requests at the moment, or its gateway does
# not reach it (RFC 9110, 15.6); 520 to 530 are Cloudflare's of the same kind.
_HOST_DOWN_STATUSES: Final = frozenset({429, 502, 503, 504, *range(520, 531)})


def is_retry_status(status: int) -> bool:
    """Return whether the same request may have another status next time. A client treats what it
    does not know of a class as x00 of it, and codes from 600 as those of 5xx (RFC 9110, 15)."""
    return status >= 500 or status in _RETRY_BELOW_500


class KeepAnswer(msgspec.Struct, frozen=True):
    """The answer is final: the URL is not tried again."""


RetryDecision = RetryAt | Dead | PutBack | KeepAnswer


def retry_decision(
    candidate: Candidate,
    answer: Answer,
    rest_s: float,
    settings: PolitenessSettings,
    now: float,
    random: Random,
    *,
    is_host_down: bool = False,
) -> RetryDecision:
    """Decide about *candidate*, whose host now rests for *rest_s*."""
    if answer.error == "cancelled":
        return PutBack(was_asked=True)
    if not is_retryable(answer):
        return KeepAnswer()
    tries = candidate.attempts + 1
    is_counted = not settings.retries or not is_host_down
    if is_counted and tries > settings.retries:
        if answer.error and answer.status is not None and answer.error not in WHOLE:
            return KeepAnswer()  # its body broke off; what was received is kept
        what = answer.trouble or f"status {answer.status}"
        return Dead(f"{what}, tried {tries} times")
    wait_s = full_jitter_s(tries, settings.backoff_base_s, settings.backoff_max_s, random)
    return RetryAt(now + rest_s + wait_s, is_counted)


def is_host_down(pace: Pace, answer: Answer) -> bool:
    """Return whether *answer*, of a host that had *pace*, is the failure of the host as a whole: it
    has never answered without trouble, not even for its robots.txt, or it is paused and the probe
    found it down, or it does not welcome us. An error of one page, such as a 500, proves nothing of
    a paused host."""
    if not is_trouble(answer) or (answer.error == "disconnect" and answer.status is not None):
        return False
    if not pace.answered:
        return True
    if answer.error == CHALLENGE:
        return pace.unwelcome + 1 >= PAUSE_AFTER_CHALLENGES and not answer.is_known
    is_probe = circuit(pace) is not Circuit.CLOSED
    return is_probe and (answer.status is None or answer.status in _HOST_DOWN_STATUSES)


def is_retryable(answer: Answer) -> bool:
    """Return whether the same request may succeed next time."""
    return bool(answer.error) or answer.status is None or is_retry_status(answer.status)


# Retry-After headers (RFC 9110, 10.2.3): seconds, or a date. What cannot be read asks for nothing;
# a date in the past asks for 0 s.

MAX_BYTES: Final = 64
"""The longest form of a date has 33 (RFC 850); nothing longer is read as a date."""

_is_seconds = re.compile(rb"(\d+)(?:\.\d*)?").fullmatch
# Requires a weekday and a time: parsedate_tz finds a date in much else.
_is_date = re.compile(rb"[A-Za-z]+,? [\x20-\x7e]*\d\d:\d\d:\d\d[\x20-\x7e]*").fullmatch


def retry_after_s(value: bytes, now: float, max_s: float) -> float | None:
    """Return the seconds from *now*, from 0 to *max_s*, or None if the header cannot be read."""
    text = value.strip()
    seconds = _is_seconds(text)
    if seconds:
        # Rounded up. Ten digits are beyond any maximum, so no huge number is built.
        digits = seconds[1].lstrip(b"0")
        return min(max_s, float(digits[:10] or b"0") + (b"." in text))
    if len(text) > MAX_BYTES or not _is_date(text):
        return None
    at = _epoch_s(text.decode("ascii"))
    return None if at is None else min(max_s, max(0.0, at - now))


def _epoch_s(text: str) -> float | None:
    try:
        parts = parsedate_tz(text)
        if parts is None:
            return None
        return float(timegm((*parts[:6], 0, 1, 0)) - (parts[9] or 0))  # no zone: GMT
    except (ValueError, OverflowError):  # a year that no calendar has
        return None


# Whether our own line is down: nearly all hosts fail at once. Only hosts that answered before
# count, each by its last answer: a list of dead hosts would look like a dead line and keep a crawl
# waiting for ever. While the line is down a fetch is let through now and then, and no host is
# charged for failures: the caller calls `charges_host` first.


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkLimits:
    """The limits of the detection; all are guesses, revisit."""

    window_s: float = 60.0
    min_hosts: int = 20  # observed within it; fewer may be one server that is down
    max_hosts: int = 1024  # remembered
    failing_share: float = 0.9  # the part of them that fails
    probe_s: float = 10.0
    max_down_s: float = 6 * 3600.0  # then the hosts are charged: a crawl must end


class Uplink:
    """The state of our own line to the network."""

    def __init__(self, limits: UplinkLimits) -> None:
        self._limits = limits
        self._last: OrderedDict[HostKey, tuple[float, bool]] = OrderedDict()  # latest last
        self._down_since = 0.0
        self._probe_at: float | None = None  # None: the line is up

    def __len__(self) -> int:
        """Return the number of hosts remembered."""
        return len(self._last)

    def observe(self, host: HostKey, answer: Answer, now: float) -> None:
        """Record how *host* answered."""
        if answer.error == "cancelled":
            return
        failed = no_contact(answer)
        if self._probe_at is not None:
            self._after_probe(failed, now)
        elif host in self._last or not failed:
            self._record(host, failed, now)
            if failed and self._most_fail(now):
                self._down_since, self._probe_at = now, now + self._limits.probe_s

    def is_down(self, now: float) -> bool:
        """Return whether to lease nothing: the line is down and no probe is due."""
        return self._probe_at is not None and now < self._probe_at

    @property
    def probe_at(self) -> float | None:
        """The time when the next fetch may probe the line, or None if it is up."""
        return self._probe_at

    def charges_host(self) -> bool:
        """Return whether a failure counts against its host. Valid after `observe`."""
        return self._probe_at is None

    def _after_probe(self, failed: bool, now: float) -> None:
        if failed and now - self._down_since < self._limits.max_down_s:
            self._probe_at = now + self._limits.probe_s
        else:
            self._probe_at = None
            self._last.clear()

    def _record(self, host: HostKey, failed: bool, now: float) -> None:
        self._last[host] = (now, failed)
        self._last.move_to_end(host)
        if len(self._last) > self._limits.max_hosts:
            self._last.popitem(last=False)

    def _most_fail(self, now: float) -> bool:
        since = now - self._limits.window_s
        recent = [failed for at, failed in self._last.values() if at > since]
        enough = len(recent) >= self._limits.min_hosts
        return enough and sum(recent) >= self._limits.failing_share * len(recent)


def no_contact(answer: Answer) -> bool:
    """Return whether not even the head of an answer was received."""
    if answer.status is not None:
        return False
    return answer.error in ("dns", "connect", "disconnect", "timeout")
