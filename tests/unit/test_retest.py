"""What failed in a whole run is run again alone (scripts/retest.py): what is broken fails there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.sources import PROJECT

ONCE = """
from pathlib import Path
def test_{0}():
    seen = Path("seen{0}")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""


@pytest.mark.parametrize(
    ("tests", "status", "output"),
    [
        pytest.param("def test_a(): pass", 1, "something else is wrong", id="none has failed"),
        pytest.param("def test_a(): assert False", 1, "Failed alone too", id="broken"),
        pytest.param(ONCE.format("b"), 0, "test_it.py::test_b", id="only once"),
        pytest.param("\n".join(map(ONCE.format, "abcd")), 1, "4 tests", id="too many"),
    ],
)
def test_again(
    tests: str, status: int, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # seconds of each start
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(tests)
    pytest_alone = [sys.executable, "-m", "pytest", "-q"]
    subprocess.run(pytest_alone, cwd=tmp_path, capture_output=True, check=False)
    done = subprocess.run(
        [sys.executable, PROJECT / "scripts" / "retest.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, output in done.stdout) == (status, True), done.stdout
