"""Is the crawl over? When nothing waits, nothing is leased, and nothing is anywhere else.

Rule: shards are looked at one after the other, and a URL can pass from one that is still to be
looked at into one that was. So two looks must find nothing and agree on how much was ever added.
"""

from __future__ import annotations

from collections.abc import Sequence

from crawler.storage.redis.totals import Totals


class Ending:
    def __init__(self) -> None:
        self._adds: int | None = None  # in the last look, if it found nothing
        self.is_over = False

    def look(self, shards: Sequence[Totals], is_elsewhere: bool) -> None:
        """*shards*: all of them; *is_elsewhere*: something waits in an outbox, a feed, or with a
        worker that is only beginning."""
        if is_elsewhere or any(each.unfinished for each in shards):
            self.begin_again()
            return
        adds = sum(each.adds for each in shards)
        self.is_over = self._adds == adds
        self._adds = adds

    def begin_again(self) -> None:
        """There is something: what was looked at before counts no more."""
        self._adds, self.is_over = None, False
