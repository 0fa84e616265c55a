"""Render a page that does not end, and say which processes do it: to be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

from crawler.render.browser import BrowserOptions, BrowserRequest, process_tree
from crawler.render.pool import BrowserPool
from tests.harness.rendering import URL, an_answer

PAGE: Final = "<script>new Image().src = '/begun'; setTimeout(() => { for (;;) {} }, 500)</script>"


async def main(use_namespaces: bool) -> None:
    pool = BrowserPool(BrowserOptions(page_s=60.0, use_namespaces=use_namespaces))
    await pool.start()

    async def begun(_: BrowserRequest) -> None:
        print(*process_tree(os.getpid()), flush=True)

    await pool.render("site.test", URL, an_answer(PAGE), begun)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] == "namespaces"))
