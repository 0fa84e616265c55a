"""Pages whose copies are known: real contents in several templates, with small edits.

Rule: the same set in every run; contents that are copies of each other by themselves are left out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.templates import TEMPLATES

DOCS: Final = Path("/usr/share/doc")
# Where the content of a page of these documents stands.
_CONTENTS: Final = {
    "python3.11/html": ("**/*.html", r'<div class="body" role="main">(.*?)<div class="clearer">'),
    "sqlite3": ("*.html", r"</script>(?!.*</script>)(.*)"),
    "debian-handbook/html/en-US": ("sect.*.html", r'(<div class="section">.*)<ul class="docnav">'),
}
EACH: Final = 20  # contents from each of them
LISTS: Final = 20  # contents that are tables of short facts, as of a product or a person
WORDS: Final = (80, 5_000)  # of a content
EDITS: Final = (0.0, 0.01, 0.02, 0.05)  # of the words
Shingles = set[tuple[str, str, str]]

_TAGS = re.compile(r"(<[^>]*>)").split
_WORD = re.compile(r"[A-Za-z]{3,}")


@dataclass(frozen=True, slots=True)
class Variant:
    content: int
    template: str
    day: int  # 0 and 1: as it is; then one for each share of EDITS but the first
    page: str
    words: frozenset[str]  # of the content alone


def variants() -> Iterator[Variant]:
    dice = random.Random(14)
    contents = list(_contents(dice))
    sentences = [one for text in contents for one in _sentences(text)]
    contents += [_facts(dice, sentences) for _ in range(LISTS)]
    for number, text in enumerate(contents):
        title = " ".join(_WORD.findall(_plain(text))[:5])
        for day, edits in enumerate((0.0, *EDITS)):  # at first the same page on another day
            edited = _edited(text, edits, dice, sentences)
            words = frozenset(_plain(edited).split())
            for name, template in TEMPLATES.items():
                teasers = [dice.choice(sentences) for _ in range(8)]
                yield Variant(number, name, day, template(edited, title, dice, teasers), words)


def _contents(dice: random.Random) -> Iterator[str]:
    for folder, (pattern, content) in _CONTENTS.items():
        paths = sorted((DOCS / folder).glob(pattern))
        dice.shuffle(paths)
        taken: list[Shingles] = []
        for path in paths:
            found = re.search(content, path.read_text(errors="replace"), re.DOTALL)
            if found and len(taken) < EACH:
                words = _plain(found[1]).lower().split()
                shingles = set(zip(words, words[1:], words[2:], strict=False))
                if WORDS[0] < len(words) < WORDS[1] and not any(_alike(shingles, o) for o in taken):
                    taken.append(shingles)
                    yield found[1]


def _facts(dice: random.Random, sentences: list[str]) -> str:
    """Rows of a name and two to seven words."""
    rows = (dice.choice(sentences).split() for _ in range(dice.randint(20, 60)))
    cells = ((row[0], " ".join(row[1 : dice.randint(3, 8)])) for row in rows)
    marked = (f"<tr><th>{name}</th><td>{fact}</td></tr>" for name, fact in cells)
    return f"<table>{''.join(marked)}</table>"


def _alike(one: Shingles, other: Shingles) -> bool:
    return 2 * len(one & other) > len(one | other)


def _plain(text: str) -> str:
    return "".join(_TAGS(text)[::2])


def _sentences(text: str) -> list[str]:
    plain = " ".join(_plain(text).split())
    return re.findall(r"[A-Z][a-z ,]{60,140}(?=\.)", plain)


def _edited(text: str, share: float, dice: random.Random, sentences: list[str]) -> str:
    """With this share of its words replaced by others."""

    def word(found: re.Match[str]) -> str:
        return dice.choice(dice.choice(sentences).split()) if dice.random() < share else found[0]

    pieces = _TAGS(text)
    pieces[::2] = [_WORD.sub(word, one) for one in pieces[::2]]
    return "".join(pieces)
