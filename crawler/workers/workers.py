"""Start the workers of this machine, each a `scrapy crawl` in a data directory of its own.

Rule: each worker gets what the user typed; only limits that each would count for itself, and the
settings of its own files and output are changed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from crawler.config.arguments import OTHER_READS, RUN_BEGAN
from crawler.config.settings import Config
from crawler.data.data_dir import LOG, WORKERS
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError
from crawler.policy.rounds import RoundCaps
from crawler.report.endings import TRY_AGAIN
from crawler.report.messages import NAME
from crawler.shared.address import RedisAddress
from crawler.shared.worker.worker_file import WorkerFile, read_worker
from crawler.view.formats import span
from crawler.workers.die_with_parent import die_with_parent, status_text
from crawler.workers.workforce_figures import WorkforceReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareArguments:
    """The spider, arguments and settings that the user gave."""

    spider: str
    arguments: tuple[str, ...]  # NAME=VALUE, behind -a
    settings: tuple[str, ...]  # NAME=VALUE, behind -s
    options: tuple[str, ...] = ()  # others


def worker_folder(data_dir: Path, number: int) -> Path:
    return data_dir / WORKERS / str(number)


def workers_in(folders: Iterable[Path]) -> dict[Path, WorkerFile]:
    """Return the worker file of each of *folders* in which a worker has begun."""
    found = {}
    for folder in folders:
        with suppress(DataDirError):  # the worker itself reports it
            worker = read_worker(folder)
            if worker is not None:
                found[folder] = worker
    return found


def split_limits(limits: Mapping[str, int], workers: int) -> list[dict[str, int]]:
    """Return the limits of each worker, which add up to *limits*, by the names of the arguments;
    the first ones take the remainder. A worker with nothing of one of them is left out."""
    shares = []
    for at in range(workers):
        share = {name: limit // workers + (at < limit % workers) for name, limit in limits.items()}
        if all(share.values()):
            shares.append(share)
    return shares


def worker_arguments(
    typed: ShareArguments, folder: Path, limits: Mapping[str, int], own: Mapping[str, str]
) -> list[str]:
    """Return the arguments of `scrapy`. *limits*: its own, of RUN_LIMITS; the others are as typed.
    *own*: its own settings."""
    arguments = [each for each in typed.arguments if each.partition("=")[0] not in limits]
    arguments += [f"{name}={limit}" for name, limit in limits.items()]
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
        # The last of two values of a setting counts.
        *(word for each in typed.settings for word in ("-s", each)),
        *(word for pair in settings.items() for word in ("-s", "=".join(pair))),
    ]


# Exit status 0 ends a worker, and so does any other positive one, but for TRY_AGAIN: it printed an
# error that a restart would repeat. After a signal or TRY_AGAIN it is restarted, with back-off.

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 20.0
STABLE_AFTER_S: Final = 60.0  # a process that ran so long did not fail at its start
_KEPT_LINES: Final = 50
_PREFIX: Final = f"{NAME}: error: "


# The program that the user typed, so that a worker's messages name it too.
_MODULE: Final = "crawler.cli.gossamer" if PROGRAM == "gossamer" else "scrapy"


class WorkerProcess:
    """One worker as a process, which can be restarted."""

    def __init__(
        self, number: int, folder: Path, arguments: Callable[[], Sequence[str] | None]
    ) -> None:
        """*arguments*: returns those of `scrapy` at each start, or None if no work is left."""
        self.number = number
        self.folder = folder
        self._next_arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self.restart_at: float | None = None  # the time of its restart, if it has died
        self.is_over = False
        self.starts = 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, now: float) -> None:
        """Start the process, unless no work is left. Raises OSError."""
        self.restart_at = None
        arguments = self._next_arguments()
        if arguments is None:
            self.is_over = True
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._output.open("wb") as output:
            # In its own session, as a Ctrl-C is for the supervisor, which then stops the workers.
            self._process = subprocess.Popen(  # our own program, with what was typed
                die_with_parent([sys.executable, "-m", _MODULE, *arguments], signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._began_at = now
        self.starts += 1

    def poll_exit(self) -> int | None:
        """Return the exit status when the process has ended, once; else None."""
        status = self._process.poll() if self._process is not None else None
        if status is not None:
            self._process = None
        return status

    def send_signal(self, signal_number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal_number)

    def schedule_restart(self, now: float) -> float:
        """Schedule the restart and return the pause before it."""
        if now - self._began_at > STABLE_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, MAX_PAUSE_S)
        self.restart_at, self.is_over = now + pause_s, False
        return pause_s

    def give_up(self) -> None:
        """Do not restart the process."""
        self.restart_at, self.is_over = None, True

    def last_error(self) -> str:
        """Return its last error message, or the last line of its stderr."""
        with self._output.open(errors="replace") as output:
            lines = [line.strip() for line in deque(output, _KEPT_LINES) if line.strip()]
        complaints = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
        return next(iter(complaints[-1:] or lines[-1:]), f"it wrote no message ({self._output})")

    @property
    def _output(self) -> Path:
        """The file of its output, beside its folder, which is not written to without its lock."""
        return self.folder.with_name(f"{self.folder.name}.stderr")


# An error after which one worker is not restarted stops all workers, and is shown once. Nothing
# blocks here: `poll` is called ten times a second.

_ENDS: Final = 0


class Workers:
    """The workers of this machine: started, restarted and stopped together."""

    def __init__(
        self, workers: Sequence[WorkerProcess], show_message: Callable[[str], None]
    ) -> None:
        """*show_message*: shows the user one sentence."""
        self.workers = workers
        self._show_message = show_message
        self.failure = ""  # the error of the first worker that failed for good
        self.is_stopping = False

    @property
    def running_count(self) -> int:
        return sum(worker.is_alive for worker in self.workers)

    @property
    def is_over(self) -> bool:
        return all(worker.is_over for worker in self.workers)

    def names(self) -> set[str]:
        """Return the names of the workers that have begun, in this run or earlier."""
        return {file.name for file in workers_in(each.folder for each in self.workers).values()}

    def begin(self, now: float) -> None:
        for worker in self.workers:
            self._start(worker, now)

    def poll(self, now: float) -> None:
        for worker in self.workers:
            status = worker.poll_exit()
            if status is not None:
                self._handle_end(worker, status, now)
            elif worker.restart_at is not None and worker.restart_at <= now:
                self._start(worker, now)

    def fail(self, why: str) -> None:
        """Stop all workers. Only the first reason is kept, as later ones follow from it."""
        self.failure = self.failure or why
        self.stop()

    def stop(self) -> None:
        """Stop all workers; each hands over its shards."""
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

    def _end(self, signal_number: signal.Signals) -> None:
        for worker in self.workers:
            worker.send_signal(signal_number)
            if worker.restart_at is not None:
                worker.give_up()

    def _handle_end(self, worker: WorkerProcess, status: int, now: float) -> None:
        worker.give_up()
        if status > _ENDS and status != TRY_AGAIN:
            self.fail(worker.last_error())
        elif status != _ENDS and not self.is_stopping:
            why = worker.last_error() if status == TRY_AGAIN else status_text(status)
            again = span(worker.schedule_restart(now))
            self._show_message(
                f"worker {worker.number} has died ({why}); it is started again in {again}"
            )


# Each run uses the same folders. A folder of an earlier run whose outbox still holds links gets a
# worker too, as the crawl could not end without these links.

_NAME: Final = "worker"  # with our own Redis no other machine has workers
_NAME_CHARS: Final = 56  # of the 64 of CRAWLER_WORKER_NAME; the rest is for the number


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan:
    """A run by many workers, as the user asked for it."""

    workers: int
    arguments: ShareArguments
    config: Config
    data_dir: Path
    address: RedisAddress | None  # None: our own Redis
    limits: Mapping[str, int]  # of all workers: those of RUN_LIMITS that are typed
    ends_at: float | None = None  # epoch seconds, at the latest; None: that is not said
    rounds: RoundCaps | None = None  # None: it has none


def plan_workers(
    plan: WorkersPlan, existing: Sequence[Path], reader: WorkforceReader, own: RedisAddress | None
) -> list[WorkerProcess]:
    """Return the workers of this run. *existing*: folders of earlier runs; *own*: our own Redis."""
    wanted = {worker_folder(plan.data_dir, number) for number in range(1, plan.workers + 1)}
    folders = sorted(wanted | _with_links(existing, reader), key=lambda each: int(each.name))
    parts = split_limits(plan.limits, len(folders))
    return [
        _worker(plan, folder, part, reader, own, is_first=folder is folders[0])
        for folder, part in zip(folders, parts, strict=False)  # without a part: not needed
    ]


def _with_links(existing: Sequence[Path], reader: WorkforceReader) -> set[Path]:
    keeping = {record.name for record in reader.all_records if record.outbox}
    return {folder for folder, worker in workers_in(existing).items() if worker.name in keeping}


def _worker(
    plan: WorkersPlan,
    folder: Path,
    part: Mapping[str, int],
    reader: WorkforceReader,
    own: RedisAddress | None,
    *,
    is_first: bool,
) -> WorkerProcess:
    """Return a worker. The first one serves the console at the address that was asked for, the
    others at the ports behind it, where the metrics of each are scraped."""
    number = int(folder.name)
    typed = plan.arguments if is_first else arguments_of_later(plan.arguments)
    settings = _settings(plan, number, own)
    if plan.config.operator.http and not is_first:
        host, _, port = plan.config.operator.http.rpartition(":")
        settings["CRAWLER_HTTP"] = f"{host}:{int(port) + number - 1}"

    def arguments() -> list[str] | None:
        done = reader.fetched_by({worker.name for worker in workers_in([folder]).values()})
        fetched = {"max_pages": done.pages, "max_bytes": done.bytes}
        left = {name: limit - fetched[name] for name, limit in part.items()}
        if any(limit <= 0 for limit in left.values()):
            return None
        return worker_arguments(typed, folder, left, settings)

    return WorkerProcess(number, folder, arguments)


def arguments_of_later(typed: ShareArguments) -> ShareArguments:
    """Return the arguments of a worker that is not the first."""
    if not any(each.startswith(f"{RUN_BEGAN}=") for each in typed.arguments):
        return typed  # the spider takes none of our arguments
    return replace(typed, arguments=(*typed.arguments, f"{OTHER_READS}=yes"))


def _settings(plan: WorkersPlan, number: int, own: RedisAddress | None) -> dict[str, str]:
    settings = {}
    name = plan.config.shared.worker_name or (_NAME if own is not None else "")
    if name:
        settings["CRAWLER_WORKER_NAME"] = f"{name[:_NAME_CHARS]}-{number}"
    if own is not None:
        settings["CRAWLER_FRONTIER_URL"] = own.url
    return settings
