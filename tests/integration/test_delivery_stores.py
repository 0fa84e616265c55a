"""The guarantees of every destination: an object store, a folder, and addresses of neither kind.

Running: a server that speaks S3, of the tests' own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import SEEK_END
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import pytest

from crawler.archive.delivery_stores import (
    FolderStore,
    NameTaken,
    ObjectStore,
    Store,
    StoreAddress,
    deliver_file,
    read_address,
    replace_stored,
)
from crawler.model.types import ConfigError, StoreUnavailable
from tests.harness.delivery import IN_PARTS_BYTES, object_store
from tests.servers.s3 import BUCKET, S3Server, environment

NAME = "warc/a.warc.gz"


class Seen(Protocol):
    """A store and its content as read from outside."""

    @property
    def store(self) -> Store: ...

    def names(self) -> list[str]: ...

    def content(self, name: str) -> bytes: ...

    def put(self, name: str, content: bytes) -> None: ...


class SeenBucket:
    def __init__(self, server: S3Server) -> None:
        self._server = server
        self.store: Store = object_store(f"s3://{BUCKET}/crawl")

    def names(self) -> list[str]:
        return [name.removeprefix("crawl/") for name in self._server.names()]

    def content(self, name: str) -> bytes:
        return self._server.content(f"crawl/{name}")

    def put(self, name: str, content: bytes) -> None:
        self._server.put(f"crawl/{name}", content)


class SeenFolder:
    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder
        self.store = store

    def names(self) -> list[str]:
        found = (path for path in self._folder.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self._folder)) for path in found)

    def content(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def put(self, name: str, content: bytes) -> None:
        (self._folder / name).parent.mkdir(exist_ok=True)
        (self._folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running, patch.dict(os.environ, environment(running.port)):
        yield running


@pytest.fixture(params=["s3", "folder", "by fsspec, but no object store"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Seen:
    folder = tmp_path / "store"
    folder.mkdir()
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("server")
        server.empty()
        return SeenBucket(server)
    if request.param == "folder":
        return SeenFolder(folder, FolderStore(read_address(f"file://{folder}")))
    return SeenFolder(folder, ObjectStore(StoreAddress(f"file://{folder}")))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"content")
    return path


def brought(seen: Seen, file: Path, name: str = NAME) -> int:
    """Return how many pieces it reported as moved."""
    moved: list[None] = []
    deliver_file(seen.store, file, name, lambda: moved.append(None))
    return len(moved)


def test_the_destination_exists(seen: Seen) -> None:
    seen.store.check()


def test_a_file_is_brought(seen: Seen, file: Path) -> None:
    assert brought(seen, file) > 0
    assert seen.names() == [NAME]
    assert seen.content(NAME) == b"content"
    assert file.exists()


def test_twice_is_once(seen: Seen, file: Path) -> None:
    """We died before we could remove it here."""
    brought(seen, file)
    brought(seen, file)
    assert seen.names() == [NAME]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b"CONTENT", id="of the same size"),
        pytest.param(b"conten", id="shorter"),
        pytest.param(b"content.", id="longer"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_other_content_is_never_written_over(seen: Seen, file: Path, other: bytes) -> None:
    seen.put(NAME, other)
    with pytest.raises(NameTaken, match=NAME):
        brought(seen, file)
    assert seen.content(NAME) == other


def test_a_name_taken_in_the_last_moment_is_not_written_over(seen: Seen, file: Path) -> None:
    seen.put(NAME, b"other")
    assert not seen.store.put(file, NAME, lambda: None)
    assert seen.content(NAME) == b"other"
    assert seen.names() == [NAME]


@pytest.mark.parametrize(
    "size_bytes",
    [
        pytest.param(0, id="empty"),
        pytest.param(IN_PARTS_BYTES, id="in parts"),
        pytest.param(IN_PARTS_BYTES // 2, id="in one large piece"),
    ],
)
def test_any_size(seen: Seen, tmp_path: Path, size_bytes: int) -> None:
    file = tmp_path / "sized"
    file.write_bytes(os.urandom(size_bytes))
    brought(seen, file)
    assert seen.content(NAME) == file.read_bytes()


def test_a_stored_file_can_be_discarded(seen: Seen, file: Path) -> None:
    brought(seen, file)
    seen.store.discard(NAME)
    assert seen.names() == []
    assert not seen.store.exists(NAME)


def test_nothing_holds_nothing(seen: Seen, file: Path) -> None:
    with pytest.raises(StoreUnavailable):
        seen.store.matches(file, NAME, lambda: None)


def test_the_text_of_a_destination_is_its_address(seen: Seen) -> None:
    assert str(seen.store).startswith(("s3://archive/crawl", "file:///"))


@pytest.mark.parametrize("size_bytes", [100, IN_PARTS_BYTES], ids=["small", "in parts"])
def test_a_file_is_replaced(seen: Seen, file: Path, size_bytes: int) -> None:
    brought(seen, file)
    file.write_bytes(b"x" * size_bytes)
    if isinstance(seen, SeenFolder) and isinstance(seen.store, ObjectStore):
        with pytest.raises(ConfigError, match="replaced in one step"):
            replace_stored(seen.store, file, NAME, lambda: None)
        return
    for _ in range(2):
        replace_stored(seen.store, file, NAME, lambda: None)
        assert seen.names() == [NAME] and seen.content(NAME) == file.read_bytes()


def test_what_is_stored_is_listed_and_read(seen: Seen) -> None:
    assert seen.store.names("warc") == []
    content = bytes(range(256)) * 4096
    seen.put(NAME, content)
    seen.put("warc/b", b"")
    assert seen.store.names("warc") == [NAME, "warc/b"]
    with seen.store.open(NAME) as stored:
        assert stored.read(3) == content[:3]
        stored.seek(300_001)
        assert (stored.read(), stored.tell()) == (content[300_001:], len(content))
        stored.seek(-2, SEEK_END)
        assert stored.read(9) == content[-2:]
    with seen.store.open("warc/b") as stored:
        assert stored.read() == b""
    with pytest.raises(FileNotFoundError):
        seen.store.open("warc/c")
