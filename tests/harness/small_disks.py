"""Disks that are soon full: a small file system, or a limit on the size of each file."""

from __future__ import annotations

import resource
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

from tests.harness import fork_server
from tests.harness.commands import run


class SmallDisk:
    """A file system of its own, full at *room_bytes*. Only root may have one."""

    refusal = "No space left on device"

    def __init__(self, folder: Path, room_bytes: int) -> None:
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={room_bytes}", "tmpfs", str(folder))

    def run(self, command: list[str]) -> CompletedProcess[str]:
        return fork_server.run(command)

    def fill(self) -> None:
        """Leave no room, whatever was refused until now."""
        with suppress(OSError), (self.folder / "filler").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))

    def make_room(self) -> None:
        self._mount("-o", "remount,size=64m", str(self.folder))

    def close(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)

    @staticmethod
    def _mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)


class SmallFiles:
    """A limit on the size of each file, *room_bytes*, which needs no privilege."""

    refusal = "File too large"

    def __init__(self, folder: Path, room_bytes: int) -> None:
        self.folder = folder
        self._room_bytes = room_bytes

    def run(self, command: list[str]) -> CompletedProcess[str]:
        if not self._room_bytes:
            return fork_server.run(command)
        limits = (self._room_bytes, self._room_bytes)
        return run(command, preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits))

    def make_room(self) -> None:
        self._room_bytes = 0

    def close(self) -> None:
        """Nothing is left of it."""


Disk = SmallDisk | SmallFiles


def can_mount(folder: Path) -> bool:
    try:
        SmallDisk(folder, 1 << 20).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
