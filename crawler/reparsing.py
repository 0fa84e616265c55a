"""Parsing where no event loop is: of pages that are read from their archive again.

Rule: the parsers of the crawl, set as they are now. What must be parsed apart has a loop and
processes of its own, which end with the reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread

from crawler.core.config import Config
from crawler.core.content_settings import Content
from crawler.core.parsed import Parsed, Source, Unreadable
from crawler.parsing import Parsers
from crawler.policy.content import ROBOTS_BYTES, cap_bytes
from crawler.storage.columns.again import Again, Parse


def again(config: Config) -> Again:
    caps = config.fetch
    return Again(
        parsing=partial(reparsing, config.content),
        room=partial(cap_bytes, caps=caps),
        most_bytes=max(
            ROBOTS_BYTES,
            *(caps.html_max_bytes, caps.pdf_max_bytes),
            *(caps.sitemap_max_bytes, caps.other_max_bytes),
        ),
        near_min_words=config.content.near_min_words,
    )


@contextmanager
def reparsing(content: Content) -> Iterator[Parse]:
    """Raises ConfigError."""
    parsers = Parsers(content)
    loop = asyncio.SelectorEventLoop()
    # The thread that asks may be one with a loop that runs, and must not wait in it.
    thread = Thread(target=loop.run_forever, name="parsing again", daemon=True)
    thread.start()

    def parse(source: Source, media_type: str) -> Parsed:
        work = _parsed(parsers, source, media_type)
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        yield parse
    finally:
        asyncio.run_coroutine_threadsafe(parsers.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _parsed(parsers: Parsers, source: Source, media_type: str) -> Parsed:
    parser = parsers.of(media_type)
    if parser is None:
        return Parsed()
    try:
        return await parsers.parse(source, parser)
    except Unreadable:
        return Parsed(parser=parser.name)
