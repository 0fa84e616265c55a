"""Pages that are read from their archive again, by the parsers of the crawl as they are set now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from crawler.core.config import Config
from crawler.core.content_settings import Content
from crawler.core.parsed import Parsed, Source, Unreadable
from crawler.parsing import Parsers
from crawler.policy.content import ROBOTS_BYTES, cap_bytes
from crawler.storage.columns.again import Again, Parse


def again(config: Config, *, tries_unreadable: bool = False) -> Again:
    """*tries_unreadable*: also what no parser could read before."""
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
        tries_unreadable=tries_unreadable,
    )


@asynccontextmanager
async def reparsing(content: Content) -> AsyncIterator[Parse]:
    """Raises ConfigError."""
    parsers = Parsers(content)
    try:
        yield partial(_parsed, parsers)
    finally:
        await parsers.close()


async def _parsed(parsers: Parsers, source: Source, media_type: str) -> Parsed:
    parser = parsers.of(media_type)
    if parser is None:
        return Parsed()
    try:
        return await parsers.parse(source, parser)
    except Unreadable:
        return Parsed(parser=parser.name)
