"""kill -9 at moments that are aimed at: when a file gets or loses its name."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.ready import Begun

LOOK_S: Final = 0.0005
STARTS_S: Final = 60.0  # on a machine that has much else to do
UNFINISHED: Final = ".warc.gz.open"


@dataclass(frozen=True, slots=True)
class Aim:
    """Death comes when a file with this *suffix* comes, or goes."""

    says: str
    where: str  # "here": beside the files that are written; or another folder that is watched
    suffix: str
    comes: bool = True
    of_the_dead: bool = False  # it belongs to a file that another left unfinished
    of_a_delivery: bool = False  # of any file


class Watch:
    """What happens to the files of one life."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._names = {where: _names(folder) for where, folder in folders.items()}
        left = (name for name in self._names["here"] if name.endswith(UNFINISHED))
        self._left = tuple(name.removesuffix(UNFINISHED) for name in left)
        self.has_begun = False  # to write a file of its own

    def sees(self, aim: Aim) -> bool:
        """Whether it has come to that since the last look."""
        seen = False
        for where, folder in self._folders.items():
            before, now = self._names[where], _names(folder)
            self._names[where] = now
            came = now - before
            self.has_begun |= any(name.endswith(UNFINISHED) for name in came)
            if where == aim.where:
                changed = came if aim.comes else before - now
                seen = any(self._is_meant(name, aim) for name in changed)
        return seen

    def _is_meant(self, name: str, aim: Aim) -> bool:
        is_old = name.startswith(self._left) if self._left else False
        return name.endswith(aim.suffix) and (aim.of_a_delivery or is_old == aim.of_the_dead)


def kill_on(
    process: Begun,
    aim: Aim,
    folders: Mapping[str, Path],
    then_s: float,
    patience_s: float,
) -> bool:
    """Whether it came to that; killed *then_s* later, or when patience has ended: it is counted
    from the first file that is begun."""
    watch, deadline = Watch(folders), time.monotonic() + STARTS_S
    has_begun = False
    while process.poll() is None and time.monotonic() < deadline:
        if watch.sees(aim):
            time.sleep(then_s)
            process.kill()
            return True
        if watch.has_begun and not has_begun:
            has_begun, deadline = True, time.monotonic() + patience_s
        time.sleep(LOOK_S)
    process.kill()
    return False


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208  # four times as fast as iterdir
    except FileNotFoundError:
        return frozenset()
