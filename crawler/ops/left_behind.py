"""Workers that a run before has left: one that was killed could not end them.

Rule: who holds a data directory of ours is a worker of ours. It was told to end when its starter
died; here it is waited for, and told once more where the kernel does not tell.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from crawler.core.errors import DataDirError
from crawler.storage.local.datadir import holder

_LOOK_S: Final = 0.05
_TELL_AFTER_S: Final = 3.0  # a second signal to one that is ending would cut it off
_PATIENCE_S: Final = 40.0  # it waits up to 20 s for a Redis that is not there


async def wait_for_left(folders: Iterable[Path], tell: Callable[[str], None]) -> None:
    """Until nobody is in *folders*. Raises DataDirError: somebody stays."""
    left = {folder: pid for folder in folders if (pid := holder(folder)) is not None}
    if not left:
        return
    named = ", ".join(map(str, left.values()))
    tell(f"Waiting for workers that a run before has left (processes {named})")
    loop = asyncio.get_running_loop()
    began, told = loop.time(), False
    while left := {folder: pid for folder in left if (pid := holder(folder)) is not None}:
        waited_s = loop.time() - began
        if waited_s > _PATIENCE_S:
            folder, pid = next(iter(left.items()))
            raise DataDirError(f"{folder} is in use by process {pid}, which does not end. End it")
        if waited_s > _TELL_AFTER_S and not told:
            told = True
            for pid in filter(None, left.values()):  # 0: it has not written itself down yet
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        await asyncio.sleep(_LOOK_S)
