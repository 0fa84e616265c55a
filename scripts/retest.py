"""Run what failed last once more, each test alone and three times.

A test that fails only among others depends on their timing. No change is refused for that, but the
test is named here and is to be mended: it, or what it tests, is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")  # of the folder this runs in
MOST: Final = 3  # more are no coincidence
TIMES: Final = 3


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not failed:
        print("No test has failed: something else is wrong")
        return 1
    if len(failed) > MOST:
        print(f"{len(failed)} tests have failed: that is no coincidence")
        return 1
    for test in failed:
        for _ in range(TIMES):
            # Its cache would forget the other failed tests.
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
            if subprocess.run(command, check=False).returncode:
                print(f"Failed alone too: {test}")
                return 1
    names = "\n  ".join(failed)
    print(f"Failed in the whole run, and passed {TIMES} times alone. To be mended:\n  {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
