"""The console of many crawls, in their data directories, that run or have ended.

Rule: what a crawl that runs shows and does, its own process does, through its socket; of the others
this process reads the data directory. A request names a crawl by a digest of its path, never by the
path, and only those below the folders that the user named are found. So it is with the files that
describe a crawl, of which one is started only if the user has allowed that; nothing else of what is
started comes from a request.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from aiohttp import web

from crawler.config.settings import ArchiveSettings
from crawler.console.live import CrawlOverview, LiveEvent
from crawler.console.pages import add_page_files, page_file, view_answer
from crawler.console.views import VIEWS, Shown, asked_of, shown_of
from crawler.data.data_dir import (
    FORMAT_FILE,
    REPORT,
    RUNS,
    lock_owner,
    read_format,
    worker_folders,
)
from crawler.data.runs import CountedRuns, read_runs
from crawler.model.counts import Counts
from crawler.model.types import CrawlerError
from crawler.operate.client import SOCKET, NoCrawl
from crawler.operate.connections import ConnectionLimit
from crawler.operate.server import (
    BY,
    HEADERS,
    act_request,
    error_answer,
    guarded_application,
    json_answer,
    read_json,
)
from crawler.operate.verbs import VERBS, ActAnswer, ActRequest
from crawler.report.endings import ending
from crawler.report.summary import render_figures

_PROGRAM: Final = "crawler.cli.gossamer"  # as a module: it may not be installed
_PROJECT: Final = "SCRAPY_SETTINGS_MODULE"  # of this process
_DEPTH: Final = 2
"""Data directories are looked for in a folder, and so many levels below it."""
_MOST_LOOKED_AT: Final = 2_000  # folders
_ANSWER_S: Final = 5.0  # of a crawl that is asked for its figures
_LOOK_S: Final = 5.0  # between two looks at a crawl that does not run
_REPORT_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " sandbox allow-popups",
}


DESCRIPTION: Final = "crawl.toml"
_START_LOG: Final = "crawl.start.log"  # beside it: what the process that was started has printed
_START_S: Final = 20.0
"""For so long it is waited until a crawl that is started listens, or has failed."""
_START_LOOK_S: Final = 0.1
_SAID_BYTES: Final = 2_000  # of the end of its log, where it has failed


class DescribedCrawl(msgspec.Struct, frozen=True):
    """A file that describes a crawl, and may be started."""

    id: str
    path: str
    is_running: bool


class StartAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


class CrawlRow(msgspec.Struct, frozen=True):
    """One crawl in the list."""

    id: str
    path: str  # its data directory
    is_running: bool
    process: int | None
    state: str  # in a sentence
    spider: str
    runs: int
    pages: int  # of all runs
    bytes: int
    errors: int
    pages_per_s: float  # now
    waiting: int | None  # URLs; None: not known without looking into its frontier
    at: float  # epoch seconds of its last sign of life; 0: it has never run
    has_report: bool


@dataclass(frozen=True, slots=True)
class CrawlAccess:
    """How crawls that do not run are looked at, and acted on. All raise CrawlerError."""

    shown: Callable[[Path], Shown]
    act: Callable[[Path, ActRequest], ActAnswer]


def crawl_id(path: Path) -> str:
    """Return what stands for a file or a folder in requests."""
    return sha256(os.fsencode(path.resolve())).hexdigest()[:16]


def folders_below(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield each of *folders* and the folders below it, as far as crawls are looked for: not below
    a crawl, and through no symbolic link."""
    left = [(folder, 0) for folder in folders]
    for _ in range(_MOST_LOOKED_AT):
        if not left:
            return
        folder, depth = left.pop(0)
        yield folder
        if depth < _DEPTH and not is_crawl(folder):
            with suppress(OSError), os.scandir(folder) as entries:
                below = sorted(each.path for each in entries if each.is_dir(follow_symlinks=False))
                left += [(Path(each), depth + 1) for each in below]


def is_crawl(folder: Path) -> bool:
    return (folder / FORMAT_FILE).is_file() or bool(worker_folders(folder))


def crawls_below(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the data directories of crawls below *folders*, by id."""
    return {crawl_id(each): each for each in folders_below(folders) if is_crawl(each)}


def descriptions_below(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files below *folders* that describe a crawl, by id. Links are no such files."""
    files = (folder / DESCRIPTION for folder in folders_below(folders))
    return {crawl_id(each): each for each in files if each.is_file() and not each.is_symlink()}


def data_of(description: Path) -> Path:
    """Return the data directory of a crawl that was started by its *description*, in its folder."""
    return description.parent / ArchiveSettings().data_dir


def running_folder(path: Path) -> Path | None:
    """Return the folder whose process runs the crawl in *path*: of several workers the first one;
    None: it does not run."""
    folders = worker_folders(path) or [path]
    return next((each for each in folders if lock_owner(each) is not None), None)


def ended_state(counted: CountedRuns) -> tuple[str, float]:
    """Return in a sentence how a crawl that does not run has ended, and when, in epoch seconds."""
    if not counted.runs:
        return "It has never run.", 0.0
    last = counted.runs[-1]
    ended_at = datetime.fromisoformat(last.started_at).timestamp() + last.duration_s
    return f"{ending(last.reason) if last.reason else 'Killed: its next start goes on'}.", ended_at


class ManyCrawls:
    """The pages of the crawls below some folders."""

    def __init__(
        self, folders: Sequence[Path], access: CrawlAccess, *, may_start: bool = False
    ) -> None:
        """*may_start*: whether described crawls may be started."""
        self._may_start = may_start
        self._started: dict[Path, subprocess.Popen[bytes]] = {}  # by description; also of the past
        self._folders = [folder.resolve() for folder in folders]
        self._access = access
        # One thread: a view of a large crawl takes a second.
        self._looking = ThreadPoolExecutor(1, "crawls")

    def application(
        self, tokens: Mapping[str, str], names: frozenset[str], limit: ConnectionLimit
    ) -> web.Application:
        """Return what is served; parameters as of MakeApplication."""
        app = guarded_application(tokens, names, limit)
        app.router.add_get("/", self._show_page)
        add_page_files(app)
        app.router.add_get("/api/crawls", self._list)
        app.router.add_get("/api/described", self._list_described)
        app.router.add_post("/api/start", partial(self._start, limit))
        app.router.add_get("/api/crawls/{id}/report.html", self._report)
        app.router.add_get("/api/crawls/{id}/{view}", self._look)
        app.router.add_post("/api/crawls/{id}/{verb}", partial(self._act, limit))
        return app

    async def close(self) -> None:
        await asyncio.to_thread(self._looking.shutdown, cancel_futures=True)

    async def _show_page(self, request: web.Request) -> web.StreamResponse:
        return page_file("page.html" if "crawl" in request.query else "crawls.html")

    async def _list(self, _: web.Request) -> web.Response:
        found = await self._found()
        rows = await asyncio.gather(*(self._row(*pair) for pair in found.items()))
        return json_answer(sorted(rows, key=lambda row: (not row.is_running, -row.at, row.path)))

    async def _list_described(self, _: web.Request) -> web.Response:
        """List what may be started: nothing, unless that is allowed."""
        found = (
            await asyncio.to_thread(descriptions_below, self._folders) if self._may_start else {}
        )
        rows = [
            DescribedCrawl(name, str(path), await asyncio.to_thread(self._runs, path))
            for name, path in found.items()
        ]
        return json_answer(rows)

    def _runs(self, description: Path) -> bool:
        """Return whether the crawl of *description* runs, or is starting."""
        started = self._started.get(description)
        is_started = started is not None and started.poll() is None
        return is_started or lock_owner(data_of(description)) is not None

    async def _start(self, limit: ConnectionLimit, request: web.Request) -> web.Response:
        if not self._may_start:
            return error_answer(403, "no crawl is started from here: that needs --start")
        fields = await read_json(request, limit)
        try:
            asked = msgspec.convert(fields, StartAsked)
        except msgspec.ValidationError as wrong:
            return error_answer(400, str(wrong))
        found = await asyncio.to_thread(descriptions_below, self._folders)
        path = found.get(asked.id)
        if path is None:
            return error_answer(404, f"there is no such {DESCRIPTION} in these folders")
        if self._runs(path):  # no other request is served until it is noted as started
            return error_answer(409, f"the crawl of {path} runs already")
        try:
            process = self._started[path] = started_crawl(path, request[BY])
        except OSError as refused:
            return error_answer(503, f"the crawl of {path} cannot be started: {refused}")
        for _ in range(round(_START_S / _START_LOOK_S)):
            is_begun = lock_owner(data_of(path)) == process.pid
            if process.poll() is not None or (is_begun and (data_of(path) / SOCKET).exists()):
                break
            await asyncio.sleep(_START_LOOK_S)
        if process.poll():
            said = await asyncio.to_thread(_end_of, path.parent / _START_LOG)
            return error_answer(400, f"the crawl of {path} has not begun: {said}")
        return json_answer(ActAnswer(f"the crawl of {path} is started: process {process.pid}"))

    async def _found(self) -> dict[str, Path]:
        return await asyncio.to_thread(crawls_below, self._folders)

    async def _crawl(self, request: web.Request) -> Path:
        path = (await self._found()).get(request.match_info["id"])
        if path is None:
            raise web.HTTPNotFound(reason="there is no such crawl in these folders")
        return path

    async def _row(self, name: str, path: Path) -> CrawlRow:
        counted, spider = await asyncio.to_thread(_noted, path)
        folder = await asyncio.to_thread(running_folder, path)
        live = None if folder is None else await _live_overview(folder)
        state, at = ended_state(counted)
        if folder is not None:
            state = "It runs." if live is not None else "It runs, and does not answer."
            at = time.time()
        if live is not None and live.ends:
            state = f"It {live.ends}." if live.ends.startswith("ends") else f"It runs: {live.ends}."
        return CrawlRow(
            id=name,
            path=str(path),
            is_running=folder is not None,
            process=None if folder is None else lock_owner(folder),
            state=state,
            spider=spider,
            runs=counted.number,
            **{each: counted.figures.totals[each] for each in ("pages", "bytes", "errors")},
            pages_per_s=0.0 if live is None else live.pages_per_s,
            waiting=None if live is None else live.to_fetch,
            at=at,
            has_report=(path / REPORT).is_file(),
        )

    async def _report(self, request: web.Request) -> web.StreamResponse:
        file = await self._crawl(request) / REPORT
        if not file.is_file():
            return error_answer(404, "there is no report yet: it is written when the crawl ends")
        return web.FileResponse(file, headers=_REPORT_HEADERS)

    async def _look(self, request: web.Request) -> web.StreamResponse:
        path = await self._crawl(request)
        view = request.match_info["view"]
        folder = await asyncio.to_thread(running_folder, path)
        if folder is not None:
            asked = f"/api/{view}?{request.query_string}"
            with suppress(NoCrawl):  # it is starting, or has ended by now
                return await _forwarded(request, folder, asked)
        if view == "overview":
            return json_answer(await self._overview(path))
        if view == "live":
            return await self._live(request, path)
        name = view.removesuffix(".csv")
        if name not in VIEWS:
            return error_answer(404, f"there is no view {name!r}")
        found = VIEWS[name]
        given = asked_of(found, request.query)
        rows = await self._in_thread(lambda: shown_of(found, self._access.shown(path), given))
        return view_answer(found, rows, is_csv=view.endswith(".csv"))

    async def _in_thread(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._looking, work)

    async def _overview(self, path: Path) -> CrawlOverview:
        found = await self._in_thread(partial(ended_overview, path, self._access))
        assert isinstance(found, CrawlOverview)
        return found

    async def _live(self, request: web.Request, path: Path) -> web.StreamResponse:
        """Send the figures of a crawl that does not run, until it does."""
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
        overview = await self._overview(path)
        await stream.prepare(request)
        with suppress(ConnectionError):
            while await asyncio.to_thread(running_folder, path) is None:
                event = LiveEvent(msgspec.structs.replace(overview, now=time.time()), [], 0)
                await stream.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
                await asyncio.sleep(_LOOK_S)
        return stream

    async def _act(self, limit: ConnectionLimit, request: web.Request) -> web.StreamResponse:
        path = await self._crawl(request)
        verb = request.match_info["verb"]
        if verb not in VERBS:
            return error_answer(404, f"there is no verb {verb!r}")
        fields = await read_json(request, limit)
        folder = await asyncio.to_thread(running_folder, path)
        if folder is not None:
            with suppress(NoCrawl):
                return await _forwarded(request, folder, f"/api/{verb}", fields)
        asked = act_request(verb, fields)
        return json_answer(await self._in_thread(partial(self._access.act, path, asked)))


async def _live_overview(folder: Path) -> CrawlOverview | None:
    """Return the figures of the crawl that runs in *folder*; None: it does not answer."""
    with suppress(NoCrawl, msgspec.MsgspecError, TimeoutError):
        async with asyncio.timeout(_ANSWER_S), _asked(folder, "GET", "/api/overview") as answer:
            return msgspec.json.decode(await answer.read(), type=CrawlOverview)
    return None


def started_crawl(description: Path, by: str) -> subprocess.Popen[bytes]:
    """Start the crawl of *description* in its folder, with the project that is there, or none, and
    return its process, which outlives this one. *by*: the user. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(description.parent / _START_LOG, flags, 0o644)
    try:
        os.write(log, f"started by {by} from a console\n".encode())
        environment = {name: value for name, value in os.environ.items() if name != _PROJECT}
        paths = [environment.get("PYTHONPATH", ""), str(Path(__file__).parents[2])]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, "crawl", "web", "-a", f"crawl={DESCRIPTION}"],
            cwd=description.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(log)


def _end_of(log: Path) -> str:
    """Return the last line of *log*, which says why a crawl has not begun."""
    with suppress(OSError):
        lines = log.read_bytes()[-_SAID_BYTES:].decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it has printed nothing")
    return f"see {log}"


def _noted(path: Path) -> tuple[CountedRuns, str]:
    """Return what the runs of a crawl have counted, and the name of its spider."""
    spider = ""
    with suppress(CrawlerError):
        spider = read_format((worker_folders(path) or [path])[0]).spider
    folders = worker_folders(path) or [path]
    return sum((read_runs(folder / RUNS) for folder in folders), CountedRuns()), spider


def ended_overview(path: Path, access: CrawlAccess) -> CrawlOverview:
    """Return the figures of a crawl that does not run. Raises CrawlerError."""
    counted, spider = _noted(path)
    counts, said = Counts(), ""
    try:
        with access.shown(path).place.view() as view:
            counts = view.counts()
    except CrawlerError as unseen:  # its figures are there in any case
        said = f" Its frontier cannot be looked at: {unseen}."
    state, _ = ended_state(counted)
    figures = counted.figures
    return CrawlOverview(
        now=time.time(),
        spider=spider,
        data_dir=str(path),
        worker="",
        workers=max(1, len(worker_folders(path))),
        **figures.totals,
        pages_per_s=0.0,
        fetching=0,
        concurrency=0,
        paused_until=None,
        ends="",
        waits_for="",
        round="",
        counts=counts,
        answers=figures.below("status/"),
        failures=figures.below("error/"),
        to_fetch=counts.to_fetch,
        rendered=render_figures(figures),
        ended=state + said,
    )


@asynccontextmanager
async def _asked(
    folder: Path, method: str, path: str, fields: dict[str, object] | None = None
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Ask the process that runs the crawl in *folder*. Raises NoCrawl."""
    # A path to a socket has 107 bytes at most; that of the directory may be longer.
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as gone:
        raise NoCrawl(f"{folder} is gone: {gone}") from gone
    try:
        connector = aiohttp.UnixConnector(f"/proc/self/fd/{directory}/{SOCKET}")
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            try:
                answer = await session.request(method, f"http://localhost{path}", json=fields)
            except (aiohttp.ClientError, OSError) as missing:
                raise NoCrawl(f"no crawl answers in {folder}: {missing}") from missing
            async with answer:
                yield answer
    finally:
        os.close(directory)


async def _forwarded(
    request: web.Request, folder: Path, path: str, fields: dict[str, object] | None = None
) -> web.StreamResponse:
    """Send the answer of the process that runs the crawl in *folder*, as it comes. Raises
    NoCrawl."""
    async with _asked(folder, request.method, path, fields) as answer:
        headers = {**HEADERS, "Content-Type": answer.headers.get("Content-Type", "")}
        if kept := answer.headers.get("Content-Disposition"):
            headers["Content-Disposition"] = kept
        stream = web.StreamResponse(status=answer.status, headers=headers)
        await stream.prepare(request)
        with suppress(ConnectionError, aiohttp.ClientError):  # the crawl, or the client, has left
            async for piece in answer.content.iter_any():
                await stream.write(piece)
        return stream
