"""A watch over fetches that lets all of them pass."""

from __future__ import annotations

from collections.abc import AsyncIterable

from crawler.download.http_head import AnswerHead
from crawler.download.port import KeptBody


class EachRequest:
    """Implements port.FetchWatch: all may be sent, and all is kept."""

    def may_send(self) -> bool:
        return True

    def note_head(self, head: AnswerHead) -> None: ...

    def room(self, head: AnswerHead) -> int:
        return 1 << 20

    async def keep(self, pieces: AsyncIterable[bytes], room: int) -> KeptBody:
        return KeptBody(b"".join([piece async for piece in pieces]))
