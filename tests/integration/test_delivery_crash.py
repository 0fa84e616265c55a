"""Dozens of lives of a delivery, each ended by `kill -9`: at every moment each finished file is
here or in the store, whole, and what is seen in the store is whole and not without its WARC file.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from unittest.mock import patch

from crawler.archive.delivery_stores import FolderStore, read_address
from crawler.archive.warc_file import OPEN_SUFFIX, open_name
from tests.harness.delivery import (
    IN_PARTS_BYTES,
    PATIENCE_S,
    deliver,
    delivery,
    finish,
    is_empty,
    local,
    object_store,
)
from tests.harness.killed_processes import SPAWN, preload
from tests.servers.s3 import BUCKET, S3Server, environment
from tests.servers.troubled import Call, Fault, TroubledNetwork

URL = f"s3://{BUCKET}/crawl"
LIVES = 30
CALLS = 30  # that a life makes at most: for three files in parts, or for seven that are not

preload("tests.harness.delivery")


class DeliveryCheck:
    """A check of both places from outside, with a list of all files that were ever made."""

    def __init__(self, files: Mapping[str, bytes], content: Callable[[str], bytes]) -> None:
        self._files = files
        self._content = content
        self._stored: set[str] = set()  # what is there stays as it is

    def check(self, data: Path, names: list[str]) -> None:
        for name in set(names) - self._stored:
            assert self._content(name) == self._files[name], f"{name} is not whole in the store"
            self._stored.add(name)
        here = local(data)
        for name, content in self._files.items():
            assert name in self._stored or here.get(name) == content, f"{name} is lost"
        for name in self._stored:
            warc = f"{name.rpartition('.')[0]}.warc.gz"
            assert name.endswith(".warc.gz") or warc in self._stored, f"{name} without its WARC"

    def has_seen_all(self) -> bool:
        return self._stored == self._files.keys()


class Killer:
    """Kill one life: at a request, before or after the server has done it, and a moment later, when
    perhaps no request is open any more."""

    def __init__(self, random: Random) -> None:
        self._call = random.randrange(CALLS)
        self._fault = random.choice((Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.NONE))
        self._later_s = random.choice((0.0, 0.0, random.uniform(0, 0.01)))
        self._born = threading.Event()
        self._process: ForkServerProcess | None = None

    def deal(self, call: Call) -> Fault:
        if call.number < self._call:
            return Fault.NONE
        assert self._born.wait(PATIENCE_S)
        assert self._process is not None
        if self._later_s:
            threading.Timer(self._later_s, self._process.kill).start()
        else:
            self._process.kill()
        return self._fault

    def watch(self, process: ForkServerProcess) -> None:
        self._process = process
        self._born.set()


def life(data: Path, url: str, port: int) -> ForkServerProcess:
    process = SPAWN.Process(target=deliver, args=(data, url, port))
    process.start()
    return process


def finish_many(data: Path, large: int, large_bytes: int) -> dict[str, bytes]:
    sizes = [large_bytes] * large + [3000] * (65 - large)
    Random(1).shuffle(sizes)
    files: dict[str, bytes] = {}
    for number, size in enumerate(sizes):
        files |= finish(data, f"crawl-{number:03}", size)
    return files


def test_kills_during_the_delivery_to_an_object_store(tmp_path: Path) -> None:
    files = finish_many(tmp_path, 2, IN_PARTS_BYTES)
    random = Random(20260103)
    with S3Server() as s3, TroubledNetwork(s3.port) as network:
        delivered = DeliveryCheck(files, lambda name: s3.content(f"crawl/{name}"))
        for _ in range(LIVES):
            network.end_trouble()
            killer = Killer(random)
            network.deal = killer.deal
            process = life(tmp_path, URL, network.port)
            killer.watch(process)
            process.join(PATIENCE_S)
            assert process.exitcode == -9, "all was brought: give it more files"
            delivered.check(tmp_path, [name.removeprefix("crawl/") for name in s3.names()])
        network.end_trouble()
        with patch.dict(os.environ, environment(s3.port)):
            assert asyncio.run(delivery(tmp_path, object_store(URL)).close()) == []
        delivered.check(tmp_path, [name.removeprefix("crawl/") for name in s3.names()])
        assert delivered.has_seen_all() and is_empty(tmp_path)
        assert s3.unfinished() == []


def test_kills_during_the_delivery_to_a_folder(tmp_path: Path) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    store.mkdir()
    files = finish_many(data, 10, 2_000_000)
    random = Random(20260104)
    delivered = DeliveryCheck(files, lambda name: (store / name).read_bytes())
    for _ in range(LIVES):
        before = seen(store)
        process = life(data, f"file://{store}", 0)
        while seen(store) == before and process.is_alive():
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.01))
        process.kill()
        process.join()
        delivered.check(data, seen(store))
    folder = FolderStore(read_address(f"file://{store}"))
    assert asyncio.run(delivery(data, folder).close()) == []
    delivered.check(data, seen(store))
    assert delivered.has_seen_all() and is_empty(data)
    assert not list(store.rglob(f"*{OPEN_SUFFIX}"))


def test_killed_between_the_two_names_of_a_file_the_first_is_removed(tmp_path: Path) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    store.mkdir()
    finish(data, "crawl-000", 3000)
    (store / "warc").mkdir()
    target = store / "warc" / "crawl-000.warc.gz"
    target.write_bytes((data / "warc" / target.name).read_bytes())
    os.link(target, open_name(target))
    folder = FolderStore(read_address(f"file://{store}"))
    assert asyncio.run(delivery(data, folder).close()) == []
    assert is_empty(data) and target.exists()
    assert not list(store.rglob(f"*{OPEN_SUFFIX}"))


def seen(store: Path) -> list[str]:
    """What has its final name."""
    found = (path for path in store.rglob("*") if path.is_file())
    return sorted(
        str(path.relative_to(store)) for path in found if not path.name.endswith(OPEN_SUFFIX)
    )
