"""Replace this process by a program that gets a signal when its parent process dies.

Rule: this file runs as a script with the standard library only, which takes 20 ms. Only Linux has
such a signal; elsewhere the next run ends the processes that are left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with_parent(command: Sequence[str], signal_number: signal.Signals) -> list[str]:
    """Return *command* such that it gets the signal *signal_number* when this process dies. The
    main thread must start it, as the kernel sends the signal when the thread that forked ends."""
    prefix = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(signal_number))]
    return [*prefix, *command]


def status_text(status: int) -> str:
    """Describe how a process ended: an exit status, or a signal if *status* is below 0."""
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
        if os.getppid() != starter:  # the parent died before prctl
            os.kill(os.getpid(), how)
    os.execvp(command[0], command)  # our own arguments, without a shell


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
