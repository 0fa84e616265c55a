"""`scrapy shell URL`: open a console to try selectors on a page."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from typing import Any, Final

from scrapy.commands.shell import Command as Scrapys
from scrapy.crawler import Crawler

from crawler.cli.interactive import InteractiveCommand

_CLOSE_TIMEOUT_S: Final = 5.0


class ShellCommand(InteractiveCommand, Scrapys):
    _shown: Crawler | None = None

    def update_vars(self, vars: dict[str, Any]) -> None:  # noqa: A002  # Scrapy's name for it
        super().update_vars(vars)
        self._shown = vars["crawler"]

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        try:
            super().run(args, opts)
        finally:
            self._close()

    def _close(self) -> None:
        """Close the engine. Scrapy leaves its loop running in a thread, and waking that thread at
        the end of the interpreter has crashed it (one time in a hundred)."""
        crawler = self._shown
        if crawler is None or crawler.settings.getbool("TWISTED_REACTOR_ENABLED"):
            return
        assert crawler.engine is not None
        if crawler.engine.spider is not None:
            closing = crawler.engine.close_spider_async(reason="shutdown")
            closed = asyncio.run_coroutine_threadsafe(closing, self._get_reactorless_loop())
            with suppress(TimeoutError):
                closed.result(_CLOSE_TIMEOUT_S)
