"""How well near-duplicates are found on real pages: `python -m bench.near_quality --folder DIR`, a
minute. The pages are those of documentation packages of Debian.

Rule: the truth is the Jaccard coefficient of the runs of three words of two texts, as the crawler
reads them: 0.9 or more. A pair is found if its fingerprints are at most 3 of 64 bits apart.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench import text_quality
from bench.debian_packages import download
from crawler.content.parsers.html import HtmlParser
from crawler.duplicates.quarters import MAX_BITS
from crawler.model.page import Source
from crawler.page.simhash import fingerprint

PACKAGES: Final = (*text_quality.PACKAGES, "debian-handbook", "sqlite3-doc")
"""The handbook is in 19 languages, and what is not translated is English in each."""
ALIKE: Final = 0.9
MIN_WORDS: Final = 50
BYTES: Final = range(2_000, 150_000)
_words = re.compile(r"\w+").findall

Pairs = set[tuple[int, int]]
"""Numbers of two pages, the lower one first."""


def texts(folder: Path) -> Iterator[str]:
    parser = HtmlParser()
    for package in PACKAGES:
        for path in sorted((folder / package).rglob("*.html")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size in BYTES:
                yield parser.parse(Source("", "text/html", path.read_bytes())).text


def shingles(text: str) -> list[int]:
    """Return the hashes of its runs of three words, each once, in an order that is the same for
    all texts."""
    words = [word.lower() for word in _words(text)]
    return sorted({hash(run) for run in zip(words, words[1:], words[2:], strict=False)})


def alike(sets: Sequence[list[int]]) -> Pairs:
    """Return the pairs with a coefficient of ALIKE. Exact: such two have one of their first tenth
    in common (prefix filtering, Chaudhuri et al. 2006)."""
    found: Pairs = set()
    by_first: defaultdict[int, list[int]] = defaultdict(list)
    whole = [frozenset(each) for each in sets]
    for number, each in enumerate(sets):
        first = each[: len(each) - int(-(-ALIKE * len(each) // 1)) + 1]
        for other in {other for one in first for other in by_first[one]}:
            shared = len(whole[number] & whole[other])
            if shared >= ALIKE * (len(whole[number]) + len(whole[other]) - shared):
                found.add((other, number))
        for one in first:
            by_first[one].append(number)
    return found


def near(prints: Sequence[int | None]) -> Pairs:
    known = np.array([number for number, one in enumerate(prints) if one is not None])
    values = np.array([one for one in prints if one is not None], np.uint64)
    found: Pairs = set()
    for at, number in enumerate(known):
        apart = np.bitwise_count(values[:at] ^ values[at])
        found.update((int(known[one]), int(number)) for one in (apart <= MAX_BITS).nonzero()[0])
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, required=True, help="of the packages")
    folder = options.parse_args().folder
    download(folder, PACKAGES)
    prints: list[int | None] = []
    sets: list[list[int]] = []
    for text in texts(folder):
        prints.append(fingerprint(text, MIN_WORDS))
        sets.append(shingles(text) if prints[-1] is not None else [])
    true, found = alike(sets), near(prints)
    print(f"{len(prints):,} pages; {len(true):,} pairs alike, {len(found):,} found")
    pages_true, pages_found = ({page for pair in pairs for page in pair} for pairs in (true, found))
    for name, right, wanted, got in (
        ("by pair", len(true & found), len(true), len(found)),
        ("by page", len(pages_true & pages_found), len(pages_true), len(pages_found)),
    ):
        print(f"{name}: recall {right / wanted:.3f}, precision {right / got:.3f}")


if __name__ == "__main__":
    main()
