"""The command lines of README.md, and of two pages that were once part of it, as a reader types
them, against pages on loopback.

Rule: each line of them is run or read here, and a new one fails until it is. What a reader is to
put in (ADDRESS, seeds.txt, the URL of a page) is put in; paths of other machines are only read.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb
import pytest

from crawler.config.arguments import join_repeated, read_arguments
from crawler.config.settings import read_config
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S
from tests.harness.sources import PROJECT
from tests.harness.typed_pages import command_lines
from tests.servers.loopback import Site, page, site

README: Final = "\n".join(
    (PROJECT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/steering.md", "docs/elsewhere.md")
)
BLOCK: Final = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.M)
PROGRAMS: Final = {"make", "gossamer", "python3", "pip", ".", "duckdb", "curl"}
OTHER_BLOCKS: Final = ("157 pages | ", "ADDONS = ")  # the output of a crawl, two settings
CONTACT: Final = "ops@w3.org"
SHELL_LINES: Final = {
    "python3 -m venv .venv",
    ". .venv/bin/activate",
    "pip install .",
}
# By these a make that runs the tests has the one below it print where it is.
OF_MAKE: Final = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
QUICK: Final = ("CRAWLER_MIN_DELAY_S=0.01", "CRAWLER_DELAY_FACTOR=1", "CRAWLER_PROGRESS=off")


def lines_of_blocks() -> Iterator[str]:
    """Those in blocks, each with the lines that continue it."""
    for block in BLOCK.findall(README):
        text = re.sub(r"(?m)^    ", "", block).strip()
        if not text.startswith(OTHER_BLOCKS):
            yield from command_lines(text)


LINES: Final = list(lines_of_blocks())


def of(program: str) -> list[list[str]]:
    """The words of the lines that call *program*."""
    split = [shlex.split(line, comments=True) for line in LINES]
    return [words for words in split if words[0] == program]


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    routes = {
        "/": page("/a", "http://elsewhere.invalid/"),
        "/a": page(text="one"),
    }
    with site("127.0.0.76", routes) as served:
        yield served


@pytest.fixture
def clone(tmp_path: Path, web: Site) -> Path:
    """What a reader has: the project, its .venv, and a seeds.txt."""
    folder = tmp_path / "clone"
    (folder / ".venv").mkdir(parents=True)
    for path in PROJECT.iterdir():
        if not path.name.startswith((".", "crawl-data", "seeds.txt")):
            (folder / path.name).symlink_to(path)
    for path in Path(sys.prefix).iterdir():
        if not path.name.startswith(".for-"):
            (folder / ".venv" / path.name).symlink_to(path)
    (folder / ".venv" / ".for-crawling").touch()  # as `make` leaves it: nothing is to be installed
    (folder / "seeds.txt").write_text(web.url("/") + "\n")
    return folder


def sh(script: str, folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in OF_MAKE} | given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_each_line_is_known_here() -> None:
    assert len(LINES) > 20
    assert {shlex.split(line)[0] for line in LINES} <= PROGRAMS
    simple = {line for line in LINES if line.split()[0] in {".", "pip", "python3"}}
    assert simple == SHELL_LINES
    assert LINES[0] == "make demo", "the first line needs nothing that the reader must put in"


def test_the_lines_of_make_as_typed(clone: Path, web: Site) -> None:
    demo, crawl, share = [line for line in LINES if line.startswith("make ")]
    assert sh(f"{demo} --dry-run", clone).stdout.strip() == ".venv/bin/python -m demo"
    refused = sh(crawl, clone)
    assert refused.returncode
    assert "CRAWLER_CONTACT is 'ADDRESS'; want a mail address that you read" in refused.stderr
    done = sh(typed(crawl, more=QUICK), clone)
    assert done.returncode == 0, done.stderr
    assert "(out_of_scope)" in done.stdout, "it stays on the hosts of its seeds"
    assert {"/", "/a"} <= set(web.asked)
    assert "share web --workers '4' -a 'seeds=seeds.txt'" in sh(f"{share} -n", clone).stdout
    # What the page says of gossamer on the PATH: by the line of README, in the same shell.
    counts = sh(". .venv/bin/activate\ngossamer frontier counts", clone, PATH="/usr/bin:/bin")
    assert counts.returncode == 0, counts.stderr
    assert re.search(r"(?m)^done +2 ", counts.stdout)


def test_the_lines_of_gossamer(tmp_path: Path, web: Site) -> None:
    """By the commands of `scrapy` that they are; as itself it runs in test_gossamer.py."""
    seeds, data = tmp_path / "seeds.txt", tmp_path / "data"
    seeds.write_text(web.url("/"))
    put_in = {
        "seeds=seeds.txt": f"seeds={seeds}",
        "CRAWLER_CONTACT=ADDRESS": f"CRAWLER_CONTACT={CONTACT}",
        "https://www.w3.org/": web.url("/"),
        "crawl.wacz": str(tmp_path / "crawl.wacz"),
    }
    for line in of("gossamer"):
        words = line[: line.index(">")] if ">" in line else line  # into a file
        if words[1] == "share":  # crawled in test_share.py; here it is read
            assert words[:5] == ["gossamer", "share", "web", "--workers", "4"]
            check_command(
                after("-a", words), [put_in.get(word, word) for word in after("-s", words)]
            )
            continue
        if words[1] == "console":
            continue  # it runs until it is stopped: test_console_crawls.py
        put_in["FOLDER"] = str(tmp_path / words[2])  # a new one for each
        command = [*fork_server.SCRAPY, *[put_in.get(word, word) for word in words[1:]]]
        quick = QUICK if words[1] == "crawl" else ()
        for setting in (*quick, f"CRAWLER_DATA_DIR={data}"):
            command += ["-s", setting]
        done = fork_server.run(command)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert done.stdout, words
    (table,) = of("duckdb")
    assert table[1] == "-c" and len(table) == 3
    duckdb.sql(table[2].replace("crawl-data/", f"{data}/")).fetchall()


def test_the_lines_of_curl() -> None:
    (words,) = of("curl")
    config = ConfigParser()
    config.read(PROJECT / "scrapy.cfg")
    assert words[1] == f"{config['deploy']['url']}schedule.json"
    form = after("-d", words)
    assert form[:2] == [f"project={config['deploy']['project']}", "spider=web"]
    check_command([pair for pair in form[2:] if not pair.startswith("setting=")])
    check_command(
        [], [pair.removeprefix("setting=") for pair in form if pair.startswith("setting=")]
    )


@pytest.mark.parametrize("typed", re.findall(r"`(-[as] [^`]+)`|ARGS='(-[^']*)'", README))
def test_each_option_of_the_text_is_one(typed: tuple[str, str]) -> None:
    words = shlex.split(typed[0] or typed[1])
    assert set(words[::2]) <= {"-a", "-s"}
    check_command(after("-a", words), after("-s", words))


def after(flag: str, words: list[str]) -> list[str]:
    return [word for before, word in pairwise(words) if before == flag]


def check_command(arguments: list[str], settings: list[str] | None = None) -> None:
    read_arguments({"seeds": "seeds.txt", **pairs(join_repeated(arguments))})
    read_config({**pairs(settings or []), "CRAWLER_CONTACT": CONTACT})


def pairs(texts: list[str]) -> Mapping[str, str]:
    return dict(text.split("=", 1) for text in texts)


def typed(line: str, more: tuple[str, ...] = ()) -> str:
    """A line of `make crawl` with what its reader puts in, and *more* settings in ARGS."""
    settings = " ".join(f"-s {setting}" for setting in more)
    return line.replace("ADDRESS", CONTACT).replace("ARGS='", f"ARGS='{settings} ")
