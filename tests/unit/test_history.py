"""The figures over time: where samples are, what a kill or damage costs, and what readers see."""

from __future__ import annotations

import logging
import math
import os
import random
from pathlib import Path
from typing import Final

import pytest

from crawler.data import history
from crawler.data.history import (
    COLUMNS,
    FILE_BYTES,
    SAMPLE_S,
    TOTALS,
    History,
    HistoryFile,
    HistorySpan,
    read_history,
    sum_histories,
)

BEGAN: Final = 1_800_000_000.0
DAY_S: Final = 86_400.0


def values(pages: float, run: int = 1, **others: float) -> dict[str, float]:
    return {**dict.fromkeys(COLUMNS, 0.0), "run": run, "pages": pages, **others}


def write(file: Path, until: float, begin: float = BEGAN, step_s: float = SAMPLE_S) -> int:
    """Samples of a crawl that fetches a page a second. Returns their number."""
    written = HistoryFile(file, begin)
    number = 0
    while begin + number * step_s < until:
        at = begin + number * step_s
        written.add(at, values(at - BEGAN))
        number += 1
    written.close()
    return number


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.bin"


def test_an_hour_is_there_sample_by_sample(file: Path) -> None:
    write(file, BEGAN + 3 * 3600)
    found = read_history(file, HistorySpan.HOUR)
    assert len(found.at) == 720
    assert found.at == sorted(found.at)
    assert found.at[-1] - found.at[0] == 719 * SAMPLE_S
    assert found.columns["pages"][-1] == found.at[-1] - BEGAN
    assert set(found.rates("pages")[1:]) == {1.0}


def test_a_day_has_a_sample_a_minute(file: Path) -> None:
    write(file, BEGAN + DAY_S * 1.5, step_s=20)
    found = read_history(file, HistorySpan.DAY)
    assert found.step_s == 60
    assert len(found.at) == pytest.approx(1440, abs=1)
    assert found.rates("pages")[1:] == pytest.approx([1.0] * (len(found.at) - 1))


@pytest.mark.parametrize("days", [0.01, 0.1, 1, 30])
def test_all_of_a_crawl_fits_however_long(file: Path, days: float) -> None:
    write(file, BEGAN + days * DAY_S, step_s=max(SAMPLE_S, days * 30))
    found = read_history(file, HistorySpan.ALL)
    assert file.stat().st_size == FILE_BYTES
    assert found.at[0] < BEGAN + found.step_s
    assert found.at[-1] > BEGAN + days * DAY_S - 2 * max(found.step_s, days * 30)
    assert min(1024 // 2 - 2, days * DAY_S / SAMPLE_S - 2) <= len(found.at) <= 1024
    assert found.rates("pages")[1:] == pytest.approx([1.0] * (len(found.at) - 1))


def test_a_restart_continues_and_breaks_the_rates(file: Path) -> None:
    write(file, BEGAN + 60)
    again = HistoryFile(file, BEGAN + 1000)
    assert (again.last["run"], again.last["pages"]) == (1, 55)
    again.add(BEGAN + 1000, values(55, run=2))
    again.add(BEGAN + 1005, values(75, run=2))
    again.close()
    for span in (HistorySpan.HOUR, HistorySpan.ALL):
        found = read_history(file, span)
        assert found.columns["run"][-3:] == [1, 2, 2]
        assert found.rates("pages")[-3:] == [1.0, None, 4.0]


def test_a_crawl_that_goes_on_after_a_year(file: Path) -> None:
    write(file, BEGAN + 7200)
    later = BEGAN + 365 * DAY_S
    write(file, later + 100, begin=later)
    found = read_history(file, HistorySpan.ALL)
    assert found.at[0] == BEGAN
    assert found.at[-1] >= later
    assert len(read_history(file, HistorySpan.HOUR).at) == 20


def test_a_torn_sample_costs_that_sample(file: Path) -> None:
    number = write(file, BEGAN + 600)
    whole = file.read_bytes()
    for seed in range(200):
        damaged = bytearray(whole)
        at = random.Random(seed).randrange(24 + 12, len(whole) - 12)
        damaged[at : at + 12] = os.urandom(12)
        file.write_bytes(damaged)
        found = read_history(file, HistorySpan.HOUR)
        assert number - 2 <= len(found.at) <= number
        assert found.columns["pages"] == [at - BEGAN for at in found.at]


def test_a_process_that_dies_while_cells_are_doubled_loses_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever part of the new cells is written, in their order."""
    write(file, BEGAN + 1024 * SAMPLE_S)
    before = file.read_bytes()
    expected = read_history(file, HistorySpan.ALL).at[::2]
    for kept in (0, 1, 50_000, 99_999):
        file.write_bytes(before)
        doubled = HistoryFile(file, BEGAN + 1024 * SAMPLE_S)
        with monkeypatch.context() as patched:
            patched.setattr(history.os, "pwrite", dying(kept))
            with pytest.raises(SystemExit):
                doubled.add(BEGAN + 1024 * SAMPLE_S, values(5120))
        doubled.close()
        assert set(expected) <= set(read_history(file, HistorySpan.ALL).at)
        write(file, BEGAN + 1030 * SAMPLE_S, begin=BEGAN + 1024 * SAMPLE_S)
        found = read_history(file, HistorySpan.ALL)
        assert set(expected) <= set(found.at)
        assert found.step_s == 2 * SAMPLE_S


def dying(kept: int):  # type: ignore[no-untyped-def]  # stands for os.pwrite
    pwrite = os.pwrite

    def write(descriptor: int, content: bytes, offset: int) -> int:
        if len(content) < 1000:
            return pwrite(descriptor, content, offset)
        pwrite(descriptor, content[:kept], offset)
        raise SystemExit

    return write


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty, as after a power cut"),
        pytest.param(b"x" * 100, id="of another kind"),
        pytest.param(b"\0" * FILE_BYTES, id="zeros"),
    ],
)
def test_a_damaged_file_is_set_aside(
    file: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(content)
    assert read_history(file, HistorySpan.ALL).at == []
    with caplog.at_level(logging.WARNING):
        write(file, BEGAN + 60)
    assert len(read_history(file, HistorySpan.ALL).at) == 12
    assert (file.with_suffix(".damaged").exists(), "damaged" in caplog.text) == (
        bool(content),
        bool(content),
    )


def test_without_a_file_there_is_nothing(file: Path) -> None:
    found = read_history(file, HistorySpan.DAY)
    assert (found.at, found.rates("pages")) == ([], [])
    assert found.columns.keys() == set(COLUMNS)


def test_a_sample_is_a_few_small_writes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    opened, pwrite = HistoryFile(file, BEGAN), os.pwrite
    monkeypatch.setattr(
        history.os, "pwrite", lambda *given: (sizes.append(len(given[1])), pwrite(*given))[1]
    )
    for number in range(1, 20_000):
        opened.add(BEGAN + number * SAMPLE_S, values(number))
    opened.close()
    assert len([size for size in sizes if size > 1000]) <= 6  # cells doubled
    assert len(sizes) < 1.3 * 20_000


def of_worker(begin: float, end: float, per_s: float, waiting: float) -> History:
    at = [begin + 5 * number for number in range(int((end - begin) / 5))]
    columns = {name: [0.0] * len(at) for name in COLUMNS}
    columns["pages"] = [(each - begin) * per_s for each in at]
    columns["waiting"] = [waiting] * len(at)
    columns["run"], columns["hosts_active"] = [1.0] * len(at), [10.0] * len(at)
    return History(5.0, at, columns)


def test_workers_are_added_up() -> None:
    """One began later and was killed earlier: its pages stay, its hosts do not."""
    parts = [of_worker(0, 1000, 2, waiting=7), of_worker(202, 600, 3, waiting=9)]
    found = sum_histories([*parts, sum_histories([])])
    assert found.columns["pages"][-1] == 995 * 2 + 390 * 3
    rates = dict(zip(found.at, found.rates("pages"), strict=True))
    assert (rates[100.0], rates[400.0], rates[900.0]) == (2.0, 5.0, 2.0)
    assert rates[205.0] is None  # another run begins
    hosts = dict(zip(found.at, found.columns["hosts_active"], strict=True))
    assert (hosts[100.0], hosts[400.0], hosts[900.0]) == (10, 20, 10)
    assert found.columns["waiting"][-1] == 7
    assert sum_histories(parts[:1]) == parts[0]
    assert sum_histories([]).at == []
    assert set(TOTALS) < set(COLUMNS)


def test_the_share_of_fresh_copies_is_the_mean_of_the_workers_that_know_it() -> None:
    parts = [of_worker(0, 100, 2, waiting=7) for _ in range(3)]
    for part, share in zip(parts, (0.5, 0.75, math.nan), strict=True):
        part.columns["fresh"] = [share] * len(part.at)
        part.columns["changes"] = [at / 5 for at in part.at]
        part.columns["fetches"] = [4 * at for at in part.at]
        part.columns["fetch_s"] = [at * share for at in part.at]
    parts[2].columns["fetch_s"] = [at * 0.25 for at in parts[2].at]
    found = sum_histories(parts)
    assert found.mean_fetch_s()[-1] == pytest.approx((0.5 + 0.75 + 0.25) / 3 / 4)
    assert found.fresh()[-1] == 0.625 and sum_histories(parts[2:]).fresh()[-1] is None
    assert found.rates("changes")[-1] == pytest.approx(3 / 5)


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_is_kept_beside_a_new_one(file: Path, version: int) -> None:
    file.write_bytes(b"gossamer history %d\n\0 and samples of fewer columns" % version)
    write(file, BEGAN + 60)
    assert len(read_history(file, HistorySpan.HOUR).at) == 12
    assert file.with_suffix(".older").exists() and not file.with_suffix(".damaged").exists()
