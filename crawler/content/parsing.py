"""Chooses the parser for a media type and runs it.

Rule: the first parser that claims a type gets it: those of the settings, then the entry points
`crawler.parsers` by name, then ours. A page whose parser fails counts as unreadable and is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from crawler.archive.columns_companion import Parse, RebuildSettings
from crawler.config.settings import Config, ContentSettings
from crawler.content.compiling import Loading
from crawler.content.parsers.css import CssParser
from crawler.content.parsers.feed import FeedParser
from crawler.content.parsers.html import HtmlParser
from crawler.content.parsers.isolated import (
    BrokenParser,
    ParserLimits,
    ParserProcesses,
)
from crawler.content.parsers.loading import parser_at, path_of, within_limits
from crawler.content.parsers.manifest import ManifestParser
from crawler.content.parsers.pdf import PdfParser
from crawler.content.parsers.plain import PlainParser
from crawler.content.parsers.xml import PackedParser, XmlParser
from crawler.model.page import (
    MOST_DOM_BYTES,
    Parsed,
    Parser,
    Source,
    Unreadable,
)
from crawler.model.types import ConfigError
from crawler.policy.body_caps import ROBOTS_BYTES, cap_bytes

logger = logging.getLogger(__name__)

GROUP: Final = "crawler.parsers"
# Ours are no entry points, because a source checkout has none.
BUILT_IN: Final[tuple[type[Parser], ...]] = (
    HtmlParser,
    XmlParser,
    PackedParser,
    FeedParser,
    PdfParser,
    CssParser,
    ManifestParser,
    PlainParser,
)
# Text that is not for readers, and would be noise in columns and fingerprints.
_NO_TEXT: Final = frozenset({"text/javascript", "text/ecmascript", "text/x-javascript"})
_XML: Final = "application/xml"
_LONG_BYTES: Final = 128 * 1024  # 50 ms at worst, and few pages are longer


class Parsers:
    """The parsers of one crawl. Closed by `close`."""

    def __init__(self, content: ContentSettings) -> None:
        """Raises ConfigError."""
        self._processes = ParserProcesses(
            ParserLimits(content.parse_timeout_s, content.parse_max_bytes)
        )
        self._by_type: dict[str, Parser] = {}
        self._paths: list[tuple[Parser, str]] = []  # no dict: a user's parser may be unhashable
        self._logged: set[tuple[str, str]] = set()
        self._loading = Loading()
        self._long = asyncio.Lock()
        for where, parser in _all(content.parsers):
            self._add(where, parser)

    def parser_for(self, media_type: str) -> Parser | None:
        """Return the parser for *media_type* (in lower case, without parameters), or None."""
        return next(
            (self._by_type[one] for one in _names(media_type) if one in self._by_type), None
        )

    @property
    def are_built_in(self) -> bool:
        """Whether all parsers are ours."""
        return all(type(parser) in BUILT_IN for parser in self._by_type.values())

    @property
    def ready_s(self) -> float:
        """For how long pages can be read, as `Loading.ready_s`."""
        return self._loading.ready_s

    async def parse(self, source: Source, parser: Parser) -> Parsed:
        """Parse *source* by *parser*, which `parser_for` returned. Raises Unreadable."""
        try:
            if len(source.body) <= parser.inline_max_bytes:
                return within_limits(_checked(await self._inline(source, parser)), parser.name)
            return within_limits(
                await self._processes.parse(self._path(parser), source), parser.name
            )
        except Unreadable:
            raise
        except BrokenParser as broken:
            raise self._broken(parser, broken.kind, source.url, broken) from broken
        except Exception as error:  # a plug-in may raise anything
            raise self._broken(parser, type(error).__name__, source.url, error) from error

    async def close(self) -> None:
        await self._processes.close()

    async def _inline(self, source: Source, parser: Parser) -> Parsed:
        """Parse in this process, at most one long body in each iteration of the event loop. Sixty
        hostile bodies of a second each would otherwise block the loop for a minute."""
        if not self._loading.loaded.done():
            await asyncio.wrap_future(self._loading.loaded)
        if len(source.body) <= _LONG_BYTES:
            return parser.parse(source)
        async with self._long:
            await asyncio.sleep(0)
            return parser.parse(source)

    def _add(self, where: str, parser: Parser) -> None:
        try:
            self._paths.append((parser, path_of(parser)))
        except ConfigError as error:
            raise ConfigError(f"{where} {error}") from error
        for media_type in sorted(parser.types):
            first = self._by_type.setdefault(media_type, parser)
            if first is not parser and not isinstance(parser, BUILT_IN):
                logger.warning(
                    "%s is parsed by %s, which comes before %s",
                    media_type,
                    self._path(first),
                    where,
                )

    def _path(self, parser: Parser) -> str:
        """Return the path of the parser's class."""
        return next(path for known, path in self._paths if known is parser)

    def _broken(self, parser: Parser, kind: str, url: str, error: Exception) -> Unreadable:
        if (parser.name, kind) not in self._logged:
            self._logged.add((parser.name, kind))
            logger.error(
                "The parser %s failed at %s: %s: %s. Such pages have no text or links"
                " (logged once)",
                parser.name,
                url,
                kind,
                error,
            )
        return Unreadable(f"the parser {parser.name} is broken: {kind}")


def _all(settings: Iterable[str]) -> Iterator[tuple[str, Parser]]:
    """Yield each parser with the place that named it. Raises ConfigError."""
    named = [(f"CRAWLER_PARSERS: {path}", path) for path in settings]
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    named += [(_origin(point), f"{point.module}:{point.attr}") for point in points]
    for where, path in named:
        try:
            yield where, parser_at(path)
        except ConfigError as error:
            raise ConfigError(f"{where} {error}") from error
    for ours in BUILT_IN:
        yield ours.__name__, ours()


def _origin(point: EntryPoint) -> str:
    dist = f" of {point.dist.name}" if point.dist else ""
    return f"entry point {point.name} ({GROUP}){dist}"


def _names(media_type: str) -> Iterator[str]:
    """Yield the names under which a parser may claim *media_type*, the most specific first."""
    yield media_type
    major, _, minor = media_type.partition("/")
    if major == "application" and minor.endswith("+xml"):
        yield _XML
    if media_type not in _NO_TEXT:
        yield f"{major}/*"


def _checked(parsed: object) -> Parsed:
    if not isinstance(parsed, Parsed):
        raise TypeError(f"gave {type(parsed).__name__}, not Parsed")
    return parsed


def rebuild_settings(config: Config, *, tries_unreadable: bool = False) -> RebuildSettings:
    """Return the rules for parsing archived pages again with the parsers of *config*. With
    *tries_unreadable* also pages that no parser could read before are parsed."""
    caps = config.fetch
    return RebuildSettings(
        parsing=partial(rebuild_parsers, config.content),
        max_body_bytes=partial(cap_bytes, caps=caps),
        max_bytes=max(
            ROBOTS_BYTES,
            caps.html_max_bytes,
            caps.pdf_max_bytes,
            caps.sitemap_max_bytes,
            caps.other_max_bytes,
            MOST_DOM_BYTES,
        ),
        near_min_words=config.content.near_min_words,
        retry_unreadable=tries_unreadable,
        groups=frozenset(config.content.column_groups),
    )


@asynccontextmanager
async def rebuild_parsers(content: ContentSettings) -> AsyncIterator[Parse]:
    """Yield a function that parses, for a rebuild. Raises ConfigError."""
    parsers = Parsers(content)
    try:
        yield partial(_parsed, parsers)
    finally:
        await parsers.close()


async def _parsed(parsers: Parsers, source: Source, media_type: str) -> Parsed:
    parser = parsers.parser_for(media_type)
    if parser is None:
        return Parsed()
    try:
        return await parsers.parse(source, parser)
    except Unreadable:
        return Parsed(parser=parser.name)
