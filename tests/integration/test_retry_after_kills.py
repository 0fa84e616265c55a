"""A Retry-After outlives the process that has read it, and the worker that never comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.retry_after_kills import HOSTS, trials

# Without the Retry-After a host is asked again after a lease and a fetch, here 7 s.
QUICK_LEASES = {
    "CRAWLER_LEASE_S": 5,
    "CRAWLER_TOTAL_TIMEOUT_S": 2,
    "CRAWLER_CONNECT_TIMEOUT_S": 1,
}


@pytest.mark.parametrize(
    ("way", "first_host", "asked_s", "settings"),
    [
        ("embedded", "127.0.141.1", 4, {}),
        ("shared", "127.0.142.1", 4, {}),
        ("never back", "127.0.143.1", 12, QUICK_LEASES),
    ],
)
def test_a_retry_after_outlives_its_process(
    tmp_path: Path, way: str, first_host: str, asked_s: int, settings: dict[str, object]
) -> None:
    found = trials(way, tmp_path, first_host, asked_s, 0.0, **settings)
    assert len(found) >= HOSTS + HOSTS // 2
    assert not [each for each in found if each.is_inside]
