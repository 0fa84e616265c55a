"""A content line that puts away early what gathers; from a page on it keeps what it should not.

Rule: prints what bench.content_memory prints. Arguments: pages, pages between two lines, the page
from which it keeps, how many bytes of each.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.content_memory import MEGABYTE, Limits, Line, fed

SHORT: Final = Limits(
    file_bytes=4 * MEGABYTE, run_chars=MEGABYTE // 4, group_bytes=MEGABYTE // 2, store_pages=2_000
)


class Leaking(Line):
    def __init__(self, home: Path, leaks_from: int, leaked_bytes: int) -> None:
        super().__init__(home, SHORT)
        self._leaks_from = leaks_from
        self._leaked_bytes = leaked_bytes
        self._kept: list[bytes] = []

    async def take(self, number: int, url: str, body: bytes) -> None:
        await super().take(number, url, body)
        if number >= self._leaks_from:
            self._kept.append(bytes(body[: self._leaked_bytes]))


if __name__ == "__main__":
    pages, every, leaks_from, leaked_bytes = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(fed(lambda: Leaking(Path(home), leaks_from, leaked_bytes), pages, every))
