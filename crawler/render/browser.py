"""One Chromium that makes pages of answers, and asks us for whatever else they need.

Rule: no request of it reaches a network. The page's own document is the answer that the caller has
fetched; each other request becomes a `BrowserRequest`, and what is not answered is left out. A page
ends at its bound of time, and nothing that the browser or its driver do not answer is waited for
longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from crawler.model.page import MOST_DOM_BYTES
from crawler.model.types import ConfigError, CrawlerError
from crawler.render.isolation import NODE, BrowserFolder, Isolation

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Page, Playwright, Route

T = TypeVar("T")

# The first has no window: for each page a whole Chromium makes one with a bar of tabs, which took
# a page of single-page sites from 0.5 to 1.5 s of CPU.
_PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
START_S: Final = 60.0  # to start a browser, which takes 1, and 5 with a load of 12
_ANSWER_S: Final = 10.0  # for a call that costs the browser nothing; then it hangs
_GRACE_S: Final = 3.0  # for the DOM of a page that is at its bound; then the page hangs
_RESIDENT: Final = re.compile(r"^Rss(Anon|File|Shmem):\s+(\d+) kB", re.M)
_TREE_S: Final = 1.0  # for which the processes are taken for the same: to find them costs 4 ms
_WORLD: Final = "gossamer"
_ARGUMENTS: Final = (
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--disable-notifications",
    "--disable-print-preview",
    "--disable-file-system",
    "--disable-remote-playback-api",
    "--disable-speech-api",
    "--mute-audio",
    "--no-pings",
    "--dns-prefetch-disable",
    # A process for each site of a frame: the documents of frames are not asked for.
    "--disable-site-isolation-trials",
    # Its process for the network has none to serve, and no sandbox of its own on Linux.
    "--enable-features=NetworkServiceInProcess2",
)
# With these of Playwright's a page may open windows as it likes, and flood the browser with calls.
_NOT_WANTED: Final = ("--disable-popup-blocking", "--disable-ipc-flooding-protection")
# Fields of an answer that are about its transfer, or would have the browser send requests or reload
# the page by itself.
_LEFT_OUT: Final = frozenset(
    {
        *("content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive"),
        *("strict-transport-security", "alt-svc", "accept-ch", "critical-ch", "speculation-rules"),
        *("nel", "report-to", "reporting-endpoints", "clear-site-data", "content-disposition"),
    }
)
# In a world of its own a page cannot change what the functions are that are called here. What is
# watched is what text and links are made of: not styles, which some pages change for ever.
_WATCH: Final = """
(() => {
  let changed = performance.now();
  const now = performance.now.bind(performance);
  new MutationObserver(() => { changed = now(); }).observe(document, {
    subtree: true, childList: true, characterData: true, attributeFilter: ["href", "src"] });
  const base = document.createElement("base");
  self.take = (quiet, most, url) => {
    const timing = performance.timing;
    // What is written into a page that is loaded leaves it at "loading".
    const loaded = document.readyState === "complete" || timing.loadEventEnd;
    // What a script puts off while it computes comes after the load event.
    const still = now() - Math.max(changed, timing.loadEventEnd - timing.navigationStart);
    if (still < quiet || (quiet && !loaded)) return [0, still];
    const root = document.documentElement;
    if (!root) return [1, ""];
    // Links of a page that has moved on by `history` are meant from where it now is.
    base.remove();
    base.href = document.baseURI;
    if (base.href.split("#")[0] !== url && !document.querySelector("base[href]"))
      document.querySelector("head")?.prepend(base);
    const html = (document.doctype ? "<!DOCTYPE html>" : "") + root.outerHTML;
    return html.length > most ? [2, html.length] : [1, html.toWellFormed()];
  };
  return location.href;
})()"""
_SCROLL: Final = """
(() => {
  const before = scrollY;
  scrollTo({ top: 1e9, behavior: "instant" });
  return scrollY !== before;
})()"""
_SHARED_WITH: Final = "access-control-allow-origin"
_NOBODY: Final = "https://nobody.invalid"  # no page's origin
_LEFT: Final = "it left its document"
_WAITING, _TAKEN, _TOO_LARGE = range(3)  # the first value that `take` returns


class BrowserRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a page asks for beside its own document. Arrow: browser -> fetch.

    *kind* is Playwright's word for it: script, stylesheet, image, font, media, fetch, xhr, other.
    *fields* are those that the page has set or Chromium would send; no cookies.
    """

    url: str
    method: str
    kind: str
    fields: dict[str, str]
    body: bytes | None = None


class BrowserAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer as the browser gets it: *body* is decoded. Arrow: fetch -> browser.

    A field that came more than once is one text, its values on lines of their own (Set-Cookie) or
    with commas between them. A redirect is followed before: none reaches the browser.
    """

    status: int
    fields: dict[str, str]
    body: bytes


# None: the request is left out, and fails in the page.
Answering = Callable[[BrowserRequest], Awaitable[BrowserAnswer | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPage:
    """What a browser made of an answer: *dom* in UTF-8. Arrow: browser -> loop."""

    dom: bytes
    moved_to: str  # where its scripts or a meta refresh first wanted it to go, or empty
    ms: int
    requests: int  # that it made beside its own document, answered or not
    is_quiet: bool  # False: it was taken at its bound of time, still at work


class NotRendered(CrawlerError):
    """The browser made no page of an answer; the text says why. Caller: keep what was fetched."""


class BrowserGone(CrawlerError):
    """The browser ended, or has to, with all its pages. Caller: take another one."""


class BrowserMissing(ConfigError):
    """There is no browser, or nothing to drive it with. Caller: stop before the first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserOptions:
    executable: str = ""  # empty: the first of _PROGRAMS on PATH
    user_agent: str = ""  # empty: the browser's own
    language: str = ""  # of its scripts, a tag as in Accept-Language; empty: the browser's own
    tabs: int = 2
    page_s: float = 15.0  # after which a page is taken as it is
    quiet_s: float = 0.5  # without a request and a change of the DOM, and a page is done
    scrolls: int = 0
    memory_bytes: int = 1_500_000_000  # of all processes of the browser
    max_dom_bytes: int = MOST_DOM_BYTES
    pages_per_browser: int = 200
    contexts: int = 8
    requests: int = 300  # of a page: with more it is taken as it is
    use_namespaces: bool = True  # False: for tests of systems without them


def find_browser(executable: str) -> str:
    """Return the path of the browser, or raise BrowserMissing."""
    if executable:
        if found := shutil.which(executable):
            return found
        raise BrowserMissing(f"CRAWLER_BROWSER: {executable} is no program that can be run")
    if found := next(filter(None, map(shutil.which, _PROGRAMS)), None):
        return found
    raise BrowserMissing(
        f"no browser: none of {', '.join(_PROGRAMS)} is on PATH; "
        "install one (Debian: apt-get install chromium-headless-shell), or set CRAWLER_BROWSER"
    )


def require_playwright() -> None:
    """Raise BrowserMissing where Playwright is not installed."""
    if find_spec("playwright") is None:
        raise BrowserMissing(
            "a browser is driven by Playwright, which is not installed: "
            "pip install 'gossamer-crawler[browser]'"
        )


@dataclass(eq=False, kw_only=True)
class _Tab:
    """A page that is being rendered, and what is known of it."""

    url: str
    answer: BrowserAnswer
    answering: Answering
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[None]  # has the error that ends it, if any does
    asked_url: str = ""  # of its own document, as the browser asks for it
    is_begun: bool = False  # that document has taken its place
    requests: int = 0
    open: int = 0  # requests that are not answered yet
    last: float = 0.0  # when a request came or was answered, by the loop's clock
    moved_to: str = ""
    is_full: bool = False  # it asked for more than it may
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # `open` or `last`

    def touch(self, more: int) -> None:
        self.open += more
        self.last = self.loop.time()
        self.changed.set()

    def fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class _Context:
    """The cookies and storage of a host, in memory."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.tabs: dict[Page, _Tab] = {}
        self.pages = 0  # that are open, or about to be
        self.used = time.monotonic()


class RunningBrowser:
    """A Chromium with its driver. Made by `start`; whoever has it calls `close` in the end."""

    def __init__(
        self,
        options: BrowserOptions,
        isolation: Isolation,
        folder: BrowserFolder,
        playwright: Playwright,
        browser: Browser,
    ) -> None:
        self._options = options
        self.isolation = isolation
        self._folder = folder
        self._playwright = playwright
        self._browser = browser
        self._contexts: dict[str, _Context] = {}
        self._making = asyncio.Lock()  # of a context: two pages of a host share one
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[str] = self._loop.create_future()
        browser.on("disconnected", lambda _: self.end("it crashed"))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed_page = asyncio.Event()
        self._processes: list[int] = []
        self._counted = 0.0  # when, by the loop's clock
        self.pages = 0  # that were begun
        self.open = 0  # that are being rendered

    @classmethod
    async def start(cls, options: BrowserOptions, isolation: Isolation) -> RunningBrowser:
        """Start a browser in one way, or raise BrowserGone with the reason."""
        require_playwright()
        executable = find_browser(options.executable)
        folder = BrowserFolder(isolation, executable)
        playwright: Playwright | None = None
        try:
            async with asyncio.timeout(START_S):
                playwright = await _start_driver(folder.node)
                browser = await playwright.chromium.launch(
                    executable_path=folder.chromium,
                    chromium_sandbox=isolation.has_sandbox,
                    args=[*_ARGUMENTS, *folder.arguments()],
                    ignore_default_args=list(_NOT_WANTED),
                    env=dict(folder.environment()),
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                    timeout=START_S * 1000,
                )
                return cls(options, isolation, folder, playwright, browser)
        except BaseException as error:
            await _end(folder, playwright)
            if isinstance(error, Exception):
                raise BrowserGone(f"it does not start: {_why_not_started(error)}") from error
            raise

    @property
    def is_gone(self) -> bool:
        return self._gone.done()

    def end(self, reason: str) -> None:
        """End all that the browser is doing, for *reason*: its pages raise BrowserGone."""
        if not self._gone.done():
            self._gone.set_result(reason)
            _kill(self._folder.pid("chromium"), self._folder.pid("node"))

    async def idle(self) -> None:
        """Return when no page is open, which each is only for its bound of time."""
        while self.open:
            self._closed_page.clear()
            await self._closed_page.wait()

    async def close(self) -> None:
        self.end("it was closed")
        await _end(self._folder, self._playwright)

    def memory(self) -> int:
        """Return the bytes of all its processes, with its driver."""
        now = self._loop.time()
        if now - self._counted > _TREE_S:
            root = self._folder.pid("node")
            self._processes = process_tree(root) if root else []
            self._counted = now
        return memory_of(self._processes)

    async def end_context(self, key: str) -> None:
        """Forget the cookies and storage of a host, unless it has a page open."""
        context = self._contexts.get(key)
        if context is not None and not context.pages:
            del self._contexts[key]
            await self._bounded(context.context.close())

    async def end_idle_contexts(self, idle_s: float) -> None:
        now = time.monotonic()
        for key, context in list(self._contexts.items()):
            if now - context.used > idle_s:
                await self.end_context(key)

    async def render(
        self, key: str, url: str, answer: BrowserAnswer, answering: Answering
    ) -> RenderedPage:
        """Make a page of *answer*, in the context of *key*. It raises NotRendered where that page
        cannot be made, and BrowserGone where the browser is to be replaced."""
        started = self._loop.time()
        self.pages += 1
        self.open += 1
        try:
            async with self._context(key) as context, self._page(context) as page:
                tab = _Tab(
                    url=url,
                    answer=answer,
                    answering=answering,
                    loop=self._loop,
                    ended=self._loop.create_future(),
                )
                context.tabs[page] = tab
                page.on("crash", lambda _: tab.fail(BrowserGone("the page crashed")))
                page.on("popup", self._close_popup)
                # From now on: on a busy machine it takes seconds to make a tab.
                work = self._rendered(page, tab, self._loop.time() + self._options.page_s)
                dom, is_quiet = await self._unless_ended(work, tab.ended)
        finally:
            self.open -= 1
            self._closed_page.set()
        return RenderedPage(
            dom=dom,
            moved_to=tab.moved_to,
            ms=round((self._loop.time() - started) * 1000),
            requests=tab.requests,
            is_quiet=is_quiet,
        )

    @asynccontextmanager
    async def _context(self, key: str) -> AsyncIterator[_Context]:
        async with self._making:
            context = self._contexts.get(key) or await self._new_context(key)
            context.pages += 1
        try:
            yield context
        finally:
            context.pages -= 1
            context.used = time.monotonic()

    async def _new_context(self, key: str) -> _Context:
        idle = [each for each, context in self._contexts.items() if not context.pages]
        idle.sort(key=lambda each: self._contexts[each].used)
        for each in idle[: max(0, len(self._contexts) + 1 - self._options.contexts)]:
            await self.end_context(each)
        made = await self._bounded(
            self._browser.new_context(
                user_agent=self._options.user_agent or None,
                locale=self._options.language or None,
                service_workers="block",
                accept_downloads=False,
            )
        )
        context = self._contexts[key] = _Context(made)

        async def asked(route: Route) -> None:
            with suppress(_playwright_error()):  # the page or the browser is gone
                await _asked(context.tabs, route, self._options.requests)

        await self._bounded(made.route("**/*", asked))
        return context

    @asynccontextmanager
    async def _page(self, context: _Context) -> AsyncIterator[Page]:
        making = self._in_background(self._bounded(context.context.new_page()))
        try:
            page = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._close_late)
            raise
        try:
            yield page
        finally:
            # Not before it is closed: a page that is not may still be at work.
            context.tabs.pop(page, None)
            closing = self._in_background(self._bounded(page.close()))
            with suppress(BrowserGone):  # the page is made, or its own error says more
                await asyncio.shield(closing)

    def _close_late(self, making: asyncio.Task[Page]) -> None:
        if not making.cancelled() and making.exception() is None:
            self._close_popup(making.result())

    def _close_popup(self, popup: Page) -> None:
        self._in_background(self._bounded(popup.close()))

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # what it was is known where the browser ends

    async def _rendered(self, page: Page, tab: _Tab, deadline: float) -> tuple[bytes, bool]:
        """Return the DOM of a page, and whether the page was done."""
        error = _playwright_error()
        try:
            async with asyncio.timeout_at(deadline):
                await page.goto(tab.url, wait_until="commit", timeout=0)
                tab.is_begun = True
            async with asyncio.timeout_at(deadline):
                reader = await _DomReader.of(page, tab.asked_url, self._options.max_dom_bytes)
            for left in range(self._options.scrolls, -1, -1):
                found = await self._when_quiet(reader, tab, deadline)
                if found is None:
                    break
                if not left:
                    return found, True
                async with asyncio.timeout_at(deadline):
                    if not await reader.scroll():
                        return found, True
                    tab.touch(0)
        except TimeoutError:
            if not tab.is_begun:
                raise NotRendered("the browser did not take it in time") from None
        except error as failed:
            raise _meaning(failed) from failed
        try:
            async with asyncio.timeout(_GRACE_S):
                reader = await _DomReader.of(page, tab.asked_url, self._options.max_dom_bytes)
                dom = await reader.take(0)
        except TimeoutError:
            raise NotRendered("it hangs: its scripts do not end") from None
        except error as failed:
            raise _meaning(failed) from failed
        assert isinstance(dom, bytes)
        return dom, False

    async def _when_quiet(self, reader: _DomReader, tab: _Tab, deadline: float) -> bytes | None:
        """Return the DOM when no request is open, and none came and nothing changed for a while.
        None: at the deadline the page was not so far."""
        quiet_s = self._options.quiet_s
        since = tab.last
        while True:
            now = self._loop.time()
            until = deadline if tab.open else min(max(since, tab.last) + quiet_s, deadline)
            if now < until and not tab.is_full:
                tab.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await tab.changed.wait()
            elif now >= deadline or tab.is_full:
                return None
            else:
                asked = tab.requests
                async with asyncio.timeout_at(deadline):
                    taken = await reader.take(quiet_s)
                if isinstance(taken, bytes) and asked == tab.requests:
                    return taken
                # It has changed *still* seconds ago, or is not loaded yet.
                still = taken if isinstance(taken, float) else 0.0
                since = self._loop.time() - min(still, quiet_s * 0.9)

    async def _unless_ended(self, work: Coroutine[Any, Any, T], ended: asyncio.Future[None]) -> T:
        """Return the result of *work*, or raise the error that ends the tab or the browser."""
        task = self._loop.create_task(work)
        all_of_it: set[asyncio.Future[Any]] = {task, ended, self._gone}
        try:
            await asyncio.wait(all_of_it, return_when=asyncio.FIRST_COMPLETED)
            if self._gone.done():
                raise BrowserGone(self._gone.result())
            if ended.done():
                ended.result()
            return await task
        finally:
            await _cancelled(task)

    async def _bounded(self, work: Awaitable[T]) -> T:
        """Return the result of a call of the browser. If it takes too long, the browser ends."""
        task = asyncio.ensure_future(work)
        both: set[asyncio.Future[Any]] = {task, self._gone}
        try:
            await asyncio.wait(both, timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.end("it does not answer")
            if self._gone.done():
                raise BrowserGone(self._gone.result())
            return await task
        except _playwright_error() as error:
            raise BrowserGone(_first_line(error)) from error
        finally:
            await _cancelled(task)


class _DomReader:
    """What reads the DOM of a page, in a world of its own of the page's document.

    If that document is replaced, each call raises Playwright's error.
    """

    def __init__(self, session: CDPSession, world: int, url: str, max_bytes: int) -> None:
        self._session = session
        self._world = world
        self._url = url
        self._max_bytes = max_bytes

    @classmethod
    async def of(cls, page: Page, url: str, max_bytes: int) -> Self:
        """*url*: of the document, as the browser asked for it."""
        session = await page.context.new_cdp_session(page)
        tree = await session.send("Page.getFrameTree")
        frame = tree["frameTree"]["frame"]
        world = await session.send(
            "Page.createIsolatedWorld", {"frameId": frame["id"], "worldName": _WORLD}
        )
        reader = cls(session, world["executionContextId"], url, max_bytes)
        if not str(await reader._evaluate(_WATCH)).startswith("http"):
            raise NotRendered(_LEFT)  # for about:blank or blob:; no other is answered
        return reader

    async def take(self, quiet_s: float) -> bytes | float:
        """Return the DOM if it is loaded and has not changed for *quiet_s* (0: as it is), or how
        many seconds ago it did. It raises NotRendered if it is too large."""
        arguments = json.dumps([quiet_s * 1000, self._max_bytes, self._url])
        kind, value = await self._evaluate(f"take(...{arguments})")
        if kind == _TOO_LARGE:
            raise NotRendered(f"its DOM is too large: {value:,} characters")
        if kind == _WAITING:
            return float(value) / 1000
        dom = str(value).encode("utf-8", "replace")
        if len(dom) > self._max_bytes:
            raise NotRendered(f"its DOM is too large: {len(dom):,} bytes")
        return dom

    async def scroll(self) -> bool:
        """Scroll to the end; return whether the page was not there yet."""
        return bool(await self._evaluate(_SCROLL))

    async def _evaluate(self, expression: str) -> Any:
        answer = await self._session.send(
            "Runtime.evaluate",
            {"expression": expression, "contextId": self._world, "returnByValue": True},
        )
        if "exceptionDetails" in answer:
            text = answer["exceptionDetails"].get("exception", {}).get("description", "an error")
            raise NotRendered(f"its DOM cannot be read: {str(text).splitlines()[0]}")
        return answer["result"].get("value")


async def _asked(tabs: Mapping[Page, _Tab], route: Route, most: int) -> None:
    """Answer one request of a context, of whose pages each may ask for *most*."""
    request = route.request
    try:
        frame = request.frame
        tab = tabs.get(frame.page)
    except _playwright_error():  # of a window that a page opens
        tab = None
    if tab is None:
        await route.abort("aborted")
    elif request.is_navigation_request():
        if frame.parent_frame is not None:
            await route.abort("aborted")  # a frame has no place in the text
        elif not tab.asked_url or (request.url == tab.asked_url and not tab.is_begun):
            # More than once where the process that was to have the page has ended.
            tab.asked_url = request.url
            await _fulfil(route, tab.answer)
            tab.touch(0)
        else:
            if not tab.moved_to and request.method == "GET" and request.url != tab.asked_url:
                tab.moved_to = request.url
            await route.abort("aborted")  # with any other error a page of the browser's own comes
    elif tab.requests >= most:
        tab.is_full = True
        tab.touch(0)
        await route.abort("failed")
    else:
        await _answered(tab, route)


async def _answered(tab: _Tab, route: Route) -> None:
    request = route.request
    tab.requests += 1
    tab.touch(1)
    try:
        answer = await tab.answering(
            BrowserRequest(
                url=request.url,
                method=request.method,
                kind=request.resource_type,
                fields=request.headers,
                body=request.post_data_buffer,
            )
        )
        if answer is None:
            await route.abort("failed")
        else:
            await _fulfil(route, answer)
    except _playwright_error():
        raise
    except Exception as error:
        tab.fail(error)
    finally:
        tab.touch(-1)


async def _fulfil(route: Route, answer: BrowserAnswer) -> None:
    fields = {name: text for name, text in answer.fields.items() if name.lower() not in _LEFT_OUT}
    if not any(name.lower() == _SHARED_WITH for name in fields):
        fields[_SHARED_WITH] = _NOBODY  # or Playwright would let every page read it
    if 300 <= answer.status < 400 and answer.status != 304:
        # The browser would send the next request itself: Playwright asks nobody for it.
        await route.abort("failed")
    else:
        await route.fulfill(status=answer.status, headers=fields, body=answer.body)


async def _start_driver(node: Path) -> Playwright:
    """Start Playwright's driver by our script."""
    before = os.environ.get(NODE)
    os.environ[NODE] = str(node)
    try:
        started: Playwright = await import_module("playwright.async_api").async_playwright().start()
        return started
    finally:
        if before is None:
            os.environ.pop(NODE, None)
        else:
            os.environ[NODE] = before


async def _end(folder: BrowserFolder, playwright: Playwright | None) -> None:
    """End what is left of a browser and its driver, and remove their files."""
    _kill(folder.pid("chromium"), folder.pid("node"))
    if playwright is not None:
        with suppress(Exception):  # it is dead, which Playwright may say in any way
            async with asyncio.timeout(_GRACE_S):
                await playwright.stop()
    _kill(folder.pid("node"), os.getpid())
    folder.remove()


def _kill(pid: int | None, parent: int | None) -> None:
    """Kill a process of ours: after its end its number may be another one's."""
    if pid is not None and parent is not None and _parents().get(pid) == parent:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """Return the parent of each process."""
    found = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                stat = (each / "stat").read_text(errors="replace")
                found[int(each.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def process_tree(root: int) -> list[int]:
    """Return *root* and all processes below it."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def memory_of(pids: Iterable[int]) -> int:
    """Return the bytes of processes: what each has alone, and the most that one maps of files,
    which are the same ones."""
    alone = mapped = 0
    for pid in pids:
        with suppress(OSError, ValueError):
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
            kib = {name: int(text) for name, text in _RESIDENT.findall(status)}
            alone += kib.get("Anon", 0) + kib.get("Shmem", 0)
            mapped = max(mapped, kib.get("File", 0))
    return (alone + mapped) * 1024


async def _cancelled(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})


def _playwright_error() -> type[Exception]:
    error: type[Exception] = import_module("playwright.async_api").Error
    return error


def _why_not_started(error: Exception) -> str:
    """Return the last that the browser printed, or what Playwright says."""
    if isinstance(error, TimeoutError):
        return f"not within {START_S:g} s"
    printed = re.findall(r"\[err\] (.+)", str(error))
    return str(printed[-1]) if printed else _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _meaning(error: Exception) -> CrawlerError:
    """Return what an error of Playwright's means for the page."""
    text = _first_line(error)
    if "find context" in text or "Execution context" in text:
        return NotRendered(_LEFT)
    if "closed" in text or "crashed" in text:
        return BrowserGone(text)
    return NotRendered(text)
