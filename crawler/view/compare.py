"""Compare the archives of two crawls: what is new, changed or gone, and of which patterns.

Rule: what is listed of it is bounded; a file of lines has all pages that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.compare import (
    NEAR_BITS,
    ArchivePages,
    ComparedPage,
    ComparedPages,
    PageDifference,
    archive_pages,
    key_of,
)
from crawler.archive.warc_file import companion_path
from crawler.data.data_dir import OUTCOMES
from crawler.data.outcomes import read_outcomes
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError
from crawler.policy.patterns import pattern_of
from crawler.view.archive import ArchivePlace

_LISTED: Final = 1000  # pages of each kind
_COUNTED: Final = 100_000  # patterns, 300 bytes each
_SHOWN: Final = 200
_OTHERS: Final = "(others)"


class PatternDifferences(msgspec.Struct, frozen=True):
    """How many pages of a pattern differ."""

    pattern: str  # host, and what is the same of the paths
    new: int
    changed: int
    gone: int

    @classmethod
    def of(cls, pattern: str, counts: Mapping[PageDifference, int]) -> PatternDifferences:
        return cls(pattern, *(counts.get(kind, 0) for kind in PageDifference))


class ArchiveComparison(msgspec.Struct, frozen=True):
    """What differs between two archives."""

    old: str
    new: str
    old_pages: int
    new_pages: int
    same: int
    nearly: int  # changed pages whose text is nearly the same
    not_fetched: int  # gone pages whose URL the new crawl has not fetched, as far as it is known
    totals: PatternDifferences
    patterns: list[PatternDifferences]  # those with most first
    more_patterns: int
    pages: list[ComparedPage]  # the first of each kind


def compare(
    old: ArchivePlace, new: ArchivePlace, on_page: Callable[[ComparedPage], None] | None = None
) -> ArchiveComparison:
    """Compare the finished files of two archives. *on_page* is called for each page that differs.
    Raises DataDirError."""
    pages_of_old, pages_of_new = _pages(old), _pages(new)
    found = ComparedPages.of(pages_of_old, pages_of_new)
    by_pattern: dict[str, Counter[PageDifference]] = {}
    totals, nearly, not_fetched = Counter[PageDifference](), 0, 0
    listed: list[ComparedPage] = []
    for page in found.pages(_statuses(new, found.gone_keys())):
        if on_page is not None:
            on_page(page)
        totals[page.kind] += 1
        nearly += page.bits is not None and page.bits <= NEAR_BITS
        not_fetched += page.kind is PageDifference.GONE and page.status is None
        pattern = _group(page.url)
        if pattern not in by_pattern and len(by_pattern) >= _COUNTED:
            pattern = _OTHERS
        by_pattern.setdefault(pattern, Counter())[page.kind] += 1
        if totals[page.kind] <= _LISTED:
            listed.append(page)
    most = sorted(by_pattern.items(), key=lambda each: (-each[1].total(), each[0]))
    return ArchiveComparison(
        old=str(old.path),
        new=str(new.path),
        old_pages=len(pages_of_old),
        new_pages=len(pages_of_new),
        same=found.same,
        nearly=nearly,
        not_fetched=not_fetched,
        totals=PatternDifferences.of("", totals),
        patterns=[PatternDifferences.of(*each) for each in most[:_SHOWN]],
        more_patterns=max(0, len(most) - _SHOWN),
        pages=listed,
    )


def _pages(place: ArchivePlace) -> ArchivePages:
    files = [companion_path(file, COLUMNS) for file in place.finished()]
    missing = [file for file in files if not file.exists()]
    if missing:
        raise DataDirError(f"{missing[0]} is missing, and is compared: {PROGRAM} archive parse")
    return archive_pages(files)


def _statuses(place: ArchivePlace, keys: NDArray[np.uint64]) -> NDArray[np.int16]:
    """Return what the URLs with *keys*, ascending, were answered last; 0: they were not fetched, or
    had no answer."""
    statuses = np.zeros(len(keys), np.int16)
    if not len(keys):
        return statuses
    for home in place.homes:
        for outcome in read_outcomes(home / OUTCOMES):
            if outcome.status is None or outcome.external:
                continue
            key = np.uint64(key_of(outcome.url))
            at = int(np.searchsorted(keys, key))
            if at < len(keys) and keys[at] == key:
                statuses[at] = outcome.status
    return statuses


def _group(url: str) -> str:
    """Return the pattern of a URL with its host, or where it has none its first folder."""
    begin = url.index("/", 8)
    pattern = pattern_of(url)
    if not pattern:
        path = url[begin:]
        pattern = path[: path.find("/", 1) + 1] or "/"
    return url[url.index("//") + 2 : begin] + pattern
