"""What a process and its children take, seen from outside while they run."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.02


@dataclass(slots=True)
class Memory:
    """High-water marks, in bytes. (What wait4 tells of a child includes its parent's memory at the
    fork.)"""

    own: int = 0
    children: dict[int, int] = field(default_factory=dict)  # by process


def watched(process: subprocess.Popen[bytes], limit_s: float) -> Memory:
    """Until it has ended, or time is up."""
    memory, deadline = Memory(), time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < deadline:
        memory.own = max(memory.own, _high_water(process.pid))
        for child in _children(process.pid):
            # The last one counts: until it is another program, a child has its parent's.
            memory.children[child] = _high_water(child) or memory.children.get(child, 0)
        time.sleep(LOOK_S)
    return memory


def _high_water(pid: int) -> int:
    return sum(
        int(line.split()[1]) * 1024 for line in _read(f"{pid}/status") if line.startswith("VmHWM")
    )


def _children(pid: int) -> list[int]:
    return [int(word) for line in _read(f"{pid}/task/{pid}/children") for word in line.split()]


def _read(name: str) -> list[str]:
    """Nothing, once it has ended."""
    try:
        return (Path("/proc") / name).read_text().splitlines()
    except OSError:
        return []
