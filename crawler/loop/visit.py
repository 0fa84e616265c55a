"""Whether and when a page is visited again, by what its visit has found.

Rule: pure. A failed fetch ends no history: the page is tried again some days later, and is gone
when that has happened a number of times in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.config.settings import Config
from crawler.loop.life import Life, Seen
from crawler.loop.outcome import NOT_MODIFIED
from crawler.model.choices import ChangeChoice, RevisitChoice, RevisitMode
from crawler.model.page import Exchange, Flaw, Page, VisitsSoFar
from crawler.model.types import (
    HTTP_OK,
    IN_NO_BODY,
    Again,
    Candidate,
    Compared,
    Dead,
    Done,
    HostKey,
    Moved,
    PageHistory,
    RetryAt,
    Verdict,
    VisitCheck,
)
from crawler.policy.revisits import (
    BRINGS,
    MOST_LINK_DAYS,
    NO_LINKS,
    after_links,
    link_days,
    pack_rate,
    prior,
    stale_chance,
    stale_days,
    unpack_rate,
)
from crawler.policy.robots_cache import UNREACHABLE
from crawler.policy.validators import check_of, validators_of

_DAY_S: Final = 86_400.0
_LONGEST_S: Final = 30 * _DAY_S  # until a page that was not there is asked for again
_MOST: Final = 60_000  # visits and changes that are counted
_FIRST_LIST_S: Final = 6 * 3600.0  # guess: until a sitemap or a feed is visited again first
_ANY_PLACES: Final = 1_000_000  # of a list that was not sent again, as it has not changed
_NOT_ASKED_S: Final = 7 * _DAY_S
GONE: Final = 410
FOR_GOOD: Final = (301, 308)
"""Redirects that say that the page is elsewhere from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitLimits:
    """When a page has changed, and when it is gone."""

    change: ChangeChoice = ChangeChoice.TEXT
    similar_bits: int = 3  # of two fingerprints that may differ
    gone_after: int = 3  # visits in a row
    usual_days: float = 30.0  # between changes of a page of which nothing is known


def visit_limits(config: Config) -> VisitLimits:
    return VisitLimits(
        change=config.revisits.revisit_change,
        similar_bits=config.content.near_max_bits,
        gone_after=config.revisits.gone_after,
        usual_days=config.revisits.revisit_usual_days,
    )


class VisitResult(StrEnum):
    """What the visit of a page that was visited before has found."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    UNCOMPARED = "uncompared"  # another thing was compared before, or nothing can be
    ABSENT = "absent"  # it was not there, and is asked for again
    GONE = "gone"
    MOVED = "moved"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LaterVisit:
    """A visit of a page that was visited before."""

    host: HostKey
    result: VisitResult
    interval_s: float = 0.0  # since the visit before, if both can be compared
    stale_s: float = 0.0  # for how long of these its copy was stale, as far as is known


def later_visit(page: Candidate, verdict: Verdict, usual_days: float) -> LaterVisit | None:
    """Return what the visit of *page* has found, or None if it is the first, or found nothing. A
    copy of a page that has not changed was fresh all the time; of one that has, it is stale since
    some time in between, which its change rate makes likely."""
    before = page.history
    if before is None or not before.visits:
        return None
    match verdict:
        case Done(again=Again() as again):
            interval_s = again.history.visited_at - before.visited_at
            if again.history.gone:
                return LaterVisit(page.host, VisitResult.ABSENT)
            if interval_s <= 0:
                return None
            if again.is_changed is None:
                return LaterVisit(page.host, VisitResult.UNCOMPARED)
            if not again.is_changed:
                return LaterVisit(page.host, VisitResult.UNCHANGED, interval_s)
            rate, days = unpack_rate(before.rate) or prior(1.0 / usual_days), interval_s / _DAY_S
            stale_s = interval_s * stale_days(rate, days) / (days * stale_chance(rate, days))
            return LaterVisit(page.host, VisitResult.CHANGED, interval_s, stale_s)
        case RetryAt(history=PageHistory(content=0)) if before.content:
            return LaterVisit(page.host, VisitResult.GONE)
        case Done(gone=PageHistory()) | Dead():
            return LaterVisit(page.host, VisitResult.GONE)
        case Moved():
            return LaterVisit(page.host, VisitResult.MOVED)
        case RetryAt():
            return LaterVisit(page.host, VisitResult.FAILED)
    return None


def seen_of(page: Page, by: ChangeChoice) -> Seen:
    """Return what of *page* is compared with its next visit. A page without text, and a copy, whose
    text is not read, is compared by its bytes."""
    compared, content = Compared.BYTES, int.from_bytes(page.digest[:8])
    if by is ChangeChoice.SIMILAR and page.simhash is not None:
        compared, content = Compared.SIMILAR, page.simhash
    elif by is not ChangeChoice.BYTES and page.text:
        compared, content = (
            Compared.TEXT,
            xxh3_64_intdigest(page.text.encode(errors="surrogatepass")),
        )
    is_hidden = page.noindex or page.disallowed is not None
    return Seen(
        content=0 if is_hidden else content,
        compared=compared,
        # Of a copy, and of a page that is not kept, the archive has no answer whole that a later
        # "not modified" could refer to. Of a rendered page that would say nothing of its data.
        validators=_validators(page.exchange) if _is_kept(page) else None,
        stored_at=_stored_at(page),
        is_same=page.is_refetch,
        places=len(page.parsed.links) if page.parsed else 0,
        is_list=page.is_list or (page.parsed is not None and page.parsed.parser == "feed"),
        is_hidden=is_hidden,
        is_error=page.flaw is Flaw.SOFT_404,
    )


def _is_kept(page: Page) -> bool:
    is_own = not page.is_copy and page.archived_elsewhere is None
    return page.archive and is_own and page.rendered is None


def _stored_at(page: Page) -> int:
    """Return when the answer was fetched that the archive has whole of *page*, in epoch seconds; 0:
    it has none."""
    same = page.duplicate_of
    # A claim on a DOM refers to no answer that could be repeated.
    if page.is_repeat and same is not None and same.record and same.wire_sha1 != IN_NO_BODY:
        return int(same.at) if page.is_refetch else 0
    if page.exchange is None or not page.record or page.archived_elsewhere is not None:
        return 0
    return int(page.exchange.at)


def seen_in_body(body: bytes, exchange: Exchange | None) -> Seen:
    """Return what is compared of an answer that only a spider's own callback reads."""
    return Seen(
        content=xxh3_64_intdigest(body),
        compared=Compared.BYTES,
        validators=_validators(exchange),
    )


def _validators(exchange: Exchange | None) -> str | None:
    if exchange is None or exchange.truncated:
        return None
    return validators_of(exchange.headers, exchange.at)


def has_changed(before: PageHistory, seen: Seen, similar_bits: int) -> bool | None:
    """Return whether a page has changed since the visit before; None: another thing was compared
    then, so that both differ anyway."""
    if before.compared is not seen.compared:
        return None
    if seen.compared is Compared.SIMILAR:
        return (before.content ^ seen.content).bit_count() > similar_bits
    return before.content != seen.content


def visits_so_far(
    before: PageHistory | None, is_changed: bool | None, mode: RevisitMode, at: int
) -> VisitsSoFar:
    """Return what the row of a page that is visited again, now *at*, says of its visits."""
    next_at = None if isinstance(mode, RevisitChoice) else int(at + mode)
    if before is None or not before.visits:
        return VisitsSoFar(1, 0, at, next_at)
    changed = is_changed is not False
    changed_at = at if changed else before.changed_at
    return VisitsSoFar(before.visits + 1, before.changes + changed, changed_at, next_at)


def with_next_visit(
    life: Life, verdict: Verdict, mode: RevisitMode, limits: VisitLimits, now: float
) -> Verdict:
    """Return *verdict* with the next visit of its page, if there is one."""
    before, answer = life.candidate.history, life.answer
    if not life.is_of_page or (mode is RevisitChoice.ONCE and before is None):
        return verdict
    if answer is None:
        # Not asked, by its robots.txt for now, or while there is no answer for that.
        if before is not None and verdict == Done():
            return Done(again=Again(before, at=now + _NOT_ASKED_S))
        is_dead = isinstance(verdict, Dead) and verdict.reason.startswith(UNREACHABLE)
        return RetryAt(now + _DAY_S, is_counted=False) if before and is_dead else verdict
    at = int(life.began_at or now)
    match verdict:
        case Dead() if before is not None and life.error:
            return RetryAt(now + _DAY_S, is_counted=False)  # the fault of our own code
        case Dead() if before is not None:
            history = _missed(before, at)
            if _is_gone(before, limits):
                history = replace(history, content=0)
            return RetryAt(_ask_again(history, now), is_counted=False, history=history)
        case Moved() if before is not None and answer.status not in FOR_GOOD:
            if not _is_gone(before, limits):
                return Done(again=_again_if_there(before, at, now))
            return replace(verdict, gone=_gone(before, limits))
        case Moved():
            return replace(verdict, gone=_gone(before, limits))
        case Done():
            again = _next_visit(life, before, answer.status, mode, limits, at, now)
            return replace(verdict, again=again, gone=None if again else _gone(before, limits))
    return verdict


def _next_visit(
    life: Life,
    before: PageHistory | None,
    status: int | None,
    mode: RevisitMode,
    limits: VisitLimits,
    at: int,
    now: float,
) -> Again | None:
    seen = life.archived.seen
    if life.is_unmodified and before is not None:
        history = _visited(before, at, 0, is_changed=False)
        if seen is not None and seen.is_hidden:
            history = replace(history, content=0, validators=None)  # the next visit is of a page
        is_list = life.candidate.is_sitemap
        next_at = _next_at(mode, before, history, _ANY_PLACES, now, is_list=is_list)
        return Again(history, is_changed=False, at=next_at, check=VisitCheck.UNMODIFIED)
    if status == NOT_MODIFIED and before is not None:
        # To a request that asked for the page itself: this says nothing of it.
        return Again(replace(before, validators=None), at=now + _DAY_S)
    if status not in HTTP_OK or (seen is not None and seen.is_error):
        is_over = status is None or status == GONE or _is_gone(before, limits)
        return None if is_over else _again_if_there(before, at, now)
    if seen is None:
        return None
    if before is None or not before.visits:
        changed = None
        history = PageHistory(at, at, at)
    else:
        changed = has_changed(before, seen, limits.similar_bits)
        history = _visited(before, at, life.new_links, is_changed=changed is not False)
    # No answer of this visit can be asked by: that of the one before still says what is there. One
    # that can but is not in the archive leaves no record that a 304 could refer to.
    is_kept = changed is False and not seen.stored_at and seen.validators is None
    is_kept = is_kept and life.rendered is None
    history = replace(
        history,
        stored_at=history.stored_at if is_kept else seen.stored_at,
        content=seen.content,
        compared=seen.compared,
        validators=history.validators if is_kept else seen.validators,
    )
    check = VisitCheck.NONE
    if before is not None:
        check = check_of(
            before,
            life.lease.conditional,
            is_asked=life.is_conditional,
            is_changed=changed,
            is_same=seen.is_same,
            validators=seen.validators,
        )
    next_at = _next_at(mode, before, history, seen.places, now, is_list=seen.is_list)
    return Again(history, changed, next_at, check)


def _next_at(
    mode: RevisitMode,
    before: PageHistory | None,
    history: PageHistory,
    places: int,
    now: float,
    *,
    is_list: bool,
) -> float | None:
    """Return the date of the next visit, or None if it comes when it is worth it. Pages that bring
    new links are visited for these."""
    if not isinstance(mode, RevisitChoice):
        return now + mode
    if not is_list and history.brought < BRINGS:
        return None
    if before is None or not before.visits:
        return now + _FIRST_LIST_S
    last_days = (history.visited_at - before.visited_at) / _DAY_S
    rate = unpack_rate(history.links_rate) or NO_LINKS
    days = link_days(rate, places, last_days)
    return None if days >= MOST_LINK_DAYS and not is_list else now + days * _DAY_S


def _visited(before: PageHistory, at: int, new_links: int, *, is_changed: bool) -> PageHistory:
    days = (at - before.visited_at) / _DAY_S
    links = after_links(unpack_rate(before.links_rate) or NO_LINKS, days, new_links)
    return replace(
        before,
        visited_at=at,
        changed_at=at if is_changed else before.changed_at,
        visits=min(before.visits + 1, _MOST),
        changes=min(before.changes + is_changed, _MOST),
        gone=0,
        brought=min(before.brought + (new_links > 0), _MOST),
        links_rate=pack_rate(links) if before.brought or new_links else 0,
    )


def _is_gone(before: PageHistory | None, limits: VisitLimits) -> bool:
    """Return whether a page that is not there once more is gone."""
    return (before.gone if before else 0) + 1 >= limits.gone_after


def _gone(before: PageHistory | None, limits: VisitLimits) -> PageHistory | None:
    """Return the history of a page that is gone, or None if it never was there."""
    if before is None or not before.visits:
        return None
    return replace(before, gone=limits.gone_after, content=0)


def _missed(before: PageHistory | None, at: int) -> PageHistory:
    if before is None:
        return PageHistory(at, at, at, visits=0, gone=1)
    # The next visit asks for the page itself: some servers fail at a condition.
    return replace(before, gone=before.gone + 1, validators=None)


def _again_if_there(before: PageHistory | None, at: int, now: float) -> Again:
    history = _missed(before, at)
    return Again(history, at=_ask_again(history, now))


def _ask_again(history: PageHistory, now: float) -> float:
    return now + min(_DAY_S * 2.0 ** min(history.gone - 1, 10), _LONGEST_S)
