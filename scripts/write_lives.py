"""Draw the state diagrams of docs/architecture.md from the tables of the code.

Run by `make settings`; tests/test_docs.py compares. As in write_settings.py, only what stands
between the two marks is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.download import answer_reader  # noqa: E402  # needs the path above
from crawler.frontier import records  # noqa: E402  # needs the path above
from crawler.loop import life  # noqa: E402  # needs the path above
from crawler.policy import politeness  # noqa: E402  # needs the path above
from scripts.write_settings import written  # noqa: E402  # needs the path above

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)

PAGE: Final = ROOT / "docs" / "architecture.md"


def page_lines() -> Iterator[str]:
    yield "A URL (`URL_TRANSITIONS` in `crawler/frontier/records.py`):"
    yield from diagram(records.URL_TRANSITIONS, records.UrlState.UNKNOWN)
    yield "The place of a host in the frontier (`TRANSITIONS` in `crawler/frontier/records.py`):"
    yield from diagram(records.TRANSITIONS, records.HostPlace.EMPTY)
    yield "A lease in the process that holds it (`TRANSITIONS` in `crawler/loop/life.py`):"
    yield from diagram(life.TRANSITIONS, life.LifeState.PLANNED)
    yield "The circuit breaker of a host (`TRANSITIONS` in `crawler/policy/politeness.py`):"
    yield from diagram(politeness.TRANSITIONS, politeness.Circuit.CLOSED)
    yield "An answer, as it is read (`ANSWER_TRANSITIONS` in `crawler/download/answer_reader.py`):"
    yield from diagram(answer_reader.ANSWER_TRANSITIONS, answer_reader.AnswerState.HEAD)


def diagram(table: Mapping[tuple[State, Event], State], first: State) -> Iterator[str]:
    """Draw *table*: an arrow for each pair of states, with the events that lead from one to the
    other."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, event), after in table.items():
        arrows.setdefault((state, after), []).append(plain(event))
    yield from ["", "```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for (state, after), events in arrows.items():
        yield f"    {state.name} --> {after.name}: {', '.join(events)}"
    yield from ["```", ""]


def plain(event: Enum) -> str:
    return event.name.lower().replace("_", " ")


def files() -> dict[Path, Iterator[str]]:
    return {PAGE: page_lines()}


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
