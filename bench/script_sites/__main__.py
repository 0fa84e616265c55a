"""The sites that rendering is measured on: `make script-sites` builds them and serves them.

    python -m bench.script_sites --build .bench/script-sites
    python -m bench.script_sites --serve .bench/script-sites

The first needs Node.js and some minutes, and installs nothing outside its folder. The second prints
the seeds, one on a line, and serves until it is ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench.script_sites.build import BuildFailed, build
from bench.script_sites.serve import SiteServer
from bench.script_sites.sites import LISTED, read_list


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.script_sites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--build", type=Path, metavar="DIR", help="build what is not there yet")
    asked.add_argument("--serve", type=Path, metavar="DIR", help="print the seeds, and serve")
    parser.add_argument("--only", nargs="+", default=(), metavar="SITE", help="as react-0")
    options = parser.parse_args()
    if options.build:
        try:
            print(f"{len(build(options.build.resolve(), options.only))} sites", file=sys.stderr)
        except BuildFailed as failure:
            print(failure, file=sys.stderr)
            return 2
        return 0
    folder = options.serve.resolve()
    if not (folder / LISTED).exists():
        print(f"there are no sites in {folder}: build them with --build", file=sys.stderr)
        return 2
    sites = [site for site in read_list(folder) if not options.only or site.name in options.only]
    with SiteServer(folder, sites) as server:
        print(*server.seeds, sep="\n", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main())
