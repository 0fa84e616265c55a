"""What a report on a large site costs: time, memory, temporary files. Its columns are made up.

    python -m bench.site_report [--pages 1000000] [--links 50] [--memory 2GB] [--folder .bench/site]

Each page links to others at random, one in a thousand of its links to a page that is gone, and one
in fifty out of the site; one page in twenty is a redirect, and a
third of these to another. What was made is kept in the folder and
used again.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import duckdb

from crawler.archive.site_queries import FINDINGS
from crawler.archive.site_tables import MEMORY, open_site_tables
from crawler.model.url import CanonicalRules, canonical
from crawler.view.formats import number, size, span

_FILES: Final = 10
_GONE: Final = "https://www.example.org/gone/"
_URL: Final = (
    "'https://www.example.org/section-' || ({n}) % 1000 || '/an-article-about-it-' || ({n})"
)


def make(folder: Path, pages: int, links: int) -> None:
    """Write columns and outcomes of *pages* pages with *links* links each into *folder*."""
    (folder / "warc").mkdir(parents=True)
    (folder / "outcomes").mkdir()
    moved = _URL.format(n=f"(p + CASE p % 60 WHEN 1 THEN 20 ELSE 1 END) % {pages}")
    other = f"hash(p, i) % {pages}"
    target = f"""CASE WHEN hash(i, p) % 1000 = 0 THEN '{_GONE}' || hash(p) % 5000
        WHEN hash(i, p) % 50 = 1 THEN 'https://site-' || hash(p, i) % 20000 || '.example/'
        ELSE {_URL.format(n=other)} END"""
    with duckdb.connect(config={"memory_limit": "4GB"}) as base:
        for file in range(_FILES):
            begin, end = pages * file // _FILES, pages * (file + 1) // _FILES
            base.execute(f"""COPY (
                SELECT {_URL.format(n="p")} AS url, now() AS fetched_at, 200 AS status,
                    'text/html' AS media_type, 'Article ' || p // 2 AS title,
                    'sha1:' || md5(p::VARCHAR) AS digest, NULL::VARCHAR AS original,
                    NULL::TINYINT AS bits, {_URL.format(n="p")} AS canonical, false AS noindex,
                    'About ' || p AS description, NULL::VARCHAR AS robots,
                    NULL::VARCHAR AS robots_header, 3 AS depth, NULL::VARCHAR AS truncated,
                    list_transform(range({links}), lambda i: {{url: {target}, kind: 'a', rel: '',
                        text: 'words of ' || i}}) AS outlinks
                FROM range({begin}, {end}) AS pages(p) WHERE p % 20 <> 1
            ) TO '{folder}/warc/{file}.parquet' (COMPRESSION zstd, ROW_GROUP_SIZE 10240)""")
            base.execute(f"""COPY (
                SELECT now() AS "at", {_URL.format(n="p")} AS url,
                    CASE WHEN p % 20 = 1 THEN 'moved' ELSE 'done' END AS fate,
                    CASE WHEN p % 20 = 1 THEN 301 ELSE 200 END::INTEGER AS status,
                    NULL::VARCHAR AS reason, NULL::VARCHAR AS failure, 0.1::FLOAT AS seconds,
                    1000::BIGINT AS bytes, 3::INTEGER AS depth,
                    CASE WHEN p % 20 = 1
                        THEN {moved} END
                        AS target, NULL::VARCHAR AS seed
                FROM range({begin}, {end}) AS pages(p)
                UNION ALL
                SELECT now(), '{_GONE}' || g, 'done', 404, NULL, NULL, 0.1,
                    100, 3, NULL, NULL
                FROM range({5000 * file // _FILES}, {5000 * (file + 1) // _FILES}) AS gone(g)
            ) TO '{folder}/outcomes/{file}.parquet' (COMPRESSION zstd)""")


class _Watch(threading.Thread):
    """The largest size of the temporary files, looked at ten times a second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._over = threading.Event()
        self.most_bytes = 0

    def run(self) -> None:
        while not self._over.wait(0.1):
            files = [path for path in self._folder.rglob("*") if path.is_file()]
            self.most_bytes = max(self.most_bytes, sum(path.stat().st_size for path in files))

    def end(self) -> None:
        self._over.set()
        self.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--links", type=int, default=50)
    parser.add_argument("--memory", default=MEMORY)
    parser.add_argument("--folder", type=Path, default=Path(".bench/site"))
    args = parser.parse_args()
    folder = args.folder / f"{args.pages}-{args.links}"
    if not folder.exists():
        make(folder, args.pages, args.links)
    captures = sorted((folder / "warc").iterdir())
    outcomes = sorted((folder / "outcomes").iterdir())
    temporary = args.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = str(temporary)
    rules = CanonicalRules()

    def same_form(url: str) -> str:
        return canonical(url, rules)

    watch = _Watch(temporary)
    watch.start()
    begun = time.monotonic()
    with open_site_tables(captures, outcomes, same_form, args.memory) as tables:
        print(f"tables: {span(time.monotonic() - begun)}")
        for finding in FINDINGS:
            at = time.monotonic()
            rows = sum(1 for _ in tables.rows(finding.sql))
            print(f"{finding.name}: {number(rows)} rows, {span(time.monotonic() - at)}")
    watch.end()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    read = sum(path.stat().st_size for path in captures + outcomes)
    print(
        f"{span(time.monotonic() - begun)} over {size(read)} of Parquet; {size(most)} of memory,"
        f" {size(watch.most_bytes)} of temporary files, of which {len(list(temporary.iterdir()))}"
        " are left"
    )


if __name__ == "__main__":
    main()
