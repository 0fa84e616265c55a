"""Two kinds of pages of 30 KB: nothing but prose with 40 links, and what most pages are like.

Rule: made by numbers drawn from the page's own, so the same come back in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from bench.templates import semantic
from bench.web import Pages, addresses

PORT: Final = 8000
ORIGIN: Final = f"http://127.3.0.1:{PORT}"
_PARAGRAPHS: Final = 24
_WORDS: Final = 55  # of a paragraph

# Of English as of the web: few words are most of it (Zipf).
_VOCABULARY: Final = tuple(
    "".join(letters)
    for dice in (random.Random(1),)
    for letters in (
        dice.choices("etaoinshrdlcumwfgypbvkjxqz", range(26, 0, -1), k=dice.randint(2, 9))
        for _ in range(4_000)
    )
)
_SHARES: Final = tuple(1 / (rank + 3) for rank in range(len(_VOCABULARY)))
_STYLE: Final = "".join(
    f".box-{n}>.item:hover{{margin:{n}px;color:#{n:03x};padding:0 {n}rem}}\n" for n in range(110)
)
_SCRIPT: Final = "".join(
    f'window.queue.push(["set",{{id:{n},name:"event-{n}",value:document.title}}]);\n'
    for n in range(90)
)


def prose() -> Callable[[int], bytes]:
    """As the synthetic web of the crawls has them: 29 KB of text."""
    names = [f"http://{name}:{PORT}" for name in addresses(8)]
    web = Pages(names, 1_000_000)
    return lambda number: web.page(0, b"%d" % number)


def ordinary() -> Callable[[int], bytes]:
    """A third is text, the rest markup, styles and scripts."""
    return _ordinary


def _ordinary(number: int) -> bytes:
    dice = random.Random(number)
    words = dice.choices(_VOCABULARY, _SHARES, k=_PARAGRAPHS * _WORDS)
    content = "".join(
        _paragraph(words[at * _WORDS : (at + 1) * _WORDS], at) for at in range(_PARAGRAPHS)
    )
    teasers = [" ".join(dice.choices(_VOCABULARY, k=12)) for _ in range(8)]
    page = semantic(content, f"Page {number}", dice, teasers)
    extra = f"<style>{_STYLE}</style><script>{_SCRIPT}</script></head>"
    return page.replace("</head>", extra, 1).encode()


def _paragraph(words: list[str], at: int) -> str:
    text = " ".join(words[1:])
    return f'<div class="row"><p class="text t--{at % 3}"><em>{words[0]}</em> {text}.</p></div>\n'


KINDS: Final = MappingProxyType({"prose": prose, "ordinary": ordinary})
