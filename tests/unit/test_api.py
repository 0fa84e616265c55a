"""What users import is all there, and a parser that imports it does not load Scrapy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crawler import api
from tests.harness.sources import PROJECT


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_of_the_api_exists(name: str) -> None:
    assert getattr(api, name).__name__ == name


def test_scrapy_is_loaded_only_by_what_needs_it() -> None:
    program = "import sys; from crawler.api import Link; print('scrapy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
