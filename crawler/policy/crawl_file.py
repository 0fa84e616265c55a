"""A crawl described in a file, crawl.toml: its seeds, each with options, and the arguments.

Rule: it is another way to type arguments, and nothing else: each line becomes one, so what holds
for arguments (kept for the next start, compared with the last one) holds for it. A file with an
error is refused as a whole, with the line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

from crawler.config.arguments import (
    PUSHED,
    SEED_LIMITS,
    SEPARATOR,
    Arguments,
    SeedTerms,
    read_arguments,
    terms_of_seed,
)
from crawler.config.readers import refuse_unknown, settings_of
from crawler.config.toml_lines import TomlLines
from crawler.model.types import ConfigError
from crawler.policy.scope import widest_scope
from crawler.policy.seed_terms import quoted
from crawler.policy.seeds import seed_url

MAX_CRAWL_BYTES: Final = 64 << 20
"""More seeds than that belong into a list, which is read piece by piece."""

EXAMPLE: Final = """\
# A crawl. With your own sites in it:  COMMAND -a crawl=crawl.toml
# Each line can be typed instead, as -a max_depth=5, and goes before the one here.

contact = "ADDRESS"       # a mail address that you read, or a page about your crawl

max_pages = 10_000        # of one run: pages,
max_bytes = "2GB"         # bytes,
max_time = "2h"           # and time
max_depth = 5             # most hops from a seed
deny = ['/print/', '[?&]sort=']  # regular expressions
#revisit = "adaptive"     # or "every 7d": pages are visited again
#requisites = true        # also what pages need to be shown
#check_external = true    # also ask, once, whether there is anything where links lead elsewhere

[[seeds]]                 # a site as a whole
url = "https://www.example.org/"
scope = "host"            # page, prefix, host, domain, regex or any

[[seeds]]                 # a folder, and one page of whatever its pages link to
url = ["https://docs.example.org/guide/", "https://docs.example.org/faq/"]
scope = "prefix"          # the seed's own folder and what is below
extra_hops = 1            # links may lead so far beyond
max_pages = 500           # of each of these seeds, over all runs

[[seeds]]                 # a pattern, less deep than the others
url = "https://news.example.org/"
scope = "regex"
allow = ['//news\\.example\\.org/2026/']
max_depth = 2

[[seeds]]                 # a list: one URL a line
list = "pages.txt"        # beside this file
scope = "page"            # these pages, and no links
"""
"""An example of such a file. ADDRESS is to be replaced, and COMMAND by what begins a crawl."""

_NOT_HERE: Final = frozenset({"crawl"})
_OWN: Final = ("url", "list")
_OF_CRAWL: Final = frozenset(row.name for row in settings_of(Arguments)) - {
    row.name for row in settings_of(SeedTerms)
}


def read_crawl(written: str, name: str, folder: str) -> dict[str, str]:
    """Return the arguments that the text of a file says. *name*: of the file, for messages.
    *folder*: where it is, which lists are relative to. Raises ConfigError with the line."""
    if len(written) > MAX_CRAWL_BYTES:
        raise ConfigError(f"{name} is over {MAX_CRAWL_BYTES >> 20} MB: write its seeds into a list")
    try:
        document = tomllib.loads(written)
    except (ValueError, RecursionError) as broken:  # also of a number without end
        raise ConfigError(f"{name} is not TOML: {broken}") from broken
    return _CrawlText(written, name, folder).read(document)


class _CrawlText:
    """The text of one file, for errors."""

    def __init__(self, written: str, name: str, folder: str) -> None:
        self._lines, self._name, self._folder = TomlLines(written, "seeds"), name, folder

    def read(self, document: dict[str, Any]) -> dict[str, str]:
        tables = document.pop("seeds", None)
        said: dict[str, str] = {}
        rows = {row.name: row for row in settings_of(Arguments) if row.name not in _NOT_HERE}
        for name, value in document.items():
            with self._at(self._lines.of_key(name, 0)):
                if isinstance(value, dict):
                    raise ConfigError(
                        f"there is no table [{name}]: what holds for the whole crawl stands at the"
                        " top of the file, above all tables"
                    )
                refuse_unknown("key", [name], rows)
                said[name] = _text(name, value)
                rows[name].read(said)
        if isinstance(tables, str):
            return {**said, "seeds": self._listed(tables)}
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            line = self._lines.of_key("seeds", 0)
            raise ConfigError(
                f"{self._name} line {line}: no seeds: write each under a line [[seeds]], or the"
                ' path of a list, as seeds = "seeds.txt"'
            )
        with self._at(self._lines.of_key("scope", 0)):
            arguments = read_arguments({"seeds": "none", **said})
        seeds, scopes = [], []
        for number, table in enumerate(tables):
            line = self._lines.of_table(number)
            options, terms = self._options(table, line, arguments.terms)
            scopes.append(terms.scope)
            seeds += [" ".join([each, *options]) for each in self._seeds(table, line)]
        if not seeds:
            raise ConfigError(f"{self._name}: no seeds: write each under a line [[seeds]]")
        # What comes while the crawl runs, pushed or added, may lead as far as any of these.
        said.setdefault("scope", widest_scope(scopes))
        # With a line break in it, as commas may be in an expression.
        return {**said, "seeds": "\n".join([*seeds, ""])}

    def _options(
        self, table: dict[str, Any], line: int, of_crawl: SeedTerms
    ) -> tuple[list[str], SeedTerms]:
        """Return the options of the seeds of *table*, as they are typed, and their terms."""
        options: dict[str, str] = {}
        written: list[str] = []
        rows = {row.name: row for row in settings_of(SeedTerms)}
        for name, value in table.items():
            with self._at(self._lines.of_key(name, line)):
                if name in _OF_CRAWL:
                    raise ConfigError(
                        f"{name} is no option of a seed: it holds for the whole crawl, so write it"
                        " at the top of the file, above the first [[seeds]]"
                    )
                refuse_unknown("key", [name], [*_OWN, *rows])
                if name in _OWN:
                    continue
                options[name] = text = _text(name, value)
                rows[name].read(options)
            written += [f"{name}={quoted(each)}" for each in text.split(SEPARATOR)]
        limits = [name for name in SEED_LIMITS if name in options]
        with self._at(self._lines.of_key(limits[0], line) if limits else line):
            return written, terms_of_seed(options, of_crawl)

    def _seeds(self, table: dict[str, Any], line: int) -> Iterator[str]:
        if len([name for name in _OWN if name in table]) != 1:
            raise ConfigError(f"{self._name} line {line}: a seed has a url, or a list of them")
        [name] = (name for name in _OWN if name in table)
        at = self._lines.of_key(name, line)
        values = table[name] if isinstance(table[name], list) else [table[name]]
        if not values or not all(isinstance(each, str) for each in values):
            raise ConfigError(f"{self._name} line {at}: {name} is {table[name]!r}; want text")
        for value in values:
            if name == "list":
                if "://" in value and not value.startswith("file://"):
                    raise ConfigError(f"{self._name} line {at}: {value} is no path of a list")
                yield self._listed(value)
                continue
            with self._at(self._lines.of_text(value, at)):
                yield _whole_url(value)

    def _listed(self, path: str) -> str:
        is_whole = "://" in path or path == PUSHED or path.startswith("/")
        return path if is_whole else f"{self._folder}/{path}"

    @contextmanager
    def _at(self, line: int) -> Iterator[None]:
        """Name the *line* in a ConfigError that is raised in its block."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"{self._name} line {line}: {error}") from None


def _text(name: str, value: Any) -> str:
    """Return a value as it is typed. Raises ConfigError."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case date():
            return value.isoformat()
        case list() if all(isinstance(each, str) for each in value):
            return SEPARATOR.join(value)
    raise ConfigError(f"{name} is {value!r}; want text, a number, yes or no, or a list of texts")


def _whole_url(text: str) -> str:
    """Return the fetch form of a seed. Raises ConfigError, also if it has no scheme: what is
    written down for later leaves nothing to be guessed."""
    try:
        url = seed_url(text)
    except ValueError as why:
        raise ConfigError(f"{text[:120]!r}: {why}") from None
    if "://" not in text:
        raise ConfigError(f"{text[:120]!r} has no scheme: write {url}")
    return url
