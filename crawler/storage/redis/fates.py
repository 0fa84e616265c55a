"""A verdict as a shard is told it: a word, a delay, and what is kept."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from crawler.core.types import Candidate, Claim, Dead, Done, HostKey, Moved, RetryAt, Verdict
from crawler.scheduler.records import DeadLetter
from crawler.storage.redis.packed import pack

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A lease of which only its number and host are understood."""

    number: int
    host: str
    body: bytes
    why: str


def letter_of(it: Unreadable, now: float) -> bytes:
    lost = Candidate(f"unreadable:{it.body[:200]!r}", 0, HostKey(it.host), it.host)
    return encode_letter(DeadLetter(lost, f"its record in Redis cannot be read: {it.why}", now))


def encode_letter(letter: DeadLetter) -> bytes:
    return _encode(letter)


def claim_of(verdict: Verdict) -> Claim | None:
    """What its page owns from now on."""
    return verdict.claim if isinstance(verdict, Done | Moved) else None


def fate(candidate: Candidate, verdict: Verdict, now: float) -> tuple[str, float, bytes]:
    match verdict:
        case Done(next_visit, _):
            if next_visit is None:
                return "done", 0, b""
            again = replace(candidate, attempts=0, chain=(), lost=False)
            return "again", next_visit - now, pack(again)
        case RetryAt(when):
            again = replace(candidate, attempts=candidate.attempts + 1)
            return "retry", when - now, pack(again)
        case Moved():
            return "done", 0, b""
        case Dead(reason):
            return "dead", 0, encode_letter(DeadLetter(candidate, reason, now))
        case _:
            return "back", 0, pack(candidate) if candidate.lost else b""
