"""The disk of a simulated crawl: what outlives its processes, and what a power cut takes of that.

Rule: what is written is kept if the process dies. If the power is cut, what was not synced may be
lost: of the store the end of its log, as of RocksDB, with the outcomes logged then; of the files of
the seen set and of the archive all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import SEEN
from crawler.frontier.run_files import OpenFd, RunFolder
from crawler.simulate.run_log import PowerCut, RunLog


class SimulatedStore(MemoryStore):
    """Implements port.DurableStore. Its writes since the last sync can be undone."""

    def __init__(self, log: RunLog, *, may_lose: bool) -> None:
        """*may_lose*: whether `lose` may be called."""
        super().__init__()
        self._log, self._may_lose = log, may_lose
        # What each write since the last sync has replaced, and how many outcomes were logged then.
        self._unsynced: list[tuple[dict[bytes, bytes | None], int]] = []
        self._on_written: Callable[[], None] | None = None

    def watch(self, on_written: Callable[[], None] | None) -> None:
        """Call *on_written* after each write from now on."""
        self._on_written = on_written

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if self._may_lose:
            replaced = {key: self.get(key) for key in changes}
            self._unsynced.append((replaced, len(self._log.outcomes)))
        super().write(changes)
        if self._on_written is not None:
            self._on_written()

    def sync(self) -> None:
        self._unsynced.clear()

    def lose(self, random: Random) -> None:
        """Undo the last writes that were not synced, some or all, with their outcomes."""
        kept = random.randint(0, len(self._unsynced))
        for replaced, outcomes in reversed(self._unsynced[kept:]):
            super().write(replaced)
            del self._log.outcomes[outcomes:]
        self._unsynced.clear()


class SimulatedRuns(RunFolder):
    """The files of the seen set, which are real ones."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._names: dict[int, str] = {}  # of the files that were created, by descriptor
        self._unsynced: set[str] = set()  # files whose bytes are not synced
        self._unnamed: set[str] = set()  # files whose names in the folder are not synced

    def create(self, name: str) -> OpenFd:
        file = super().create(name)
        self._names[file.number] = name
        self._unsynced.add(name)
        self._unnamed.add(name)
        return file

    def sync(self, file: OpenFd) -> None:
        self._unsynced.discard(self._names[file.number])

    def sync_names(self) -> None:
        self._unnamed.clear()

    def lose(self) -> None:
        """Remove the files that were not synced."""
        for name in self._unsynced | self._unnamed:
            self.remove(name)
        self._unsynced, self._unnamed = set(), set()


class Disk:
    """All that outlives a process."""

    def __init__(self, folder: Path, key_seed: int, log: RunLog, *, may_lose: bool) -> None:
        """*may_lose*: whether the power may be cut."""
        self.folder, self.key_seed, self._log = folder, key_seed, log
        self.store = SimulatedStore(log, may_lose=may_lose)
        self.runs = SimulatedRuns(folder / SEEN)
        self.rules_text = ""  # of the operator
        self._records = self._synced_records = 0  # of the archive
        self._synced_at = 0.0  # when all that was written to the store was synced last

    def write_rules(self, text: str) -> None:
        self.rules_text = text

    def append_record(self) -> str:
        """Append a record to the archive, and return where it is."""
        self._records += 1
        return _record(self._records)

    def sync_records(self) -> None:
        self._synced_records = self._records

    def sync_store(self, now: float) -> None:
        self.store.sync()
        self._synced_at = now

    def cut_power(self, now: float, random: Random) -> None:
        """Lose what was not synced, and log what a judge can know of that."""
        self.store.lose(random)
        self.runs.lose()
        lost = range(self._synced_records + 1, self._records + 1)
        self._log.lost_records.update(map(_record, lost))
        self._log.power_cuts.append(PowerCut(self._synced_at, now))


def _record(number: int) -> str:
    return f"simulated.warc.gz:{number}"
