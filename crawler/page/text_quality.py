"""The counts and shares of a text by which builders of data sets filter pages.

Rule: values only, no verdict. Each is of a published list, whose threshold is in the reader's hand
(docs/columns.md).
"""

from __future__ import annotations

import numpy as np

from crawler.model.page import TextQuality


def text_quality(text: str, link_share: float | None) -> TextQuality:
    """Return what there is to count in *text*. *link_share*: of its letters, in links."""
    from crawler.page import text_scan as scan  # noqa: PLC0415  # it imports numba: 0.4 s

    page = text.encode(errors="replace")
    memory, eights = scan.readable(page)
    size = scan.BEFORE + len(page)
    figures = np.zeros(scan.FIGURES, np.int64)
    scan.count_words(memory, eights, size, figures)
    # At most half of the places are taken.
    seen = np.zeros(1 << int(2 * figures[scan.NEWLINES] + 2).bit_length(), np.uint64)
    scan.count_lines(memory, eights, size, seen, figures)
    scan.sample_words(memory, min(size, scan.BEFORE + scan.SAMPLE_BYTES), figures)
    counts = figures.tolist()
    words, lines = counts[scan.WORDS], counts[scan.LINES]
    by_sample = 1 / (counts[scan.SAMPLED] or 1)
    by_word, by_line, by_letter = 1 / (words or 1), 1 / (lines or 1), 1 / (len(text) or 1)
    return TextQuality(
        words,
        len(text),
        counts[scan.LETTERS] * by_word,
        counts[scan.ALPHABETIC] * by_sample,
        counts[scan.STOP_WORDS] * by_sample,
        counts[scan.HASHES] * by_word,
        counts[scan.ELLIPSES] * by_word,
        counts[scan.BULLETS] * by_line,
        counts[scan.ENDS_IN_ELLIPSIS] * by_line,
        counts[scan.ENDS_TERMINAL] * by_line,
        counts[scan.SHORT] * by_line,
        counts[scan.REPEATED] * by_line,
        counts[scan.REPEATED_LETTERS] * by_letter,
        counts[scan.NEWLINES] * by_word,
        counts[scan.DIGITS] * by_letter,
        link_share,
        counts[scan.BRACES] > 0,
        "orem ipsum" in text[: scan.SAMPLE_BYTES],
    )
