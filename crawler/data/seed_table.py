"""What became of the seeds of a crawl: `seeds.json`.

Rule: it is replaced as a whole every ten seconds, and names the place in the outcome log up to
which it counts. So after a kill it is completed from the lines behind that place.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import msgspec

from crawler.model.counts import Sums, add_by_key
from crawler.model.types import Outcome, decode_outcome

ROWS: Final = 100
"""Seeds that lead nowhere and are kept one by one, 0.3 kB each. Of others only the number is."""
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
        """Count seeds that were not added, as their host or domain has its full number of URLs."""
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
