"""The private names of Scrapy's engine that we stand on, and nowhere else.

Rule: each is tested for when the crawl opens, so that another Scrapy stops with a clear
message before the first request (docs/decisions/0006-one-hook-lands-every-request.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.core.engine import ExecutionEngine

from crawler.core.errors import IncompatibleScrapy

_NEEDED = ("inprogress", "nextcall", "remove_request", "close")


class EngineHooks:
    """Wake the engine; be told when a request has gone all its way, and when it stops."""

    def __init__(self, engine: ExecutionEngine) -> None:
        """Raises IncompatibleScrapy. Call it when the engine has its slot: in `open`."""
        slot: Any = getattr(engine, "_slot", None)
        missing = [name for name in _NEEDED if not hasattr(slot, name)]
        if missing or not hasattr(getattr(slot, "nextcall", None), "schedule"):
            raise IncompatibleScrapy(
                "this Scrapy has no ExecutionEngine._slot with "
                f"{', '.join(missing) or 'nextcall.schedule'}; install scrapy>=2.19,<2.20"
            )
        self._engine = engine
        self._slot = slot

    def wake(self) -> None:
        """Let the engine ask for requests again, at the loop's next turn."""
        if self._slot.closing is None and self._engine.running:
            # Never with a delay: CallLaterOnce then ignores the calls that follow.
            self._slot.nextcall.schedule()

    def on_finished(self, finished: Callable[[Request], None]) -> None:
        """Call *finished* once for each request handed out, after its callback and pipelines
        are through, whatever became of it: the only hook that fires in every case."""
        remove = self._slot.remove_request

        def remove_request(request: Request) -> None:
            finished(request)
            remove(request)

        self._slot.remove_request = remove_request

    def on_stopping(self, stopping: Callable[[], None]) -> None:
        """Call *stopping* once, when the engine begins to wait for what is under way."""
        close = self._slot.close

        async def close_slot() -> None:
            stopping()
            await close()

        self._slot.close = close_slot
