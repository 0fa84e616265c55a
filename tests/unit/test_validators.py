"""What a server is asked whether a page has changed by, and when it is not asked any more."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from crawler.model.types import ConditionalVisits, PageHistory, VisitCheck
from crawler.policy.validators import (
    AUDIT_EVERY,
    ConditionFault,
    check_of,
    conditions,
    fault_of,
    noted,
    validators_of,
    validators_to_send,
)

AT = 1_767_323_045.0  # Fri, 02 Jan 2026 03:04:05 GMT
DATE = b"Thu, 01 Jan 2026 00:00:00 GMT"
DATED_AT = 1_767_225_600
LONG = b'"' + 126 * b"x" + b'"'


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ([("ETag", b'"a"')], '"a"\n'),
        ([("etag", b'W/"a"')], 'W/"a"\n'),
        ([("ETag", b'"caf\xe9 is no space"')], None),
        ([("ETag", b'"caf\xe9"')], '"caf\xe9"\n'),
        ([("ETag", b"a")], None),
        ([("ETag", b'"a')], None),
        ([("ETag", b'"a"b"')], None),
        ([("ETag", b"'a'")], None),
        ([("ETag", b'w/"a"')], None),
        ([("ETag", b'""')], None),
        ([("ETag", b"")], None),
        ([("ETag", b'"a", "b"')], None),
        ([("ETag", b'"a\x00b"')], None),
        ([("ETag", b'"a\x7f"')], None),
        ([("ETag", b'"a"\r\nX: 1')], None),
        ([("ETag", LONG)], f"{LONG.decode()}\n"),
        ([("ETag", LONG.replace(b"x", b"xx", 1))], None),
        ([("ETag", b'"a"'), ("ETag", b'"a"')], '"a"\n'),
        ([("ETag", b'"a"'), ("ETag", b'"b"')], None),
        ([("Last-Modified", DATE)], f"\n{DATE.decode()}"),
        ([("ETag", b'"a"'), ("Last-Modified", DATE)], f'"a"\n{DATE.decode()}'),
        ([("ETag", b"bad"), ("Last-Modified", DATE)], f"\n{DATE.decode()}"),
        ([("Last-Modified", b"Thursday, 01-Jan-26 00:00:00 GMT")], ...),
        ([("Last-Modified", b"Thu Jan  1 00:00:00 2026")], ...),
        ([("Last-Modified", b"Fri, 02 Jan 2026 03:05:00 GMT")], ...),
        ([("Last-Modified", b"Fri, 02 Jan 2026 03:05:06 GMT")], None),
        ([("Last-Modified", b"Sat, 01 Jan 2050 00:00:00 GMT")], None),
        ([("Last-Modified", b"Thu, 01 Jan 1970 00:00:00 GMT")], None),
        ([("Last-Modified", b"Tue, 01 Jan 1980 00:00:00 GMT")], None),
        ([("Last-Modified", b"yesterday")], None),
        ([("Last-Modified", b"")], None),
        ([("Last-Modified", b"0")], None),
        ([("Last-Modified", b"Thu, 99 Jan 2026 00:00:00 GMT")], None),
        ([("Last-Modified", b"Thu, 01 Jan 99999 00:00:00 GMT")], None),
        ([("Last-Modified", DATE + b"\nX: 1")], None),
        ([("Last-Modified", DATE + 99 * b" ")], None),
        ([("Last-Modified", DATE), ("Last-Modified", DATE.replace(b"2026", b"2025"))], None),
        ([], None),
    ],
)
def test_validators_that_are_kept(headers: Sequence[tuple[str, bytes]], kept: Any) -> None:
    found = validators_of([(name.encode(), value) for name, value in headers], AT)
    if kept is ...:
        kept = f"\n{headers[0][1].decode()}"
    assert found == kept


def test_what_is_sent_is_what_the_server_has_said() -> None:
    validators = validators_of([(b"ETag", b'W/"caf\xe9"'), (b"Last-Modified", DATE)], AT)
    assert validators is not None
    assert conditions(validators) == [
        (b"If-None-Match", b'W/"caf\xe9"'),
        (b"If-Modified-Since", DATE),
    ]


@pytest.mark.parametrize(
    ("etag", "named"),
    [
        ('"5f-61a"', b'"5f-61a"'),
        ('"5f-61a-gzip"', b'"5f-61a-gzip", "5f-61a"'),
        ('W/"5f-br"', b'W/"5f-br", W/"5f"'),
        ('"-gzip"', b'"-gzip"'),
        ('"gzip"', b'"gzip"'),
    ],
)
def test_an_etag_that_apache_has_changed_is_named_as_it_was_too(etag: str, named: bytes) -> None:
    assert conditions(f"{etag}\n") == [(b"If-None-Match", named)]


PAGE = PageHistory(DATED_AT, DATED_AT - 100, DATED_AT - 100, validators='"a"\n')


def test_each_eighth_visit_of_a_page_asks_for_the_page_itself() -> None:
    for key in range(AUDIT_EVERY):
        asked = [
            validators_to_send(
                PageHistory(1, 1, 1, visits=visits, validators='"a"\n'), key, ConditionalVisits()
            )
            for visits in range(2 * AUDIT_EVERY)
        ]
        assert asked.count(None) == 2
    assert validators_to_send(None, 1, ConditionalVisits()) is None
    assert validators_to_send(PageHistory(1, 1, 1), 1, ConditionalVisits()) is None


@pytest.mark.parametrize(
    ("before", "is_asked", "is_changed", "validators", "said"),
    [
        pytest.param(PAGE, True, True, None, VisitCheck.CHANGED, id="a page that has changed"),
        pytest.param(PAGE, True, False, '"b"\n', VisitCheck.NONE, id="other bytes, the same text"),
        pytest.param(PAGE, True, False, '"a"\n', VisitCheck.REPEATED, id="its own ETag was named"),
        pytest.param(PAGE, True, None, None, VisitCheck.NONE, id="compared by something else"),
        pytest.param(PAGE, False, False, None, VisitCheck.AUDITED, id="it was true"),
        pytest.param(PAGE, False, True, None, VisitCheck.DENIED, id="it may have been false"),
        pytest.param(
            *(PAGE, False, True, f"\n{DATE.decode()}", VisitCheck.DENIED),
            id="it was false, by the date of the page itself",
        ),
        pytest.param(
            *(PAGE, False, True, "\nThu, 01 Jan 2026 00:00:01 GMT", VisitCheck.AUDITED),
            id="it has changed since",
        ),
        pytest.param(
            *(PageHistory(9, 9, 9, validators='"a"\n'), False, True, None, VisitCheck.NONE),
            id="the last visit found it changed",
        ),
        pytest.param(
            *(PageHistory(9, 8, 8), False, True, None, VisitCheck.NONE), id="it has no validators"
        ),
    ],
)
def test_what_a_visit_says_of_its_host(
    before: PageHistory,
    is_asked: bool,
    is_changed: bool | None,
    validators: str | None,
    said: VisitCheck,
) -> None:
    visits = ConditionalVisits()
    found = check_of(
        before,
        visits,
        is_asked=is_asked,
        is_changed=is_changed,
        is_same=False,
        validators=validators,
    )
    assert found is said


def test_the_same_bytes_under_another_etag_need_not_have_been_sent() -> None:
    found = check_of(
        PAGE,
        ConditionalVisits(),
        is_asked=True,
        is_changed=False,
        is_same=True,
        validators='"b"\n',
    )
    assert found is VisitCheck.REPEATED


UNMODIFIED, CHANGED, REPEATED, AUDITED, DENIED = list(VisitCheck)[1:]


@pytest.mark.parametrize(
    ("checks", "fault"),
    [
        pytest.param([], ConditionFault.NONE, id="nothing known"),
        pytest.param(49 * [UNMODIFIED] + 7 * [DENIED], ConditionFault.NONE, id="too few to tell"),
        pytest.param(56 * [UNMODIFIED] + 8 * [DENIED], ConditionFault.DENIES, id="304 always"),
        pytest.param(
            9 * (4 * [UNMODIFIED] + 2 * [CHANGED] + [DENIED]),
            ConditionFault.NONE,
            id="without dates, but asking finds changes as well",
        ),
        pytest.param(
            10 * (14 * [UNMODIFIED] + [AUDITED] + [DENIED]) + 2 * [CHANGED],
            ConditionFault.DENIES,
            id="of half of the pages",
        ),
        pytest.param(7 * [REPEATED], ConditionFault.NONE, id="a few pages again"),
        pytest.param(8 * [REPEATED], ConditionFault.REPEATS, id="each page again"),
        pytest.param(
            20 * [UNMODIFIED] + 100 * [REPEATED], ConditionFault.NONE, id="some are not sent again"
        ),
        pytest.param(90 * [CHANGED], ConditionFault.NONE, id="pages that change"),
    ],
)
def test_a_host_is_judged_by_its_visits(checks: list[VisitCheck], fault: ConditionFault) -> None:
    visits = ConditionalVisits()
    for check in checks:
        visits = noted(visits, check)
    assert fault_of(visits) is fault


def test_a_host_that_denies_changes_is_not_asked_and_one_that_repeats_pages_is() -> None:
    """A site that was published anew has repeated its pages, and may answer 304 from then on."""
    denies = ConditionalVisits(unmodified=56, audits=8, denied=8)
    repeats = ConditionalVisits(repeated=1_000)
    histories = [PageHistory(9, 8, 8, visits=n, validators='"a"\n') for n in range(AUDIT_EVERY)]
    assert {validators_to_send(each, 3, denies) for each in histories} == {None}
    assert [validators_to_send(each, 3, repeats) for each in histories].count(None) == 1


def test_the_counts_stay_small_and_follow_what_is_new() -> None:
    visits = ConditionalVisits()
    for _ in range(5_000):
        visits = noted(visits, REPEATED)
    for _ in range(2_000):
        visits = noted(visits, UNMODIFIED)
    assert sum((visits.unmodified, visits.repeated)) <= 1_000
    assert fault_of(visits) is ConditionFault.NONE


def judged(changes: float, *, denies: bool, seed: int, visits: int = 2_000) -> int | None:
    """Visit ten pages of a host without dates, of which such a share has *changes* between two
    visits; return after how many it is not asked any more, or None."""
    random, said = Random(seed), ConditionalVisits()
    has_changed, was_denied = [False] * 10, [False] * 10
    for visit in range(visits):
        page, turn = visit % 10, visit // 10
        has_changed[page] |= random.random() < changes
        is_audit = (turn + page) % AUDIT_EVERY == 0
        if not is_audit and (denies or not has_changed[page]):
            was_denied[page] = True
            said = noted(said, UNMODIFIED)
        elif not is_audit:
            was_denied[page] = has_changed[page] = False
            said = noted(said, CHANGED)
        elif was_denied[page]:
            said = noted(said, DENIED if has_changed[page] else AUDITED)
            was_denied[page] = not has_changed[page]
            has_changed[page] = False
        if fault_of(said):
            return visit
    return None


@pytest.mark.parametrize("changes", [0.01, 0.03, 0.1, 0.3, 0.6])
def test_honest_hosts_are_told_from_those_that_deny_changes(changes: float) -> None:
    assert {judged(changes, denies=False, seed=seed) for seed in range(10)} == {None}
    found = [judged(changes, denies=True, seed=seed) for seed in range(10)]
    assert all(after is not None and after < 10 + 15 / changes + 200 for after in found), found
