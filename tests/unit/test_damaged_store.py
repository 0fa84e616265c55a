"""RocksDB with damaged files: an answer is right or names the file, and a damaged log is said."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import DataDirError, StoreUnavailable
from tests.harness.budget import examples


def test_a_damaged_table_answers_right_or_is_named(tmp_path: Path) -> None:
    """Flip a byte at a random place of RocksDB's files, and read all."""
    expected = {}
    with closing(RocksStore(tmp_path / "whole")) as store:
        dice = random.Random(1)
        for number in range(3000):
            expected[b"x%05d" % number] = dice.randbytes(200)
        for begin in range(0, 3000, 500):
            keys = sorted(expected)[begin : begin + 500]
            store.write({key: expected[key] for key in keys})
        store.checkpoint(tmp_path / "tables")  # all of it in a table
    (table,) = (tmp_path / "tables").glob("*.sst")
    content = table.read_bytes()
    refused = 0
    for number in range(examples(60)):
        at = random.Random(number).randrange(len(content))
        table.unlink()  # it is a link to that of the store
        table.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            with closing(RocksStore(tmp_path / "tables", read_only=True)) as store:
                read = {key: store.get(key) for key in expected}
                assert dict(store.scan(b"x", b"y", 10_000)) == expected
        except (DataDirError, StoreUnavailable) as error:
            check_damage(str(error), table)
            refused += 1
        else:
            assert read == expected
    assert refused > examples(60) // 2


def check_damage(message: str, table: Path) -> None:
    assert table.name in message
    assert "snapshot" in message and "damaged" in message


@pytest.mark.parametrize("damage", ["flip", "zeros"])
def test_a_damaged_log_goes_back_to_the_moment_before_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    with closing(RocksStore(tmp_path / "open")) as store:
        for number in range(1000):
            store.write({b"x%05d" % number: bytes(200), b"last": b"%d" % number})
        shutil.copytree(tmp_path / "open", tmp_path / "store")  # as `kill -9` leaves it
    (log,) = (tmp_path / "store").glob("*.log")
    content = bytearray(log.read_bytes())
    at = len(content) // 2
    content[at] ^= 1
    if damage == "zeros":
        content[at : at + 4096] = bytes(4096)
    log.write_bytes(content)
    with closing(RocksStore(tmp_path / "store")) as store:
        last = int(store.get(b"last") or b"-1")
        there = len(store.scan(b"x", b"y", 2000))
    assert there == last + 1 and 300 < there < 700, "a moment between the writes"
    assert "could not be read to its end" in caplog.text
    caplog.clear()
    with closing(RocksStore(tmp_path / "store")) as store:
        assert len(store.scan(b"x", b"y", 2000)) == there
    assert caplog.text == "", "it is said once"
