"""A redis-server that belongs to one measurement, and what it says of itself.

Rule: started for the measurement on loopback, ended by its process id. Both sides get the same
server with the same settings, each an empty one.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from redis import Redis
from redis.exceptions import ConnectionError as NotUp

START_TRIES: Final = 500
TRY_S: Final = 0.01


class RedisMissing(Exception):
    """There is no redis-server here, or none that starts."""


@dataclass(frozen=True, slots=True)
class Server:
    """A redis-server that runs."""

    port: int
    asked: Redis

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cpu_s(self) -> float:
        """CPU seconds so far, those of its background threads among them."""
        used = self.asked.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def used_bytes(self) -> int:
        return int(self.asked.info("memory")["used_memory"])


@contextmanager
def redis_server(*, append_only: bool) -> Iterator[Server]:
    """Empty, and gone with all its data at the end. *append_only*: with the append-only file
    that `make crawl WORKERS=` keeps, written once a second."""
    if shutil.which("redis-server") is None:
        raise RedisMissing("no redis-server: apt install redis-server, or --only gossamer")
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        port = _free_port()
        with subprocess.Popen(_command(port, folder, append_only), stdout=subprocess.DEVNULL) as up:
            try:
                with Redis(port=port) as asked:
                    _wait(asked, up.pid)
                    yield Server(port, asked)
            finally:
                up.terminate()


def _command(port: int, folder: str, append_only: bool) -> list[str]:
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": folder,
        "save": "",
        "appendonly": "yes" if append_only else "no",
        "appendfsync": "everysec",
    }
    return ["redis-server", *(part for name in options for part in (f"--{name}", options[name]))]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _wait(asked: Redis, process_id: int) -> None:
    """Until it answers; the process that answers must be ours."""
    for _ in range(START_TRIES):
        try:
            if asked.info("server")["process_id"] == process_id:
                return
            break
        except NotUp:
            time.sleep(TRY_S)
    raise RedisMissing("redis-server did not start on a port that was free before")
