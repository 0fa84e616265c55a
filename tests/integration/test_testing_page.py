"""docs/testing.md, followed to the letter: its files, its commands, and then its tests without the
web."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.harness.commands import PATIENCE_S
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, site

PAGE: Final = (PROJECT / "docs" / "testing.md").read_text(encoding="utf-8")
SHOP: Final = "https://shop.example/"
ROUTES: Final = {
    "/": Reply("<a class=lamp href=/table.html>1</a> <a class=lamp href=/floor.html>2</a>"),
    "/table.html": Reply("<h1>Table lamp</h1> <p class=price>12</p>"),
    "/floor.html": Reply("<h1>Floor lamp</h1> <p class=price>34.50</p>"),
}
BESIDE: Final = {  # what any project has
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
    "shop/__init__.py": "",
    "shop/spiders/__init__.py": "",
    "shop/settings.py": 'ADDONS = {"crawler.addon.Addon": 500}\nCRAWLER_MIN_DELAY_S = 0.01\n'
    'SPIDER_MODULES = ["crawler.spiders", "shop.spiders"]\n',
}


def files() -> dict[str, str]:
    """The blocks of Python, by the path that each begins with."""
    return dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


def commands() -> list[str]:
    return re.findall(
        r"(?m)^    ((?:gossamer|mkdir|cp) .*)$", PAGE.partition("```python\n# tests")[0]
    )


class Shop:
    """A project of a user's, in a folder of its own."""

    def __init__(self, folder: Path, root: str) -> None:
        self.folder = folder
        self.root = root
        for path, text in {**BESIDE, **files()}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text.replace(SHOP, root))

    def run(self, *command: str, **environment: str) -> str:
        paths = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT),  # as if ours were installed
        }
        others = {name: value for name, value in os.environ.items() if name != "CI"}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**others, **paths, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,  # its output is checked below
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Recorded; and closed."""
    with site("127.0.76.1", ROUTES) as web:
        shop = Shop(tmp_path_factory.mktemp("shop"), web.url("/"))
        shop.run("sh", "-ec", "\n".join(commands()).replace(SHOP, shop.root))
        shop.run("python", "-m", "pytest", "-q", "tests/test_lamps.py")
    return shop


def test_the_page_has_all_files_and_commands() -> None:
    assert list(files()) == [
        "shop/spiders/lamps.py",
        "tests/conftest.py",
        "tests/test_crawl.py",
        "tests/test_lamps.py",
    ]
    assert [line.split()[0] for line in commands()] == ["gossamer", "mkdir", "cp"]


def test_the_tests_of_the_page_pass_when_the_web_is_gone(shop: Shop) -> None:
    assert "3 passed" in shop.run("python", "-m", "pytest", "-q", CI="true")
    cassettes = shop.folder / "tests" / "fixtures" / "cassettes"
    assert sorted(path.name for path in cassettes.iterdir()) == [
        "test_the_price_is_read__plain.yaml",
        "test_the_price_is_read__with_cents.yaml",
    ]
