"""What a robots.txt may cost us: bytes, time, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.model.url import fetch_form
from crawler.policy.robots import (
    MIN_BODY_BYTES,
    TOO_COSTLY,
    Rules,
    Ruling,
    cut_body,
)
from tests.cpu_time import cpu_seconds

HOST: Final = "http://example.com"


def rules(text: str) -> Rules:
    return Rules.parse(text.encode(), "FooBot")


def test_500_kib_are_read_and_no_line_that_was_cut() -> None:
    head = b"User-agent: *\nDisallow: /a\n"
    body = head + b"#" * (MIN_BODY_BYTES - len(head) - 14) + b"\nDisallow: /b\n"
    assert len(body) == MIN_BODY_BYTES
    assert not Rules.parse(body, "x").allowed(HOST + "/b")
    longer = Rules.parse(b"\n" + body, "x")
    assert not longer.allowed(HOST + "/a")
    assert longer.allowed(HOST + "/b")
    assert not Rules.parse(b"\n" + body, "x", MIN_BODY_BYTES + 100).allowed(HOST + "/b")


@given(st.binary(max_size=60), st.integers(1, 60))
def test_a_cut_body_is_its_beginning_in_whole_lines(body: bytes, most: int) -> None:
    cut = cut_body(body, most)
    assert body.startswith(cut)
    assert len(cut) <= most
    assert cut == body or not cut or cut[-1:] in b"\r\n"


def starry(size: int) -> Callable[[], object]:
    found = rules(f"User-agent: *\nDisallow: /{'*a' * size}b\n")
    url = HOST + "/" + "a" * size
    return lambda: [found.ruling(url) for _ in range(20)]


def many_globs(size: int) -> Callable[[], object]:
    found = rules("User-agent: *\n" + "".join(f"Disallow: /*{i}x\n" for i in range(size)))
    return lambda: [found.ruling(HOST + "/" + "a" * 100) for _ in range(20)]


def parsed(size: int) -> Callable[[], object]:
    body = b"User-agent: *\n" + b"Disallow: /*a*b*$\nUser-agent: x\nAllow: /%zz%41\xff\n" * size
    return lambda: Rules.parse(body, "x", len(body) + 1)


@pytest.mark.parametrize(
    ("work", "size"),
    [
        pytest.param(starry, 500, id="one pattern of n stars, a path of n letters"),
        pytest.param(many_globs, 1000, id="n patterns with stars"),
        pytest.param(parsed, 1000, id="a file of n lines"),
    ],
)
def test_four_times_the_input_takes_no_more_than_eight_times_as_long(
    work: Callable[[int], Callable[[], object]], size: int
) -> None:
    # Linear is 4, quadratic 16, and a backtracking regular expression would never end.
    assert cpu_seconds(work(size * 4), 5) < 8 * cpu_seconds(work(size), 5)


def test_a_file_that_takes_too_long_to_decide_forbids() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: /*a{i}\n" for i in range(40_000))
    found = rules(body)
    assert found.ruling(HOST + "/" + "a" * 2000) == Ruling(False, TOO_COSTLY)
    assert found.ruling(HOST + "/" + "a" * 50) == Ruling(True)


@given(st.binary(max_size=200), st.text(max_size=30))
@example(b"User-agent: *\nDisallow: /%", "/%")
def test_no_file_and_no_url_breaks_it(body: bytes, path: str) -> None:
    url = fetch_form(HOST + "/" + path)
    if url is not None:
        found = Rules.parse(b"User-agent: *\nDisallow: /" + body, "FooBot")
        assert found.ruling(url).allowed in (True, False)
        assert found.size_bytes() > 0
