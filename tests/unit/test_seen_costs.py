"""The published tables of what a test of whether a URL was seen costs, cell by cell."""

from __future__ import annotations

import pytest

from bench.seen_costs import SeenCosts

# Bytes moved for each byte of the URLs, with 1 GB of memory and 4.39 TB of disk. The published
# values seem to be cut off, not rounded.
FIXED_DISK = [
    (8e8, 11.61, 68.7, 2.267),
    (8e9, 94.0, 663.4, 2.360),
    (8e10, 917.9, 6_610.6, 3.282),
    (8e11, 9_156.4, 66_082.6, 12.51),
    (8e12, 91_541.9, 660_802.6, 104.8),
]
# With a disk that grows with the crawl, for 4 GB and 8 GB of memory.
GROWING_DISK = [
    (8e8, 4.487, 2.303, 3.299, 2.303),
    (8e9, 25.08, 2.708, 13.60, 2.708),
    (8e10, 231.0, 3.329, 116.6, 3.329),
    (8e11, 2_290.7, 3.329, 1_146.4, 3.329),
    (8e12, 22_887, 8.115, 11_444.6, 3.721),
]


def close(value: float) -> object:
    return pytest.approx(value, rel=0.01)


def with_growing_disk(pages: float, ram_bytes: float) -> SeenCosts:
    """The disk holds all keys of the end, at least 1 TB and no more than DRUM can use. How it grows
    is inferred: it gives every cell of the table."""
    model = SeenCosts(pages=pages, ram_bytes=ram_bytes, disk_bytes=0)
    keys = model.known_urls + model.share_new * pages * model.links_of_page
    in_memory = model.key_bytes + model.pointer_bytes
    most = ram_bytes**2 * (model.key_bytes + model.url_bytes) / (8 * model.buffer_bytes * in_memory)
    disk_bytes = min(max(1e12, model.key_bytes * keys), most)
    return SeenCosts(pages=pages, ram_bytes=ram_bytes, disk_bytes=disk_bytes)


@pytest.mark.parametrize(("pages", "mercator", "polybot", "drum"), FIXED_DISK)
def test_the_table_of_a_fixed_disk(
    pages: float, mercator: float, polybot: float, drum: float
) -> None:
    costs = SeenCosts(pages=pages, ram_bytes=1e9, disk_bytes=4.39e12)
    assert costs.mercator == close(mercator)
    assert costs.polybot == close(polybot)
    assert costs.drum == close(drum)


@pytest.mark.parametrize(("pages", "mercator_4", "drum_4", "mercator_8", "drum_8"), GROWING_DISK)
def test_the_table_of_a_growing_disk(
    pages: float, mercator_4: float, drum_4: float, mercator_8: float, drum_8: float
) -> None:
    four, eight = with_growing_disk(pages, 4e9), with_growing_disk(pages, 8e9)
    assert (four.mercator, four.drum) == (close(mercator_4), close(drum_4))
    assert (eight.mercator, eight.drum) == (close(mercator_8), close(drum_8))


def test_the_largest_crawl_costs_mercator_3075_times_as_much_as_drum() -> None:
    costs = with_growing_disk(8e12, 8e9)
    assert costs.mercator / costs.drum == pytest.approx(3075.5, rel=0.001)


def test_the_rates_that_a_disk_allows() -> None:
    costs = SeenCosts(pages=8e9, ram_bytes=1e9, disk_bytes=4.39e12)
    rates = [
        costs.pages_per_s(overhead, 101.25e6)
        for overhead in (costs.mercator, costs.polybot, costs.drum)
    ]
    assert rates == [close(166), close(23.5), close(6_612)]


def test_drum_costs_the_same_on_both_sides_of_its_bound() -> None:
    """Where memory is just enough for the disk, the two formulas agree."""
    disk_bytes, buffer_bytes = 1e12, 256e3
    enough = (8 * buffer_bytes * disk_bytes * 12 / 118) ** 0.5
    below = SeenCosts(pages=8e10, ram_bytes=enough * 0.9999, disk_bytes=disk_bytes)
    above = SeenCosts(pages=8e10, ram_bytes=enough * 1.0001, disk_bytes=disk_bytes)
    assert below.drum == pytest.approx(above.drum, rel=0.001)
