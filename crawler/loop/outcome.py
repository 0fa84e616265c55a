"""What becomes of a lease: the claim on its content, the verdict on its URL, its line in the
outcome log, its failure."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from crawler.loop.life import Life
from crawler.model.page import Flaw, Page
from crawler.model.types import (
    HTTP_OK,
    IN_NO_BODY,
    Answer,
    Change,
    ChangeKind,
    Claim,
    Dead,
    Done,
    HostFetch,
    Lease,
    Moved,
    Outcome,
    PutBack,
    RetryAt,
    Verdict,
    change_key,
)
from crawler.policy.link_checks import result_of
from crawler.policy.politeness import (
    CHALLENGE,
    LEFT,
    is_cancelled,
    is_retry_status,
    is_trouble,
)
from crawler.policy.silent_hosts import NEVER_ANSWERED

_FATES = {Done: "done", RetryAt: "retry", Moved: "moved", PutBack: "put_back", Dead: "dead"}
_NO_ANSWER: Final = Answer(0.0)
FAULT: Final = "error in a downloader middleware or handler: "
"""Begins the words of such an error, in the reason of a URL that is not fetched because of it."""
_NO_PAGES: Final = frozenset(Flaw) - {Flaw.NONE}
NOT_MODIFIED: Final = 304
UNMODIFIED: Final = "not modified"
"""The reason of a visit whose host was asked whether the page has changed, and said no."""


NO_PAGE_STATUS: Final = 0
"""The status of a claim of which no page is a copy; its bytes are still stored only once."""
_STATUS_OF: Final = {Flaw.SOFT_404: 404, Flaw.WRONG_TYPE: NO_PAGE_STATUS}


def claim_of(page: Page, body_sha1: bytes, now: float, *, may_change: bool) -> Claim | None:
    """Return the claim on the content of *page*, which has been archived; None if there is one
    already, or nothing to claim. A page with "noindex" is no original, because the same content may
    be allowed under another URL. *may_change*: if a crash cut off the metadata of its record, its
    claim lacks the fingerprint, and gets it."""
    if page.is_refetch:
        known = page.duplicate_of
        is_whole = page.simhash is None or page.alias_of or not may_change
        if known is None or known.simhash is not None or is_whole:
            return None
        return replace(known, simhash=page.simhash)
    if page.is_repeat or not page.digest:
        return None
    at = page.exchange.at if page.exchange else now
    is_original = page.archive and not page.alias_of and not page.flaw
    status = page.status if is_original else _STATUS_OF.get(page.flaw, NO_PAGE_STATUS)
    simhash = page.simhash if is_original else None
    # Where the bytes are an earlier crawl's, no record of this one can be referred to.
    record = page.record if page.archived_elsewhere is None else ""
    wire_sha1 = body_sha1 if page.rendered is None else IN_NO_BODY
    return Claim(page.digest, page.url, record, at, wire_sha1, status, simhash)


def verdict_of(life: Life, now: float, retries: int, pause_s: float) -> Verdict:
    """Return the verdict on its URL. After an error of a callback or a pipeline, which may be
    temporary, it is fetched again, *pause_s* later, if fewer than *retries* fetches of it have
    failed, by such errors or by its host; else it is dead."""
    verdict, claim = life.verdict, life.archived.claim
    if life.error and not isinstance(verdict, Dead | RetryAt | PutBack):
        return Dead(life.error) if life.candidate.attempts >= retries else RetryAt(now + pause_s)
    if verdict is None:
        return Done(claim=claim)
    return replace(verdict, claim=claim) if isinstance(verdict, Moved) else verdict


def lease_to_finish(life: Life, verdict: Verdict) -> Lease:
    """Return the lease of *life* with what is kept of it changed on its candidate: a dead letter
    has its last try counted, too; and `may_be_archived` is set, as after a crash, if the URL is
    fetched again although its answer was archived, because no claim refers to that record."""
    lease, candidate = life.lease, life.candidate
    if isinstance(verdict, Dead) and life.answer is not None:
        return replace(lease, candidate=replace(candidate, attempts=candidate.attempts + 1))
    if life.archived.record and isinstance(verdict, RetryAt | PutBack):
        return replace(lease, candidate=replace(candidate, may_be_archived=True))
    return lease


def says_unmodified(life: Life, status: int, body_bytes: int) -> bool:
    """Return whether an answer of *status* says that the page is as it was, as its request has
    asked. A 304 that was not asked for, or has a body, says nothing of the page."""
    is_open = life.verdict is None and not life.is_challenged
    return is_open and life.is_conditional and status == NOT_MODIFIED and not body_bytes


def outcome_of(life: Life, verdict: Verdict, now: float) -> Outcome:
    candidate, answer, facts = life.candidate, life.answer or _NO_ANSWER, life.facts
    reason = life.error or facts.reason or life.reason
    if isinstance(verdict, Dead):
        reason = verdict.reason
    is_failed = isinstance(verdict, Dead) or (isinstance(verdict, RetryAt) and not life.lacking)
    seed, dead_end, target = candidate.seed_url, life.dead_end, ""
    if isinstance(verdict, Moved):
        target = verdict.candidate.url
    elif dead_end is not None:
        target, reason = dead_end.target, dead_end.why or reason
    outcome = Outcome(
        at=round(now, 3),
        url=candidate.url,
        host=candidate.host,
        fate=_FATES[type(verdict)],
        status=answer.status,
        reason=reason or answer.trouble,
        seconds=round(answer.duration_s, 4),
        size=life.body_bytes,
        attempts=candidate.attempts,
        depth=candidate.depth,
        record=life.archived.record,
        target=target,
        original=facts.original,
        bits=facts.bits,
        failure=failure_of(life, reason) if is_failed else "",
        seed=seed,
        seed_fate=seed_fate(life, verdict, reason) if seed else "",
        round=life.lease.round,
        price=life.price,
        preferences=facts.preferences,
    )
    if not life.is_of_check:
        return outcome
    return replace(outcome, external=result_of(outcome, answer.error))


def page_change(life: Life, verdict: Verdict, now: float) -> Change | None:
    """Return the entry of the change feed for a page that *verdict* makes done, or None if there is
    nothing for an index: no page, a page without a record (noindex, a near-copy that is not
    stored), one that has not changed, or a URL that is not done yet."""
    page, record = life.archived.page, life.archived.record
    url, facts = life.candidate.url, life.facts
    if _has_gone(life, verdict):
        return Change(
            kind=ChangeKind.GONE,
            at=round(now, 3),
            key=change_key(url),
            url=url,
            status=life.answer.status if life.answer else None,
        )
    if page is None or not record or not isinstance(verdict, Done):
        return None
    before, again = life.candidate.history, verdict.again
    if before is not None and again is not None and again.is_changed is False:
        return None
    kind = ChangeKind.NEW
    if before is not None and before.visits:
        kind = ChangeKind.CHANGED if before.content else ChangeKind.CAME_BACK
    return Change(
        kind=kind,
        at=round(now, 3),
        key=change_key(url),
        url=url,
        record=record,
        digest=page.digest,
        status=life.answer.status if life.answer else None,
        media_type=page.media_type,
        original=facts.original,
        bits=facts.bits,
    )


def _has_gone(life: Life, verdict: Verdict) -> bool:
    """Return whether a page that an index may have is no page any more."""
    before, seen = life.candidate.history, life.archived.seen
    if before is None or not before.visits or not before.content or life.answer is None:
        return False
    if seen is not None and seen.is_hidden:
        return True
    if isinstance(verdict, Done):
        status = life.answer.status
        is_found = status in HTTP_OK or status == NOT_MODIFIED
        is_there = is_found and not (seen is not None and seen.is_error)
        return verdict.again is None and not is_there
    if isinstance(verdict, RetryAt):
        return verdict.history is not None and not verdict.history.content
    return isinstance(verdict, Dead | Moved)


def seed_fate(life: Life, verdict: Verdict, reason: str) -> str:
    """Return what became of the seed that *life* is for: page, redirected, what its answer was
    instead, or a kind of failure. Empty: that is not decided yet."""
    if isinstance(verdict, Moved):
        # A loop may lead through the seed again.
        return "" if life.lease.candidate.chain else "redirected"
    if isinstance(verdict, Dead):
        return failure_of(life, reason)
    if not isinstance(verdict, Done):
        return ""
    if life.dead_end is not None:
        return life.dead_end.kind
    if life.is_sent_on:
        return "redirected"
    status = life.answer.status if life.answer else None
    if status is None:
        kind = reason.partition(" ")[0].rstrip(":")
        return {"robots.txt": "robots", "pattern": "pattern"}.get(kind, "other")
    if status in HTTP_OK:
        return reason if reason in _NO_PAGES else "page"
    return "page" if life.is_wanted else f"status_{status}"


def failure_of(life: Life, reason: str) -> str:
    """Return the kind of failure of *life*, one of FAILURES."""
    answer = life.answer or _NO_ANSWER
    if life.error or FAULT in reason:
        return "broken"
    if answer.error:
        return failure_of_answer(answer)
    if answer.status is not None:
        if is_retry_status(answer.status):
            return status_failure(answer.status)
        if 300 <= answer.status < 400:
            return "redirects"
    if reason == LEFT:
        return CHALLENGE
    if reason.startswith(NEVER_ANSWERED):
        return reason.removeprefix(NEVER_ANSWERED)
    return "robots_unreachable" if reason.startswith("robots.txt ") else "other"


def failure_of_answer(answer: Answer) -> str:
    """Return the kind of failure of *answer*, or, of another 4xx, its status; empty: it is none."""
    if answer.error:
        return answer.error if answer.error in FAILURES else "other"
    if answer.status is None:
        return "other"
    if is_retry_status(answer.status):
        return status_failure(answer.status)
    return f"status_{answer.status}" if answer.status >= 400 else ""


def host_fetch(life: Life, answer: Answer) -> HostFetch | None:
    """Return what *answer* adds to what is known of its host; None: nothing, as the fetch was
    cancelled, or was for a robots.txt or a probe and did not fail."""
    if is_cancelled(answer) or not (life.is_of_own_url or is_trouble(answer)):
        return None
    status = answer.status or 0
    return HostFetch(
        failure=failure_of_answer(answer),
        status=status,
        bytes=life.received_bytes,
        is_page=life.is_of_page and not answer.error and status in HTTP_OK,
    )


def fetches_beside(answers: Iterable[Answer], body_bytes: int = 0) -> tuple[HostFetch, ...]:
    """Return what *answers* to requests for what a page needs add to what is known of their host;
    *body_bytes*: of all of them."""
    counted = [
        HostFetch(failure=failure_of_answer(each), status=each.status or 0)
        for each in answers
        if not is_cancelled(each)
    ]
    if counted:
        counted[-1] = replace(counted[-1], bytes=body_bytes)
    return tuple(counted)


# The kinds of failure, by the words of counters, outcomes, summary and metrics.

WORDS: Final = MappingProxyType(
    {
        "challenge": "not welcome: a challenge or a block",
        "broken": "error in a callback, pipeline or middleware",
        "connect": "no connection",
        "disconnect": "left amid the answer",
        "dns": "name not found",
        "redirects": "redirects without an end",
        "robots_failed": "robots.txt not fetched",
        "robots_unreachable": "robots.txt unreachable",
        "tls": "no trustworthy TLS connection",
        "too_fast": "asked to slow down",
    }
)
"""Readable words for the kinds of errors that are not clear by themselves."""

_STATUSES: Final = (408, 429, *range(500, 512), *range(520, 531))
"""Those that are registered, and Cloudflare's."""

FAILURES: Final = (
    *("timeout", "connect", "dns", "tls", "protocol", "disconnect", "redirects"),
    *("challenge", "too_fast"),
    *("robots_unreachable", "robots_failed", "broken", "other"),
    *(f"status_{status}" for status in _STATUSES),
    "status_5xx",
)
"""All kinds. `robots_failed` counts fetches of a robots.txt, which have no outcome."""


def status_failure(status: int) -> str:
    """Return the kind of failure of a page that is tried again for its *status*."""
    return f"status_{status}" if status in _STATUSES else "status_5xx"


def words_of(kind: str) -> str:
    """Return a kind of error in readable words: `status_503` is "status 503"."""
    return WORDS.get(kind, kind.replace("_", " "))
