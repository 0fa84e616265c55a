"""A crawl whose own line is cut off for some seconds, in a network namespace: no page is given up,
no host is paused, and it goes on by itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.commands import PATIENCE_S
from tests.harness.cut_off_line import CUT_AFTER, HOSTS, PAGES

ALONE = ["unshare", "-rn"]


def test_nothing_is_lost_while_the_line_is_cut_off(tmp_path: Path) -> None:
    has_tools = shutil.which("unshare") and shutil.which("ip")
    if not has_tools or subprocess.run([*ALONE, "true"], check=False).returncode:
        pytest.skip("this machine gives nobody a network of their own")
    command = [*ALONE, sys.executable, "-m", "tests.harness.cut_off_line", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["reason"] == "finished"
    assert found["fates"] == {"done": HOSTS * PAGES}
    assert found["paused"] == {}
    assert found["answers"] > CUT_AFTER
    assert found["packets while it was cut off"] == 0
