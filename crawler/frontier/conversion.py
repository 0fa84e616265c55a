"""Conversion of frontiers of earlier versions.

Rule: each step is one write, so a conversion that is cut off goes on at the next start.

Format 1 had each seen URL as a key of the store, and each waiting URL on its own. The waiting URLs
are read as they are: `records.split_urls` and `records.decode_domain` know both forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.drum import Drum
from crawler.frontier.port import OrderedStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.seen import seen_manifest
from crawler.frontier.staging import all_records

_SEEN: Final = b"s"  # and 8 bytes: the key of a seen URL
_STEP: Final = 1_000_000


def convert_seen(store: OrderedStore, runs: RunFolder) -> Iterator[int]:
    """Move the seen URLs of format 1 from *store* to sorted *runs*. Yields how many were moved, a
    million at a time. Raises StoreUnavailable."""
    if not store.scan(_SEEN, keys.prefix_end(_SEEN), 1):
        return
    drum = Drum(runs, seen_manifest(store))
    moved = 0
    while names := [name for name, _ in islice(all_records(store, _SEEN), _STEP)]:
        drum.update(np.array([keys.number_of(name) for name in names], np.uint64))
        merged = drum.merge()
        store.write({keys.SEEN_RUNS: merged.manifest.sealed(), **dict.fromkeys(names)})
        drum.adopt(merged)
        moved += len(names)
        yield moved
