"""Takes what operators ask for: writes it into the audit and the rules, and lets `Acts` (acts.py in
a crawl that runs, local_client.py without one) do it in the frontier.

Rule: an act that is acknowledged is on disk (or in Redis). What is then to be done in the frontier
is done again from the audit, if the process dies before it is finished.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgspec.structs import replace

from crawler.data.operator_files import Act, ActResult, OperatorStore, RuleEdit, edited
from crawler.model.types import ConfigError
from crawler.operate import verbs
from crawler.operate.verbs import VERBS, ActAnswer, ActRequest, WaitingCount
from crawler.policy.operator_rules import read_rules

logger = logging.getLogger(__name__)

LOOKED_AT: Final = 1000  # URLs to be added: 0.3 s
_TRIES: Final = 20  # if others change the rules at the same time
_LOOK_S: Final = 0.1  # between two looks for the result of an act


class Acts(Protocol):
    """What requests of operators do in a frontier."""

    async def count(self, request: ActRequest) -> WaitingCount:
        """Return how many waiting URLs *request* would touch."""

    async def take(self, act: Act, undone: Act | None) -> float:
        """Let *act*, which is durable, and undoes *undone*, be carried out. Returns for how many
        seconds its result may be waited for; 0: it is there, or comes when the crawl runs."""

    def known(self, urls: Sequence[str]) -> list[str]:
        """Return those of *urls* that the crawl has seen. Called in a thread."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Takes the requests of operators for one crawl."""

    store: OperatorStore
    levels: int
    now: Callable[[], float]
    acts: Acts
    _acting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def act(self, request: ActRequest, by: str) -> ActAnswer:
        """Write down *request* of the user *by*, and have it carried out. Raises CrawlerError; then
        nothing was done, or it is in the audit and not carried out yet."""
        verbs.check(request)
        if request.level is not None and not 0 <= request.level < self.levels:
            raise ConfigError(f"level is {request.level}; this crawl has 0 to {self.levels - 1}")
        if request.dry_run:
            return (await self.acts.count(request)).answer()
        known = await self._known(request)
        async with self._acting:
            for _ in range(_TRIES):
                act, undone = await self._write(request, by)
                if act is not None:
                    break
            else:
                raise ConfigError("the rules change all the time: try again")
        wait_s = await self.acts.take(act, undone)
        touched = await self._result(act, wait_s) if act.verb == "retry" else None
        said = _sentence(act, undone) + _about_known(known, len(act.targets))
        if act.verb == "retry" and touched is None:
            said += ": carried out while the crawl runs; its audit then has how many"
        return ActAnswer(said, act.number, touched=touched, known=len(known))

    async def _result(self, act: Act, wait_s: float) -> int | None:
        """Return how many URLs *act* has touched, or None if that is not known in *wait_s*."""
        ends_at = time.monotonic() + wait_s
        while True:
            for line in await self.store.acts():
                if isinstance(line, ActResult) and line.of == act.number:
                    return line.touched
            if time.monotonic() > ends_at:
                return None
            await asyncio.sleep(_LOOK_S)

    async def _known(self, request: ActRequest) -> list[str]:
        """Return those URLs, of the first that *request* adds, which are fetched no other time."""
        if request.verb != "add" or request.again:
            return []
        return await asyncio.to_thread(self.acts.known, request.targets[:LOOKED_AT])

    async def _write(self, request: ActRequest, by: str) -> tuple[Act | None, Act | None]:
        """Return the act that was written, or None if the rules have changed meanwhile; and the
        one that it undoes."""
        now, written = self.now(), await self.store.rules()
        lines = await self.store.acts()
        void = {line.of for line in lines if isinstance(line, ActResult) and line.failed}
        acts = [line for line in lines if isinstance(line, Act)]
        last = max((act.number for act in acts), default=0)
        acts = [act for act in acts if act.number not in void]
        undone = verbs.last_to_undo(acts, request.value) if request.verb == "undo" else None
        whole = None if undone is None else undone.text_before
        if request.verb == "rules":
            whole = request.value
        if whole is None:
            edits = verbs.edits_of(request, now) if undone is None else undone.before
            after, before = await asyncio.to_thread(_edited, written, edits, self.levels)
            act = Act(now, last + 1, by, request.verb, request.targets, request.value, before)
        else:
            if request.before not in (None, written):
                raise ConfigError("the rules have changed meanwhile: look at them again")
            read_rules(whole, self.levels)
            after, act = whole, Act(now, last + 1, by, request.verb, text_before=written)
        if undone is not None:
            act = replace(act, undoes=undone.number, targets=undone.targets, value="")
        if request.verb == "add":
            act = replace(act, level=request.level, again=request.again)
        return (act if await self.store.write(written, after, act) else None), undone


def _edited(
    written: str, edits: Sequence[RuleEdit], levels: int
) -> tuple[str, tuple[RuleEdit, ...]]:
    if not edits:
        return written, ()
    after, before = edited(written, edits)
    read_rules(after, levels)  # so that no act makes rules that cannot be read
    return after, before


def _about_known(known: Sequence[str], of: int) -> str:
    if not known:
        return ""
    if of == 1:
        return "; it is known already, and fetched no second time unless added with --again"
    some = f" of the first {LOOKED_AT:,}" if of > LOOKED_AT else ""
    return (
        f"; {len(known):,}{some} are known already ({known[0]}), and fetched no second time unless"
        " added with --again"
    )


def _sentence(act: Act, undone: Act | None) -> str:
    if undone is not None:
        return f"act {act.number}: act {undone.number} is undone ({_about(undone)})"
    return f"act {act.number}: {_about(act)}"


def _about(act: Act) -> str:
    about = f" {', '.join(act.targets[:3])}" if act.targets else ""
    more = f" and {len(act.targets) - 3} more" if len(act.targets) > 3 else ""
    value = f" {act.value}" if act.value else ""
    return f"{act.verb}{about}{more}{value}"


def unfinished(lines: Sequence[Act | ActResult]) -> list[Act]:
    """Return the acts that are still to be carried out in the frontier, the oldest first."""
    finished = {line.of for line in lines if isinstance(line, ActResult)}
    by_number = {line.number: line for line in lines if isinstance(line, Act)}
    return [
        act
        for act in by_number.values()
        if act.number not in finished and is_work(act, by_number.get(act.undoes))
    ]


def is_work(act: Act, undone: Act | None) -> bool:
    """Return whether *act*, which undoes *undone*, changes the frontier beside the rules."""
    return VERBS[act.verb].is_work or (undone is not None and VERBS[undone.verb].is_work)
