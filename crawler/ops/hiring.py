"""Who works in this run: so many as were asked for, each in a place of its own.

Rule: the same places in every run. A worker of a run before whose disk still keeps links that
Redis had no room for works too: without it the crawl would never end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.core.config import Config
from crawler.ops.worker_command import (
    Typed,
    parts_of_pages,
    worker_arguments,
    worker_folder,
    workers_in,
)
from crawler.ops.worker_process import WorkerProcess
from crawler.ops.workforce_look import WorkforceLook
from crawler.sharing import RedisAddress

_NAME: Final = "worker"  # of those of a Redis of our own: nobody else is there
_NAME_CHARS: Final = 56  # of CRAWLER_WORKER_NAME's 64; the rest is for the number


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done."""

    workers: int
    typed: Typed
    config: Config
    data_dir: Path
    address: RedisAddress | None  # None: a Redis of our own
    max_pages: int | None  # of all workers


def hired(
    plan: Plan, there: Sequence[Path], look: WorkforceLook, own: RedisAddress | None
) -> list[WorkerProcess]:
    """*there*: the folders of runs before; *own*: where our own Redis is."""
    asked_for = {worker_folder(plan.data_dir, number) for number in range(1, plan.workers + 1)}
    folders = sorted(asked_for | _with_links(there, look), key=lambda each: int(each.name))
    parts = parts_of_pages(plan.max_pages, len(folders))
    return [
        _worker(plan, folder, part, look, own)
        for folder, part in zip(folders, parts, strict=False)  # who has no part is not needed
    ]


def _with_links(there: Sequence[Path], look: WorkforceLook) -> set[Path]:
    keeping = {said.name for said in look.everybody if said.outbox}
    return {folder for folder, worker in workers_in(there).items() if worker.name in keeping}


def _worker(
    plan: Plan, folder: Path, part: int | None, look: WorkforceLook, own: RedisAddress | None
) -> WorkerProcess:
    number = int(folder.name)
    settings = _settings(plan, number, own)

    def arguments() -> list[str] | None:
        if part is None:
            return worker_arguments(plan.typed, folder, None, settings)
        left = part - look.pages_of({worker.name for worker in workers_in([folder]).values()})
        return worker_arguments(plan.typed, folder, left, settings) if left > 0 else None

    return WorkerProcess(number, folder, arguments)


def _settings(plan: Plan, number: int, own: RedisAddress | None) -> dict[str, str]:
    settings = {}
    name = plan.config.shared.worker_name or (_NAME if own is not None else "")
    if name:
        settings["CRAWLER_WORKER_NAME"] = f"{name[:_NAME_CHARS]}-{number}"
    if own is not None:
        settings["CRAWLER_FRONTIER_URL"] = own.url
    return settings
