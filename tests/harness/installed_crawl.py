"""A crawl by an installed `gossamer` in an empty folder: what does the installation weigh, and do?

    python -m tests.harness.installed_crawl FOLDER lean|full

makes a virtual environment in FOLDER, installs this folder into it as README says, and crawls 60
pages of 40 KB, a feed and a PDF on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.harness.commands import QUICK
from tests.harness.pdf_files import story
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, page, site

INSTALLS: Final = {
    "full": [["."]],
    "lean": [["-r", "requirements-lean.txt"], ["--no-deps", "."]],
}
PAGES: Final = 60
WORDS: Final = "the spider of a garden makes its web anew each night, and eats the old one first. "
FEED: Final = """<rss version="2.0"><channel><title>news</title><link>/</link><description>news
</description><item><title>one</title><link>{root}/by-feed</link></item></channel></rss>"""


def installed(folder: Path, kind: str) -> Path:
    """Install what is *kind* into a virtual environment in *folder* and return its `gossamer`."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    for words in INSTALLS[kind]:
        command = [folder / "bin" / "pip", "install", "--quiet", "--no-compile", *words]
        subprocess.run(command, cwd=PROJECT, check=True)
    return folder / "bin" / "gossamer"


def main(folder: Path, kind: str) -> None:
    gossamer = installed(folder, kind)
    taken = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    text = "".join(f"<p>{WORDS * 8} <a href='/{n % PAGES}'>{n}</a>" for n in range(60))
    routes = {f"/{n}": Reply(f"<title>{n}</title>{text}") for n in range(PAGES)}
    routes["/"] = page("/0", "/feed", "/file.pdf")
    routes["/file.pdf"] = Reply(story("a file"), content_type="application/pdf")
    with site("127.0.0.78", routes) as web, tempfile.TemporaryDirectory() as empty:
        routes["/feed"] = Reply(FEED.format(root=web.root), content_type="application/rss+xml")
        settings = {**QUICK, "CRAWLER_MIN_DELAY_S": 0, "CRAWLER_DELAY_FACTOR": 0.1}
        given = [word for pair in settings.items() for word in ("-s", "=".join(map(str, pair)))]
        command = [gossamer, "crawl", "-a", f"seeds={web.url('/')}", *given]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for run in ("first", "second"):  # the first compiles
            folder_of_crawl = Path(empty) / run
            folder_of_crawl.mkdir()
            began = time.monotonic()
            done = subprocess.run(
                command, cwd=folder_of_crawl, env=env, capture_output=True, text=True, check=True
            )
            took_s = time.monotonic() - began
        lacks = [line for line in done.stderr.splitlines() if "ot installed" in line]
        summary = msgspec.json.decode((folder_of_crawl / "crawl-data/summary.json").read_bytes())
        by_feed, files = "/by-feed" in web.asked, list(folder_of_crawl.glob("crawl-data/warc/*"))
    assert summary["pages"] >= PAGES, summary
    assert (kind == "full") is by_feed is any(file.suffix == ".parquet" for file in files)
    assert len(lacks) == (2 if kind == "lean" else 0), lacks
    figures = f"{taken / 1e6:.0f} MB, {summary['pages']} pages in {took_s:.1f} s"
    print(f"{kind}: {figures}", *lacks, sep="\n  ")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
