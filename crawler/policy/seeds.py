"""Seed lists: one URL a line, perhaps with options behind it (scope=prefix max_pages=100), without
blank lines and lines that begin with "#"; or CSV, with the URLs or host names in one column.

Rule: a line is read as a URL, or reported with its number and the reason. A line without a scheme
is read as browsers read typed text: https, but http for IP addresses, localhost and hosts with a
port; a name without a dot needs a scheme, or any word would be a URL.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from crawler.model.types import ConfigError
from crawler.model.url import fetch_form, is_ip, plain_form
from crawler.policy.seed_terms import TermsOfSeeds

_COMMENT: Final = re.compile(r"(?:^|\s)#.*")  # a "#" inside a word begins a fragment
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?!\d+(?:[/?#]|$))")  # no "host:8080"
_TYPED_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:/?#\\@]+)(:\d+)?(?=[/?#\\]|$)")
_CREDENTIALS: Final = re.compile(r"https?:[/\\]*+[^/\\?#@]*+@", re.I)
_SHOWN_CHARS: Final = 120
_IS_JSON: Final = "it is JSON: name a list of such lines LIST.jsonl"

_DELIMITERS: Final = (",", ";", "\t", "|")  # the first that splits all rows alike
_SAMPLE_ROWS: Final = 50  # guess: the delimiter and the column are chosen by these
_HEADINGS: Final = (
    *("url", "urls", "uri", "link", "href", "loc", "address", "origin", "website", "homepage"),
    *("domain", "domains", "host", "hostname", "fqdn", "site"),
)
"""Headings of the column with the seeds, the best first: a URL says more than its host."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a seed."""

    number: int  # from 1
    text: str  # its beginning
    reason: str


class SeedOfTerms(NamedTuple):
    """A seed with options."""

    url: str  # its fetch form
    number: int  # of its terms


SeedLine = str | SeedOfTerms | BadLine
"""The fetch form of a seed, one with options, or a line that is none."""


def url_of(line: SeedLine) -> str | None:
    """Return the fetch form of a seed, or None for a line that is none."""
    return line if isinstance(line, str) else getattr(line, "url", None)


def parse_seeds(
    lines: Iterable[str], terms: TermsOfSeeds, options: Sequence[str] = ()
) -> Iterator[SeedLine]:
    """Read a list, one line after another: a URL, and perhaps options behind it, as scope=prefix.
    *options*: of all, but for what a line says itself."""
    of_all = terms.number_of(options)
    for number, line in enumerate(lines, start=1):
        if url := plain_form(line):  # 0.7 us, where all that follows takes 5
            yield SeedOfTerms(url, of_all) if of_all else url
            continue
        seed = _COMMENT.sub("", line.removeprefix("\ufeff")).strip()
        if not seed:
            continue
        try:
            text, own = split_options(seed)
            of_seed = terms.number_of([*options, *own]) if own else of_all
            url = seed_url(text)
            yield SeedOfTerms(url, of_seed) if of_seed else url
        except (ValueError, ConfigError) as error:
            why = _IS_JSON if seed.startswith("{") else str(error)
            yield BadLine(number, seed[:_SHOWN_CHARS], why)


class _PlanLine(msgspec.Struct):
    url: str


_decode_plan_line = msgspec.json.Decoder(_PlanLine).decode


def parse_plan(
    lines: Iterable[str], terms: TermsOfSeeds, options: Sequence[str] = ()
) -> Iterator[SeedLine]:
    """Read a list in JSON, an object with a `url` a line, as `scrapy frontier plan` writes.
    *options*: of all."""
    of_all = terms.number_of(options)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            url = seed_url(_decode_plan_line(line).url)
            yield SeedOfTerms(url, of_all) if of_all else url
        except msgspec.MsgspecError:
            yield BadLine(number, line[:_SHOWN_CHARS], 'it is no JSON object with a "url"')
        except ValueError as error:
            yield BadLine(number, line[:_SHOWN_CHARS], str(error))


_OPTION: Final = re.compile(r'\s++[a-z_]++=(?:"(?:[^"\\]|\\.)*+"(?!\S)|\S*+)')
_FIRST_OPTION: Final = re.compile(r"\s[a-z_]++=")


def split_options(text: str) -> tuple[str, list[str]]:
    """Return a seed, or the path of a list, and the options behind it."""
    first = _FIRST_OPTION.search(text)
    if first is None:
        return text, []
    options, at = [], len(text[: first.start()].rstrip())
    while at < len(text):
        option = _OPTION.match(text, at)
        if option is None:
            return text, []
        options.append(option[0].lstrip())
        at = option.end()
    return text[: first.start()].rstrip(), options


def parse_table(
    read_lines: Callable[[], Iterable[str]], terms: TermsOfSeeds, options: Sequence[str] = ()
) -> Iterator[SeedLine]:
    """Read a list in CSV. Its column is the one with a known heading, or else the one with most
    URLs and host names in the first rows. Rows that begin with "#" are left out. *read_lines*
    begins at the first line again each time, before the last reading of it is at its end.
    *options*: of all."""
    of_all = terms.number_of(options)
    delimiter = _delimiter(read_lines)
    sample = _sample(read_lines, delimiter)
    column = _column_by_name(sample[0]) if sample else None
    has_heading = column is not None
    if column is None:
        column = _column_by_content(sample)
    for number, cells in islice(_rows(read_lines(), delimiter), int(has_heading), None):
        seed = cells[column].strip() if column < len(cells) else ""
        try:
            url = plain_form(seed) or seed_url(seed)
            yield SeedOfTerms(url, of_all) if of_all else url
        except ValueError as error:
            shown = delimiter.join(cells)[:_SHOWN_CHARS]
            reason = str(error) if seed else f"nothing in column {column + 1}"
            yield BadLine(number, shown, reason)


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of its last line, from 1. A quote that never ends takes what
    follows it, up to csv's own limit of a cell; that row is one bad line."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            cells = [f"not CSV: {error}"]
        if reader.line_num == 1 and cells:
            cells[0] = cells[0].removeprefix("\ufeff")
        is_comment = bool(cells) and cells[0].startswith("#") and cells[0] != "#"
        if not is_comment and any(map(str.strip, cells)):
            yield reader.line_num, cells


def _sample(read_lines: Callable[[], Iterable[str]], delimiter: str) -> list[list[str]]:
    return [cells for _, cells in islice(_rows(read_lines(), delimiter), _SAMPLE_ROWS)]


def _delimiter(read_lines: Callable[[], Iterable[str]]) -> str:
    for delimiter in _DELIMITERS:
        widths = set(map(len, _sample(read_lines, delimiter)))
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return _DELIMITERS[0]


def _column_by_name(cells: list[str]) -> int | None:
    names = [cell.strip().lower() for cell in cells]
    return next((names.index(name) for name in _HEADINGS if name in names), None)


def _column_by_content(rows: list[list[str]]) -> int:
    width = max(map(len, rows), default=1)
    seeds = [
        sum(_is_seed(cells[column]) for cells in rows if column < len(cells))
        for column in range(width)
    ]
    return seeds.index(max(seeds))


def _is_seed(cell: str) -> bool:
    """Return whether *cell* is a seed. A number, such as a rank of 1.5, is none."""
    cell = cell.strip()
    try:
        float(cell)
    except ValueError:
        pass
    else:
        return False
    try:
        seed_url(cell)
    except ValueError:
        return False
    return True


def seed_url(text: str) -> str:
    """Return the fetch form of one seed. Raises ValueError with the reason why it is none."""
    if len(words := text.split()) != 1:
        raise ValueError("white space in the URL" if words else "it is empty")
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() not in {"http", "https"}:
        raise ValueError(f"the scheme is {scheme[1]}, only http and https are fetched")
    text = text if scheme else _with_scheme(text.removeprefix("//"))
    if _CREDENTIALS.match(text):
        raise ValueError("a user name or password in the URL: it would not be sent")
    url = fetch_form(text)
    if url is None:
        raise ValueError("not a URL")
    return url


def _with_scheme(text: str) -> str:
    host = _TYPED_HOST.match(text)
    if host is None or not ("." in host[1] or host[1] == "localhost" or is_ip(host[1])):
        raise ValueError("neither a URL nor the name of a host")
    name, port = host.groups("")
    local = is_ip(name) or f".{name}".endswith(".localhost")
    return f"http://{text}" if (local or port) and port != ":443" else f"https://{text}"


# Pushed requests: a URL, or the JSON form of scrapy-redis. They come from outside: each part has
# the right type, or all is refused with a reason. They become text, numbers, lists and dicts only,
# never code.

_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Form = Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class PushedRequest:
    """A request as it was pushed."""

    url: str  # its fetch form
    method: str = "GET"
    meta: Mapping[str, Any] = field(default_factory=dict)
    form: Form = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but a URL."""
        return self.method == "GET" and not self.meta and not self.form


def read_pushed(item: bytes) -> PushedRequest:
    """Read a pushed item. Raises ValueError with the reason why it is invalid."""
    try:
        text = item.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    if not text:
        raise ValueError("it is empty")
    if not text.startswith("{"):
        return PushedRequest(seed_url(text))
    try:
        fields = _decode(text)
    except (msgspec.MsgspecError, RecursionError) as broken:
        raise ValueError(f"not JSON that can be read: {broken}") from None
    return _from_fields(fields)


def _from_fields(fields: dict[str, Any]) -> PushedRequest:
    url, meta = fields.pop("url", None), fields.pop("meta", None)
    method = fields.pop("method", "GET")
    if not isinstance(url, str):
        raise ValueError("no URL in it, under the name url")
    if not (isinstance(method, str) and _METHOD.fullmatch(method.upper())):
        raise ValueError("its method is not valid")
    if not (meta is None or isinstance(meta, dict)):
        raise ValueError("its meta is no object")
    for name, value in fields.items():
        if not _is_form_data(value):
            raise ValueError(f"its field {name[:80]!r} is not form data: text, or a list of it")
    return PushedRequest(seed_url(url), method.upper(), meta or {}, fields)


def _is_form_data(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(each, str) for each in values)
