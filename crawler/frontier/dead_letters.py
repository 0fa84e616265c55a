"""Dead letters put back into the frontier: each URL waits again as if it had never failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import DeadLetter, decode_letter
from crawler.frontier.staging import all_records
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.url import authority_of
from crawler.policy.robots_cache import RobotsCache

BATCH: Final = 500  # letters of one write: 200 kB

Letter = tuple[int, DeadLetter]
"""The number of a dead letter, and the letter."""


def dead_letters(store: OrderedStore) -> Iterator[Letter]:
    """Yield all dead letters, oldest first, in bounded memory."""
    for key, packed in all_records(store, keys.DEAD):
        yield keys.number_of(key), decode_letter(packed)


def retry_dead(
    store: OrderedStore,
    frontier: TwoTierFrontier,
    robots: RobotsCache,
    chosen: Callable[[DeadLetter], bool],
    now: Callable[[], float],
) -> Iterator[int]:
    """Put the *chosen* dead letters in *store*, the store of *frontier*, back into its queues.
    Yields how many, after each write of a batch."""
    begun = now()  # later ones are of URLs that were put back here, and have failed again
    letters = (each for each in dead_letters(store) if each[1].at <= begun and chosen(each[1]))
    while batch := list(islice(letters, BATCH)):
        # Else a URL would become a dead letter again without a fetch while that verdict holds.
        for authority in {authority_of(letter.candidate.url) for _, letter in batch}:
            robots.allow_refetch(authority, now())
        frontier.retry_dead(batch, now())
        yield len(batch)
