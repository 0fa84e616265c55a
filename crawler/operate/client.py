"""Asks the crawl that uses a data directory, through its socket."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from crawler.model.types import ConfigError, DataDirError
from crawler.operate.verbs import ActAnswer, ActRequest

SOCKET: Final = "control.sock"
TIMEOUT_S: Final = 60.0


class NoCrawl(DataDirError):
    """No process listens on the socket. Caller: do it without, if no crawl uses the directory."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, data: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
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
    connection = _Connection(data)
    try:
        connection.request(
            "POST",
            f"/api/{verb}",
            msgspec.json.encode(fields),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        body = answer.read()
    except TimeoutError as late:
        raise DataDirError(
            f"the crawl in {data} has not answered for {TIMEOUT_S:g} s; it may do it yet: look at"
            " its audit.jsonl"
        ) from late
    except (OSError, http.client.HTTPException) as missing:
        raise NoCrawl(f"no crawl answers in {data}: {missing}") from missing
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return msgspec.json.decode(body, type=ActAnswer)
    error = msgspec.json.decode(body, type=dict[str, str])["error"]
    raise ConfigError(error) if answer.status < 500 else DataDirError(error)
