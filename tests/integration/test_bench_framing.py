"""What one host can make a crawl take by framing alone: the benchmark, in small."""

from __future__ import annotations

import pytest

from bench.framing import KINDS, measured

CAP_BYTES = 300_000
QUICK = ("extensions", "chunks of 1 byte", "interim answers")  # `python -m bench.framing` has all


@pytest.mark.parametrize("kind", QUICK)
def test_framing_without_end_is_taken_as_far_as_the_cap(kind: str) -> None:
    # So long that only the cap can end it: in 30 s an unbounded client takes gigabytes.
    taken = measured(kind, CAP_BYTES, total_timeout_s=60.0)
    assert not taken.broken(CAP_BYTES)
    assert taken.sent_bytes > 0


def test_all_that_can_frame_a_body_is_measured() -> None:
    assert len(KINDS) >= 12
