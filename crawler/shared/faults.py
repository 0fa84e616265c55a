"""The faults of a Redis server or a connection to it, sorted by what the caller must do.

Rule: each text says what failed, where (never with a password) and what to do.
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

MAX_QUOTED_CHARS: Final = 500  # characters of a server's message
MIN_VERSION: Final = (7, 0)  # scripts with flags; an older server takes the shebang for Lua


class Unreachable(StoreUnavailable):
    """The server cannot serve now. Caller: wait, then try again. Calls that were sent may have
    been executed."""


class OutOfMemory(StoreUnavailable):
    """The server's memory is full: the call was refused before it began. Caller: keep what was to
    be added, try again when memory is free."""


class ServerRefused(CrawlerError):
    """The server refuses us, and a person must repair that. Caller: show it; nothing was
    changed."""


class ForeignData(CrawlerError):
    """The data under our name in the server are not ours, or of another version.
    Caller: stop; nothing was changed."""


Fault: TypeAlias = Unreachable | OutOfMemory | ServerRefused | ForeignData
FAULTS: Final = (Unreachable, OutOfMemory, ServerRefused, ForeignData)
ERRORS: Final = (hiredis.ReplyError, *FAULTS)  # all types of a reply that is an error


@dataclass(frozen=True, slots=True)
class FaultMeaning:
    """The meaning of an error: its type, and the sentence for the user."""

    kind: Callable[[str], Fault]
    text: str


def _retry(text: str) -> FaultMeaning:
    return FaultMeaning(Unreachable, text)


def _stop(text: str) -> FaultMeaning:
    return FaultMeaning(ServerRefused, text)


_RIGHTS: Final = _stop(
    "does not allow its user what we need. Give it the rights in docs/sharing.md ({text})"
)
_PASSWORD: Final = _stop(
    "does not accept the user or the password. Mend them in CRAWLER_FRONTIER_URL, or in the file"
    " it names"
)
# By the first word of the reply.
BY_WORD: Final = {
    "LOADING": _retry("is loading its data. It answers when it is done"),
    "BUSY": _retry("is busy with a long script or function"),
    "CLUSTERDOWN": _retry(
        "reports that its cluster is down ({text}). Start the missing nodes. Others go on meanwhile"
        " where cluster-require-full-coverage is no"
    ),
    "MASTERDOWN": _retry("is a replica that has lost its master"),
    "TRYAGAIN": _retry("is moving these keys to another node"),
    "ASK": _retry("is moving these keys to another node, which takes them when all are there"),
    "MOVED": _retry("and its cluster do not agree on who serves these keys ({text})"),
    "NOSCRIPT": _retry("drops our scripts as soon as they are loaded"),
    "READONLY": _retry(
        "is a read-only replica. If it does not become the master soon, give the master's URL"
    ),
    "NOREPLICAS": _retry("has too few replicas to write (min-replicas-to-write)"),
    "MISCONF": _retry("cannot write its own files. Look whether its disk is full ({text})"),
    "OOM": FaultMeaning(
        OutOfMemory,
        "has no memory left (maxmemory). New links wait on the disk of the workers; give it more",
    ),
    "NOAUTH": _stop("wants a password. Write it into CRAWLER_FRONTIER_URL, or the file it names"),
    "WRONGPASS": _PASSWORD,
    "NOPERM": _RIGHTS,
    "DENIED": _stop("is in protected mode: it takes no connections from other machines ({text})"),
    "WRONGTYPE": FaultMeaning(
        ForeignData,
        "has a key of another type under our name. Choose another CRAWLER_FRONTIER_NAME ({text})",
    ),
    # These are replies of our lua/open.lua; their texts are sentences for the user.
    "FOREIGN": FaultMeaning(ForeignData, "has something else under our name: {text}"),
    "GONE": FaultMeaning(ForeignData, "has lost the crawl: {text}"),
    "SCHEMA": FaultMeaning(ForeignData, "has a crawl of another version: {text}"),
}
# Replies that begin with ERR, by what follows.
BY_TEXT: Final = (
    ("max number of clients", _retry("has too many clients. Raise its maxclients")),
    ("AUTH <password> called without", _stop(
        "wants no password, but CRAWLER_FRONTIER_URL has one. Remove it, or give the server one"
    )),
    ("The user executing the script", _RIGHTS),
    ("DB index is out of range", _stop("has fewer databases. Mend the end of the URL")),
    ("SELECT is not allowed in cluster", _stop("is a cluster, which has no databases but 0")),
    # The reply is not quoted: it may hold the arguments, and those of AUTH are a password.
    ("unknown command", _stop("does not know a command that we need. It must be Redis >= 7.0")),
)  # fmt: skip
UNKNOWN: Final = _stop("refused: {text}")
# Errors that are no replies, the most special first.
BY_ERROR: Final[tuple[tuple[tuple[type[Exception], ...], FaultMeaning], ...]] = (
    ((hiredis.HiredisError,), _retry("answers what no Redis answers. Look who listens there")),
    ((TimeoutError,), _retry("does not answer")),
    (
        (ConnectionRefusedError, FileNotFoundError),
        _retry("takes no connections. Start it, or mend CRAWLER_FRONTIER_URL"),
    ),
    ((PermissionError,), _stop("has a socket that we may not open. Mend its unixsocketperm")),
    (
        (ssl.SSLCertVerificationError,),
        _stop("has a certificate that is not accepted ({text}). Set ssl_ca_certs in its URL"),
    ),
    ((socket.gaierror,), _retry("has a name that is not found ({text}). Look at its spelling")),
    ((OSError,), _retry("cannot be reached ({text})")),
)
NO_TLS: Final = _stop("does not speak TLS. Write redis:// instead of rediss://")
NO_ERROR: Final = _stop("cannot be asked ({text})")
_CONTROL: Final = re.compile(r"[^\x20-\x7e]+")


def fault_of(error: Exception, node: str) -> Fault:
    """Translate *error* of *node* into a Fault."""
    if isinstance(error, FAULTS):
        return error
    if isinstance(error, hiredis.ReplyError):
        return _reply_fault(str(error), node)
    return _connection_fault(error, node)


def is_word(reply: object, word: str) -> bool:
    """Return whether *reply* is an error whose first word is *word*."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith(word + " ")


def _reply_fault(reply: str, node: str) -> Fault:
    word, _, text = reply.partition(" ")
    meaning = BY_WORD.get(word)
    if meaning is None:
        meaning = next((each for start, each in BY_TEXT if text.startswith(start)), UNKNOWN)
        text = reply
    return _fault(meaning, node, text)


def _connection_fault(error: Exception, node: str) -> Fault:
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
        meaning = NO_TLS
    else:
        meaning = next((each for kinds, each in BY_ERROR if isinstance(error, kinds)), NO_ERROR)
    text = getattr(error, "verify_message", None) or getattr(error, "strerror", None)
    return _fault(meaning, node, str(text or error or type(error).__name__))


def _fault(meaning: FaultMeaning, node: str, text: str) -> Fault:
    quoted = _CONTROL.sub(" ", text)[:MAX_QUOTED_CHARS].strip()
    return meaning.kind(f"Redis at {node} {meaning.text.replace('{text}', quoted)}")
