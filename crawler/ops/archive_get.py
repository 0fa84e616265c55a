"""One URL out of the archive.

Rule: what is given is what was kept; what else must be known of it is said beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crawler.core.errors import ConfigError
from crawler.core.exchange import Flag, head_fields
from crawler.core.url import fetch_form
from crawler.ops.archive_looks import moment
from crawler.ops.archive_place import ArchivePlace
from crawler.ops.figures import plain, size
from crawler.policy.codings import codings_of, decoded
from crawler.storage.warc.lookup import Entry, lookup, original, read_entry
from crawler.storage.warc.stored import Stored

MOST_BYTES: Final = 1024 * 1024 * 1024  # of a body, packed or not: it is held in memory


@dataclass(frozen=True, slots=True)
class Got:
    """A body, and what to know of it."""

    body: bytes
    notes: tuple[str, ...]


def found(place: ArchivePlace, text: str) -> list[Entry]:
    """The captures of the very URL, or of those that an index takes for it; the oldest first.
    Raises CrawlerError, also if there is none."""
    url = fetch_form(text)
    if url is None:
        raise ConfigError(f"{text!r} cannot be read as an http or https URL")
    captures = lookup(place.folders, url)
    exact = [entry for entry in captures if entry.url == url]
    if not captures:
        said = "; ".join(
            [f"{plain(url)} is not in the archive of {place.path}", *place.elsewhere()]
        )
        raise ConfigError(said)
    return exact or captures


def chosen(captures: list[Entry], at: str | None) -> Entry:
    """The latest; of those at *at*, the beginning of a time in digits. Raises ConfigError."""
    if at is None:
        return captures[-1]
    digits = "".join(char for char in at if char.isdigit())
    fitting = [entry for entry in captures if entry.timestamp.startswith(digits)]
    if not digits or not fitting:
        raise ConfigError(f"no capture of {plain(captures[-1].url)} is of {at}; --all lists them")
    return fitting[-1]


def got(place: ArchivePlace, entry: Entry, *, is_raw: bool) -> Got:
    """Raises CrawlerError: its record, or that of its original, cannot be read."""
    told = read_entry(entry, MOST_BYTES)
    holds = told
    if told.kind == "revisit":
        first = original(place.folders, told)
        if first is None:
            said = [
                f"{plain(told.url)} repeats {plain(told.refers_to)}, whose record is not here",
                *place.elsewhere(),
            ]
            raise ConfigError("; ".join(said))
        holds = read_entry(first, MOST_BYTES)
    body, coding = (holds.body, "") if is_raw else _undone(holds)
    return Got(body, tuple(_notes(entry, told, holds, coding, len(body))))


def _undone(holds: Stored) -> tuple[bytes, str]:
    headers = head_fields(holds.head)
    codings = codings_of([value for name, value in headers if name.lower() == b"content-encoding"])
    if not codings:
        return holds.body, ""
    made = decoded(holds.body, codings, MOST_BYTES)
    names = plain(b", ".join(codings).decode("latin-1"))
    if Flag.UNDECODED in made.flags:
        return made.body, f"as it came, in a coding that is not known: {names}"
    if made.flags:
        return made.body, f"damaged or short in its coding ({names}): what could be read"
    return made.body, ""


def _notes(
    entry: Entry, told: Stored, holds: Stored, coding: str, size_bytes: int
) -> Iterator[str]:
    kind = plain(entry.mime) if holds is told else f"repeats {plain(holds.url)}"
    yield (
        f"{moment(entry.timestamp)}  {entry.status or '-'}  {kind or '-'}  {size(size_bytes)}"
        f"  {entry.place}"
    )
    if holds.truncated:
        yield f"the body is not whole: it was cut when it was fetched ({holds.truncated})"
    if holds.body_cut:
        yield f"the body is not whole: {size(MOST_BYTES)} of it are given"
    if coding:
        yield f"the body is {coding}"
