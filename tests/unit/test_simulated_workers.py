"""Crawls of several workers that own shards, on a virtual clock, judged from outside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crawler.simulate.judges import judge
from crawler.simulate.shared_run import SHARED, run_shared, shared_world


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_a_crawl_of_several_workers_does_nothing_wrong(first: int) -> None:
    for seed in range(first, first + 5):
        found = judge(run_shared(shared_world(seed), SHARED))
        assert found == [], f"python -m crawler.simulate --shared --seed {seed}"


def test_the_same_seed_gives_the_same_events_in_each_process() -> None:
    code = (
        "from crawler.simulate.shared_run import *;"
        " print(run_shared(shared_world(1), SHARED).log.digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    digests.add(f"{run_shared(shared_world(1), SHARED).log.digest}\n".encode())
    assert len(digests) == 1
