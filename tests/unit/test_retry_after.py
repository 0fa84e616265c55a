"""Retry-After in both forms, and in none."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.policy.politeness import retry_after_s

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT, the date of the RFC
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("value", "want_s"),
    [
        pytest.param(b"120", 120.0, id="seconds"),
        pytest.param(b" 0 ", 0.0, id="none"),
        pytest.param(b"007", 7.0, id="leading zeros"),
        pytest.param(b"1.5", 2.0, id="a fraction is no standard, but means at least that"),
        pytest.param(b"9" * 5000, DAY_S, id="more digits than a number may have"),
        pytest.param(b"0" * 5000 + b"5", 5.0, id="or seem to have"),
        pytest.param(b"86401", DAY_S, id="more than our maximum"),
        pytest.param(b"Sun, 06 Nov 1994 08:51:37 GMT", 120.0, id="a date"),
        pytest.param(b"Sunday, 06-Nov-94 08:51:37 GMT", 120.0, id="a date of RFC 850"),
        pytest.param(b"Sun Nov  6 08:51:37 1994", 120.0, id="a date of asctime, which is GMT"),
        pytest.param(b"Sun, 06 Nov 1994 09:51:37 +0100", 120.0, id="a date with a zone"),
        pytest.param(b"Sun, 06 Nov 1994 08:00:00 GMT", 0.0, id="a date gone by"),
        pytest.param(b"Wed, 06 Nov 2094 08:00:00 GMT", DAY_S, id="a date in another life"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"-5", None, id="negative"),
        pytest.param(b"soon", None, id="a word"),
        pytest.param(b"5 minutes", None, id="a unit"),
        pytest.param(b"inf", None, id="not a number that ends"),
        pytest.param(b"1e9", None, id="an exponent"),
        pytest.param("١٢".encode(), None, id="digits of another script"),
        pytest.param(b"Sun, 99 Nov 1994 99:99:99 GMT" * 3, None, id="too long for a date"),
        pytest.param(b"Sun, 06 Foo 1994 08:51:37 GMT", None, id="a month that is none"),
        pytest.param(b"\x00\xff", None, id="bytes"),
    ],
)
def test_retry_after(value: bytes, want_s: float | None) -> None:
    assert retry_after_s(value, NOW, DAY_S) == want_s


@given(st.floats(0, 4e9), st.integers(0, 4 * 10**9))
def test_a_date_says_how_far_away_it_is(now: float, at: int) -> None:
    found = retry_after_s(formatdate(at, usegmt=True).encode(), now, DAY_S)
    assert found == pytest.approx(min(DAY_S, max(0.0, at - now)))


DATE_PIECES = st.sampled_from(
    [
        "Sun",
        ",",
        " ",
        "06",
        "-",
        "Nov",
        "1994",
        "08:49:37",
        "GMT",
        "+9999",
        ":",
        "99",
        "(",
        ")",
        "0",
    ]
)


@given(st.one_of(st.binary(max_size=80), st.lists(DATE_PIECES).map("".join).map(str.encode)))
@example(b"Sun, 06 Nov 1994 08:49:37 +99999999999999")
@example(b"Sun, 06 Nov 99999999999999 08:49:37")
def test_no_bytes_break_it(value: bytes) -> None:
    found = retry_after_s(value, NOW, DAY_S)
    assert found is None or 0.0 <= found <= DAY_S
