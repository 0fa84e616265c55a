"""A process that finishes pages as fast as it can until it is killed; each page it has finished
it tells at once, over a pipe."""

from __future__ import annotations

from hashlib import sha1
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from crawler.duplicates.index.index import open_index
from crawler.duplicates.index.manifest import IndexLimits
from crawler.frontier import records as keys
from crawler.frontier.records import encode
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import Claim

# Small: most of the deaths come while a run is written or merged.
SMALL: Final = IndexLimits(newest=16, waiting=4, ratio=2, piece=50, ten_orders=300, stretch=16)


def page(life: int, number: int) -> Claim:
    """Always the same for the same numbers; every fifth has the text of a page before."""
    random = Random(life * 1_000_003 + number)
    simhash = 5 if number % 5 == 4 else random.getrandbits(64)
    digest = sha1(b"%d/%d" % (life, number)).digest()
    return Claim(digest, f"http://example.com/{life}/{number}", at=float(number), simhash=simhash)


def live(folder: Path, life: int, pipe: Connection) -> None:
    """Until killed. A page is finished in one write, as the frontier does it."""
    store = RocksStore(folder / "frontier")
    index = open_index(folder / "near", store, SMALL)
    for number in count():
        claim = page(life, number)
        assert claim.simhash is not None
        note = keys.numbered(b"", claim.simhash)
        store.write({keys.DIGEST + claim.digest: encode(claim), keys.NEAR + claim.digest: note})
        index.add(claim.simhash, claim.digest)
        if index.is_behind:
            index.flush()
        pipe.send_bytes(str(number).encode())
