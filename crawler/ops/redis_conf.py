"""How a Redis of our own is set up: its redis.conf, and the file with its URL.

Rule: the password is in these two files, which only their owner may read, and nowhere else; no
path is in them, for the server's folder is where it runs.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.core.choices import ByServer
from crawler.core.shared_settings import FULL_PART, Shared

HOST: Final = "127.0.0.1"
LOG: Final = "redis.log"
CONF: Final = "redis.conf"
URL: Final = "url"
# Not from the ephemeral range (32768 on, on Linux): while the server is down, somebody's outgoing
# connection would get its port, and one who tries again and again would meet himself.
_PORTS: Final = range(20_000, 32_000)
_PORT_TRIES: Final = 1000
_PART_OF_MEMORY: Final = 0.5  # the workers, and a copy while the file is rewritten, need the rest
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_KEPT: Final = re.compile(r"(?m)^(port|requirepass) (\S+)$")


@dataclass(frozen=True, slots=True)
class Door:
    """Where it listens, and who may enter."""

    port: int
    password: str

    def __repr__(self) -> str:
        return f"Door({self.port})"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}"


def kept_door(folder: Path) -> Door | None:
    """As the last server in *folder* had it."""
    try:
        kept = dict(_KEPT.findall((folder / CONF).read_text()))
        return Door(int(kept["port"]), kept["requirepass"])
    except (OSError, KeyError, ValueError):
        return None


def new_door(last: Door | None) -> Door:
    """With the password of the *last* one, and its port if that is free: what a run before has
    left may still ask there. Raises OSError."""
    password = last.password if last is not None else secrets.token_hex(32)
    if last is not None and _is_free(last.port):
        return last
    for _ in range(_PORT_TRIES):
        port = secrets.choice(_PORTS)
        if _is_free(port):
            return Door(port, password)
    raise OSError(f"no port of {HOST} from {_PORTS[0]} to {_PORTS[-1]} is free")


def write_conf(folder: Path, door: Door, shared: Shared) -> None:
    """And the file with the URL. Raises OSError."""
    options = {
        "bind": HOST,
        "port": door.port,
        "requirepass": door.password,
        "dir": "./",
        "logfile": LOG,
        "pidfile": "./redis.pid",
        "daemonize": "no",
        "databases": 1,
        "appendonly": "yes",
        "appendfsync": shared.redis_fsync,
        "save": '""',  # the append-only file is all that is read again
        "maxmemory": most_bytes(shared),
        "maxmemory-policy": "noeviction",
    }
    lines = [f"{name} {value}\n" for name, value in options.items()]
    _write_secret(folder / CONF, "".join(["# Written at each start.\n", *lines]))
    _write_secret(folder / URL, f"{door.url}\n")


def most_bytes(shared: Shared) -> int:
    """Its maxmemory: new links wait on the workers' disks long before."""
    if shared.redis_max_bytes is not ByServer.AUTO:
        return int(shared.redis_max_bytes / FULL_PART)
    return int(_memory_bytes() * _PART_OF_MEMORY)


def _memory_bytes() -> int:
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(there, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such file, or "max": no limit of our own
        return there


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as redis-server does
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _write_secret(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)  # or its rights would be the old one's
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
