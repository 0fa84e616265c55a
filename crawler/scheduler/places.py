"""Where a host is, and how it may move: a table.

Rule: a host is in one place at a time; a move that is not in the table is our bug.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Place(IntEnum):
    EMPTY = 0  # known; nothing waits; its rest may still run
    FRONT = 1  # filed in the front queue of its best level
    ACTIVE = 2  # in memory, with the head of one level
    RESTING = 3  # on disk until its rest is over


class Event(IntEnum):
    FILE = 0  # it has URLs and waits for a turn; or waits at a better level
    ACTIVATE = 1  # its turn begins
    REST = 2  # it must be left alone for long, and leaves memory
    RUN_DRY = 3  # its last URL was taken and its fetch is over


MOVES: Final[dict[tuple[Place, Event], Place]] = {
    (Place.EMPTY, Event.FILE): Place.FRONT,
    (Place.FRONT, Event.FILE): Place.FRONT,  # a better URL: the older entry turns stale
    (Place.FRONT, Event.ACTIVATE): Place.ACTIVE,
    (Place.FRONT, Event.REST): Place.RESTING,
    (Place.ACTIVE, Event.FILE): Place.FRONT,  # its turn is over
    (Place.ACTIVE, Event.REST): Place.RESTING,
    (Place.ACTIVE, Event.RUN_DRY): Place.EMPTY,
    (Place.RESTING, Event.FILE): Place.FRONT,  # its rest is over
}


class IllegalMove(AssertionError):
    """A host was moved in a way the table forbids: our bug, never the user's."""


def move(place: Place, event: Event) -> Place:
    try:
        return MOVES[place, event]
    except KeyError:
        raise IllegalMove(f"{event.name} while {place.name}") from None
