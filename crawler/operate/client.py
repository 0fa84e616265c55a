"""What commands do to a crawl: they ask the process that runs it, through its socket, or do it
themselves (local_client.py, shared_client.py)."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlencode

import msgspec

from crawler.data.snapshots import Snapshot
from crawler.frontier.reader import RecountedCounter
from crawler.frontier.seen_repair import RebuiltSeen
from crawler.model.types import ConfigError, DataDirError
from crawler.operate.verbs import ActAnswer, ActRequest


@dataclass(frozen=True, slots=True)
class FrontierCheck:
    """The result of counting all again."""

    counters: list[RecountedCounter]
    is_repaired: bool
    uncounted: list[int] = field(default_factory=list)  # shards that changed during each count
    rebuilt: RebuiltSeen | None = None  # None: no run of the seen set was damaged
    unread: list[str] = field(default_factory=list)  # damaged indexes of the archive, and where

    @property
    def is_correct(self) -> bool:
        differs = any(each.differs for each in self.counters) and not self.is_repaired
        return not (differs or self.uncounted)


@dataclass(frozen=True, slots=True)
class SeenUrls:
    """The result of taking over what another crawl has seen."""

    lines: int  # with a URL
    new: int
    unreadable: int  # lines with what is no http or https URL


class CrawlClient(Protocol):
    """Acts on one crawl. All methods raise CrawlerError."""

    def act(self, request: ActRequest) -> ActAnswer:
        """Do what the operator asks for: by the crawl that runs, or for the next start."""

    def check(self, is_repair: bool) -> FrontierCheck:
        """Read all and count again; with *is_repair* rebuild damaged runs of the seen set, and
        write the counters that differ."""

    def take_over(self, index: Path) -> SeenUrls:
        """Count the URLs of *index*, of another crawl, as seen."""

    def snapshot(self, folder: Path) -> Snapshot:
        """Copy the crawl, as it is at one moment, to *folder*."""

    def forget(self, worker: str) -> int:
        """Give up the links on the disk of a dead *worker*, and return how many."""


SOCKET: Final = "control.sock"
FREEZE: Final = "/snapshot"  # at the socket only
TIMEOUT_S: Final = 60.0
# It may be merging runs: 1e8 keys, 800 MB, on a slow disk.
SNAPSHOT_TIMEOUT_S: Final = 120.0


class NoCrawl(DataDirError):
    """No process listens on the socket. Caller: do it without, if no crawl uses the directory."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, data: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._data = data

    def connect(self) -> None:
        directory = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            # A path to a socket has 107 bytes at most; that of the directory may be longer.
            self.sock.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.close(directory)


def ask(data: Path, request: ActRequest) -> ActAnswer:
    """Return what the crawl in *data* answers. Raises NoCrawl if none does, ConfigError if it
    refuses, and DataDirError."""
    fields = msgspec.to_builtins(request)
    verb = fields.pop("verb")
    body = _posted(data, f"/api/{verb}", fields, TIMEOUT_S, "it may do it yet: audit.jsonl has it")
    return msgspec.json.decode(body, type=ActAnswer)


def ask_to_freeze(data: Path, folder: str) -> None:
    """Let the crawl in *data* copy this moment to its *folder*, as `snapshots.freeze`. Raises as
    `ask`."""
    late = "it makes no snapshot: try again"
    _posted(data, FREEZE, {"folder": folder}, SNAPSHOT_TIMEOUT_S, late)


def look(data: Path, path: str, query: Mapping[str, str]) -> bytes:
    """Return what the console of the crawl in *data* shows below *path*, as JSON. Raises as
    `ask`."""
    asked = f"{path}?{urlencode(query)}"
    return _answer(data, "GET", asked, None, TIMEOUT_S, "try again")


def _posted(
    data: Path, path: str, fields: dict[str, object], timeout_s: float, if_late: str
) -> bytes:
    """Return the answer of the crawl in *data* to *fields*. Raises as `ask`."""
    return _answer(data, "POST", path, msgspec.json.encode(fields), timeout_s, if_late)


def _answer(
    data: Path, method: str, path: str, sent: bytes | None, timeout_s: float, if_late: str
) -> bytes:
    connection = _Connection(data, timeout_s)
    try:
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
    except TimeoutError as late:
        raise DataDirError(
            f"the crawl in {data} has not answered for {timeout_s:g} s; {if_late}"
        ) from late
    except (OSError, http.client.HTTPException) as missing:
        raise NoCrawl(f"no crawl answers in {data}: {missing}") from missing
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return body
    error = msgspec.json.decode(body, type=dict[str, str])["error"]
    raise ConfigError(error) if answer.status < 500 else DataDirError(error)
