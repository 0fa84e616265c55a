"""A process' memory is bounded by its caches and its active hosts, not by the URLs that wait."""

from __future__ import annotations

import sys

from crawler.frontier.rocks_store import CACHE_BYTES, MEMTABLES_BYTES
from tests.harness.commands import run

MOST = 1_000_000
# Two generations of recently seen keys, new keys until a merge and the records of hosts, the
# gate, and the active hosts of this test with their heads.
OURS_BYTES = 40 << 20


def test_a_million_waiting_urls_take_no_more_memory_than_the_caches(tmp_path):
    script = "tests.harness.growing_frontier"
    grown = run([sys.executable, "-m", script, str(tmp_path / "frontier"), str(MOST)], 900)
    assert grown.returncode == 0, grown.stderr
    rows = [tuple(map(int, line.split())) for line in grown.stdout.splitlines()]
    (few, at_first), (half, at_half), (many, at_last) = rows[0], rows[5], rows[-1]
    assert many > 0.9 * MOST and few < 0.11 * MOST
    table = "\n".join(f"{waiting:>9} URLs {memory / 1e6:6.1f} MB" for waiting, memory in rows)
    assert at_last - at_first <= CACHE_BYTES + MEMTABLES_BYTES + OURS_BYTES, table
    # Once the caches are full: fewer bytes a URL than its key alone would take in memory. The
    # memtables may be empty at one of the two moments and full at the other.
    assert at_last - at_half < 32 * (many - half) + MEMTABLES_BYTES, table
