"""The process of a redis-server, and a port for it.

Rule: it ends with the process that started it, however that one ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
# Not from the ephemeral range (32768 on, on Linux): while the server is down, somebody's outgoing
# connection would get its port, and one who tries to connect again and again meets himself.
PORTS: Final = range(20_000, 32_000)
PORT_TRIES: Final = 1000

# The signal at a parent's death is sent when the *thread* ends that started the child: this
# one ends with the process.
_STARTER: Final = ThreadPoolExecutor(1, thread_name_prefix="starter of redis-server")


def launch(conf: Path, log: Path) -> subprocess.Popen[bytes]:
    """In a group of its own: with its children, and without the terminal's Ctrl-C."""
    with log.open("ab") as out:
        return _STARTER.submit(
            subprocess.Popen,
            [*_dies_with_us(), _program(), str(conf)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        ).result()


def free_port() -> int:
    for _ in range(PORT_TRIES):
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as redis-server does
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port is free in {PORTS}")


def _program() -> str:
    found = shutil.which("redis-server", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError("redis-server >= 7.0 is missing: sh scripts/system-packages.sh")
    return found


def _dies_with_us() -> list[str]:
    """On Linux even when we are killed. setpriv becomes what it starts: the pid is the same."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []
