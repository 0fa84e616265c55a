"""What a worker is started with: `scrapy crawl` as the user would type it, in a place of its own.

Rule: what was typed goes to every worker; only what would be counted by each of them, or belongs
to one, is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.core.errors import DataDirError
from crawler.storage.local.datadir import LOG, WORKERS
from crawler.storage.local.worker_file import WorkerFile, read_worker

MAX_PAGES: Final = "max_pages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What the user gave."""

    spider: str
    arguments: tuple[str, ...]  # NAME=VALUE, behind -a
    settings: tuple[str, ...]  # NAME=VALUE, behind -s
    options: tuple[str, ...] = ()  # others


def worker_folder(data_dir: Path, number: int) -> Path:
    return data_dir / WORKERS / str(number)


def worker_folders(data_dir: Path) -> list[Path]:
    """Of this run or of runs before, by their numbers."""
    found = [folder for folder in (data_dir / WORKERS).glob("*") if folder.name.isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name))


def workers_in(folders: Iterable[Path]) -> dict[Path, WorkerFile]:
    """Whose data directories these are, where somebody has begun in them."""
    found = {}
    for folder in folders:
        with suppress(DataDirError):  # whoever works there says so
            worker = read_worker(folder)
            if worker is not None:
                found[folder] = worker
    return found


def parts_of_pages(max_pages: int | None, workers: int) -> list[int | None]:
    """Of each worker: as many in all as were asked for. The first ones take what is over; one
    that would have nothing to do is not there."""
    if max_pages is None:
        return [None] * workers
    each, over = divmod(max_pages, workers)
    return [part for part in (each + (at < over) for at in range(workers)) if part]


def worker_arguments(
    typed: Typed, folder: Path, max_pages: int | None, own: Mapping[str, str]
) -> list[str]:
    """Behind `scrapy`. *max_pages* None: as typed; *own*: settings of this worker."""
    arguments = list(typed.arguments)
    if max_pages is not None:
        arguments = [each for each in arguments if not each.startswith(f"{MAX_PAGES}=")]
        arguments.append(f"{MAX_PAGES}={max_pages}")
    settings = {
        "CRAWLER_DATA_DIR": str(folder),
        "LOG_FILE": str(folder / LOG),
        # One line and one summary are shown for all.
        "CRAWLER_PROGRESS": "off",
        "CRAWLER_SUMMARY": "false",
        **own,
    }
    return [
        *("crawl", typed.spider, *typed.options),
        *(word for each in arguments for word in ("-a", each)),
        # Of two the last one counts.
        *(word for each in typed.settings for word in ("-s", each)),
        *(word for pair in settings.items() for word in ("-s", "=".join(pair))),
    ]
