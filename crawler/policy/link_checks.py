"""Checks of links that lead out of the scope: how such a link is asked for, and what its answer
says of it.

Rule: pure. A link is asked for at most twice: by HEAD, and by GET where the answer to that says
little, as many servers answer HEAD wrongly. How often it was asked for is the number of its
attempts, so that this survives a restart as they do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from crawler.model.types import Answer, Candidate, Outcome
from crawler.policy.politeness import CHALLENGE, TOO_FAST
from crawler.policy.redirects import REDIRECTS

MAX_BODY_BYTES: Final = 4096
"""Of the answer to a GET, of which only the status counts."""

_BELIEVED: Final = frozenset({401, 410})
"""Errors that a server does not make up for HEAD only (guess)."""
_CLOSED: Final = frozenset({401, 403, 407, 429, 451, 999})
"""Answers that say who may see a page, not whether it is there. (999: LinkedIn's.)"""
_NO_ANSWER: Final = frozenset({"timeout", "connect", "dns", "tls", "protocol", "disconnect"})


class ExternalResult(StrEnum):
    """What is known of an external link by its last answer."""

    OK = "ok"
    MOVED = "moved"  # the target is checked in turn, unless it is not to be asked for
    BROKEN = "broken"
    UNKNOWN = "unknown"  # it may not be asked for, its host lets no robots in, or it is not over


def method_of(candidate: Candidate) -> str:
    return "GET" if candidate.attempts else "HEAD"


def is_asked_again(candidate: Candidate, answer: Answer) -> bool:
    """Return whether the *answer* to a HEAD says so little that a GET follows."""
    if candidate.attempts:
        return False
    if answer.status is None or answer.error:
        return True
    return answer.status >= 400 and answer.status not in _BELIEVED


def result_of(outcome: Outcome, error: str) -> ExternalResult:
    """Return what the *outcome* of a check says of its link. *error*: of its answer."""
    status = outcome.status
    if outcome.fate in ("retry", "refused") or error in (CHALLENGE, TOO_FAST):
        return ExternalResult.UNKNOWN
    if outcome.fate == "moved" or (status in REDIRECTS and outcome.target):
        return ExternalResult.MOVED
    if status is None:
        # Of a host that has no robots.txt to give, as it gives nothing, the reason has the error.
        why = {outcome.failure, *outcome.reason.split(": ")[1:]}
        return ExternalResult.UNKNOWN if why.isdisjoint(_NO_ANSWER) else ExternalResult.BROKEN
    if status in _CLOSED:
        return ExternalResult.UNKNOWN
    is_there = status < 400 and status not in REDIRECTS
    return ExternalResult.OK if is_there else ExternalResult.BROKEN
