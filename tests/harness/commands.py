"""Run the real command, as a user would, in the project's folder; every import included.

`tests.harness.fork_server` does the same without the two seconds of imports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.harness.sources import PROJECT

# A bound for what ends sooner or later, also on a machine with much else to do.
PATIENCE_S: Final = 300.0

QUICK: Mapping[str, object] = {
    "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",  # the web of the tests: its hosts link to each other
    "CRAWLER_MIN_DELAY_S": 0.01,
    "CRAWLER_PACED_MIN_DELAY_S": 0,  # else 0.1, whatever the other is
    "CRAWLER_DELAY_FACTOR": 1,
    "CRAWLER_FSYNC_EVERY_S": 0.1,  # lives that end after a second are to finish pages
    "CRAWLER_PROGRESS": "off",
    "LOG_LEVEL": "INFO",
}


def crawl_command(
    data: Path,
    settings: Mapping[str, object] | None = None,
    spider: str = "web",
    **arguments: object,
) -> list[str]:
    """Return the command of a crawl. A setting of None is left as it is by default."""
    command = [sys.executable, "-m", "scrapy", "crawl", spider]
    for name, value in arguments.items():
        command += ["-a", f"{name}={value}"]
    for name, value in {**QUICK, "CRAWLER_DATA_DIR": data, **(settings or {})}.items():
        if value is not None:
            command += ["-s", f"{name}={value}"]
    return command


def run(
    command: list[str], timeout_s: float = PATIENCE_S, **given: object
) -> subprocess.CompletedProcess[str]:
    ended: subprocess.CompletedProcess[str] = subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        **given,
    )  # type: ignore[call-overload]  # what is given is the caller's
    return ended


def _heed_hangups() -> None:
    """As without nohup, under which the tests may run."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The running command; killed on leaving, if it still runs."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=dict(os.environ),
            preexec_fn=_heed_hangups,  # noqa: PLW1509  # it takes no lock
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)
