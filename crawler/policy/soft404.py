"""Soft 404: does this host say "not found" with status 200?

Rule: a page that looks like an error is compared with what its host says of a name it cannot have,
in the same directory and with the same extension (Bar-Yossef et al., Sic Transit Gloria Telae,
2004). The host is asked once for each of these, not once a page.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from xxhash import xxh32_intdigest

from crawler.model.url import authority_of

KNOWN_S: Final = 7 * 86_400.0
FAILED_S: Final = 3_600.0
"""How long a host that did not answer is taken for honest."""
MOST_WORDS: Final = 400
"""guess: an error page with its menu; what is longer is a page whatever it says"""
_MOST_CHARS: Final = 10_000
_HEAD_CHARS: Final = 400
_words: Final = re.compile(r"[^\W\d_]+").findall
_NAME: Final = "gossamer"  # one word, as pages like to repeat what they did not find
_ALIKE: Final = 0.9
"""guess: of the words of two answers; what differs are names, dates and what else is popular"""

# "not found" where the web says it: its ten most used languages (w3techs), and the bare number.
_ERROR: Final = re.compile(
    r"(?i)\b404\b|not (?:be )?found|(?:no longer|not) (?:exist|available)|does(?:n.t| not) exist"
    r"|page (?:is )?missing|nicht gefunden|existiert nicht|introuvable|n.existe pas"
    r"|no (?:se )?(?:ha )?encontrad[ao]|no existe|non trovat[ao]|non esiste"
    r"|n[ãa]o (?:foi )?encontrad"
    r"|n[ãa]o existe|не найден|не существует|niet gevonden|bestaat niet|nie znaleziono|nie istnieje"
    r"|見つかりません|存在しません|找不到|不存在|bulunamad|یافت نشد"
)


class MissingPageAnswer(StrEnum):
    """What a host says of a name it cannot have."""

    ERROR = "error"  # it is honest
    PAGE = "page"  # status 200, and always the same
    NOTHING = "nothing"  # no answer: nobody knows, and it is not asked again for a while


class TextHashes(NamedTuple):
    """Hashes of what an answer says, each once, ascending."""

    title: tuple[int, ...] = ()
    text: tuple[int, ...] = ()


class Soft404Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one directory and extension of one host."""

    said: MissingPageAnswer
    until: float  # epoch seconds
    digest: bytes = b""  # PAGE: SHA-1 of its body
    words: TextHashes = TextHashes()  # PAGE: of its text


def looks_like_error(title: str, text: str) -> bool:
    """Whether it is worth asking. Bounded: its head is read, not all of it."""
    if len(text.split(" ", MOST_WORDS + 1)) > MOST_WORDS + 1:  # and not all the spaces counted
        return False
    return bool(_ERROR.search(title[:_HEAD_CHARS]) or _ERROR.search(text[:_HEAD_CHARS]))


def kind_of(url: str) -> str | None:
    """The host, directory and extension of a fetch form. None: a host's front page, which is
    always one."""
    authority = authority_of(url)
    directory, name = _split(url[len(authority) :])
    if directory == "/" and not name:
        return None
    return f"{authority}{directory}*{_extension(name)}"


def probe_of(url: str, random_name: str) -> str:
    """A name that cannot be there, beside *url*; as long and odd as *random_name* makes it."""
    authority = authority_of(url)
    directory, name = _split(url[len(authority) :])
    return f"{authority}{directory}{_NAME}{random_name}{_extension(name)}"


def words_of(url: str, title: str, text: str) -> TextHashes:
    """Without numbers and what *url* says already."""
    said = set(_words(url.casefold()))
    return TextHashes(_hashes(title, said), _hashes(text, said))


def _hashes(text: str, said: set[str]) -> tuple[int, ...]:
    words = {word for word in _words(text.casefold()[:_MOST_CHARS]) if word not in said}
    return tuple(sorted(xxh32_intdigest(word.encode(errors="replace")) for word in words))


def record_of(status: int | None, digest: bytes, words: TextHashes, now: float) -> Soft404Record:
    """What the answer to a probe says. *status* None: there was none."""
    if status is None or status == 429 or status >= 500:
        return Soft404Record(MissingPageAnswer.NOTHING, now + FAILED_S)
    if 200 <= status < 300:
        return Soft404Record(MissingPageAnswer.PAGE, now + KNOWN_S, digest, words)
    return Soft404Record(MissingPageAnswer.ERROR, now + KNOWN_S)


def is_soft_404(record: Soft404Record, digest: bytes, words: TextHashes) -> bool:
    """Whether a page says what its host says of any name, in its title too: of a product that is
    not to be had a shop says much the same, but with its name above."""
    if record.said is not MissingPageAnswer.PAGE:
        return False
    if digest == record.digest:
        return True
    title, text = record.words
    return bool(words.text) and _alike(words.title, title) and _alike(words.text, text)


def _alike(some: tuple[int, ...], others: tuple[int, ...]) -> bool:
    ours, theirs = set(some), set(others)
    return len(ours & theirs) >= _ALIKE * len(ours | theirs)


def _split(path: str) -> tuple[str, str]:
    """Directory with its last slash, and name; without the query."""
    directory, slash, name = path.partition("?")[0].rpartition("/")
    return directory + slash or "/", name


def _extension(name: str) -> str:
    dot = name.rfind(".")
    return name[dot:][:16] if dot > 0 else ""
