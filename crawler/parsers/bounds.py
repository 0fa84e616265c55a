"""How much one page may say: what is beyond is cut, and noted.

Rule: every result of a parser passes here before it goes on, also a plug-in's.
"""

from __future__ import annotations

from itertools import accumulate, islice
from typing import Final

import msgspec

from crawler.core.parsed import Link, Parsed

MAX_TEXT_CHARS: Final = 4_000_000  # 16 MB at most; the longest novels have 3 million
MAX_TITLE_CHARS: Final = 1_000
MAX_LINKS: Final = 50_000  # as many as a sitemap may have
MAX_LINK_CHARS: Final = 8_000_000  # of all links together
MAX_WORD_CHARS: Final = 2_048  # a canonical URL, a base, a language
MAX_WORDS: Final = 100  # of robots, of notes

LINKS_CUT: Final = "links_cut"
TEXT_CUT: Final = "text_cut"


def bounded(parsed: Parsed, parser: str) -> Parsed:
    """*parsed* within the limits above. *parser*: its name, if it did not say so itself."""
    links = _first_links(parsed.links)
    notes = dict.fromkeys(parsed.notes[:MAX_WORDS])
    if len(links) < len(parsed.links):
        notes[LINKS_CUT] = None
    if len(parsed.text) > MAX_TEXT_CHARS:
        notes[TEXT_CUT] = None
    return msgspec.structs.replace(
        parsed,
        parser=(parsed.parser or parser)[:MAX_WORD_CHARS],
        title=parsed.title[:MAX_TITLE_CHARS],
        text=parsed.text[:MAX_TEXT_CHARS],
        links=links,
        base=parsed.base[:MAX_WORD_CHARS],
        canonical=parsed.canonical[:MAX_WORD_CHARS],
        language=parsed.language[:MAX_WORD_CHARS],
        robots=frozenset(word[:MAX_WORD_CHARS] for word in islice(parsed.robots, MAX_WORDS)),
        charset=parsed.charset[:MAX_WORD_CHARS],
        notes=tuple(note[:MAX_WORD_CHARS] for note in notes),
    )


def _first_links(links: tuple[Link, ...]) -> tuple[Link, ...]:
    if len(links) > MAX_LINKS:
        links = links[:MAX_LINKS]
    lengths = accumulate(len(link.url) + len(link.rel) for link in links)
    fitting = sum(length <= MAX_LINK_CHARS for length in lengths)
    return links if fitting == len(links) else links[:fitting]
