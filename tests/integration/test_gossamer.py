"""The console script in a folder without a project, and what it refuses.

In a user's own project it runs in test_users_project.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scrapy.exceptions import UsageError
from scrapy.utils.project import ENVVAR

from crawler.cli import gossamer
from crawler.cli.crawl import one_spider
from tests.harness.commands import PATIENCE_S, QUICK
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, page, site


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `gossamer` as installed: its modules are found, and nothing says which project."""
    env = {name: value for name, value in os.environ.items() if name != ENVVAR}
    return subprocess.run(
        [sys.executable, "-m", "crawler.cli.gossamer", *words],
        cwd=folder,
        env=env | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_crawl_in_an_empty_folder_and_what_it_says_to_type(tmp_path: Path) -> None:
    given = {**QUICK, "CRAWLER_RETRIES": 0}
    settings = [word for name, value in given.items() for word in ("-s", f"{name}={value}")]
    with site("127.0.0.77", {"/": page("/broken"), "/broken": Reply(status=500)}) as web:
        done = typed(tmp_path, "crawl", "-a", f"seeds={web.url('/')}", *settings)
    assert done.returncode == 0, done.stderr
    assert "all of them: gossamer frontier dead\n" in done.stdout
    counts = typed(tmp_path, "frontier", "counts")
    assert "done" in counts.stdout, counts.stderr


def test_the_spider_of_no_name_is_ours() -> None:
    assert one_spider([], ["shop", "web"], "gossamer crawl") == "web"
    assert one_spider(["shop"], ["shop", "web"], "gossamer crawl") == "shop"
    for args, known in [([], ["shop"]), (["shop", "web"], ["shop", "web"]), (["--x"], ["web"])]:
        with pytest.raises(UsageError, match="for example: gossamer crawl web -a seeds"):
            one_spider(args, known, "gossamer crawl")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "gossamer COMMAND"),
        (["--version"], "gossamer 0."),
        (["frontire", "counts"], "there is no command frontire; did you mean frontier?"),
        (["frontier", "hosts", "a", "b"], "gossamer: error: hosts takes nothing more"),
        (["crawl", "theirs"], "scrapy.cfg does not use the crawler: write ADDONS = "),
    ],
    ids=str,
)
def test_what_runs_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gossamer", *words])
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv(ENVVAR, "")  # to be put back as it was
    monkeypatch.delenv(ENVVAR)
    monkeypatch.chdir(tmp_path)
    if "theirs" in words:  # a project of Scrapy's, one folder above
        (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = plain_scrapy_settings\n")
        (tmp_path / "plain_scrapy_settings.py").write_text('BOT_NAME = "theirs"\n')
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
    if words and words[0] != "--version":
        with pytest.raises(SystemExit, match="2"):
            gossamer.main()
    else:
        gossamer.main()
    assert said in "".join(capsys.readouterr())
