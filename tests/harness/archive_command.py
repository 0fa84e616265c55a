"""Call `scrapy archive` in this process, as a user types it."""

from __future__ import annotations

import io
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings

from tests.harness.sources import PROJECT


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


def archive(data: Path, *words: str, **settings: object) -> CommandResult:
    """The command in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    command = ["scrapy", "archive", *words]
    given = {"CRAWLER_DATA_DIR": data, **settings}
    for name, value in given.items():
        command += ["-s", f"{name}={value}"]
    chosen = Settings()
    chosen.setmodule("crawler.settings", priority="project")
    with (
        chdir(PROJECT),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        execute(command, chosen)
    out.flush()
    assert isinstance(ended.value.code, int)
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    return CommandResult(ended.value.code, written.getvalue(), err.getvalue())


def warc_of(data: Path) -> Path:
    (warc,) = (data / "warc").glob("*.warc.gz")
    return warc


def packed(data: Path, out: Path) -> Path:
    assert archive(data, "pack", str(out)).code == 0
    return out
