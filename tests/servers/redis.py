"""A real redis-server on loopback, in a folder and on a port of its own.

Rule: what a test does to it is what happens to servers: killed, paused, its file cut off. It
dies with the process that started it, and while it is down, folder and port stay its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.harness.waiting import wait_until
from tests.servers.redis_process import HOST, free_port, launch

START_S: Final = 30.0  # loading a large append-only file is part of a start
LOST_S: Final = 1.5  # at worst, by everysec: the last second, and half of the one before
POLL_S: Final = 0.005
PORT_TRIES: Final = 5  # a port that was free a moment ago may be taken
NODE_TIMEOUT_MS: Final = 3000  # of a cluster; by default 15 s

# A user with all rights, whatever a test makes of the others.
ADMIN: Final = "admin"
ADMIN_PASSWORD: Final = secrets.token_hex(16)

Option = str | int | Path


def used_memory(client: redis.Redis) -> int:
    memory = client.info("memory")
    return int(memory["used_memory"] - memory["mem_aof_buffer"])


class RedisServer:
    """By default with an append-only file, everysec, no snapshots, noeviction.

    Every keyword it does not name is a line of redis.conf: appendfsync="always", maxmemory="8mb".
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        password: str = "",
        certificate: Path | None = None,
        users: tuple[str, ...] = (),
        replica_of: RedisServer | None = None,
        cluster: bool = False,
        **options: Option,
    ) -> None:
        """*certificate*: TLS and nothing else, with this file; *users*: lines of ACL, such as
        "default off" or "web on >secret ~web:* +get"."""
        self.password = password
        self.certificate = certificate
        self.port = self.bus_port = 0
        self._own_folder = folder
        self._users = users
        self._replica_of = replica_of
        self._cluster = cluster
        self._options = {name.replace("_", "-"): value for name, value in options.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []

    def __enter__(self) -> Self:
        self.folder = self._own_folder or Path(tempfile.mkdtemp(prefix="redis-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        for client in self._clients:
            client.close()
        if self._own_folder is None:
            shutil.rmtree(self.folder)

    @property
    def url(self) -> str:
        return self.url_as("", self.password)

    def url_as(self, user: str, password: str) -> str:
        credentials = f"{quote(user)}:{quote(password, safe='')}@" if user or password else ""
        return f"{'rediss' if self.certificate else 'redis'}://{credentials}{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is down"
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Return whether the process exists, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    def client(
        self, user: str = ADMIN, password: str = ADMIN_PASSWORD, **options: Any
    ) -> redis.Redis:
        """Return a client, by default with all rights. It retries nothing."""
        tls = {"ssl": True, "ssl_ca_certs": str(self.certificate)} if self.certificate else {}
        given: dict[str, Any] = {
            "username": user or None,
            "password": password or None,
            "socket_timeout": 10.0,
            "retry": Retry(NoBackoff(), 0),
        }
        client = redis.Redis(HOST, self.port, **(given | tls | options))
        self._clients.append(client)
        return client

    def start(self) -> None:
        """Start it and wait until it answers. The second time it uses the same folder and port."""
        assert not self.is_up, "it runs already"
        is_new = self.port == 0
        for _ in range(PORT_TRIES if is_new else 1):
            if is_new:
                self.port, self.bus_port = free_port(), free_port()
            self._launch()
            if self._answers():
                return
        raise RuntimeError(f"redis-server did not start:\n{self.log()[-2000:]}")

    def stop(self) -> None:
        """Stop it as an operator does: when it has exited, everything is on disk."""
        if self.is_up:
            os.kill(self.pid, signal.SIGTERM)
            self.resume()
        self._wait()

    def kill(self) -> None:
        """Kill it and the child that may be rewriting its file."""
        if self.is_up:
            os.killpg(self.pid, signal.SIGKILL)
        self._wait()

    def pause(self) -> None:
        """Stop the process with SIGSTOP; its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def aof_bytes(self) -> int:
        """Return the length of the last append-only file: what is written later can be cut off."""
        return self._last_aof().stat().st_size

    def cut_aof(self, cut_bytes: int) -> None:
        """Cut off the end of the append-only file, as a power failure does."""
        assert not self.is_up, "it would go on writing behind the cut"
        os.truncate(self._last_aof(), max(0, self.aof_bytes() - cut_bytes))

    def lose_power(self, lost_s: float = LOST_S) -> None:
        """Kill the server; what it wrote in its last *lost_s* is lost, too."""
        length = self.aof_bytes()
        time.sleep(lost_s)
        self.kill()
        self.cut_aof(self.aof_bytes() - length)

    def load_slowly(self, seconds: float) -> None:
        """Make each later start take so long: it answers LOADING to most commands meanwhile."""
        with self.client() as client:
            client.mset({f"ballast:{number}": "x" for number in range(1000)})
            client.bgrewriteaof()  # the delay is one of keys in a base file
            base = self.folder / "appendonlydir" / "appendonly.aof.2.base.rdb"
            wait_until(base.exists, START_S)
            wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], START_S)
        self._options["key-load-delay"] = round(seconds * 1000)
        self._options["loading-process-events-interval-bytes"] = 1024

    def used_memory(self) -> int:
        """Bytes, as Redis itself counts them, but for what waits to be written to its file."""
        with self.client() as client:
            return used_memory(client)

    def log(self) -> str:
        path = self.folder / "redis.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _launch(self) -> None:
        conf = self.folder / "redis.conf"
        conf.write_text("".join(f"{line}\n" for line in self._conf()))
        self._process = launch(conf, self.folder / "redis.log")

    def _conf(self) -> list[str]:
        options: dict[str, Option] = {
            "bind": HOST,
            "port": self.port,
            "dir": f'"{self.folder.resolve()}"',
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "enable-debug-command": "no",
            "maxmemory-policy": "noeviction",
            "repl-diskless-sync-delay": 0,  # 5 s, in which more replicas might come
            **self._in_company(),
            **self._secured(),
            **self._options,
        }
        users = (*self._users, f"{ADMIN} on >{ADMIN_PASSWORD} ~* &* +@all")
        return [
            *(f"{name} {value}" for name, value in options.items()),
            *(f"user {line}" for line in users),
        ]

    def _in_company(self) -> dict[str, Option]:
        lines: dict[str, Option] = {}
        if self._cluster:
            lines |= {"cluster-enabled": "yes", "cluster-port": self.bus_port}
            lines |= {
                "cluster-node-timeout": NODE_TIMEOUT_MS,
                "cluster-require-full-coverage": "no",
            }
        if self._replica_of:
            lines |= {"replicaof": f"{HOST} {self._replica_of.port}"}
            lines |= {"masteruser": ADMIN, "masterauth": ADMIN_PASSWORD}
        return lines

    def _secured(self) -> dict[str, Option]:
        lines: dict[str, Option] = {}
        if self.password:
            lines |= {"requirepass": f'"{self.password}"'}
        if self.certificate:
            file = f'"{self.certificate.resolve()}"'
            lines |= {"port": 0, "tls-port": self.port, "tls-auth-clients": "no"}
            lines |= {f"tls-{kind}-file": file for kind in ("cert", "key", "ca-cert")}
            lines |= {"tls-replication": "yes", "tls-cluster": "yes"}
        return lines

    def _answers(self) -> bool:
        """Wait until it answers. Return False if it ended instead."""
        until = time.monotonic() + START_S
        with self.client() as client:
            while self.is_up and time.monotonic() < until:
                try:
                    return bool(client.ping())
                except (redis.ConnectionError, redis.TimeoutError):  # not yet there, or loading
                    time.sleep(POLL_S)
        self.kill()
        return False

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _last_aof(self) -> Path:
        folder = self.folder / "appendonlydir"
        lines = (folder / "appendonly.aof.manifest").read_text().splitlines()
        names = [line.split()[1] for line in lines if line.endswith(" type i")]
        return folder / names[-1]
