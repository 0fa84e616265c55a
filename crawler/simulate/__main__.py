"""The command `python -m crawler.simulate`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from crawler.simulate.run import SMALL, run, small_world


def main() -> int:
    parser = ArgumentParser(prog="python -m crawler.simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and print its events")
    parser.add_argument("--seeds", type=int, default=100, help="run so many (%(default)s)")
    asked = parser.parse_args()
    if asked.seed is not None:
        found = run(small_world(asked.seed), SMALL, trace=_print)
        return not found.log.is_over
    for seed in range(asked.seeds):
        found = run(small_world(seed), SMALL)
        if not found.log.is_over:
            print(f"{found.log.why_not}: python -m crawler.simulate --seed {seed}")
            return 1
    return 0


def _print(line: str) -> None:
    sys.stdout.write(line)


if __name__ == "__main__":
    sys.exit(main())
