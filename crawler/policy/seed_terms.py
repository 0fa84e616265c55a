"""The options of seeds, and what is fetched under their limits.

Rule: seeds with the same options share one value, whatever their number. A limit counts what is
fetched of a seed for the first time, over all starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from crawler.config.arguments import (
    REPEATABLE,
    SEPARATOR,
    SeedTerms,
    terms_of_seed,
)
from crawler.model.choices import ScopeChoice
from crawler.model.types import ConfigError
from crawler.policy.refusal import Reason, Refusal

_MOST: Final = 1 << 16
"""Different options: their numbers are kept in two bytes for each seed."""


class TermsOfSeeds:
    """The terms of all seeds of a crawl, by numbers: 0 are those of a seed without options."""

    def __init__(self, of_crawl: SeedTerms = SeedTerms()) -> None:  # noqa: B008 - it is frozen
        self._of_crawl = of_crawl
        self._written = [""]
        self._terms = [of_crawl]
        self._numbers = {"": 0}

    def number_of(self, options: Sequence[str]) -> int:
        """Return the number of the terms of a seed with *options*, as scope=prefix; those behind
        count before earlier ones of the same name. Raises ConfigError."""
        written = " ".join(options)
        number = self._numbers.get(written)
        if number is None:
            terms = terms_of_seed(_read(options), self._of_crawl)
            if terms in self._terms:
                number = self._terms.index(terms)
            elif len(self._terms) == _MOST:
                raise ConfigError(f"seeds have more than {_MOST:,} different options")
            else:
                number = len(self._terms)
                self._terms.append(terms)
                self._written.append(written)
            self._numbers[written] = number
        return number

    def mode_of(self, number: int) -> ScopeChoice:
        return self._terms[number].scope

    def words_of(self, number: int) -> str:
        """Return the options of these terms, for people."""
        return self._written[number] or "none"

    def all(self) -> tuple[SeedTerms, ...]:
        """Return all terms, by their numbers."""
        return tuple(self._terms)


def _read(options: Sequence[str]) -> dict[str, str]:
    read: dict[str, str] = {}
    for name, _, written in (each.partition("=") for each in options):
        value = _unquoted(written)
        is_more = name in read and name in REPEATABLE
        read[name] = f"{read[name]}{SEPARATOR}{value}" if is_more else value
    return read


def quoted(value: str) -> str:
    """Return the value of an option as it is written: as a JSON string if it has white space."""
    is_plain = not value.startswith('"') and not any(map(str.isspace, value))
    return value if is_plain else msgspec.json.encode(value).decode()


def _unquoted(written: str) -> str:
    """Return what `quoted` returned *written* of. Raises ConfigError."""
    if not written.startswith('"'):
        return written
    try:
        return msgspec.json.decode(written, type=str)
    except msgspec.MsgspecError:
        raise ConfigError(f"{written[:80]} is no text in quotes, as JSON has it") from None


class SeedTally(msgspec.Struct, frozen=True, array_like=True):
    """What was fetched of the seeds of one unit of a scope."""

    pages: int = 0
    bytes: int = 0
    since: float = 0.0  # epoch seconds, when the first page was fetched


NO_TALLY: Final = SeedTally()


def limit_refusal(
    terms: SeedTerms, tally: SeedTally, under_way: SeedTally, now: float
) -> Refusal | None:
    """Return why nothing more is fetched under *terms*, after *tally* and with what is *under way*,
    or None."""
    if terms.max_pages is not None and tally.pages + under_way.pages >= terms.max_pages:
        return Refusal(Reason.SEED_LIMIT, f"max_pages is {terms.max_pages}")
    if terms.max_bytes is not None and tally.bytes + under_way.bytes >= terms.max_bytes:
        return Refusal(Reason.SEED_LIMIT, f"max_bytes is {terms.max_bytes}")
    if terms.max_time is not None and tally.pages:
        left_s = tally.since + terms.max_time.total_seconds() - now
        if left_s <= 0:
            return Refusal(Reason.SEED_LIMIT, f"max_time is {terms.max_time}")
    return None
