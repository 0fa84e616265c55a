"""Loads parsers by the name of their class, and limits the size of their results.

Rule: a class that is no parser raises ConfigError before the first page. The result of every
parser, also of a plug-in, passes `within_limits`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from itertools import accumulate, islice
from operator import attrgetter
from typing import Final, cast

import msgspec
from msgspec.structs import astuple

from crawler.model.page import NOTHING_SAID, About, Link, Parsed, Parser
from crawler.model.types import ConfigError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/(\*|[a-z0-9!#$&^_.+-]+)")


def parser_at(path: str) -> Parser:
    """Return the parser whose class is at "package.module:Class" or "package.module.Class". Raises
    ConfigError."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        found = attrgetter(name)(import_module(module))
    except ModuleNotFoundError as error:
        hint = "; a project imports from crawler.api" if _is_ours(error.name) else ""
        raise ConfigError(f"does not load: {error}{hint}") from error
    except Exception as error:  # importing it runs a user's code
        raise ConfigError(f"does not load: {type(error).__name__}: {error}") from error
    if not inspect.isclass(found):
        raise ConfigError(f"is no class but {found!r}")
    try:
        parser = cast("Callable[[], Parser]", found)()
        fault = _fault(parser)
    except Exception as error:  # as above
        raise ConfigError(f"cannot be made: {type(error).__name__}: {error}") from error
    if fault:
        raise ConfigError(f"is no parser: {fault} (docs/parsers.md)")
    return parser


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "crawler"


def path_of(parser: Parser) -> str:
    """Return the path of its class. Raises ConfigError if another process cannot import it."""
    cls = type(parser)
    path = f"{cls.__module__}:{cls.__qualname__}"
    try:
        same = attrgetter(cls.__qualname__)(import_module(cls.__module__)) is cls
    except (ImportError, AttributeError):
        same = False
    if not same or cls.__module__ == "__main__":
        raise ConfigError(f"cannot be imported as {path}, which its separate process needs")
    return path


def _fault(parser: Parser) -> str:
    """Return what makes it no parser, or ""."""
    checks = (_fault_of_name, _fault_of_types, _fault_of_limit, _fault_of_parse)
    return next(filter(None, (check(parser) for check in checks)), "")


def _fault_of_name(parser: Parser) -> str:
    name = getattr(parser, "name", None)
    fits = isinstance(name, str) and _NAME.fullmatch(name)
    return "" if fits else f"name is {name!r}; want one word of small letters"


def _fault_of_types(parser: Parser) -> str:
    types = getattr(parser, "types", None)
    if not isinstance(types, frozenset | set) or not types:
        return f"types is {types!r}; want a set of media types"
    wrong = [one for one in types if not (isinstance(one, str) and _TYPE.fullmatch(one))]
    want = "want media types in lower case, as text/html or text/*"
    return f"types has {wrong[0]!r}; {want}" if wrong else ""


def _fault_of_limit(parser: Parser) -> str:
    limit = getattr(parser, "inline_max_bytes", None)
    fits = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    return "" if fits else f"inline_max_bytes is {limit!r}; want a number of bytes"


def _fault_of_parse(parser: Parser) -> str:
    parse = getattr(parser, "parse", None)
    fits = callable(parse) and not inspect.iscoroutinefunction(parse)
    return "" if fits else "parse is no plain method"


# The limits of one page: what is beyond them is cut, and noted.
MAX_TEXT_CHARS: Final = 4_000_000  # 16 MB at most; the longest novels have 3 million
MAX_TITLE_CHARS: Final = 1_000
MAX_LINKS: Final = 50_000  # as many as a sitemap may have
MAX_LINK_CHARS: Final = 8_000_000  # of all links together
MAX_WORD_CHARS: Final = 2_048  # a canonical URL, a base, a language
MAX_WORDS: Final = 100  # of robots, of notes

LINKS_CUT: Final = "links_cut"
TEXT_CUT: Final = "text_cut"


def within_limits(parsed: Parsed, parser: str) -> Parsed:
    """Return *parsed* cut to the limits above, with the name *parser* if it has none."""
    links = _first_links(parsed.links)
    longest = max(len(parsed.text), len(parsed.markdown))
    if links is parsed.links and longest <= MAX_TEXT_CHARS and _is_short(parsed):
        return parsed  # as nearly every page: to cut it takes 5 us
    notes = dict.fromkeys(parsed.notes[:MAX_WORDS])
    if len(links) < len(parsed.links):
        notes[LINKS_CUT] = None
    if len(parsed.text) > MAX_TEXT_CHARS:
        notes[TEXT_CUT] = None
    return msgspec.structs.replace(
        parsed,
        parser=(parsed.parser or parser)[:MAX_WORD_CHARS],
        title=parsed.title[:MAX_TITLE_CHARS],
        text=parsed.text[:MAX_TEXT_CHARS],
        links=links,
        base=parsed.base[:MAX_WORD_CHARS],
        canonical=parsed.canonical[:MAX_WORD_CHARS],
        language=parsed.language[:MAX_WORD_CHARS],
        robots=frozenset(word[:MAX_WORD_CHARS] for word in islice(parsed.robots, MAX_WORDS)),
        charset=parsed.charset[:MAX_WORD_CHARS],
        notes=tuple(note[:MAX_WORD_CHARS] for note in notes),
        markdown=parsed.markdown[:MAX_TEXT_CHARS],
        about=About(*(said[:MAX_WORD_CHARS] for said in astuple(parsed.about))),
    )


def _is_short(parsed: Parsed) -> bool:
    """Return whether the smaller parts of *parsed* are surely within the limits."""
    if not parsed.parser or parsed.robots != frozenset() or parsed.notes != ():
        return False  # a list, too, as a user's parser may give
    words = (parsed.base, parsed.canonical, parsed.language, parsed.charset, parsed.parser)
    said = parsed.about
    if said is not NOTHING_SAID and max(map(len, astuple(said))) > MAX_WORD_CHARS:
        return False
    return sum(map(len, words)) + len(parsed.title) <= MAX_TITLE_CHARS


def _first_links(links: tuple[Link, ...]) -> tuple[Link, ...]:
    if len(links) > MAX_LINKS:
        links = links[:MAX_LINKS]
    if sum([len(link.url) + len(link.rel) + len(link.text) for link in links]) <= MAX_LINK_CHARS:
        return links
    lengths = accumulate(len(link.url) + len(link.rel) + len(link.text) for link in links)
    return links[: sum(length <= MAX_LINK_CHARS for length in lengths)]
