"""The pool of tabs that render pages: one browser at a time, replaced when it is worn or broken.

Rule: a page that was under way when its browser ended is rendered once more in a new one, alone,
as it may be the reason; then it is `NotRendered`. A browser ends for its memory, for a call that
it does not answer, and by itself; after a number of pages, or where a page of it crashed, it gets
no more pages and ends with its last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from crawler.model.types import ConfigError
from crawler.render.browser import (
    Answering,
    BrowserAnswer,
    BrowserGone,
    BrowserMissing,
    BrowserOptions,
    BrowserRequest,
    NotRendered,
    RenderedPage,
    RunningBrowser,
    find_browser,
    require_playwright,
)
from crawler.render.isolation import Isolation, ways

_WATCH_S: Final = 0.25  # between two looks at the memory; each takes some 2 ms
_IDLE_S: Final = 60.0  # after which a host's context ends, and the browser if it has no page
_TRIES: Final = 2
_FIRST: Final = "http://localhost/"  # of the page that is made to see that one can be
_EMPTY: Final = BrowserAnswer(status=200, fields={"content-type": "text/html"}, body=b"<p>")


async def _no_answer(_: BrowserRequest) -> None:
    return None


class BrowserPool:
    """Renders pages, as many at once as it has tabs."""

    def __init__(self, options: BrowserOptions) -> None:
        require_playwright()
        find_browser(options.executable)
        self._options = options
        self._way: Isolation | None = None
        self._browser: RunningBrowser | None = None
        self._starting = asyncio.Lock()
        self._tabs = asyncio.Semaphore(options.tabs)
        self._alone = asyncio.Lock()  # of who collects all tabs: two would wait for each other
        self._has_browser = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self.started = 0  # browsers
        self.crashed = 0  # that did not end because they were worn
        self.memory_bytes = 0  # as last looked at

    @property
    def open(self) -> int:
        """The pages that are being rendered in the present browser."""
        return 0 if self._browser is None else self._browser.open

    async def start(self) -> str:
        """Start the first browser, and return what its isolation lacks, or an empty text."""
        reason = ""
        for way in ways(self._options.use_namespaces):
            try:
                browser = await RunningBrowser.start(self._options, way)
            except BrowserGone as gone:
                reason = reason or str(gone)
                continue
            try:
                # A browser may start in a way in which its pages do not.
                await browser.render("", _FIRST, _EMPTY, _no_answer)
            except (BrowserGone, NotRendered) as failed:
                reason = reason or str(failed)
                await browser.close()
                continue
            self._way, self._browser = way, browser
            self.started += 1
            self._has_browser.set()
            self._watching = asyncio.create_task(self._watch())
            return way.sentence()
        raise BrowserMissing(f"the browser {find_browser(self._options.executable)}: {reason}")

    async def render(
        self, context_key: str, url: str, answer: BrowserAnswer, answering: Answering
    ) -> RenderedPage:
        """Make a page of *answer*. *context_key*: whose cookies and storage it sees. It raises
        NotRendered with the reason. What is cancelled closes its tab."""
        reason = ""
        for tried in range(_TRIES):
            async with self._tab(alone=tried > 0):
                browser = await self._ready()
                try:
                    return await browser.render(context_key, url, answer, answering)
                except BrowserGone as gone:
                    reason = str(gone)
                    self._retire(browser, is_worn=False)
                finally:
                    self._retire_worn()
        raise NotRendered(reason)

    async def end_turn(self, context_key: str) -> None:
        """Forget the cookies and storage of a host."""
        if self._browser is not None and not self._browser.is_gone:
            with suppress(BrowserGone):
                await self._browser.end_context(context_key)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        if self._browser is not None:
            self._browser.end("the crawl ends")
            self._retire(self._browser, is_worn=True)
        if self._closing:
            await asyncio.wait(self._closing)

    @asynccontextmanager
    async def _tab(self, alone: bool) -> AsyncIterator[None]:
        taken = 0
        try:
            if alone:
                async with self._alone:
                    for _ in range(self._options.tabs):
                        await self._tabs.acquire()
                        taken += 1
            else:
                await self._tabs.acquire()
                taken = 1
            yield
        finally:
            for _ in range(taken):
                self._tabs.release()

    async def _ready(self) -> RunningBrowser:
        async with self._starting:
            if self._browser is not None and self._browser.is_gone:
                self._retire(self._browser, is_worn=False)
            if self._browser is None:
                assert self._way is not None, "the pool was not started"
                if self._closing:  # two at once would take twice the memory
                    await asyncio.wait(self._closing)
                try:
                    self._browser = await RunningBrowser.start(self._options, self._way)
                except (BrowserGone, ConfigError, OSError) as gone:
                    raise NotRendered(f"no browser: {gone}") from gone
                self.started += 1
                self._has_browser.set()
            return self._browser

    def _retire_worn(self) -> None:
        browser = self._browser
        if browser is not None and browser.pages >= self._options.pages_per_browser:
            self._retire(browser, is_worn=True)

    def _retire(self, browser: RunningBrowser, is_worn: bool) -> None:
        """Give a browser no more pages, and end it with its last one."""
        if browser is not self._browser:
            return
        self._browser = None
        self.crashed += not is_worn
        task = asyncio.create_task(self._close(browser))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, browser: RunningBrowser) -> None:
        await browser.idle()
        await browser.close()

    async def _watch(self) -> None:
        """Look at the memory while pages are rendered, and end what has been idle."""
        idle_s: float = 0
        while True:
            browser = self._browser
            if browser is None or browser.is_gone:
                idle_s = self.memory_bytes = 0
                self._has_browser.clear()
                await self._has_browser.wait()
                continue
            if browser.open:
                idle_s = 0
                self.memory_bytes = browser.memory()
                if self.memory_bytes > self._options.memory_bytes:
                    browser.end(
                        f"too much memory: {self.memory_bytes >> 20} MiB of all its processes"
                    )
            else:
                idle_s += _WATCH_S
            with suppress(BrowserGone):
                await browser.end_idle_contexts(_IDLE_S)
            await asyncio.sleep(_WATCH_S)
            if idle_s > _IDLE_S and not browser.open:
                self._retire(browser, is_worn=True)
