"""What one call carries: so many URLs, and so many bytes of requests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from crawler.frontier.port import FrontierRules
from crawler.model.types import Candidate
from crawler.shared.codec import MAX_BATCH_BYTES, parts_of
from crawler.shared.shard import BATCH, Ops
from tests.contract.frontiers import candidate

OPS = Ops("w.1", 1, FrontierRules(), 60.0)
THIRD = MAX_BATCH_BYTES // 3


def found(*sizes: int) -> list[Candidate]:
    """Each of its own host, with a request of so many bytes."""
    hosts = (f"h{at}.example" for at in range(len(sizes)))
    return [
        replace(candidate("x", host=host), request=bytes(size))
        for host, size in zip(hosts, sizes, strict=True)
    ]


@pytest.mark.parametrize(
    ("sizes", "expect"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([0] * BATCH, [BATCH], id="plain links: as many as a batch"),
        pytest.param([0] * (BATCH + 1), [BATCH, 1], id="one more"),
        pytest.param([THIRD] * 3, [3], id="requests that just fit"),
        pytest.param([THIRD] * 4, [3, 1], id="one too many"),
        pytest.param([THIRD * 3, THIRD, 0, 0], [1, 3], id="plain links fit behind it"),
        pytest.param([0, MAX_BATCH_BYTES * 3, 0], [1, 2], id="one that alone is too much"),
        pytest.param([THIRD] + [0] * BATCH + [THIRD], [BATCH, 2], id="both bounds count"),
    ],
)
def test_a_part_is_bounded_by_number_and_by_bytes(sizes: Sequence[int], expect: list[int]) -> None:
    given = found(*sizes)
    parts = list(parts_of(given, BATCH))
    assert [len(part) for part in parts] == expect
    assert [each for part in parts for each in part] == given
    assert all(len(OPS.add(part, 0.0)) == 1 for part in parts), "each is one call of its shard"


def test_whoever_makes_no_parts_gets_small_calls_too() -> None:
    calls = OPS.add(found(*[24 << 20] * 4), 0.0)
    assert len(calls) == 4
