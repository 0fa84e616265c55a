"""When may a host be contacted again? Decided at the end of each fetch.

Rule: the host's gap is delay_factor x the last fetch, within [min, max], and never below its
crawl-delay. Trouble (429, 5xx, time-outs, no connection) is the host's, not the URL's: it doubles
the gap and adds a full-jitter backoff; five in a row pause the host, and one probe reopens it. A
body that broke off backs off likewise, but does not pause the host, which does answer: one that
declares wrong lengths would be given up though its pages can be read. With each answer the gap
eases again, down to the host's own. What a host asks for comes first: neither Retry-After nor
crawl-delay is cut by max_delay_s, only by a maximum of its own.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Final

from msgspec.structs import replace

from crawler.core.config import Politeness
from crawler.core.types import Answer, Pace, Rest, Standing
from crawler.policy.backoff import full_jitter_s

HOST_ERRORS: Final = frozenset({"timeout", "connect", "dns", "tls", "disconnect"})
"""Errors that are the host's. A protocol error is its page's: the host did answer."""

SWAY_MAX_S: Final = 30.0
"""Of the last gap so much is remembered: one page that took long is soon forgotten."""

LOST_AFTER_PAUSES: Final = 5
"""In a row: 75 minutes of pauses and probes have gone by, and the next pause has begun."""


class Circuit(StrEnum):
    """How far a host is trusted."""

    CLOSED = "closed"
    OPEN = "open"  # paused, not contacted
    HALF_OPEN = "half open"  # the pause is over: one probe decides


class Event(StrEnum):
    """What happens to a host."""

    ANSWERED = "answered"  # 404 is an answer like any other
    BROKE_OFF = "broke off"  # a part of an answer came
    FAILED = "failed"
    FAILED_OFTEN = "failed often"  # pause_after_failures times in a row
    CANCELLED = "cancelled"  # by us: says nothing about the host
    RESTED = "rested"


TRANSITIONS: Final[dict[tuple[Circuit, Event], Circuit]] = {
    (Circuit.CLOSED, Event.ANSWERED): Circuit.CLOSED,
    (Circuit.CLOSED, Event.BROKE_OFF): Circuit.CLOSED,
    (Circuit.CLOSED, Event.FAILED): Circuit.CLOSED,
    (Circuit.CLOSED, Event.FAILED_OFTEN): Circuit.OPEN,
    (Circuit.CLOSED, Event.CANCELLED): Circuit.CLOSED,
    (Circuit.CLOSED, Event.RESTED): Circuit.CLOSED,
    (Circuit.OPEN, Event.RESTED): Circuit.HALF_OPEN,
    (Circuit.HALF_OPEN, Event.ANSWERED): Circuit.CLOSED,
    (Circuit.HALF_OPEN, Event.BROKE_OFF): Circuit.CLOSED,
    (Circuit.HALF_OPEN, Event.FAILED): Circuit.OPEN,
    (Circuit.HALF_OPEN, Event.FAILED_OFTEN): Circuit.OPEN,
    (Circuit.HALF_OPEN, Event.CANCELLED): Circuit.HALF_OPEN,
    (Circuit.HALF_OPEN, Event.RESTED): Circuit.HALF_OPEN,  # after a cancelled probe
}
"""Nothing but the end of its rest can happen to a host that is OPEN: it is not leased."""

SWAY: Final = {
    Event.ANSWERED: 0.7,
    Event.BROKE_OFF: 2.0,
    Event.FAILED: 2.0,
    Event.FAILED_OFTEN: 2.0,
    Event.CANCELLED: 1.0,
}
"""What the last gap is multiplied by before it is compared with the host's own. Simulated with a
host that sends 429, without Retry-After, to whoever comes within 5 s: 0.5 refusals for each page,
against 2.7 if trouble only adds the backoff and 0.9 if answers halve. Easing more slowly would be
better still there, and make every other host pay longer for one slow page."""


def circuit(pace: Pace, *, resting: bool = False) -> Circuit:
    """The state a pace stands for."""
    if not pace.pauses:
        return Circuit.CLOSED
    return Circuit.OPEN if resting else Circuit.HALF_OPEN


def is_trouble(answer: Answer) -> bool:
    """Whether the host, not the page, is in trouble."""
    if answer.error:
        return answer.error in HOST_ERRORS
    return answer.status is None or answer.status == 429 or answer.status >= 500


def event_of(answer: Answer, pace: Pace, rules: Politeness) -> Event:
    """What an answer means for the host."""
    if answer.error == "cancelled":
        return Event.CANCELLED
    if not is_trouble(answer):
        return Event.ANSWERED
    if answer.error == "disconnect" and answer.status is not None:
        return Event.BROKE_OFF
    often = pace.failures + 1 >= rules.pause_after_failures
    return Event.FAILED_OFTEN if often else Event.FAILED


def next_rest(pace: Pace, answer: Answer, rules: Politeness, random: Random) -> Rest:
    """How long to leave the host alone after *answer*, and its pace from then on."""
    event = event_of(answer, pace, rules)
    after = replace(_counted(pace, event), standing=_standing(pace, answer, event))
    wishes = _gaps(pace, answer, event, rules)
    gap_s = max(wishes)[0]
    if circuit(after, resting=True) is Circuit.OPEN and event is not Event.CANCELLED:
        wishes.append((gap_s + _pause_s(after.pauses, rules), "pause"))
    elif event in (Event.BROKE_OFF, Event.FAILED, Event.FAILED_OFTEN):
        gap_s += full_jitter_s(after.failures, rules.backoff_base_s, rules.backoff_max_s, random)
        wishes.append((gap_s, "backoff"))
    if answer.retry_after_s is not None:
        wishes.append((_at_least_s(answer.retry_after_s, rules, random), "retry-after"))
    seconds, reason = max(wishes)
    return Rest(seconds, replace(after, gap_s=gap_s), reason)


def is_lost(pace: Pace) -> bool:
    """Whether to give the host's other URLs up: each would take an hour to learn the same."""
    return pace.pauses >= LOST_AFTER_PAUSES


def _counted(pace: Pace, event: Event) -> Pace:
    if event is Event.CANCELLED:
        return pace
    if event is Event.ANSWERED:
        return replace(pace, failures=0, pauses=0)
    if event is Event.BROKE_OFF:
        return replace(pace, failures=pace.failures + 1, pauses=0)
    paused = TRANSITIONS[circuit(pace), event] is Circuit.OPEN
    return replace(pace, failures=pace.failures + 1, pauses=pace.pauses + paused)


def _standing(pace: Pace, answer: Answer, event: Event) -> Standing:
    if event is Event.CANCELLED:
        return pace.standing
    # A host in trouble that says so at once holds nothing up.
    answered = answer.status is not None or not is_trouble(answer)
    return Standing.ANSWERS if answered and not answer.hung else Standing.FAILS


def _gaps(pace: Pace, answer: Answer, event: Event, rules: Politeness) -> list[tuple[float, str]]:
    own_s = min(max(rules.delay_factor * answer.duration_s, rules.min_delay_s), rules.max_delay_s)
    asked_s = min(pace.crawl_delay_s, rules.max_crawl_delay_s)
    swayed_s = SWAY[event] * min(pace.gap_s, SWAY_MAX_S)
    return [(own_s, "gap"), (asked_s, "crawl-delay"), (swayed_s, "easing")]


def _pause_s(pauses: int, rules: Politeness) -> float:
    return min(rules.pause_s * 2.0 ** min(pauses - 1, 30), rules.pause_max_s)


def _at_least_s(retry_after_s: float, rules: Politeness, random: Random) -> float:
    # Jitter upward only, lest all that was put off comes back in the same second.
    asked_s = min(max(retry_after_s, 0.0), rules.max_retry_after_s)
    return asked_s + random.uniform(0.0, min(asked_s / 10, rules.backoff_max_s))
