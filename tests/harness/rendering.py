"""A pool of browsers for tests that are not coroutines, and what its pages are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from crawler.render.browser import BrowserAnswer, BrowserOptions, BrowserRequest, RenderedPage
from crawler.render.pool import BrowserPool

T = TypeVar("T")
URL = "http://site.test/a/page"
TYPES = {"js": "text/javascript", "json": "application/json", "html": "text/html; charset=utf-8"}


def an_answer(body: str, kind: str = "html", status: int = 200, **fields: str) -> BrowserAnswer:
    named = {name.replace("_", "-"): text for name, text in fields.items()}
    return BrowserAnswer(
        status=status, fields={"content-type": TYPES[kind], **named}, body=body.encode()
    )


class Answers:
    """Answers the requests of pages by their URLs' ends, and leaves out all others."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self._answers = answers
        self.asked: list[BrowserRequest] = []

    async def __call__(self, request: BrowserRequest) -> BrowserAnswer | None:
        self.asked.append(request)
        name = request.url.partition("?")[0].rpartition("/")[2]
        if name not in self._answers:
            return None
        return an_answer(self._answers[name], name.rpartition(".")[2])


class Browsing:
    """A pool with an event loop of its own."""

    def __init__(self, options: BrowserOptions) -> None:
        self._runner = asyncio.Runner()
        self.pool = self.run(self._made(options))
        self.lacks = self.run(self.pool.start())

    async def _made(self, options: BrowserOptions) -> BrowserPool:
        return BrowserPool(options)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def render(
        self, document: str, answers: Mapping[str, str] | None = None, key: str = "site.test"
    ) -> RenderedPage:
        work = self.pool.render(key, URL, an_answer(document), Answers(answers or {}))
        return self.run(work)

    def close(self) -> None:
        self.run(self.pool.close())
        self._runner.close()


@contextmanager
def browsing(options: BrowserOptions) -> Iterator[Browsing]:
    made = Browsing(options)
    try:
        yield made
    finally:
        made.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs, and has not only left its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
