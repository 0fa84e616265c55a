"""Which URLs look like a trap: a site that makes new URLs for ever.

Rule: judged by the URL alone. The length is judged first, so that the rest is bounded by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crawler.core.errors import ConfigError
from crawler.policy.refusal import Reason, Refusal

# Names that are of sessions only; `sid` may as well choose what the page shows.
_sessions: Final = re.compile(
    r"jsessionid|phpsessid|aspsessionid[a-z]{8}|cftoken|sessionid"
).findall


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapRules:
    """The figures of one crawl. To switch a rule off, choose a figure out of reach."""

    max_url_chars: int = 2048  # Internet Explorer read 2,083: nobody could publish longer ones
    max_path_segments: int = 10  # guess, revisit: Heritrix allows 20 slashes
    max_repeats: int = 2  # as Heritrix: a third time in a row is a trap
    max_parameters: int = 50  # guess, revisit: a form of a search has 10 or 20

    def __post_init__(self) -> None:
        figures = (self.max_url_chars, self.max_path_segments, self.max_repeats)
        if min(*figures, self.max_parameters) < 1:
            raise ConfigError(f"want figures of 1 or more, got {self}")

    def refusal(self, url: str, path: str) -> Refusal | None:
        """Judge a fetch form and its path."""
        if len(url) > self.max_url_chars:
            return Refusal(
                Reason.URL_TOO_LONG, f"{len(url)} characters are over {self.max_url_chars}"
            )
        if "=" in url:
            refusal = self._of_parameters(url, url.partition("?")[2])
            if refusal:
                return refusal
        slashes = path.count("/")
        if slashes <= self.max_repeats + 1 and slashes <= self.max_path_segments:
            return None  # too short for anything below
        count = slashes - path.endswith("/")
        if count > self.max_path_segments:
            return Refusal(
                Reason.PATH_TOO_DEEP, f"{count} segments are over {self.max_path_segments}"
            )
        return self._repetition(path.split("/")[1:-1])

    def _of_parameters(self, url: str, query: str) -> Refusal | None:
        pairs = query.split("&")
        if len(pairs) > self.max_parameters:
            return Refusal(
                Reason.QUERY_TOO_LONG, f"{len(pairs)} parameters are over {self.max_parameters}"
            )
        if len(set(pairs)) + self.max_repeats <= len(pairs):
            pair, times = _most_often(pair for pair in pairs if pair.partition("=")[2])
            if times > self.max_repeats:
                return Refusal(Reason.REPEATED_QUERY, f"{pair[:80]!r} comes {times} times")
        if "sess" in (lower := url.lower()) or "cftoken" in lower:
            name, times = _most_often(_sessions(lower))
            if times > 1:
                return Refusal(Reason.REPEATED_SESSION, f"{name} comes {times} times")
        return None

    def _repetition(self, directories: list[str]) -> Refusal | None:
        if len(set(directories)) == len(directories):
            return None
        times = self.max_repeats + 1
        again = _in_a_row(directories, times) or _every_other(directories, times)
        if again is None:
            return None
        return Refusal(Reason.REPEATED_SEGMENTS, f"{again!r} comes {times} times")


def _most_often(words: Iterable[str]) -> tuple[str, int]:
    return next(iter(Counter(words).most_common(1)), ("", 0))


def _in_a_row(directories: list[str], times: int) -> str | None:
    """The first group of directories that comes *times* times in a row: a/b/a/b/a/b."""
    for size in range(1, len(directories) // times + 1):
        run = 0  # how many directories in a row equal the one a group further on
        for start in range(len(directories) - size):
            run = run + 1 if directories[start] == directories[start + size] else 0
            if run == size * (times - 1):
                return "/".join(directories[start + 1 : start + 1 + size]) + "/"
    return None


def _every_other(directories: list[str], times: int) -> str | None:
    """The first directory that comes *times* times with one other between: a/x/a/y/a, as Nutch."""
    for start in range(len(directories) - 2 * (times - 1)):
        stretch = directories[start : start + 2 * times - 1]
        if all(stretch) and len(set(stretch[::2])) == 1:
            return stretch[0] + "/"
    return None
