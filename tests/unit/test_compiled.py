"""How functions are compiled."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from crawler.model.compiled import compiled, compiled_part

BEHIND_FIRST: Any = np.array([7, 8, 9])[1:]


def last_of(array: Any) -> Any:
    return array[-1]


@pytest.mark.parametrize("compiling", [compiled, compiled_part])
def test_an_index_is_taken_as_it_is(compiling: Any) -> None:
    """To look whether it is negative, at each index, doubles the time of a loop over a page."""
    assert compiling(last_of)(BEHIND_FIRST) == 7


def test_a_function_of_a_user_counts_from_the_end() -> None:
    compiled_part(last_of)(BEHIND_FIRST)
    assert numba.njit(last_of)(BEHIND_FIRST) == 9
