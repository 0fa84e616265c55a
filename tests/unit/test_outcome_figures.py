"""What is made of the outcome log, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawler.model.types import Outcome, encode_outcome
from crawler.report import outcome_figures
from crawler.report.outcome_figures import AnswersOfHost, OutcomeFigures, figures_of_logs


def line(url: str = "http://a/", fate: str = "done", **given: Any) -> bytes:
    host = url.split("/")[2]
    return encode_outcome(Outcome(at=1.0, url=url, host=host, fate=fate, **given)) + b"\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "outcomes.jsonl"


def read(log: Path, *lines: bytes) -> OutcomeFigures:
    log.write_bytes(b"".join(lines))
    return figures_of_logs([log], None)


def test_each_kind_of_line(log: Path) -> None:
    found = read(
        log,
        line("http://a/1", status=200, size=500, seconds=0.05),
        line("http://a/2", status=200, size=1_000_001, seconds=3, reason="duplicate"),
        line("http://a/3", "moved", status=301, target="http://b/"),
        line("http://b/1", "retry", status=503, seconds=100),
        line("http://b/1", "dead", status=503, reason="status 503, tried 4 times"),
        line("http://b/2", "dead", reason="timeout, tried 4 times"),
        line("http://b/3", reason="robots.txt: Disallow: /"),
        line("http://a/4", reason="pattern /day/#: nothing new in its last 100 pages"),
        line("http://a/6", status=200, size=500, seconds=0.05, reason="noindex"),
        line("http://a/5", "refused", reason="max_depth: it is too many links away: 9"),
        b'{"at":1.0,"url":"http://a/cut',
        b"\n",
    )
    assert found.lines == 10
    assert dict(found.statuses) == {200: 3, 301: 1, 503: 2}
    assert found.seconds == [4, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert found.sizes == [5, 0, 0, 0, 1, 0]
    assert dict(found.duplicates) == {"duplicate": 1}
    assert found.noindex == 1
    assert dict(found.refused) == {"max_depth": 1}
    assert dict(found.traps) == {("a", "/day/#"): 1}
    assert list(found.dead) == ["http://b/1", "http://b/2"]
    assert found.top_hosts(9) == [
        AnswersOfHost("a", 3, 1_001_001, pytest.approx(3.1 / 4), 0, 0),
        AnswersOfHost("b", 1, 0, pytest.approx(50.0), 3, 2),
    ]


def test_a_dead_letter_that_was_put_back_and_fetched_is_none(log: Path) -> None:
    dead = line("http://a/1", "dead", reason="timeout")
    found = read(log, dead, line("http://a/1", status=200), dead.replace(b"/1", b"/2"))
    assert list(found.dead) == ["http://a/2"]


def test_the_end_of_a_long_log(log: Path, tmp_path: Path) -> None:
    one = line("http://a/1", status=200)
    log.write_bytes(one * 1000)
    found = figures_of_logs([log, tmp_path / "none"], 20 * len(one) + 2)
    assert found.lines == 10
    assert found.skipped_bytes == 990 * len(one)


def test_memory_is_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many hosts those with the most pages stay; of too many reasons the first."""
    monkeypatch.setattr(outcome_figures, "MAX_HOSTS", 10)
    monkeypatch.setattr(outcome_figures, "_MAX_NAMES", 5)
    monkeypatch.setattr(outcome_figures, "_MAX_DEAD", 3)
    large = [line(f"http://large{n}/", status=200, size=7) * 3 for n in range(4)]
    small = [line(f"http://small{n}/", "dead", reason=f"reason {n}") for n in range(100)]
    found = read(log, *large, *small, line("http://large0/", status=200, size=7))
    assert found.hosts <= 10
    top = found.top_hosts(4)
    assert {(each.host, each.pages, each.bytes) for each in top} == {
        ("large0", 4, 28),
        *((f"large{n}", 3, 21) for n in range(1, 4)),
    }
    assert len(found.dead_reasons) == 6
    assert found.dead_reasons["others"] == 95
    assert list(found.dead) == ["http://small97/", "http://small98/", "http://small99/"]
