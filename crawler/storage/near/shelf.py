"""The runs that count, and how they come and go.

Rule: one change at a time, each in this order: the new run on disk, the manifest that names it
instead of what it replaces, the view, and only then are the old runs removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from crawler.storage.near.folder import Folder, Manifest
from crawler.storage.near.limits import Limits
from crawler.storage.near.runs import Run
from crawler.storage.near.sources import Source
from crawler.storage.near.writing import write_run


class Shelf:
    def __init__(self, folder: Folder, manifest: Manifest, limits: Limits) -> None:
        """Raises DataDirError: a run is missing or damaged. 1 s for each 2e7 pages or so."""
        self._folder = folder
        self._manifest = manifest
        self._limits = limits
        self.runs: tuple[Run, ...] = tuple(Run(folder, record) for record in manifest.runs)
        for run in self.runs:
            run.check()
        folder.sweep({record.name for record in manifest.runs})

    def file(self, sources: Sequence[Source], show: Callable[[], None]) -> None:
        """The newest run, of *sources*. *show* is called when it counts."""
        self._put(sources, len(self.runs), len(self.runs), lambda: None, show)

    def merge(self, place: int, between: Callable[[], None], show: Callable[[], None]) -> None:
        """One run of those after the *place* oldest. While *between* runs, others may be filed,
        and newer ones merged."""
        merged = self.runs[place:]
        self._put(merged, place, place + len(merged), between, show)

    def mergeable(self, place: int) -> int | None:
        """After how many of the oldest runs (*place* at least) all should be one."""
        newer, first = 0, len(self.runs)
        for at in range(len(self.runs) - 1, place - 1, -1):
            pages = self.runs[at].record.pages
            if pages < self._limits.ratio * newer:
                first = at
            newer += pages
        return first if len(self.runs) - first > 1 else None

    def made_whole(self) -> None:
        """It has been rebuilt."""
        self._save(replace(self._manifest, whole=True))

    def _put(
        self,
        sources: Sequence[Source],
        begin: int,
        end: int,
        between: Callable[[], None],
        show: Callable[[], None],
    ) -> None:
        name = f"run-{self._manifest.next}"
        # Runs that are filed in between have other names, also after a crash.
        self._manifest = replace(self._manifest, next=self._manifest.next + 1)
        try:
            record = write_run(self._folder, name, sources, self._limits, between)
        except BaseException:
            self._folder.give_up(name)
            raise
        run = Run(self._folder, record)
        replaced = self.runs[begin:end]
        runs = (*self.runs[:begin], run, *self.runs[end:])
        self._save(replace(self._manifest, runs=tuple(each.record for each in runs)))
        self.runs = runs
        show()
        for old in replaced:
            self._folder.remove(old.record.name)

    def _save(self, manifest: Manifest) -> None:
        self._folder.save(manifest)
        self._manifest = manifest
