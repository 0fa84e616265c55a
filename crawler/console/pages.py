"""What the console serves: the files of its page, its views, and the live figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from crawler.console.live import CrawlOverview, LiveEvent
from crawler.console.views import (
    VIEWS,
    OutcomesAsked,
    Shown,
    View,
    as_csv,
    asked_of,
    shown_of,
)
from crawler.operate.server import DESCRIBED, HEADERS, error_answer, json_answer
from crawler.operate.verbs import json_content

_MAX_WATCHING: Final = 20
"""Requests for live figures that are answered at once: each costs some 0.2 ms a second."""
_PAGE: Final = Path(__file__).with_name("page")
_PAGE_FILES: Final = frozenset({"page.js", "page.css", "uplot.js", "uplot.css", "icon.svg"})


class CrawlPages:
    """The pages of one crawl."""

    def __init__(
        self,
        shown: Shown,
        overview: Callable[[], Awaitable[CrawlOverview]],
        events: Callable[[OutcomesAsked], AsyncIterator[LiveEvent]],
    ) -> None:
        self._shown = shown
        self._overview = overview
        self._events = events
        # One thread: a view of a large crawl takes a second.
        self._views = ThreadPoolExecutor(1, "console")
        self._watching = asyncio.Semaphore(_MAX_WATCHING)

    def add_to(self, app: web.Application) -> None:
        """Add the routes to *app*, and their description."""
        app.router.add_get("/api/overview", self._show_overview)
        app.router.add_get("/api/live", self._show_live)
        app.router.add_get("/api/{view}", self._show_view)
        app.router.add_get("/", self._show_page)
        add_page_files(app)
        describe(app[DESCRIBED])

    async def close(self) -> None:
        """Wait for the view that is being made: what it reads is closed next."""
        await asyncio.to_thread(self._views.shutdown, cancel_futures=True)

    async def _show_view(self, request: web.Request) -> web.Response:
        name = request.match_info["view"].removesuffix(".csv")
        if name not in VIEWS:
            return error_answer(404, f"there is no view {name!r}")
        found = VIEWS[name]
        asked = asked_of(found, request.query)
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(self._views, shown_of, found, self._shown, asked)
        return view_answer(found, rows, is_csv=request.path.endswith(".csv"))

    async def _show_overview(self, _: web.Request) -> web.Response:
        return json_answer(await self._overview())

    async def _show_live(self, request: web.Request) -> web.StreamResponse:
        asked = asked_of(VIEWS["outcomes"], request.query)
        assert isinstance(asked, OutcomesAsked)
        if self._watching.locked():
            return error_answer(503, f"{_MAX_WATCHING} others look at this crawl")
        async with self._watching:
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
            await stream.prepare(request)
            with suppress(ConnectionError):
                async for event in self._events(asked):
                    await stream.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
        return stream

    async def _show_page(self, _: web.Request) -> web.StreamResponse:
        return page_file("page.html")


def page_file(name: str) -> web.FileResponse:
    return web.FileResponse(_PAGE / name, headers=HEADERS)


def add_page_files(app: web.Application) -> None:
    """Add the files that the pages need to *app*."""

    async def show(request: web.Request) -> web.StreamResponse:
        name = request.match_info["file"]
        if name not in _PAGE_FILES:
            return error_answer(404, "there is no such file")
        return page_file(name)

    app.router.add_get("/page/{file}", show)


def view_answer(view: View, rows: object, *, is_csv: bool) -> web.Response:
    """Return *rows*, what *view* shows, as JSON or CSV."""
    if not is_csv:
        return json_answer(rows)
    if not isinstance(rows, list):
        return error_answer(404, f"{view.name} is no table")
    answer = web.Response(text=as_csv(view.row, rows), content_type="text/csv")
    answer.headers["Content-Disposition"] = f'attachment; filename="{view.name}.csv"'
    return answer


def describe(described: dict[str, Any]) -> None:
    """Add what is shown below /api to *described*, a description in OpenAPI."""
    shown = {view.name: view.row for view in VIEWS.values()}
    rows, components = msgspec.json.schema_components(
        [*shown.values(), CrawlOverview, LiveEvent], ref_template="#/components/schemas/{name}"
    )
    *of_views, of_overview, of_live = rows
    paths = described["paths"]

    def add(name: str, meaning: str, asked: type[msgspec.Struct] | None, content: Any) -> None:
        paths.setdefault(f"/api/{name}", {})["get"] = {
            "summary": meaning,
            "operationId": f"show_{name.replace('.', '_')}",
            "parameters": [] if asked is None else list(_parameters(asked)),
            "responses": {"200": {"description": "", "content": content}},
        }

    for view, row in zip(VIEWS.values(), of_views, strict=True):
        schema = {"type": "array", "items": row} if view.is_table else row
        add(view.name, view.meaning, view.asked, json_content(schema))
        if view.is_table:
            table = {"text/csv": {"schema": {"type": "string"}}}
            add(f"{view.name}.csv", view.meaning, view.asked, table)
    add("openapi.json", "This description.", None, json_content({"type": "object"}))
    add("overview", "The crawl at a glance.", None, json_content(of_overview))
    events = {"text/event-stream": {"schema": of_live}}
    add(
        "live",
        "The crawl at a glance, each second, with its latest outcomes: server-sent"
        " events, of which each has one JSON value.",
        OutcomesAsked,
        events,
    )
    described["components"]["schemas"] |= components


def _parameters(asked: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    schema = msgspec.json.schema(asked)["$defs"][asked.__name__]
    for name, kind in schema["properties"].items():
        required = name in schema.get("required", ())
        yield {"name": name, "in": "query", "required": required, "schema": kind}
