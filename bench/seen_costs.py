"""What exact tests of whether a URL was seen cost: the bytes that three published methods move.

Source: Lee, Leonard, Wang, Loguinov, "IRLbot: Scaling to 6 Billion Pages and Beyond", WWW 2008,
which compares its DRUM with the methods of Mercator (in the variant that it calls Mercator-B) and
Polybot. Symbols in brackets are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCosts:
    """The overhead of each method [alpha]: bytes moved to and from the disk for each byte of the
    URLs tested. The defaults are those of the paper's tables."""

    pages: float  # [N]
    ram_bytes: float  # [R]
    disk_bytes: float  # for the buckets [D]
    links_of_page: float = 59  # [l]
    share_new: float = 1 / 9  # of the links [p]
    known_urls: float = 1e8  # at the beginning [U]
    url_bytes: float = 110  # [b]
    key_bytes: float = 8  # the hash of a URL [H]
    pointer_bytes: float = 4  # in memory [P]
    compression: float = 0.05  # of Polybot's URLs on disk [q]
    buffer_bytes: float = 256e3  # of an open file [M]

    @property
    def mercator(self) -> float:
        merged = self._merged_bytes(self.key_bytes) * (self.key_bytes + self.pointer_bytes)
        return 2 * merged / (self.url_bytes * self.ram_bytes) + 2 + self.share_new

    @property
    def polybot(self) -> float:
        merged = self._merged_bytes(self.url_bytes * self.compression)
        in_memory = self.url_bytes + 4 * self.pointer_bytes
        return 2 * merged * in_memory / (self.url_bytes * self.ram_bytes) + self.share_new

    @property
    def drum(self) -> float:
        merged = self._merged_bytes(self.key_bytes) / self.url_bytes
        in_memory = self.key_bytes + self.pointer_bytes
        on_disk = self.key_bytes + self.url_bytes
        # With more memory than this the disk, and not the number of buckets, bounds a batch.
        enough = 8 * self.buffer_bytes * self.disk_bytes * in_memory / on_disk
        if self.ram_bytes**2 < enough:
            central = 8 * self.buffer_bytes * in_memory * merged / self.ram_bytes**2
        else:
            central = on_disk * merged / self.disk_bytes
        return central + 2 + self.share_new + 2 * self.key_bytes / self.url_bytes

    def pages_per_s(self, overhead: float, disk_bytes_per_s: float) -> float:
        """Return the pages a second [S] that a disk of *disk_bytes_per_s* [W] allows a method of
        this *overhead*."""
        return disk_bytes_per_s / (overhead * self.url_bytes * self.links_of_page)

    def _merged_bytes(self, entry_bytes: float) -> float:
        """Return twice the mean size of the central file, which grows by each new URL."""
        links = self.pages * self.links_of_page
        return entry_bytes * (2 * self.known_urls + self.share_new * links)


def tiered_bytes(
    *, batches: int, batch_checks: float, share_new: float, fan_out: int, key_bytes: float = 8
) -> float:
    """Return the bytes that our own runs in tiers read and write in *batches* merges of
    *batch_checks* each, from an empty store on.

    Each merge reads all runs, which have the new keys of the merges before, and writes those of its
    own. Every fan_out**j merges, and for the largest such j, it then reads and writes their keys
    once more as one run. A batch touches each page: it has more checks than a run has pages.
    """
    new_bytes = batch_checks * share_new * key_bytes
    moved = 0
    for number in range(1, batches + 1):
        merged = 1
        while number % (merged * fan_out) == 0:
            merged *= fan_out
        moved += (number - 1) + 1 + (2 * merged if merged > 1 else 0)
    return moved * new_bytes
