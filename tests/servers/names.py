"""A name server on loopback: it answers from a table, and counts its queries.

Rule: RFC 1035 over UDP, A and AAAA records only; a name it does not know does not exist. It can be
slow, fail, and hold its answers back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, Self

A, AAAA = 1, 28
NO_ERROR, FAILURE, NO_SUCH_NAME = 0x8180, 0x8182, 0x8183
WAKE_S: Final = 0.05  # how soon the thread sees that it should end


class NameServer:
    """One thread, one socket."""

    def __init__(
        self, records: Mapping[str, tuple[str, ...]], ttl_s: int = 300, wait_s: float = 0.0
    ) -> None:
        """*wait_s*: from a query to its answer."""
        self.asked: Counter[str] = Counter()
        """How often each name was asked for. What is sent again, as its answer is late, counts
        once."""
        self.fails = False  # that is all it answers
        self.holds = False  # it answers when it no longer does
        self._records = records
        self._ttl_s = ttl_s
        self._wait_s = wait_s
        self._known: set[bytes] = set()  # questions, with their numbers
        self._waiting: deque[tuple[float, bytes, tuple[str, int]]] = deque()
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="name server")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._socket.settimeout(self._wait_s / 10 or WAKE_S)
            with suppress(TimeoutError):
                query, client = self._socket.recvfrom(4096)
                due = time.monotonic() + self._wait_s
                self._waiting.append((due, self._answer(query), client))
            while self._waiting and not self.holds and self._waiting[0][0] <= time.monotonic():
                _, answer, client = self._waiting.popleft()
                self._socket.sendto(answer, client)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
            at += 1 + length
        kind = int.from_bytes(query[at + 1 : at + 3], "big")
        name = ".".join(labels).lower()
        self.asked[name] += query not in self._known
        self._known.add(query)
        packed = [ip_address(ip).packed for ip in self._records.get(name, ())]
        right = [ip for ip in packed if len(ip) == (4 if kind == A else 16) and kind in (A, AAAA)]
        status = NO_ERROR if name in self._records else NO_SUCH_NAME
        status, right = (FAILURE, []) if self.fails else (status, right)
        counts = (status, 1, len(right), 0, 0)
        head = query[:2] + b"".join(count.to_bytes(2, "big") for count in counts)
        return head + query[12 : at + 5] + b"".join(self._record(kind, ip) for ip in right)

    def _record(self, kind: int, ip: bytes) -> bytes:
        # 0xC00C points back at the name in the question.
        name_kind_class = b"\xc0\x0c" + kind.to_bytes(2, "big") + b"\0\1"
        return name_kind_class + self._ttl_s.to_bytes(4, "big") + len(ip).to_bytes(2, "big") + ip
