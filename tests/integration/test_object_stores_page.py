"""The commands of docs/object-stores.md that read delivered files, run as they stand there.

Running: a server that speaks S3.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from crawler.archive.capture import Capture
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.writer import WarcSettings, WarcWriter
from tests.harness.delivery import delivery, object_store
from tests.servers.s3 import BUCKET, S3Server, environment

PAGE = Path(__file__).parents[2] / "docs" / "object-stores.md"
URL = "http://example.com/page"


def archived(data: Path) -> None:
    writer = WarcWriter(WarcSettings(folder=data / "warc", origin="h-1"), [CdxjCompanion()])
    place = writer.append(Capture(url=URL, fetched_at=1767323045.0, status=200, body=b"content"))
    writer.close()
    row = {
        "url": [URL],
        "warc_file": [place.file],
        "warc_offset": [place.offset],
        "warc_length": [place.length],
    }
    pq.write_table(pa.table(row), data / "warc" / place.file.replace(".warc.gz", ".parquet"))


def test_the_lines_of_the_page_run(tmp_path: Path) -> None:
    archived(tmp_path)
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    with S3Server() as s3:
        there = environment(s3.port)
        with patch.dict(os.environ, there):
            made = delivery(tmp_path, object_store(f"s3://{BUCKET}/crawl"))
            assert asyncio.run(made.close()) == []
        done = run(code[1].replace("my-bucket", BUCKET), {**os.environ, **there})
    assert done.startswith(f"{URL} b'WARC/1.1\\r\\nWARC-Type: response")


def run(code: str, environ: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=PAGE.parents[1],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
