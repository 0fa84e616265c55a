"""The index of near-duplicates dies at every step: afterwards each finished page is found, once."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable
from hashlib import sha1
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from crawler.duplicates.index.manifest import IndexFolder, IndexLimits, Manifest
from crawler.duplicates.index.near_index import NearIndex, open_index
from crawler.frontier import records as keys
from crawler.frontier.records import encode
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import Claim
from tests.harness.killed_processes import preload, run_until_killed

LIVES = 8
MOST_PAGES = 400  # of one life: 25 runs and their merges

preload(__name__)

# Small: most of the deaths come while a run is written or merged.
SMALL: Final = IndexLimits(
    newest_pages=16,
    max_waiting_batches=4,
    merge_ratio=2,
    piece_fingerprints=50,
    ten_orders=300,
    max_stretch=16,
)


def page(life: int, number: int) -> Claim:
    """Always the same for the same numbers; every fifth has the text of a page before."""
    random = Random(life * 1_000_003 + number)
    simhash = 5 if number % 5 == 4 else random.getrandbits(64)
    digest = sha1(b"%d/%d" % (life, number)).digest()
    return Claim(digest, f"http://example.com/{life}/{number}", at=float(number), simhash=simhash)


def live(folder: Path, life: int, pipe: Connection) -> None:
    """Finish pages as fast as it can, each in one write as the frontier does it, and send their
    numbers at once."""
    store = RocksStore(folder / "frontier")
    index = open_index(folder / "near", store, SMALL)
    for number in itertools.count():
        claim = page(life, number)
        assert claim.simhash is not None
        note = keys.numbered(b"", claim.simhash)
        store.write({keys.DIGEST + claim.digest: encode(claim), keys.NEAR + claim.digest: note})
        index.add(claim.simhash, claim.digest)
        if index.is_behind:
            index.flush()
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
    index = open_index(tmp_path / "near", store, SMALL)
    for claim in finished:
        assert claim.simhash is not None
        assert any(each.fingerprint == claim.simhash for each in index.near(claim.simhash, 0))
        digests, count = index.pages(claim.simhash, 10**6)
        assert digests.count(claim.digest[:12]) == 1
        assert count == len(set(digests)), "nothing is there twice"
    index.close()
    store.close()


class Copied(IndexFolder):
    """Copies itself before and after every step."""

    def __init__(self, path: Path, copies: Path, added: list[int], kept: list[bytes]) -> None:
        super().__init__(path)
        self._copies = copies
        self._added = added
        self._kept = kept
        self.taken: list[tuple[Path, int, list[bytes]]] = []

    def save(self, manifest: Manifest) -> None:
        self._copy()
        super().save(manifest)
        self._copy()

    def begin(self, name: str) -> Path:
        self._copy()
        return super().begin(name)

    def commit(self, name: str) -> None:
        self._copy()
        super().commit(name)
        self._copy()

    def remove(self, name: str) -> None:
        super().remove(name)
        self._copy()

    def _copy(self) -> None:
        copy = self._copies / str(len(self.taken))
        kept, added = list(self._kept), len(self._added)
        shutil.copytree(self.path, copy)
        self.taken.append((copy, added, kept))


def test_every_step_leaves_an_index_that_opens_and_is_complete(tmp_path: Path) -> None:
    limits = IndexLimits(
        newest_pages=4,
        max_waiting_batches=2,
        merge_ratio=2,
        piece_fingerprints=5,
        ten_orders=12,
        max_stretch=8,
    )
    random = Random(1)
    pages = [random.getrandbits(64) for _ in range(40)]
    added: list[int] = []
    kept: list[bytes] = []
    (tmp_path / "copies").mkdir()
    folder = Copied(tmp_path / "near", tmp_path / "copies", added, kept)
    index = NearIndex(folder, Manifest(), kept.extend, limits)
    for number, one in enumerate(pages):
        added.append(one)
        index.add(one, number.to_bytes(20, "little"))
        if number % 9 == 8:
            index.flush()
    index.close()
    assert len(folder.taken) > 30
    for copy, count, on_disk in folder.taken:
        _check_recovered(copy, pages[:count], on_disk, limits)


def _check_recovered(
    copy: Path, added: list[int], on_disk: Iterable[bytes], limits: IndexLimits
) -> None:
    folder = IndexFolder(copy)
    index = NearIndex(folder, folder.load() or Manifest(), lambda digests: None, limits)
    for digest in on_disk:
        number = int.from_bytes(digest, "little")
        assert index.pages(added[number], 2) == ([digest[:12]], 1)
        assert index.near(added[number] ^ 1 << 63, 3)
    index.close()
    shutil.rmtree(copy)
