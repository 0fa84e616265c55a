"""The redis-server of this machine, if it has one that is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from crawler.core.errors import ConfigError
from crawler.storage.redis.connection.faults import OLDEST

_NAME: Final = "redis-server"
# Where systems keep servers, and not everybody's PATH looks.
_PLACES: Final = ("/usr/local/sbin", "/usr/sbin", "/opt/homebrew/bin")
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)\S*")
_TOLD_S: Final = 10.0
_OTHERWISE: Final = "or give the URL of one that runs: -s CRAWLER_FRONTIER_URL=redis://..."


def redis_program(path: str, places: Sequence[str] = _PLACES) -> str:
    """Its file. *path* as in PATH; *places* come after it. Raises ConfigError."""
    found = shutil.which(_NAME, path=os.pathsep.join([path, *places]))
    oldest = ".".join(map(str, OLDEST))
    if found is None:
        raise ConfigError(
            f"workers share a crawl through Redis, and no {_NAME} is on the PATH: install"
            f" {oldest} or newer (Debian, Ubuntu: sudo apt-get install {_NAME}), {_OTHERWISE}"
        )
    version = _VERSION.search(_told_by(found))
    if version is None:
        raise ConfigError(f"{found} does not tell its version; want {oldest} or newer")
    if (int(version[1]), int(version[2])) < OLDEST:
        told = version[0].removeprefix("v=")
        raise ConfigError(
            f"{found} has version {told}, and {oldest} or newer is needed: install that,"
            f" {_OTHERWISE}"
        )
    return found


def _told_by(program: str) -> str:
    try:
        asked = subprocess.run(  # found on the user's own PATH
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOLD_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise ConfigError(f"{program} cannot be started: {failed}") from failed
    return asked.stdout
