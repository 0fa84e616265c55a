"""What a worker is started with: `scrapy crawl` as the user would type it, in a place of its own.

Rule: what was typed goes to every worker; only what would be counted by each of them, or belongs
to one, is changed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.config.settings import Config
from crawler.data.data_dir import LOG, WORKERS
from crawler.model.types import DataDirError
from crawler.report.advice import NAME
from crawler.report.endings import TRY_AGAIN
from crawler.report.figures import span
from crawler.shared.address import RedisAddress
from crawler.shared.worker.worker_file import WorkerFile, read_worker
from crawler.workers.die_with_parent import die_with_parent, status_text
from crawler.workers.view import WorkforceLook

MAX_PAGES: Final = "max_pages"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareArguments:
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
    typed: ShareArguments, folder: Path, max_pages: int | None, own: Mapping[str, str]
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


# One worker as a process: started, and started again when it dies.
#
# Rule: status 0 is an end, and 1 a sentence for the user, which another start would only repeat.
# Whatever else ends a worker may pass, and it is started again, a few times a minute at most.

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 20.0
WELL_S: Final = 60.0  # who has lived so long did not die of its start
_KEPT_LINES: Final = 50
_SAYS: Final = f"{NAME}: error: "


class WorkerProcess:
    def __init__(
        self, number: int, folder: Path, arguments: Callable[[], Sequence[str] | None]
    ) -> None:
        """*arguments*: behind `scrapy`, asked for at each start; None: it has nothing to do."""
        self.number = number
        self.folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self.again_at: float | None = None  # it has died
        self.is_over = False
        self.lives = 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, now: float) -> None:
        """Raises OSError."""
        self.again_at = None
        arguments = self._arguments()
        if arguments is None:
            self.is_over = True
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._said.open("wb") as said:
            # In a session of its own: a Ctrl-C is for us, who then tell the workers.
            self._process = subprocess.Popen(  # ourselves, with what was typed
                die_with_parent([sys.executable, "-m", "scrapy", *arguments], signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._began_at = now
        self.lives += 1

    def ended(self) -> int | None:
        """Its status, once. None: nothing new."""
        status = self._process.poll() if self._process is not None else None
        if status is not None:
            self._process = None
        return status

    def send(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)

    def has_died(self, now: float) -> float:
        """How long until it is started again."""
        if now - self._began_at > WELL_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, MAX_PAUSE_S)
        self.again_at, self.is_over = now + pause_s, False
        return pause_s

    def give_up(self) -> None:
        """It is not started again."""
        self.again_at, self.is_over = None, True

    def last_words(self) -> str:
        """What it complained of at its end, in one sentence."""
        with self._said.open(errors="replace") as said:
            lines = [line.strip() for line in deque(said, _KEPT_LINES) if line.strip()]
        complaints = [line.removeprefix(_SAYS) for line in lines if line.startswith(_SAYS)]
        return next(iter(complaints[-1:] or lines[-1:]), f"it said nothing ({self._said})")

    @property
    def _said(self) -> Path:
        """Beside its folder: in there, nothing is written before it is known to be ours."""
        return self.folder.with_name(f"{self.folder.name}.stderr")


# The workers of this machine: begun together, kept alive, stopped together.
#
# Rule: what ends one for good ends all, and is told once. What may pass (a signal, a Redis that is
# away) ends only that one, and it is started again. Nothing waits here: `turn` looks after them.

_ENDS: Final = 0


class Workers:
    def __init__(self, workers: Sequence[WorkerProcess], tell: Callable[[str], None]) -> None:
        """*tell*: one sentence for the user."""
        self.workers = workers
        self._tell = tell
        self.failure = ""  # the sentence of the first who could not go on
        self.is_stopping = False

    @property
    def at_work(self) -> int:
        return sum(worker.is_alive for worker in self.workers)

    @property
    def is_over(self) -> bool:
        return all(worker.is_over for worker in self.workers)

    def names(self) -> set[str]:
        """Of those who have begun, now or in a run before."""
        return {file.name for file in workers_in(each.folder for each in self.workers).values()}

    def begin(self, now: float) -> None:
        for worker in self.workers:
            self._start(worker, now)

    def turn(self, now: float) -> None:
        for worker in self.workers:
            status = worker.ended()
            if status is not None:
                self._take_note(worker, status, now)
            elif worker.again_at is not None and worker.again_at <= now:
                self._start(worker, now)

    def fail(self, why: str) -> None:
        """The first reason counts: what comes after it, came of it."""
        self.failure = self.failure or why
        self.stop()

    def stop(self) -> None:
        """Each puts back what is under way."""
        if not self.is_stopping:
            self.is_stopping = True
            self._end(signal.SIGTERM)

    def kill(self) -> None:
        self.is_stopping = True
        self._end(signal.SIGKILL)

    def _start(self, worker: WorkerProcess, now: float) -> None:
        if self.is_stopping:
            worker.give_up()
            return
        try:
            worker.start(now)
        except OSError as refused:
            worker.give_up()
            self.fail(f"worker {worker.number} cannot be started: {refused}")

    def _end(self, how: signal.Signals) -> None:
        for worker in self.workers:
            worker.send(how)
            if worker.again_at is not None:
                worker.give_up()

    def _take_note(self, worker: WorkerProcess, status: int, now: float) -> None:
        worker.give_up()
        if status > _ENDS and status != TRY_AGAIN:
            self.fail(worker.last_words())
        elif status != _ENDS and not self.is_stopping:
            why = worker.last_words() if status == TRY_AGAIN else status_text(status)
            again = span(worker.has_died(now))
            self._tell(f"worker {worker.number} has died ({why}); it is started again in {again}")


# Who works in this run: so many as were asked for, each in a place of its own.
#
# Rule: the same places in every run. A worker of a run before whose disk still keeps links that
# Redis had no room for works too: without it the crawl would never end.

_NAME: Final = "worker"  # of those of a Redis of our own: nobody else is there
_NAME_CHARS: Final = 56  # of CRAWLER_WORKER_NAME's 64; the rest is for the number


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan:
    """What is to be done."""

    workers: int
    typed: ShareArguments
    config: Config
    data_dir: Path
    address: RedisAddress | None  # None: a Redis of our own
    max_pages: int | None  # of all workers


def plan_workers(
    plan: WorkersPlan, there: Sequence[Path], look: WorkforceLook, own: RedisAddress | None
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
    plan: WorkersPlan, folder: Path, part: int | None, look: WorkforceLook, own: RedisAddress | None
) -> WorkerProcess:
    number = int(folder.name)
    settings = _settings(plan, number, own)

    def arguments() -> list[str] | None:
        if part is None:
            return worker_arguments(plan.typed, folder, None, settings)
        left = part - look.pages_of({worker.name for worker in workers_in([folder]).values()})
        return worker_arguments(plan.typed, folder, left, settings) if left > 0 else None

    return WorkerProcess(number, folder, arguments)


def _settings(plan: WorkersPlan, number: int, own: RedisAddress | None) -> dict[str, str]:
    settings = {}
    name = plan.config.shared.worker_name or (_NAME if own is not None else "")
    if name:
        settings["CRAWLER_WORKER_NAME"] = f"{name[:_NAME_CHARS]}-{number}"
    if own is not None:
        settings["CRAWLER_FRONTIER_URL"] = own.url
    return settings
