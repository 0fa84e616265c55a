"""Sorted files of lines, in as little memory as one likes."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from crawler.archive.cdxj import MAX_RUNS, SortedLines
from crawler.model.types import StoreUnavailable

LINES = [f"line {number:04}\n" for number in range(3 * MAX_RUNS)]


def shuffled() -> list[str]:
    lines = list(LINES)
    Random(1).shuffle(lines)
    return lines


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("run_chars", [1, 50, 1 << 20], ids=["nothing", "little", "enough"])
def test_lines_come_out_sorted_however_much_is_kept_in_memory(
    tmp_path: Path, run_chars: int
) -> None:
    before = open_files()
    lines = SortedLines(tmp_path / "sorted", run_chars)
    for line in shuffled():
        lines.add(line)
    assert open_files() <= before + MAX_RUNS + 1
    assert not (tmp_path / "sorted").exists()
    lines.finish()
    assert (tmp_path / "sorted").read_text() == "".join(LINES)
    assert [path.name for path in tmp_path.iterdir()] == ["sorted"]
    assert open_files() == before


def test_lines_in_memory_are_sorted_without_a_file(tmp_path: Path) -> None:
    lines = SortedLines(tmp_path / "sorted", 50)
    for line in shuffled():
        lines.add(line)
    assert list(lines.sorted()) == LINES
    lines.discard()
    assert os.listdir(tmp_path) == []  # noqa: PTH208  # names are all that is asked for


def test_nothing_is_a_file_too(tmp_path: Path) -> None:
    SortedLines(tmp_path / "sorted").finish()
    assert (tmp_path / "sorted").read_bytes() == b""


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "sorted"
    with pytest.raises(StoreUnavailable, match="sorted"):
        SortedLines(missing, run_chars=1).add("a\n")
    lines = SortedLines(missing)
    lines.add("a\n")
    with pytest.raises(StoreUnavailable, match="sorted"):
        lines.finish()
    lines.discard()
