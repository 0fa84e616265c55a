"""What goes wrong between us and a Redis server, sorted by what mends it.

Rule: one table. Each text says what, where (never with a password) and what to do.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import hiredis

from crawler.model.types import CrawlerError, StoreUnavailable

MOST_QUOTED: Final = 500  # characters of what a server says
OLDEST: Final = (7, 0)  # scripts with flags; an older server takes the shebang for Lua


class Unreachable(StoreUnavailable):
    """The server cannot serve now. Caller: wait, then try again. What was on its way
    may have happened."""


class OutOfMemory(StoreUnavailable):
    """The server's memory is full: the call was refused before it began.
    Caller: keep what was to be added, try again when memory is free."""


class Refused(CrawlerError):
    """The server does not let us, and a person must mend that.
    Caller: show it; nothing was changed."""


class ForeignData(CrawlerError):
    """What is under our name in the server is not ours, or of another version.
    Caller: stop; nothing was changed."""


Fault: TypeAlias = Unreachable | OutOfMemory | Refused | ForeignData
FAULTS: Final = (Unreachable, OutOfMemory, Refused, ForeignData)
ERRORS: Final = (hiredis.ReplyError, *FAULTS)  # whatever is no reply of use


@dataclass(frozen=True, slots=True)
class FaultMeaning:
    """Of an error reply: who mends it, and the sentence for the user."""

    kind: Callable[[str], Fault]
    text: str


def _waits(text: str) -> FaultMeaning:
    return FaultMeaning(Unreachable, text)


def _ends(text: str) -> FaultMeaning:
    return FaultMeaning(Refused, text)


_RIGHTS: Final = _ends(
    "does not allow its user what we need. Give it the rights in docs/sharing.md ({said})"
)
_PASSWORD: Final = _ends(
    "does not accept the user or the password. Mend them in CRAWLER_FRONTIER_URL, or in the file"
    " it names"
)
# By the first word of the reply.
BY_WORD: Final = {
    "LOADING": _waits("is loading its data. It answers when it is done"),
    "BUSY": _waits("is busy with somebody's long script or function"),
    "CLUSTERDOWN": _waits(
        "says that its cluster is down ({said}). Start the missing nodes. Others go on meanwhile"
        " where cluster-require-full-coverage is no"
    ),
    "MASTERDOWN": _waits("is a replica that has lost its master"),
    "TRYAGAIN": _waits("is moving these keys to another node"),
    "ASK": _waits("is moving these keys to another node, which takes them when all are there"),
    "MOVED": _waits("and its cluster do not agree on who serves these keys ({said})"),
    "NOSCRIPT": _waits("forgets our scripts as soon as it is given them"),
    "READONLY": _waits(
        "is a read-only replica. If it does not become the master soon, give the master's URL"
    ),
    "NOREPLICAS": _waits("has too few replicas to write (min-replicas-to-write)"),
    "MISCONF": _waits("cannot write its own files. Look whether its disk is full ({said})"),
    "OOM": FaultMeaning(
        OutOfMemory,
        "has no memory left (maxmemory). New links wait on the disk of the workers; give it more",
    ),
    "NOAUTH": _ends("wants a password. Write it into CRAWLER_FRONTIER_URL, or the file it names"),
    "WRONGPASS": _PASSWORD,
    "NOPERM": _RIGHTS,
    "DENIED": _ends("is in protected mode: it takes no connections from other machines ({said})"),
    "WRONGTYPE": FaultMeaning(
        ForeignData,
        "has a key of another type under our name. Choose another CRAWLER_FRONTIER_NAME ({said})",
    ),
    # What our own open.lua says; its text is for the user as it stands.
    "FOREIGN": FaultMeaning(ForeignData, "has something else under our name: {said}"),
    "GONE": FaultMeaning(ForeignData, "has lost the crawl: {said}"),
    "SCHEMA": FaultMeaning(ForeignData, "has a crawl of another version: {said}"),
}
# Replies that begin with ERR, by what follows.
BY_TEXT: Final = (
    ("max number of clients", _waits("has too many clients. Raise its maxclients")),
    ("AUTH <password> called without", _ends(
        "wants no password, but CRAWLER_FRONTIER_URL has one. Remove it, or give the server one"
    )),
    ("The user executing the script", _RIGHTS),
    ("DB index is out of range", _ends("has fewer databases. Mend the end of the URL")),
    ("SELECT is not allowed in cluster", _ends("is a cluster, which has no databases but 0")),
    # What follows may be the arguments: of AUTH, a password.
    ("unknown command", _ends("does not know a command that we need. It must be Redis >= 7.0")),
)  # fmt: skip
UNKNOWN: Final = _ends("refused: {said}")
# What is no reply, most special first.
BY_ERROR: Final[tuple[tuple[tuple[type[Exception], ...], FaultMeaning], ...]] = (
    ((hiredis.HiredisError,), _waits("answers what no Redis answers. Look who listens there")),
    ((TimeoutError,), _waits("does not answer")),
    (
        (ConnectionRefusedError, FileNotFoundError),
        _waits("takes no connections. Start it, or mend CRAWLER_FRONTIER_URL"),
    ),
    ((PermissionError,), _ends("has a socket that we may not open. Mend its unixsocketperm")),
    (
        (ssl.SSLCertVerificationError,),
        _ends("has a certificate that is not accepted ({said}). Set ssl_ca_certs in its URL"),
    ),
    ((socket.gaierror,), _waits("has a name that is not found ({said}). Look at its spelling")),
    ((OSError,), _waits("cannot be reached ({said})")),
)
NO_TLS: Final = _ends("does not speak TLS. Write redis:// instead of rediss://")
NO_ERROR: Final = _ends("cannot be asked ({said})")
_CONTROL: Final = re.compile(r"[^\x20-\x7e]+")


def fault_of(error: Exception, node: str) -> Fault:
    """What *error* of *node* means to us."""
    if isinstance(error, FAULTS):
        return error
    if isinstance(error, hiredis.ReplyError):
        return _of_reply(str(error), node)
    return _of_connection(error, node)


def is_word(reply: object, word: str) -> bool:
    """Whether *reply* is an error of that first word."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith(word + " ")


def _of_reply(reply: str, node: str) -> Fault:
    word, _, said = reply.partition(" ")
    meaning = BY_WORD.get(word)
    if meaning is None:
        meaning = next((each for start, each in BY_TEXT if said.startswith(start)), UNKNOWN)
        said = reply
    return _told(meaning, node, said)


def _of_connection(error: Exception, node: str) -> Fault:
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
        meaning = NO_TLS
    else:
        meaning = next((each for kinds, each in BY_ERROR if isinstance(error, kinds)), NO_ERROR)
    said = getattr(error, "verify_message", None) or getattr(error, "strerror", None)
    return _told(meaning, node, str(said or error or type(error).__name__))


def _told(meaning: FaultMeaning, node: str, said: str) -> Fault:
    quoted = _CONTROL.sub(" ", said)[:MOST_QUOTED].strip()
    return meaning.kind(f"Redis at {node} {meaning.text.replace('{said}', quoted)}")
