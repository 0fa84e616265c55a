"""Become another program, one that gets a signal when the process that started it dies.

Rule: run as a file and with the standard library only, so that it is over in 20 ms. Where the
kernel knows no such signal (only Linux does), who comes next finds what was left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with_parent(command: Sequence[str], how: signal.Signals) -> list[str]:
    """*command*, to get *how* when this process dies. To be started by its main thread: the
    kernel goes by the thread that forked."""
    ours = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(how))]
    return [*ours, *command]


def status_text(status: int) -> str:
    """How a process ended: an exit status, or below 0 a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _become(starter: int, how: int, command: list[str]) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, how)
        if os.getppid() != starter:  # it died before we asked
            os.kill(os.getpid(), how)
    os.execvp(command[0], command)  # a list of arguments of ours, and no shell


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
