"""Which archive a command is about: that of a data directory and of all workers below it.

Rule: looking needs no lock and changes nothing. What is made again is put in its place whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scrapy.settings import BaseSettings

from crawler.core.config import Config
from crawler.core.errors import DataDirError
from crawler.ops.worker_command import worker_folders
from crawler.storage.local.datadir import WARC, WORKER, holder
from crawler.storage.warc.lookup import warc_files
from crawler.storage.warc.openfile import OPEN_SUFFIX
from crawler.wiring import data_dir


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    path: Path  # the data directory
    folders: tuple[Path, ...]  # with WARC files
    store: str  # where finished files are brought; empty: they stay here
    is_shared: bool  # other machines may have parts of it

    def files(self) -> list[Path]:
        """Finished, and not."""
        return [file for folder in self.folders for file in warc_files(folder)]

    def finished(self) -> list[Path]:
        return [file for file in self.files() if not file.name.endswith(OPEN_SUFFIX)]

    @property
    def is_whole(self) -> bool:
        """Whether all of the archive is here."""
        return not (self.store or self.is_shared)

    def elsewhere(self) -> list[str]:
        """What a person must know of files that are not here."""
        if self.store:
            return [f"finished files are brought to {self.store}: those are not looked at"]
        return ["other workers' archives are not looked at"] if self.is_shared else []


def archive_of(settings: BaseSettings, config: Config) -> ArchivePlace:
    """Raises DataDirError: there is none."""
    path = data_dir(settings, config)
    homes = [path, *worker_folders(path)]
    folders = tuple(home / WARC for home in homes if (home / WARC).is_dir())
    if not folders:
        raise DataDirError(
            f"{path} holds no archive: there is no {path / WARC}. CRAWLER_DATA_DIR says where"
        )
    is_shared = bool(config.shared.frontier_url) or (path / WORKER).exists()
    return ArchivePlace(path, folders, config.archive.archive_url, is_shared)


def is_being_written(file: Path) -> bool:
    """By a crawl that is at work."""
    return file.name.endswith(OPEN_SUFFIX) and holder(file.parent.parent) is not None
