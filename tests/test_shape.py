"""Every file has a docstring, and every suppression its reason."""

from __future__ import annotations

import ast
import re

import pytest

from tests.harness.budget import LONGEST
from tests.harness.sources import FOLDERS, PROJECT, Source, sources

OURS = [source for source in sources("crawler") if source.text.strip()]
EVERYTHING = sources(*FOLDERS)

SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:)")
REASONED = re.compile(
    r"#\s*(noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\]|pragma: [a-z ]+?)\s+[#-]\s*\w.{3,}"
)
UNOWNED = re.compile(r"#.*\b(TODO|FIXME|XXX|HACK)\b")


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_every_file_has_a_docstring(source: Source) -> None:
    assert ast.get_docstring(source.tree)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_suppression_has_its_reason_on_its_line(folder: str) -> None:
    assert [
        f"{source.path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for source in EVERYTHING
        if source.name.startswith(folder) and source.path.name != "test_shape.py"
        for number, line in enumerate(source.text.splitlines(), 1)
        if SUPPRESSION.search(line) and not REASONED.search(line)
    ] == []


def test_no_comment_postpones_work() -> None:
    assert [
        f"{source.path.relative_to(PROJECT)}:{number}"
        for source in EVERYTHING
        if source.path.name != "test_shape.py"
        for number, line in enumerate(source.text.splitlines(), 1)
        if UNOWNED.search(line)
    ] == []


def test_the_slow_test_files_exist() -> None:
    assert set(LONGEST) <= {path.stem for path in (PROJECT / "tests").rglob("test_*.py")}
