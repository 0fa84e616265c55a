"""What became of the seeds: a seed that leads nowhere is logged with what to do, and counted in
`seeds.json`.

Rule: memory is bounded, whatever the number of seeds. The file is replaced as a whole every ten
seconds, and names the place in the outcome log up to which it counts: after a kill it is completed
from the lines behind that place.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from crawler.data.data_dir import OUTCOMES, SEEDS
from crawler.loop.outcome import words_of
from crawler.model.counts import Sums, add_by_key
from crawler.model.program import PROGRAM
from crawler.model.types import HTTP_OK, Outcome, OverBudgetLinks, decode_outcome
from crawler.policy.refusal import Refusal

logger = logging.getLogger(__name__)

ROWS: Final = 100
"""Seeds that lead nowhere and are kept one by one, 0.3 kB each. Others are only counted."""
_CATCH_UP_BYTES: Final = 64_000_000  # of the log: of more than ten seconds at a thousand pages each

PAGE: Final = "page"
REDIRECTED: Final = "redirected"
REFUSED: Final = "refused"
OVER_BUDGET: Final = "over_budget"
LEADS_ON: Final = frozenset({PAGE, REDIRECTED})
BROUGHT_A_PAGE: Final = frozenset({PAGE, "nofollow", "links", "broken"})


class SeedRow(msgspec.Struct, frozen=True):
    """A seed that leads nowhere."""

    seed: str
    fate: str
    why: str  # for people
    url: str = ""  # where its redirects ended; empty: there were none


def _add_fates(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Add the seeds of two workers by their fates; both have read all seeds, and refused the
    same."""
    refused = max(each.get(REFUSED, 0) for each in (some, more))
    return {fate: n for fate, n in {**add_by_key(some, more), REFUSED: refused}.items() if n}


def _first_rows(some: Mapping[str, SeedRow], more: Mapping[str, SeedRow]) -> dict[str, SeedRow]:
    return dict(islice({**some, **more}.items(), ROWS))


class SeedTable(Sums, msgspec.Struct):
    """What became of the seeds. A worker of a shared crawl counts the URLs that it has fetched: of
    a seed whose redirect another one has followed it counts `redirected`, and that one takes it
    off. So only the sum over all workers has no negative number."""

    counts: Annotated[dict[str, int], _add_fates] = {}  # seeds by their fate
    failed: Annotated[dict[str, SeedRow], _first_rows] = {}  # by seed, the first ROWS
    others: int = 0  # pages with a status of 2xx that are no seeds
    # False: the table of an earlier run is gone.
    is_whole: Annotated[bool, operator.and_] = True
    log_bytes: int = 0  # of the outcome log, that are counted

    def count(self, seed: str, fate: str, url: str, why: str) -> None:
        """Count what became of *seed*, whose redirects have ended at *url*."""
        counts = Counter(self.counts)
        before = self.failed.pop(seed, None)
        if before is not None:
            counts[before.fate] -= 1
        elif url != seed:
            counts[REDIRECTED] -= 1  # at its first redirect
        counts[fate] += 1
        self.counts = {each: n for each, n in counts.items() if n}
        if fate not in LEADS_ON and len(self.failed) < ROWS:
            self.failed[seed] = SeedRow(seed, fate, why[:1000], url if url != seed else "")

    def count_over_budget(self, seeds: int) -> None:
        """Count seeds that wait, as their host or domain has its full number of URLs."""
        self.counts[OVER_BUDGET] = self.counts.get(OVER_BUDGET, 0) + seeds

    def forget_refused(self) -> None:
        """Forget the seeds that rules or budgets refused: each start judges them again."""
        self.counts.pop(REFUSED, None)
        self.counts.pop(OVER_BUDGET, None)
        self.failed = {seed: row for seed, row in self.failed.items() if row.fate != REFUSED}

    @property
    def brought_pages(self) -> bool:
        return self.others > 0 or any(self.counts.get(fate, 0) > 0 for fate in BROUGHT_A_PAGE)

    @property
    def failures(self) -> int:
        """How many seeds lead nowhere."""
        return sum(n for fate, n in self.counts.items() if fate not in LEADS_ON and n > 0)


def read_table(file: Path) -> SeedTable | None:
    """Return what *file* holds; None if it does not exist or cannot be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=SeedTable)
    return None


def write_table(file: Path, table: SeedTable) -> None:
    """Replace *file*: kill -9 leaves the old content or the new. Raises OSError."""
    draft = file.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(table))  # without a sync, which may take long
    draft.replace(file)


def outcomes_since(log: Path, at: int) -> list[Outcome]:
    """Return the outcomes that *log* has from byte *at* on, with a bound."""
    found = []
    with suppress(OSError), log.open("rb") as lines:
        lines.seek(at)
        for line in lines.read(_CATCH_UP_BYTES).splitlines():
            with suppress(msgspec.MsgspecError):
                found.append(decode_outcome(line))
    return found


LOGGED: Final = 20
"""Seeds that are logged one by one; the table has more."""

_LEADS_TO: Final = "leads to"
_WORDS: Final = MappingProxyType(
    {
        "page": "brought a page",
        "redirected": "redirect to a URL that was found before, or waits",
        "redirect": "a redirect that is not followed",
        "refresh": "a page that sends browsers on to where the crawl may not go",
        "nofollow": "a page whose links may not be followed",
        "noindex": "a page that may not be stored, without links",
        "links": "a page whose links are all refused",
        "robots": "robots.txt forbids it",
        "pattern": "not fetched: URLs like it have brought enough",
        "empty": "an empty answer",
        "lying_type": "an answer of another type than its header says",
        "soft_404": "the page of the host for names that do not exist",
        REFUSED: "refused by a rule",
        OVER_BUDGET: "wait, as their host or domain has its full number of URLs",
    }
)
_ADVICE: Final = MappingProxyType(
    {
        "status_401": "give its credentials (operating.md, `credentials`)",
        "challenge": f"ask the operator of the host for permission, then {PROGRAM} frontier retry",
        "status_403": "the host refuses this crawler: ask its operator",
        "status_404": "correct the seed, as the page does not exist",
        "status_410": "correct the seed, as the page does not exist any more",
        "nofollow": "CRAWLER_RESPECT_NOFOLLOW = False follows its links",
        "noindex": "CRAWLER_RESPECT_NOINDEX = False stores it",
        "robots": "ask the operator of the host, or choose another seed",
        "robots_unreachable": "start again when its host is up",
        "dns": "correct the name, or start again when it can be looked up",
        "tls": "look at its certificate (CRAWLER_TLS)",
        "redirects": "give the URL at which a browser ends as a seed",
        "redirect": "give the URL at which a browser ends as a seed",
        "soft_404": "correct the seed, as the page does not exist",
        "broken": "mend that; its traceback is in the log",
    }
)
_OF_ANSWER: Final = "look at it in a browser"
_OF_HOST: Final = f"start again when its host is up, after {PROGRAM} frontier retry"


def fate_words(fate: str) -> str:
    """Return what became of a seed, in words."""
    return _WORDS.get(fate) or words_of(fate)


def explain(outcome: Outcome) -> str:
    """Return why the seed of *outcome* leads nowhere, and what can be done."""
    fate = outcome.seed_fate
    reason = outcome.reason.removeprefix("robots.txt: ").partition("\n")[0]  # of a traceback
    if reason.startswith(_LEADS_TO):  # and it says what can be done, as for refused links
        return reason
    what = reason if fate == "broken" else fate_words(fate)
    if fate == "links":
        return f"{what}: {reason}"
    if reason and reason != fate:
        what = reason if what in reason else f"{what}: {reason}"
    return f"{what}: {_ADVICE.get(fate, _OF_HOST if outcome.failure else _OF_ANSWER)}"


class SeedFates:
    """The table of the seeds of one crawl, over all its runs."""

    def __init__(self) -> None:
        self.table = SeedTable()
        self._logged = 0
        self._over_budget: set[str] = set()  # hosts and domains that are logged

    def open(self, file: Path, log: Path, *, is_new: bool) -> None:
        """Go on with what *file* and the outcome *log* say. *is_new*: nothing was fetched yet."""
        self.table = read_table(file) or SeedTable(is_whole=is_new)
        if file.exists():
            for outcome in outcomes_since(log, self.table.log_bytes):
                self._count(outcome)

    def write(self, file: Path, log: Path) -> None:
        """Replace *file*. Raises OSError."""
        self.table.log_bytes = log.stat().st_size
        write_table(file, self.table)

    def count(self, outcome: Outcome, *, is_listing: bool = False) -> None:
        """Count *outcome*, and log it if it is of a seed that leads nowhere. *is_listing*: it is of
        a sitemap, which is no page."""
        why = "" if is_listing else self._count(outcome)
        if why:
            led = f", which redirects to {outcome.url}," if outcome.url != outcome.seed else ""
            verb = "" if why.startswith(_LEADS_TO) else "leads nowhere: "
            self._log(f"The seed {outcome.seed}{led} {verb}{why}")

    def refuse(self, url: str, refusal: Refusal) -> None:
        """Count a seed that a rule refuses before it is added, and log it."""
        self.table.count(url, REFUSED, url, refusal.advise())
        self._log(f"Seed {url} skipped: {refusal.explain()}")

    def count_over_budget(self, kept_out: Sequence[OverBudgetLinks]) -> None:
        """Count seeds that a budget keeps back, and log each host or domain once."""
        for each in kept_out:
            self.table.count_over_budget(each.links)
            if each.name not in self._over_budget and len(self._over_budget) < LOGGED:
                self._over_budget.add(each.name)
                setting = f"CRAWLER_MAX_URLS_PER_{each.unit.upper()}"
                self._log(
                    f"Seeds of {each.name} wait: it has its full number of URLs. A start with a"
                    f" larger {setting} fetches them"
                )

    def _count(self, outcome: Outcome) -> str:
        """Count *outcome*, and return why its seed leads nowhere; empty if it does not."""
        if not outcome.seed_fate:
            if outcome.fate == "done" and outcome.status in HTTP_OK:
                self.table.others += 1
            return ""
        fate, seed, url = outcome.seed_fate, outcome.seed, outcome.url
        if fate == "redirected" and url != seed:
            return ""  # a further hop
        why = "" if fate in LEADS_ON else explain(outcome)
        self.table.count(seed, fate, url, why)
        return why

    @classmethod
    def table_in(cls, folder: Path) -> SeedTable:
        """Return the table of the crawl in *folder*, which may run. If it has none, that is not
        whole."""
        fates, file = cls(), folder / SEEDS
        fates.open(file, folder / OUTCOMES, is_new=False)
        return fates.table

    def _log(self, text: str) -> None:
        self._logged += 1
        if self._logged <= LOGGED:
            last = (
                "" if self._logged < LOGGED else " (Further ones are in summary and report only.)"
            )
            logger.warning("%s%s", text, last)
