"""A frontier opened in a folder by itself, and dropped between any two steps of its turns."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path

import pytest

from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FRONTIER, SEEN
from crawler.model.types import DataDirError, Done
from tests.harness.frontiers import TIGHT, candidate, drain, rest

URLS = 12
LINKS = [f"link{number}" for number in range(5)]  # so many are admitted at once


def test_a_frontier_that_is_dropped_after_any_step_goes_on(tmp_path: Path) -> None:
    """Its second turn writes runs of the seen set and finishes a page."""
    for steps in count():
        folder, turns = tmp_path / str(steps), FrontierTurns()
        frontier = open_frontier(folder, TIGHT, 0.0, background=turns)
        frontier.add([candidate(str(number)) for number in range(URLS)], 1.0)
        assert turns.is_due
        turns.end(frontier, 1.0)
        assert not turns.is_due
        (lease,) = frontier.lease(1.0)
        turns.end(frontier, 1.0)
        frontier.add([candidate(name) for name in ("0", *LINKS)], 2.0)
        frontier.release(lease, rest(1.0), 2.0)
        frontier.finish(lease, Done(), 2.0)
        done = len(list(islice(turns.steps(frontier, lambda: 9.0), steps)))
        frontier.close()
        frontier = open_frontier(folder, TIGHT, 1.0)
        assert frontier.clock == (2.0 if done else 1.0)
        assert frontier.put_back_at_open == (0 if done else 1)
        fetched: list[str] = []
        now = 100.0
        while not frontier.is_over():
            now += 100.0
            for each in drain(frontier, now):
                fetched.append(each.candidate.url)
                frontier.finish(each, Done(), now)
        wanted = {f"http://a/{number}" for number in range(URLS)}
        if done:
            wanted |= {f"http://a/{name}" for name in LINKS}
            wanted.remove(lease.candidate.url)
        assert sorted(fetched) == sorted(wanted)
        frontier.close()
        assert {each.name for each in folder.iterdir()} == {FRONTIER, SEEN}
        if done < steps:
            assert done > 2, "a turn of one step proves nothing"
            return


def test_a_frontier_that_cannot_be_opened_stays_free_for_the_next_try(tmp_path: Path) -> None:
    frontier = open_frontier(tmp_path, TIGHT, 0.0)
    frontier.add([candidate(str(number)) for number in range(URLS)], 0.0)
    frontier.close()
    (run, *_) = (tmp_path / SEEN).glob("run-*.keys")
    whole = run.read_bytes()
    run.unlink()
    with pytest.raises(DataDirError, match=run.name):
        open_frontier(tmp_path, TIGHT, 0.0)
    run.write_bytes(whole)
    frontier = open_frontier(tmp_path, TIGHT, 0.0)
    assert frontier.counts().waiting == URLS
    with pytest.raises(DataDirError, match="in use"):
        open_frontier(tmp_path, TIGHT, 0.0)
    frontier.close()
