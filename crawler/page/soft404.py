"""Soft 404: whether a host answers missing pages with status 200.

Rule: a page that looks like an error is compared with the answer of its host to a name that cannot
exist, in the same directory and with the same extension (Bar-Yossef et al., Sic Transit Gloria
Telae, 2004). One probe is sent for each directory and extension, not one for each page.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from xxhash import xxh32_intdigest

from crawler.model.url import authority_of

RECORD_VALID_S: Final = 7 * 86_400.0
NO_ANSWER_VALID_S: Final = 3_600.0
"""How long no page of a host is a soft 404 after a probe without an answer."""
MAX_WORDS: Final = 400
"""guess: an error page with its menu; a longer text is a page whatever it says"""
_MOST_CHARS: Final = 10_000
_HEAD_CHARS: Final = 400
_HEAD_OF_WORDS: Final = 8 * MAX_WORDS  # letters that have so many words, as a rule
_words: Final = re.compile(r"[^\W\d_]+").findall
_NAME: Final = "gossamer"  # one word, as pages like to repeat the missing name
_MIN_LIKENESS: Final = 0.9
"""guess: of the words of two answers; names, dates and lists of popular pages differ"""

# "not found" in the ten most used languages of the web (w3techs), and the bare number.
# Each branch begins with a letter or digit, and case is not ignored: so the search skips what none
# begins with, and takes 17 us for 400 characters in lower case; else it took 148.
_ERROR: Final = re.compile(
    r"404(?<=\b404)\b|not (?:be )?found|no longer (?:exist|available)|not (?:exist|available)"
    r"|does(?:n.t| not) exist"
    r"|page (?:is )?missing|nicht gefunden|existiert nicht|introuvable|n.existe pas"
    r"|no (?:se )?(?:ha )?encontrad[ao]|no existe|non trovat[ao]|non esiste"
    r"|n[ãa]o (?:foi )?encontrad"
    r"|n[ãa]o existe|не найден|не существует|niet gevonden|bestaat niet|nie znaleziono|nie istnieje"
    r"|見つかりません|存在しません|找不到|不存在|bulunamad|یافت نشد"
)


class MissingPageAnswer(StrEnum):
    """How a host answers a request for a name that cannot exist."""

    ERROR = "error"  # an error status, as it should
    PAGE = "page"  # status 200, and always the same
    NOTHING = "nothing"  # no answer: unknown, and not asked again for a while


class TextHashes(NamedTuple):
    """Hashes of the words of an answer, each once, ascending."""

    title: tuple[int, ...] = ()
    text: tuple[int, ...] = ()


class Soft404Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The result of a probe, for one directory and extension of one host."""

    answer: MissingPageAnswer
    until: float  # epoch seconds
    digest: bytes = b""  # PAGE: SHA-1 of its body
    words: TextHashes = TextHashes()  # PAGE: of its text


def looks_like_error(title: str, text: str) -> bool:
    """Return whether a probe is worth it. Bounded: only the head of the text is searched."""
    # Most pages have so many words in their head: to count all of 30 kB takes 27 us, not 1.
    if text.count(" ", 0, _HEAD_OF_WORDS) > MAX_WORDS or text.count(" ") > MAX_WORDS:
        return False
    heads = (title[:_HEAD_CHARS].lower(), text[:_HEAD_CHARS].lower())
    return bool(_ERROR.search(heads[0]) or _ERROR.search(heads[1]))


def kind_of(url: str) -> str | None:
    """Return the host, directory and extension of a fetch form. Returns None for the front page of
    a host, which always exists."""
    authority = authority_of(url)
    directory, name = _split(url[len(authority) :])
    if directory == "/" and not name:
        return None
    return f"{authority}{directory}*{_extension(name)}"


def probe_of(url: str, random_name: str) -> str:
    """Return a URL beside *url* that cannot exist; its name is as long and odd as *random_name*."""
    authority = authority_of(url)
    directory, name = _split(url[len(authority) :])
    return f"{authority}{directory}{_NAME}{random_name}{_extension(name)}"


def words_of(url: str, title: str, text: str) -> TextHashes:
    """Return the hashes of an answer's words, without numbers and the words of *url*."""
    url_words = set(_words(url.casefold()))
    return TextHashes(_hashes(title, url_words), _hashes(text, url_words))


def _hashes(text: str, excluded: set[str]) -> tuple[int, ...]:
    words = {word for word in _words(text.casefold()[:_MOST_CHARS]) if word not in excluded}
    return tuple(sorted(xxh32_intdigest(word.encode(errors="replace")) for word in words))


def record_of(status: int | None, digest: bytes, words: TextHashes, now: float) -> Soft404Record:
    """Return the record of an answer to a probe. *status* is None if there was no answer."""
    if status is None or status == 429 or status >= 500:
        return Soft404Record(MissingPageAnswer.NOTHING, now + NO_ANSWER_VALID_S)
    if 200 <= status < 300:
        return Soft404Record(MissingPageAnswer.PAGE, now + RECORD_VALID_S, digest, words)
    return Soft404Record(MissingPageAnswer.ERROR, now + RECORD_VALID_S)


def is_soft_404(record: Soft404Record, digest: bytes, words: TextHashes) -> bool:
    """Return whether a page has the words that its host sends for any missing name, in its title
    too: the page of a product that is sold out has much the same text, but its name in the title.
    """
    if record.answer is not MissingPageAnswer.PAGE:
        return False
    if digest == record.digest:
        return True
    title, text = record.words
    return bool(words.text) and _alike(words.title, title) and _alike(words.text, text)


def _alike(some: tuple[int, ...], others: tuple[int, ...]) -> bool:
    left, right = set(some), set(others)
    return len(left & right) >= _MIN_LIKENESS * len(left | right)


def _split(path: str) -> tuple[str, str]:
    """Return the directory with its last slash, and the name; without the query."""
    directory, slash, name = path.partition("?")[0].rpartition("/")
    return directory + slash or "/", name


def _extension(name: str) -> str:
    dot = name.rfind(".")
    return name[dot:][:16] if dot > 0 else ""
