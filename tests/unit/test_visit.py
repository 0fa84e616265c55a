"""Whether and when a page is visited again, by what its visit has found."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from msgspec.structs import replace

from crawler.loop.life import Life, Plan, Seen
from crawler.loop.outcome import page_change
from crawler.loop.visit import VisitLimits, seen_of, with_next_visit
from crawler.model.choices import ChangeChoice, RevisitChoice
from crawler.model.page import Exchange, Page, Rendered, Truncated
from crawler.model.types import (
    IN_NO_BODY,
    Again,
    Answer,
    ChangeKind,
    Claim,
    Compared,
    Dead,
    Done,
    Lease,
    Moved,
    Pace,
    PageHistory,
    PutBack,
    RetryAt,
    VisitCheck,
)
from tests.harness.frontiers import candidate

DAY = 86_400.0
NOW = 1_000 * DAY
LONG_AGO = int(NOW - 20 * DAY)
BEFORE = PageHistory(int(NOW - 7 * DAY), LONG_AGO, LONG_AGO, 3, 1, 5, content=9)
ADAPTIVE = RevisitChoice.ADAPTIVE
SAME = Seen(content=9, compared=Compared.TEXT)
OTHER = Seen(content=8, compared=Compared.TEXT)


def life_of(status, seen=None, before=BEFORE, **noted):
    life = Life(Plan(lease=Lease(1, candidate("x", history=before), Pace(), NOW), url="http://a/x"))
    life.began_at = NOW
    life.note_answer(Answer(0.1, status=status, error="" if status else "timeout"))
    if seen is not None:
        life.note_seen(seen)
    for name, value in noted.items():
        setattr(life, name, value)
    return life


def visit(life, verdict=None, mode=ADAPTIVE, **limits):
    return with_next_visit(life, verdict or Done(), mode, VisitLimits(**limits), NOW)


def test_a_crawl_that_visits_once_ends():
    for life in (life_of(404, before=None), life_of(200, SAME, before=None)):
        assert visit(life, mode=RevisitChoice.ONCE) == Done()


def test_a_page_that_is_not_visited_again_for_now_keeps_its_history():
    life = life_of(None)
    life.answer = None
    assert visit(life, mode=RevisitChoice.ONCE).again.history == BEFORE
    assert visit(life_of(200, OTHER), mode=RevisitChoice.ONCE).again.history.visits == 4


@pytest.mark.parametrize(
    ("seen", "is_changed", "changes"),
    [
        pytest.param(SAME, False, 1, id="as it was"),
        pytest.param(OTHER, True, 2, id="another text"),
        pytest.param(Seen(content=9, compared=Compared.BYTES), None, 2, id="by other means"),
        pytest.param(Seen(content=0, compared=Compared.TEXT), True, 2, id="marked noindex"),
    ],
)
def test_a_visit_goes_into_the_history(seen, is_changed, changes):
    again = visit(life_of(200, seen)).again
    assert (again.is_changed, again.at) == (is_changed, None)
    after = again.history
    assert (after.visited_at, after.visits, after.changes) == (NOW, 4, changes)
    assert after.changed_at == (BEFORE.changed_at if is_changed is False else NOW)
    assert after.rate == BEFORE.rate, "the frontier learns it"


def test_a_page_whose_robots_txt_has_no_answer_is_not_given_up():
    life = Life(Plan(lease=Lease(1, candidate("x", history=BEFORE), Pace(), NOW), url="http://a/x"))
    dead = Dead("robots.txt unreachable: its host has failed for hours")
    assert visit(life, dead) == RetryAt(NOW + DAY, is_counted=False)
    assert visit(life, Dead("its host does not welcome us")) == Dead("its host does not welcome us")


def test_so_many_bits_of_a_fingerprint_may_differ():
    before = replace(BEFORE, compared=Compared.SIMILAR, content=0b1111)
    for content, is_changed in ((0b1000, False), (0b0000, True)):
        seen = Seen(content=content, compared=Compared.SIMILAR)
        assert visit(life_of(200, seen, before)).again.is_changed is is_changed


def test_a_first_visit_begins_a_history():
    seen = replace(SAME, validators='"e"\n', stored_at=int(NOW) + 1)
    again = visit(life_of(200, seen, before=None)).again
    expected = PageHistory(int(NOW), int(NOW), int(NOW) + 1, content=9, validators='"e"\n')
    assert again == Again(expected)


ASKED = replace(BEFORE, validators='"e"\n')


@pytest.mark.parametrize("mode", [ADAPTIVE, 7 * DAY, RevisitChoice.ONCE])
def test_a_304_that_was_asked_for_is_a_visit_that_found_no_change(mode):
    life = life_of(304, None, ASKED, is_conditional=True, is_unmodified=True)
    verdict = visit(life, mode=mode)
    assert page_change(life, verdict, NOW) is None
    if mode is not RevisitChoice.ONCE:
        again = verdict.again
        visited = replace(again.history, links_rate=0)
        assert visited == replace(ASKED, visited_at=int(NOW), visits=4)
        assert (again.is_changed, again.check) == (False, VisitCheck.UNMODIFIED)


def test_another_304_says_nothing_and_then_the_page_itself_is_asked_for():
    for before in (BEFORE, ASKED):
        life = life_of(304, None, before)
        verdict = visit(life)
        assert verdict.again == Again(replace(before, validators=None), at=NOW + DAY)
        assert page_change(life, verdict, NOW) is None
        assert page_change(life, visit(life, mode=RevisitChoice.ONCE), NOW) is None


def test_after_a_failure_the_page_itself_is_asked_for():
    """Some servers fail at a condition, and one that 412s a page must not let it be gone."""
    again = visit(life_of(412, None, ASKED, is_conditional=True)).again
    assert again.history == replace(BEFORE, gone=1)
    verdict = visit(life_of(500, None, ASKED, is_conditional=True), Dead("status 500"))
    assert verdict.history == replace(BEFORE, gone=1)


def test_a_sitemap_that_has_not_changed_stays_one():
    life = life_of(304, None, ASKED, is_conditional=True, is_unmodified=True)
    life.candidate = replace(life.candidate, is_sitemap=True)
    assert visit(life).again.at is not None


def test_what_a_visit_says_of_its_host_goes_back_with_it():
    page = replace(OTHER, validators='"f"\n')
    said = {
        is_asked: visit(life_of(200, page, ASKED, is_conditional=is_asked)).again.check
        for is_asked in (True, False)
    }
    assert said == {True: VisitCheck.CHANGED, False: VisitCheck.DENIED}


@pytest.mark.parametrize(
    ("seen", "stored_at", "validators"),
    [
        pytest.param(SAME, 5, '"e"\n', id="no answer to ask by"),
        pytest.param(replace(SAME, validators='"f"\n'), 0, '"f"\n', id="one that is not stored"),
        pytest.param(
            *(replace(SAME, validators='"f"\n', stored_at=7), 7, '"f"\n'), id="a stored one"
        ),
    ],
)
def test_a_page_with_the_same_text_is_asked_for_by_its_newest_etag(seen, stored_at, validators):
    before = replace(ASKED, stored_at=5)
    history = visit(life_of(200, seen, before)).again.history
    assert (history.stored_at, history.validators) == (stored_at, validators)


def test_a_page_that_a_browser_makes_is_asked_for_whole():
    """Also if it was not rendered before, and this visit is not stored."""
    life = life_of(200, SAME, ASKED, rendered=HOW)
    assert visit(life).again.history.validators is None


def test_a_fixed_interval_counts_from_the_visit():
    assert visit(life_of(200, SAME), mode=7 * DAY).again.at == NOW + 7 * DAY


GONE = replace(BEFORE, gone=2)


@pytest.mark.parametrize(
    ("status", "before", "days"),
    [
        pytest.param(404, BEFORE, 1, id="not found"),
        pytest.param(404, replace(BEFORE, gone=1), 2, id="not found again"),
        pytest.param(404, GONE, None, id="not found for the third time"),
        pytest.param(410, BEFORE, None, id="gone"),
        pytest.param(403, BEFORE, 1, id="forbidden"),
        pytest.param(404, None, 1, id="never found"),
        pytest.param(410, None, None, id="gone when it was found"),
    ],
)
def test_a_page_that_is_not_there_is_asked_for_again_until_it_is_gone(status, before, days):
    life = life_of(status, before=before)
    verdict = visit(life)
    assert (verdict.again and verdict.again.at) == (days and NOW + days * DAY)
    change = page_change(life, verdict, NOW)
    is_news = days is None and before is not None
    assert (change and change.kind) == (ChangeKind.GONE if is_news else None)


def test_a_page_that_says_it_is_an_error_is_not_there():
    life = life_of(200, replace(SAME, is_error=True), GONE)
    assert visit(life).again is None
    assert page_change(life, Done(), NOW).kind is ChangeKind.GONE


@pytest.mark.parametrize(("status", "stays"), [(301, False), (308, False), (302, True)])
def test_a_page_that_has_moved_for_good_is_gone_and_else_asked_again(status, stays):
    life, moved = life_of(status), Moved(candidate("y"))
    verdict = visit(life, moved)
    assert isinstance(verdict, Moved) is not stays
    if not stays:
        assert (verdict.candidate, verdict.gone.content) == (moved.candidate, 0)
    assert (page_change(life, verdict, NOW) is None) is stays


def test_a_failed_visit_ends_no_history_until_it_has_failed_for_days():
    for gone in (0, 1):
        before = replace(BEFORE, gone=gone)
        verdict = visit(life_of(None, before=before), Dead("timeout"))
        assert verdict == RetryAt(NOW + 2**gone * DAY, False, replace(before, gone=gone + 1))
    life = life_of(None, before=GONE)
    verdict = visit(life, Dead("timeout"))
    assert verdict == RetryAt(NOW + 4 * DAY, False, replace(GONE, gone=3, content=0))
    assert page_change(life, verdict, NOW).kind is ChangeKind.GONE
    life = life_of(None, before=replace(verdict.history, gone=2000))
    verdict = visit(life, Dead("timeout"))
    assert verdict.when == NOW + 30 * DAY, "and once in a month for ever"
    assert page_change(life, verdict, NOW) is None
    back = life_of(200, SAME, verdict.history)
    assert visit(back).again.history.gone == 0


def test_an_error_of_our_own_code_is_not_the_fault_of_the_page():
    life = life_of(200, SAME, GONE, error="ValueError in parse")
    verdict = visit(life, Dead("ValueError in parse"))
    assert verdict == RetryAt(NOW + DAY, False)
    assert page_change(life, verdict, NOW) is None


def test_what_cannot_be_decided_now_is_put_back():
    assert visit(life_of(None), PutBack()) == PutBack()


def test_a_page_that_is_marked_noindex_leaves_the_index_and_may_come_back():
    hidden = Seen(content=0, compared=Compared.TEXT, is_hidden=True)
    life = life_of(200, hidden)
    assert page_change(life, visit(life), NOW).kind is ChangeKind.GONE
    life = life_of(200, hidden, replace(BEFORE, content=0))
    assert page_change(life, visit(life), NOW) is None, "it is known"


def hub(every_days, places, days, seed):
    """Visit a page on which a new link comes each so often, and return how long each waited."""
    random, waits = Random(seed), []
    now, links_at, before = NOW, NOW, None
    pending = []
    while now < NOW + days * DAY:
        while links_at <= now:
            pending.append(links_at)
            links_at += random.expovariate(1 / every_days) * DAY
        waits += [inf] * (len(pending) - places)  # these are lost
        pending = pending[-places:]
        life = life_of(200, replace(SAME, places=places), before, new_links=len(pending))
        life.began_at = now
        again = with_next_visit(life, Done(), ADAPTIVE, VisitLimits(), now).again
        if before is not None:
            waits += [now - at for at in pending]
        pending, before = [], again.history
        now = again.at if again.at is not None else now + DAY
    return waits[len(waits) // 2 :]


@pytest.mark.parametrize("every_days", [1 / 500, 1 / 48, 1 / 6, 1.0])
def test_a_page_that_brings_links_is_visited_before_half_of_its_places_are_new(every_days):
    places = 30
    bar_s = max(600.0, places / 2 * every_days * DAY)
    waits = hub(every_days, places, days=10 + 200 * every_days, seed=1)
    assert sum(wait <= bar_s for wait in waits) >= 0.99 * len(waits) > 50


def test_a_sitemap_is_visited_by_what_it_brings():
    life = life_of(200, replace(SAME, is_list=True, places=50_000), before=None)
    assert visit(life).again.at == NOW + DAY / 4
    before, now = visit(life).again.history, NOW
    gaps = []
    for _ in range(10):
        life = life_of(200, replace(SAME, is_list=True, places=50_000), before)
        now += DAY / 4 if not gaps else gaps[-1]
        life.began_at = now
        again = with_next_visit(life, Done(), ADAPTIVE, VisitLimits(), now).again
        gaps.append(again.at - now)
        before = again.history
    assert gaps == sorted(gaps) and 7 * DAY < gaps[-1] <= 14 * DAY, "nothing comes"
    life = life_of(200, replace(SAME, is_list=True, places=50_000), before, new_links=400)
    life.began_at = now + DAY
    again = with_next_visit(life, Done(), ADAPTIVE, VisitLimits(), now + DAY).again
    assert again.at - now - DAY < DAY, "and now much does"


EXCHANGE = Exchange(
    url="http://a/x",
    at=NOW + 0.9,
    duration_s=0.1,
    request_head=b"",
    head=b'HTTP/1.1 200 OK\r\nETag: "e"\r\n\r\n',
    body=b"text",
    ip="",
)
FRESH = Page(
    url="http://a/x",
    status=200,
    content_type="text/plain",
    body=b"text",
    depth=0,
    lease_id=1,
    exchange=EXCHANGE,
    digest=b"digest",
    record="f:9",
)
HOW = Rendered(ms=1, requests=0)
OWN = Claim(b"digest", "http://a/x", "f:0", NOW - DAY - 0.5)


@pytest.mark.parametrize(
    ("page", "stored_at", "validators"),
    [
        pytest.param(FRESH, NOW, '"e"\n', id="a new text"),
        pytest.param(
            *(replace(FRESH, duplicate_of=OWN), NOW - DAY - 1, '"e"\n'), id="an older one again"
        ),
        pytest.param(
            *(replace(FRESH, duplicate_of=replace(OWN, record="")), NOW, '"e"\n'),
            id="an older one that no archive has",
        ),
        pytest.param(
            *(replace(FRESH, duplicate_of=replace(OWN, url="http://b/")), 0, None), id="a copy"
        ),
        pytest.param(replace(FRESH, noindex=True, archive=False, record=""), 0, None, id="noindex"),
        pytest.param(replace(FRESH, record=""), 0, '"e"\n', id="in a crawl without an archive"),
        pytest.param(replace(FRESH, rendered=HOW), NOW, None, id="one that a browser has made"),
        pytest.param(
            *(replace(FRESH, duplicate_of=replace(OWN, wire_sha1=IN_NO_BODY)), NOW, '"e"\n'),
            id="what a browser had made of its answer before",
        ),
        pytest.param(
            *(replace(FRESH, exchange=replace(EXCHANGE, truncated=Truncated.TIME)), NOW, None),
            id="not whole",
        ),
    ],
)
def test_a_304_can_only_be_about_an_answer_that_the_archive_has(page, stored_at, validators):
    seen = seen_of(page, ChangeChoice.TEXT)
    assert (seen.stored_at, seen.validators) == (stored_at, validators)
