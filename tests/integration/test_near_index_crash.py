"""The process dies at any moment: afterwards each finished page is found, once."""

from __future__ import annotations

import itertools
from hashlib import sha1
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import Candidate, Claim, Done, HostKey
from tests.harness.killed_processes import preload, run_until_killed

LIVES = 8
MOST_PAGES = 400  # of one life

preload(__name__)


def page(life: int, number: int) -> Claim:
    """Always the same for the same numbers; every fifth has the text of a page before."""
    random = Random(life * 1_000_003 + number)
    simhash = 5 if number % 5 == 4 else random.getrandbits(64)
    digest = sha1(b"%d/%d" % (life, number)).digest()
    return Claim(digest, f"http://example.com/{life}/{number}", at=float(number), simhash=simhash)


def live(folder: Path, life: int, pipe: Connection) -> None:
    """Finish pages as fast as it can, and send their numbers at once."""
    frontier = open_frontier(folder, FrontierLimits(), life * 1e6)
    index = FingerprintIndex(frontier.records, folder)
    for number in itertools.count():
        claim = page(life, number)
        assert claim.simhash is not None
        host = HostKey(f"{life}.{number}.example.com")
        now = life * 1e6 + number
        key = life << 40 | number
        frontier.add([Candidate(url=claim.url, key=key, host=host, domain=host)], now)
        (lease, *_) = frontier.lease(now)
        is_known = index.near(claim.simhash, 0)
        frontier.finish(lease, Done(claim=claim), now)
        if not is_known:
            index.add(claim.simhash)
        pipe.send_bytes(str(number).encode())


def finished_by(folder: Path, life: int, pages: int) -> list[Claim]:
    """Run a life, killed once it has sent as many *pages*, in the middle of its work."""
    sent = run_until_killed(live, folder, life, messages=pages)
    return [page(life, int(number)) for number in sent]


def test_finished_pages_are_found_after_any_number_of_kills(tmp_path: Path) -> None:
    random = Random(20260104)
    finished: list[Claim] = []
    for life in range(LIVES):
        finished += finished_by(tmp_path, life, random.randrange(1, MOST_PAGES))
    store = RocksStore(tmp_path / "frontier")
    index = FingerprintIndex(store, tmp_path)
    for claim in finished:
        assert claim.simhash is not None
        assert index.near(claim.simhash ^ 1 << 63, 3) == [(1, claim.simhash)]
        digests = index.pages(claim.simhash, 10**6)
        assert digests.count(claim.digest) == 1
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["frontier", "seen"], "nothing else is left"
    index.close()
    store.close()
