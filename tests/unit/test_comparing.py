"""A failed comparison of whole archives prints its first ten differences."""

from __future__ import annotations

import pytest

from tests.harness.comparing import assert_same


def test_equal_values_pass() -> None:
    assert_same({"a": ({"b": 1}, b"c")}, {"a": ({"b": 1}, b"c")})


def test_each_difference_is_one_line_with_its_place() -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        assert_same({"a": ({"b": 1}, b"c"), "new": 1}, {"a": ({"b": 2}, b"c"), "old": 3})
    assert str(failed.value).split("\n") == [
        "the two differ:",
        "['a'][0]['b']: 1, expected 2",
        "missing: ['old']: 3",
        "unexpected: ['new']: 1",
    ]


def test_ten_differences_are_printed_and_long_values_are_cut() -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        assert_same(dict.fromkeys(range(10_000), "x" * 10_000), {})
    lines = str(failed.value).split("\n")
    assert len(lines) == 12 and lines[-1] == "... and more"
    assert max(map(len, lines)) < 400
