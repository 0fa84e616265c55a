"""Which URLs of a host look as if one program made them: the pattern they have in common.

Rule: what counts up is folded (numbers, dates, ids, the values of a query), what names is kept.
When in doubt it is a name: a pattern too fine costs a host some pages more, one too coarse would
leave the rest of a whole host with the first hundred copies on it.
"""

from __future__ import annotations

import re
from typing import Final

import xxhash

MOST_CHARS: Final = 200
"""Of a pattern. A longer one is cut, and told from its like by a hash."""

# A fetch form holds neither "#" nor "<", so in a pattern they can only be ours.
NUMBER: Final = "#"
ID: Final = "<id>"

_HASH_CHARS: Final = 16
_has_digit: Final = re.compile("[0-9]").search
# Each begins at the beginning of a word, or a long one would be tried from all its letters.
_ids: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"  # a UUID
    r"|(?=[A-Fa-f]*+[0-9])(?=[0-9]*+[A-Fa-f])[0-9A-Fa-f]{8,}+"  # a hash or a part of one
    r"|(?=[A-Za-z]*+[0-9])[0-9A-Za-z]{22,}+"  # 128 bits in base 64: of a session, mostly
    r")(?![0-9A-Za-z])"
)
# Digits beside letters: only words that have them can be any of these.
_may_have_ids: Final = re.compile(r"[0-9](?:(?=[A-Za-z])|(?<=[A-Za-z][0-9]))").search
_numbers: Final = re.compile("[0-9]+")
_numbers_of_escaped: Final = re.compile(r"(?<!%)(?<!%[0-9A-Fa-f])[0-9]+")  # %C3 stays as it is
# What was x7Gk29a: no word has numbers in two places.
_mixed: Final = re.compile(r"(?<![A-Za-z#])[A-Za-z]*+#[A-Za-z]++#[A-Za-z#]*+")


def pattern_of(url: str) -> str:
    """The pattern of a fetch form, without its host. Empty: nothing in it is folded, so it is the
    only URL of its pattern."""
    path, _, query = url[url.index("/", 8) :].partition("?")  # 8: past "http://" and into the host
    folded = _folded(path)
    if query:
        keys = {_folded(pair.partition("=")[0]) for pair in query.split("&")}
        folded = f"{folded}?{'&'.join(sorted(filter(None, keys)))}"
    elif folded == path:
        return ""
    return folded if len(folded) <= MOST_CHARS else _cut(folded)


def _folded(text: str) -> str:
    if not _has_digit(text):
        return text
    numbers = _numbers_of_escaped if "%" in text else _numbers
    if not _may_have_ids(text):
        return numbers.sub(NUMBER, text)
    return _mixed.sub(ID, numbers.sub(NUMBER, _ids.sub(ID, text)))


def _cut(pattern: str) -> str:
    # Names in other scripts are long: nine characters of escapes each of theirs.
    told = xxhash.xxh3_64_hexdigest(pattern.encode())
    return f"{pattern[: MOST_CHARS - _HASH_CHARS - 1]}~{told}"
