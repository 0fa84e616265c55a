"""The compiled scan finds what its source finds in the interpreter, and stays within its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content.parsers import html_scan
from tests.harness.budget import examples
from tests.harness.html_pages import PIECES
from tests.harness.interpreted import interpreted

INTERPRETED = interpreted("crawler.content.parsers.html_scan")


def found(module: ModuleType, page: bytes, *, is_xml: bool) -> tuple[list[int], str, str]:
    """Return the rows, the chosen lines and all lines."""
    scanned, content = module.scanned, module.content
    out, size, rows = scanned(page, is_xml, 100)
    chosen = content(out, size, is_all=False)
    out, size, _ = scanned(page, is_xml, 100)
    return rows, chosen, content(out, size, is_all=True)


@settings(max_examples=examples(400))
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.booleans())
def test_the_interpreter_finds_the_same(pieces: list[str], is_xml: bool) -> None:
    page = "".join(pieces).encode()
    assert found(html_scan, page, is_xml=is_xml) == found(INTERPRETED, page, is_xml=is_xml)


@settings(max_examples=examples(200))
@given(st.text(max_size=300), st.booleans())
def test_any_text_stays_within_bounds_in_the_interpreter(text: str, is_xml: bool) -> None:
    """An index out of bounds raises an error there."""
    page = text.replace("\0", "").encode(errors="replace")
    assert found(html_scan, page, is_xml=is_xml) == found(INTERPRETED, page, is_xml=is_xml)


def test_compiled_code_stays_within_its_memory(tmp_path: Path) -> None:
    """The tests of HTML, fingerprints and links, with all indexes checked: a negative one is an
    error too, where the interpreter takes an element from the end."""
    tests = ["test_html.py", "test_html_text.py", "test_html_limits.py", "test_html_judges.py"]
    tests += ["test_html_scan.py", "test_simhash.py", "test_url_scan.py"]
    checked = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
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
    folder = Path(__file__).parent
    done = subprocess.run(
        [*command, *(str(folder / each) for each in tests)],
        env=checked, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
