"""The check of the destination of the archive before a crawl begins: what it refuses, and what it
only waits for.

Running: a server that speaks S3.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from crawler.archive.delivery_stores import open_store
from crawler.model.types import ConfigError, StoreUnavailable
from tests.harness.delivery import PATIENCE_S, delivery, finish, is_empty
from tests.harness.waiting import wait_until
from tests.servers.redis_process import free_port
from tests.servers.s3 import BUCKET, UNSPOKEN, S3Server, environment

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running, patch.dict(os.environ, environment(running.port)):
        yield running


def test_a_bucket_that_is_there(server: S3Server, tmp_path: Path) -> None:
    assert str(open_store(f"s3://{BUCKET}/folder/", tmp_path)) == f"s3://{BUCKET}/folder"
    assert server.names() == [], "nothing is written to see whether it may be"


def test_a_bucket_that_is_not_there(server: S3Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no none-such"):
        open_store("s3://none-such/folder", tmp_path)


def test_a_store_that_is_down_is_no_wrong_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with patch.dict(os.environ, environment(free_port())):
        open_store(f"s3://{BUCKET}", tmp_path)
    assert "s3://archive cannot be reached yet" in caplog.text
    assert not [word for word in UNSPOKEN.values() if word in caplog.text]


def test_a_scheme_that_nothing_speaks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="want one of az, file, gs, s3"):
        open_store("s4://bucket", tmp_path)


@pytest.mark.parametrize(
    ("url", "package"),
    [
        pytest.param("s3://bucket/x", "s3fs", id="S3"),
        pytest.param("gs://bucket/x", "gcsfs", id="Google's"),
        pytest.param("abfs://bucket/x", "adlfs", id="Azure's"),
    ],
)
def test_a_package_that_is_missing(url: str, package: str, tmp_path: Path) -> None:
    """In a process of its own, which cannot import it whether or not it is installed."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from pathlib import Path\n"
        "from crawler.archive.delivery_stores import open_store\n"
        f"open_store({url!r}, Path({str(tmp_path)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert "ConfigError" in last
    assert last.endswith(f"pip install {package}")


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    """One that we made might be where a disk was to be mounted."""
    with pytest.raises(ConfigError, match="does not exist"):
        open_store(f"file://{tmp_path}/none", tmp_path)


def test_the_data_directory_is_no_destination(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(ConfigError, match="data directory itself"):
        open_store(f"file://{tmp_path}/link", tmp_path / "data")


def test_a_file_is_no_copy_of_itself(tmp_path: Path) -> None:
    """By any path: a file taken for delivered would be lost."""
    data, store = tmp_path / "data", tmp_path / "store"
    files = finish(data, "a")
    store.mkdir()
    (store / "warc").symlink_to(data / "warc")
    made = delivery(data, open_store(f"file://{store}", data))
    left = asyncio.run(made.close())
    assert len(left) == made.figures.refused == len(files)
    assert all((data / name).exists() for name in files)


def test_a_disk_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    store.mkdir()
    opened = open_store(f"file://{store}", data.parent)
    store.rename(tmp_path / "unmounted")
    with pytest.raises(StoreUnavailable):
        opened.exists("warc/a.warc.gz")
    files = finish(data, "a")
    made = delivery(data, opened)
    wait_until(lambda: made.figures.failures >= 2, PATIENCE_S, "two failures")
    assert not store.exists()
    (tmp_path / "unmounted").rename(store)
    assert asyncio.run(made.close()) == []
    assert is_empty(data)
    assert all((store / name).read_bytes() == content for name, content in files.items())
