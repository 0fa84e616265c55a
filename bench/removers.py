"""How well near-duplicates are found on pages whose copies are known, by what is left out of
their text: `python -m bench.removers`, a minute. The pages are those of bench.copies.

Rule: a pair is found if its fingerprints are at most 3 of 64 bits apart, as in the crawl.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.copies import EDITS, Variant, variants
from crawler.content.parsers.html import ScannedPage
from crawler.page.simhash import fingerprint

BITS: Final = 3
Remover = Callable[[str], str]
Flags = NDArray[np.bool_]


def nothing(page: str) -> str:
    return ScannedPage(page).whole_text()


def chosen(page: str) -> str:
    """What the crawler leaves out (crawler/content/parsers/html_scan.py)."""
    return ScannedPage(page).text()


REMOVERS: Final[tuple[Remover, ...]] = (nothing, chosen)


class Pairs:
    """Which pages are copies of which."""

    def __init__(self, pages: Sequence[Variant]) -> None:
        content = np.array([page.content for page in pages])
        template = np.array([page.template for page in pages])
        day = np.array([page.day for page in pages])
        self.copies: Flags = content[:, None] == content
        self.same_host: Flags = template[:, None] == template
        self.once: Flags = np.triu(np.ones_like(self.copies), 1)
        first = day == 0
        self.edited: list[Flags] = [
            self.copies & first[:, None] & (day == number) for number in range(1, len(EDITS) + 1)
        ]


def near(texts: Sequence[str]) -> Flags:
    prints = [fingerprint(text) for text in texts]
    known = np.array([one is not None for one in prints])
    bits = np.array([one or 0 for one in prints], np.uint64)
    found: Flags = (np.bitwise_count(bits[:, None] ^ bits) <= BITS) & known[:, None] & known
    return found


def row(remover: Remover, pages: Sequence[Variant], of: Pairs) -> str:
    begun = time.process_time()
    texts = [remover(page.page) for page in pages]
    cost_us = (time.process_time() - begun) / len(texts) * 1e6
    found = near(texts)
    cells = [remover.__name__]
    for host in (of.same_host, ~of.same_host):
        cells += [
            f"{(found & pairs & host).sum() / (pairs & host).sum():.2f}" for pairs in of.edited
        ]
    all_found = (found & of.once).sum()
    wrong = (found & of.once & ~of.copies).sum()
    cells += [f"{1 - wrong / all_found:.3f}", str(wrong)]
    words = [frozenset(text.split()) for text in texts]
    shared = [len(seen & page.words) for seen, page in zip(words, pages, strict=True)]
    cells.append(f"{np.mean([n / len(p.words) for n, p in zip(shared, pages, strict=True)]):.2f}")
    cells.append(
        f"{np.mean([n / max(1, len(seen)) for n, seen in zip(shared, words, strict=True)]):.2f}"
    )
    return f"| {' | '.join(cells)} | {cost_us:.0f} |"


def main() -> None:
    pages = list(variants())
    pairs = Pairs(pages)
    edits = " | ".join(f"{edit:.0%}" for edit in EDITS)
    print(f"{len(pages)} pages; recall at {edits} of words edited, same template, then another")
    print(f"| left out | {edits} | {edits} | precision | wrong pairs | kept | pure | us |")
    for remover in REMOVERS:
        print(row(remover, pages, pairs), flush=True)


if __name__ == "__main__":
    main()
