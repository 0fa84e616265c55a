"""The texts of the sites: English by its small words, made of lists by a seed.

Rule: the same seed gives the same pages in every build. No two pages have a paragraph in common.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

_SMALL_WORDS: Final = (
    "the of and to a in that is it for with as on be at by this from are or an which not was can"
    " have if when will each one all their has more other its than where after before into only"
)
_LARGE_WORDS: Final = (
    "harbour river garden bridge market window engine letter valley winter summer island teacher"
    " village station kitchen forest captain machine paper silver copper timber basket ladder"
    " bottle carpet mirror pencil button blanket candle hammer needle saddle thunder meadow orchard"
    " library theatre museum factory railway airport hospital cathedral workshop laboratory"
    " archive catalogue journal chapter paragraph sentence question answer reason method result"
    " measure weight distance surface pressure current signal pattern number figure column table"
    " record version release package module function argument value setting default option command"
    " server client request response header session network address domain account password"
    " member visitor customer supplier manager painter writer singer dancer farmer sailor soldier"
    " baker builder miner weaver carries builds writes reads opens closes follows leaves returns"
    " begins changes keeps finds holds sends receives divides collects explains describes compares"
    " improves prepares protects repeats replaces quiet narrow modern ancient simple common careful"
    " bright heavy gentle sudden distant usual regular separate general local public private early"
    " broken frozen golden wooden empty useful certain possible different important natural strong"
)
_SMALL: Final = _SMALL_WORDS.split()
_LARGE: Final = _LARGE_WORDS.split()
_SHARES: Final = list(accumulate(1 / (rank + 2) for rank in range(len(_SMALL))))


@dataclass(frozen=True, slots=True)
class Text:
    """What a page says, and how its URL names it."""

    slug: str
    title: str
    section: str
    paragraphs: tuple[str, ...]


def texts(seed: str, pages: int, *, is_numbered: bool = False) -> list[Text]:
    """Return the texts of a site of so many *pages*, the first of which is its home. URLs have the
    words of the title, or a number."""
    dice = random.Random(seed)
    sections = dice.sample(_LARGE[:50], max(2, pages // 12))
    titles: dict[str, None] = {}
    while len(titles) < pages:
        titles[" ".join(dice.sample(_LARGE, 3)).capitalize()] = None
    found = []
    for number, title in enumerate(titles):
        slug = f"article-{number}" if is_numbered else title.lower().replace(" ", "-")
        paragraphs = [_paragraph(dice) for _ in range(dice.randint(4, 10))]
        section = sections[number % len(sections)]
        found.append(Text(slug if number else "home", title, section, tuple(paragraphs)))
    return found


def _paragraph(dice: random.Random) -> str:
    return " ".join(_sentence(dice) for _ in range(dice.randint(3, 6)))


def _sentence(dice: random.Random) -> str:
    words = []
    for _ in range(dice.randint(4, 9)):
        words += [*dice.choices(_SMALL, cum_weights=_SHARES), dice.choice(_LARGE)]
    return f"{' '.join(words).capitalize()}."


def linked(pages: int) -> list[list[int]]:
    """Return for each page the numbers of those that it links to: a tree of four branches, and the
    next page."""
    return [
        sorted(
            {*range(4 * number + 1, min(4 * number + 5, pages)), (number + 1) % pages} - {number}
        )
        for number in range(pages)
    ]
