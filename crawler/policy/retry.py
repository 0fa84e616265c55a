"""Is a URL tried again after this answer, and when?

Rule: what may be better next time is tried again, `retries` times, then it is a dead letter.
Trouble of the whole host uses them up as well: no URL is tried for ever. An answer whose body broke
off is tried again likewise, but stands at the last try, as far as it came. Everything else, 404
and 410 among it, is an answer and stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from crawler.core.config import Politeness
from crawler.core.types import Answer, Candidate, Dead, PutBack, RetryAt
from crawler.policy.backoff import full_jitter_s

# 522 and 524 are Cloudflare's: no connection to the server, no answer from it in time.
RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504, 522, 524})


@dataclass(frozen=True, slots=True)
class Keep:
    """The answer stands: store it, follow it, forget it, but do not ask again."""


Fate = RetryAt | Dead | PutBack | Keep


def fate(
    candidate: Candidate,
    answer: Answer,
    rest_s: float,
    rules: Politeness,
    now: float,
    random: Random,
) -> Fate:
    """What becomes of *candidate*, whose host now rests for *rest_s*."""
    if answer.error == "cancelled":
        return PutBack()
    if not may_be_better(answer):
        return Keep()
    tries = candidate.attempts + 1
    if tries > rules.retries:
        if answer.error and answer.status is not None:
            return Keep()  # its body broke off, and what came of it is all there will be
        what = answer.error or f"status {answer.status}"
        return Dead(f"{what}, tried {tries} times")
    wait_s = full_jitter_s(tries, rules.backoff_base_s, rules.backoff_max_s, random)
    return RetryAt(now + rest_s + wait_s)


def may_be_better(answer: Answer) -> bool:
    """Whether the same request may bring something else next time."""
    return bool(answer.error) or answer.status is None or answer.status in RETRIED
