"""A power cut, as the files of a dead process see it: each loses some of what was not synced.

Rule: of each file at least what the last sync covered is left, at most all of it, and each file
fares differently, because the system writes them back when it likes. Names (of files begun,
renamed or removed) are not lost.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

_SOURCE: Final = Path(__file__).with_name("power_cut.c")
_ROW: Final = struct.Struct("=4Q")
_SYNCED: Final = 2  # of `enum what` in the source


class PowerCut:
    """Files are watched from `watching` on, of processes that begin meanwhile."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._library = folder / "power_cut.so"
        self._log = folder / "power_cut.log"
        self._random = random
        self.lost_bytes = 0
        build = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", self._library, _SOURCE]
        subprocess.run([*build, "-ldl"], check=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.update(LD_PRELOAD=str(self._library), POWER_CUT_LOG=str(self._log))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def cut(self, folder: Path) -> None:
        """Take from each file below *folder* some of what was not synced."""
        safe = self._safe_lengths()
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                is_at = path.stat()
                kept = min(is_at.st_size, safe.get((is_at.st_dev, is_at.st_ino), 0))
                left = self._random.choice((kept, self._random.randint(kept, is_at.st_size)))
                left = self._random.choice((left, is_at.st_size))
                self.lost_bytes += is_at.st_size - left
                os.truncate(path, left)

    def _safe_lengths(self) -> dict[tuple[int, int], int]:
        lengths: dict[tuple[int, int], int] = {}
        rows = self._log.read_bytes() if self._log.exists() else b""
        for what, device, number, length in _ROW.iter_unpack(rows):
            before = lengths.get((device, number), 0)
            is_more = what == _SYNCED  # a begun file has nothing, a cut one no more than is left
            lengths[device, number] = length if is_more else min(before, length)
        return lengths
