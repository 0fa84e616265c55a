"""The counts and shares of texts by which builders of data sets filter pages.

Rule: values only, no verdict. Each is of a published list, whose threshold is in the reader's hand
(docs/columns.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from crawler.model.page import TextQuality

LINK_SHARE: Final = TextQuality.__struct_fields__.index("link_share")
"""The place of the field that is not found in a text alone."""


def text_quality(text: str, link_share: float | None) -> TextQuality:
    """Return what there is to count in *text*. *link_share*: of its letters, in links."""
    found: list[Any] = [column[0].item() for column in text_qualities([text])]
    found.insert(LINK_SHARE, link_share)
    return TextQuality(*found)


def text_qualities(texts: Sequence[str]) -> list[Any]:
    """Return an array of each field of TextQuality but the share of links, with a number for each
    of *texts*. Of many at once that takes half as long."""
    from crawler.page import text_scan as scan  # noqa: PLC0415  # it imports numba: 0.4 s

    figures = np.zeros((len(texts), scan.FIGURES), np.int64)
    for text, counted in zip(texts, figures, strict=True):
        page = text.encode(errors="replace")
        memory, eights = scan.readable(page)
        size = scan.BEFORE + len(page)
        scan.count_words(memory, eights, size, counted)
        # At most half of the places are taken.
        seen = np.zeros(1 << int(2 * counted[scan.NEWLINES] + 2).bit_length(), np.uint64)
        scan.count_lines(memory, eights, size, seen, counted)
    counts = figures.T
    letters = np.array([len(text) for text in texts])
    ellipses = counts[scan.ELLIPSES] + np.array([text.count("\u2026") for text in texts])
    words, lines = counts[scan.WORDS], counts[scan.LINES]
    by_sample = 1 / np.maximum(counts[scan.SAMPLED], 1)
    by_word, by_line = 1 / np.maximum(words, 1), 1 / np.maximum(lines, 1)
    by_letter = 1 / np.maximum(letters, 1)
    return [
        words,
        letters,
        counts[scan.LETTERS] * by_word,
        counts[scan.ALPHABETIC] * by_sample,
        counts[scan.STOP_WORDS] * by_sample,
        counts[scan.HASHES] * by_word,
        ellipses * by_word,
        counts[scan.BULLETS] * by_line,
        counts[scan.ENDS_IN_ELLIPSIS] * by_line,
        counts[scan.ENDS_TERMINAL] * by_line,
        counts[scan.SHORT] * by_line,
        counts[scan.REPEATED] * by_line,
        counts[scan.REPEATED_LETTERS] * by_letter,
        counts[scan.NEWLINES] * by_word,
        counts[scan.DIGITS] * by_letter,
        counts[scan.BRACES] > 0,
        np.array(["orem ipsum" in text[: scan.SAMPLE_BYTES] for text in texts]),
    ]
