"""What reads pages is compiled once for all processes, and runs where it cannot be compiled.

Rule: numba takes half a minute of CPU, so what it compiled for one test is used by the next. That
is with all indexes checked, which makes no difference to who compiles.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Event

import msgspec
import pytest

from crawler.content import compiling
from crawler.report.summary import Summary, text
from tests.harness.commands import PATIENCE_S
from tests.harness.crawling import crawl
from tests.servers.loopback import Ask, Reply, page, site

LOAD = """
import logging
from crawler.content.compiling import Loading
from crawler.content.parsers.html import HtmlParser
from crawler.model.page import Source
from crawler.page.simhash import fingerprint
logging.basicConfig(level=logging.DEBUG)  # as Scrapy's own is
logging.getLogger("crawler").setLevel(logging.INFO)
loading = Loading()
loading.loaded.result()
page = b"<title>T</title><main><p>one &amp; two<p><a href=x>three</a></main>"
parsed = HtmlParser().parse(Source("", "text/html", page))
assert (parsed.title, parsed.text) == ("T", "one & two\\nthree"), parsed
assert fingerprint("one two three four", 3) is not None
"""
COUNT = """
from crawler.content.parsers import html_scan
print(loading.ready_s, sum(html_scan.scan.stats.cache_misses.values()))
"""


def started(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a cache of its own."""
    folder = tmp_path_factory.mktemp("compiled")
    return {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder)}


def test_of_several_processes_one_compiles(checked: dict[str, str]) -> None:
    processes = [started(LOAD + COUNT, **checked) for _ in range(3)]
    ended = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert sorted(out.split()[-1] for out, _ in ended) == ["0", "0", "1"]
    said = sorted(line.partition(":")[2] for _, log in ended for line in log.splitlines())
    others = "crawler.content.compiling:Waiting for another process, which compiles what reads"
    assert [line.partition(" pages")[0] for line in said] == [
        "crawler.content.compiling:Compiling what reads",
        *[others] * 2,
    ]
    assert all(0 < float(out.split()[0]) < inf for out, _ in ended)
    out, log = started(LOAD + COUNT, **checked).communicate()
    assert (out.split(), log) == (["inf", "0"], "")


def test_compiled_code_stays_within_its_memory(checked: dict[str, str]) -> None:
    """The tests of HTML, fingerprints, counts and links, with all indexes checked: a negative one
    is an error too, where the interpreter takes an element from the end."""
    tests = ["test_html.py", "test_html_text.py", "test_html_limits.py", "test_html_judges.py"]
    tests += ["test_html_scan.py", "test_simhash.py", "test_text_counts.py", "test_url_scan.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "not linear and not memory",
    ]
    folder = Path(__file__).parents[1] / "unit"
    done = subprocess.run(
        [*command, *(str(folder / each) for each in tests)],
        env={**os.environ, **checked}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_rate_does_not_count_the_time_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Event()

    def served(ask: Ask) -> Reply:
        asked.set()
        return page()

    def compiled_late(on_wait: Callable[[], None]) -> None:
        on_wait()
        assert asked.wait(PATIENCE_S)

    monkeypatch.setattr(compiling, "load", compiled_late)
    with site("127.0.0.1", {"/": served}) as web:
        crawl(tmp_path, seeds=web.url("/"))
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes(), type=Summary)
    assert (summary.pages, summary.compiling_s > 0) == (1, True)
    working_s = summary.duration_s - summary.compiling_s
    assert summary.pages_per_s == pytest.approx(1 / working_s, rel=0.2)
    assert "of compiling)" in text(summary)


def test_without_numba_pages_are_read_slowly() -> None:
    process = started("import sys; sys.modules['numba'] = None\n" + LOAD)
    _, log = process.communicate()
    assert process.returncode == 0, log
    assert log.count("numba is not installed") == 1


def test_a_read_only_package_is_compiled_into_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    compiling.cache_in(tmp_path)
    assert "NUMBA_CACHE_DIR" not in os.environ
    monkeypatch.setattr(compiling, "_PACKAGE", tmp_path / "none")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # so that it is taken back
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    compiling.cache_in(tmp_path)
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")


def test_what_reads_pages_is_loaded_when_there_are_files_again() -> None:
    refusals = [OSError(errno.EMFILE, "too many open files"), FileNotFoundError()]

    def load() -> None:
        if refusals:
            raise refusals.pop(0)

    with pytest.raises(FileNotFoundError):
        compiling.when_files_are_free(load, pause_s=0.0)
    refusals.append(OSError(errno.ENFILE, "too many open files in the system"))
    compiling.when_files_are_free(load, pause_s=0.0)
    assert not refusals
