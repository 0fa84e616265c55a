"""How a Chromium is started so that it reaches no network, and dies with us.

Rule: a browser has namespaces of its own for network and processes wherever the system makes them,
its own sandbox wherever that starts, and a user that is not root. Each way is tried by starting a
browser; the first that works is kept, and what it lacks is a sentence for the log.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Final, Literal

from crawler.model.types import ConfigError

NODE: Final = "PLAYWRIGHT_NODEJS_PATH"  # Playwright's only way to name its driver's program
NICE: Final = 19  # plain pages go first: at 10, of two busy cores the browser takes a fifth
NOBODY: Final = 65534
_PREFIX: Final = "gossamer-browser-"
# Node would let garbage of some 100 MB gather. Without its compilers it takes 9 MB less, at the
# same CPU time.
_NODE_FLAGS: Final = (
    "--max-semi-space-size=1 --max-old-space-size=256 --optimize-for-size --lite-mode"
)
_NODE_ALLOCATOR: Final = (
    "MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536 MALLOC_MMAP_THRESHOLD_=65536"
)
_DISK: Final = "256m"  # of the browser's own files, where they are in memory
# What leads nowhere, where no namespace is to be had: a proxy at a port where nothing listens, for
# loopback too, and a resolver without names.
_DEAD_END: Final = (
    "--proxy-server=http://127.0.0.1:{port}",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
)
# `$1` of these is the folder of the browser's files, and the rest is Chromium with its arguments.
_DIE: Final = "setpriv --pdeathsig KILL"
_SPACES: Final = "unshare --net --pid --fork --kill-child --mount-proc"
_AS_NOBODY: Final = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups"
_START: Final = {
    # In a file system in memory: it ends with the namespace, and its size is bounded.
    "namespaces": f"""exec {_DIE} {_SPACES} -- sh -c '
mount -t tmpfs -o size={_DISK},mode=1777,nosuid,nodev tmpfs "$1" || chown -R {NOBODY} "$1"
shift
exec setpriv {_AS_NOBODY} --pdeathsig KILL -- "$@"' sh "$@"
""",
    "user namespace": f"""shift
exec {_DIE} unshare --user --map-current-user {_SPACES.removeprefix("unshare ")} -- "$@"
""",
    "nobody": f"""chown -R {NOBODY} "$1"
shift
exec setpriv {_AS_NOBODY} --pdeathsig KILL -- "$@"
""",
    "plain": f'shift\nexec {_DIE} -- "$@"\n',
    "bare": 'shift\nexec "$@"\n',
}

Kind = Literal["namespaces", "user namespace", "nobody", "plain", "bare"]


@dataclass(frozen=True)
class Isolation:
    """One way to start a browser: *kind* names its script, *has_sandbox* Chromium's own sandbox."""

    kind: Kind
    has_sandbox: bool

    @property
    def has_network(self) -> bool:
        """Whether only arguments of the browser keep it from the network."""
        return "namespace" not in self.kind

    def sentence(self) -> str:
        """Return what this way lacks, for the log. Empty: nothing."""
        lacks = []
        if self.has_network:
            lacks.append(
                "without a network namespace: only a proxy that leads nowhere and a resolver "
                "without names keep it from the network"
            )
        if not self.has_sandbox:
            lacks.append("without Chromium's own sandbox, which does not start here")
        if self.kind in ("plain", "bare") and os.geteuid() == 0:
            lacks.append("as root")
        return f"The browser runs {', and '.join(lacks)}" if lacks else ""


def ways(use_namespaces: bool) -> Iterator[Isolation]:
    """Yield the ways to start a browser on this system, the best first. *use_namespaces*: False is
    for tests of the others."""
    is_root, has_setpriv = os.geteuid() == 0, shutil.which("setpriv") is not None
    kinds: list[Kind] = []
    if use_namespaces and has_setpriv and shutil.which("unshare"):
        kinds.append("namespaces" if is_root else "user namespace")
    kinds.append(("nobody" if is_root else "plain") if has_setpriv else "bare")
    for kind in kinds:
        for has_sandbox in (True, False):
            yield Isolation(kind, has_sandbox)


class BrowserFolder:
    """The scripts that start a browser and its driver, and their files.

    It is locked while this process lives. A process that was killed leaves its folder, which the
    next one removes: an open lock says that its owner is dead.
    """

    def __init__(self, isolation: Isolation, chromium: str) -> None:
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # It gets its name when it is locked: another process may look at any moment.
        unnamed = self.path / "unlocked"
        self._lock = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)
        flock(self._lock, LOCK_EX)
        unnamed.rename(self.path / "lock")
        # It is bound, so that no other program listens there, and does not listen.
        self._dead_end = socket.socket() if isolation.has_network else None
        self.path.chmod(0o711)  # the browser's user passes through
        if isolation.kind in ("namespaces", "nobody"):
            self._require_passage()
        self._data = self.path / "data"
        self._data.mkdir(mode=0o700)
        temporary = self.path / "driver"
        temporary.mkdir(mode=0o700)
        profile = shlex.quote(f"--user-data-dir={self._data / 'profile'}")
        # In place of the profile folder that Playwright makes, which nothing removes when the
        # driver is killed.
        self.chromium = self._script(
            "chromium",
            f"for each do\n  shift\n  case $each in --user-data-dir=*) each={profile};; esac\n"
            f'  set -- "$@" "$each"\ndone\n'
            f"exec sh {shlex.quote(str(self.path / 'start'))} "
            f'{shlex.quote(str(self._data))} {shlex.quote(chromium)} "$@"\n',
        )
        self._script("start", _START[isolation.kind])
        end = f"{_DIE} " if isolation.kind != "bare" else ""
        # In a session of its own: the signals of a terminal are for the crawl. The first argument
        # is DRIVER/package/cli.js.
        session = "setsid " if shutil.which("setsid") else ""
        chosen = os.environ.get(NODE, "")
        node = shlex.quote(chosen) if chosen else '"${1%/package/cli.js}/node"'
        self.node = self._script(
            "node",
            f"export TMPDIR={shlex.quote(str(temporary))} {_NODE_ALLOCATOR}\n"
            f'exec {session}{end}nice -n {NICE} {node} {_NODE_FLAGS} "$@"\n',
        )

    def arguments(self) -> list[str]:
        """Return what keeps a browser from the network that it has."""
        if self._dead_end is None:
            return []
        self._dead_end.bind(("127.0.0.1", 0))
        port = self._dead_end.getsockname()[1]
        return [each.format(port=port) for each in _DEAD_END]

    def environment(self) -> dict[str, str]:
        """Return the browser's environment: what ours has besides may be secret."""
        data = str(self._data)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), data),
        }

    def pid(self, name: Literal["chromium", "node"]) -> int | None:
        """Return the process that a script has become. None: it was not started."""
        with suppress(OSError, ValueError):
            return int((self.path / f"{name}.pid").read_text())
        return None

    def _require_passage(self) -> None:
        for folder in self.path.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                self.remove()
                raise ConfigError(
                    f"TMPDIR: the browser, which does not run as root, cannot pass {folder}; "
                    f"make it passable (chmod o+x), or set TMPDIR to another folder"
                )

    def remove(self) -> None:
        if self._dead_end is not None:
            self._dead_end.close()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _script(self, name: str, commands: str) -> Path:
        path = self.path / name
        pid = shlex.quote(f"{path}.pid")
        path.write_text(f"#!/bin/sh\necho $$ >{pid}\n{commands}")
        path.chmod(0o700)
        return path


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / "lock", os.O_RDWR)
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
