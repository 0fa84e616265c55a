"""`make bench-scale`: the large runs of what is stored, one after the other; `make bench` runs the
same in small.

Rule: a part is a command that prints its figures beside their bars, and keeps its folder. What it
needs of the disk is said and checked before, and if that is not there a smaller size is run.
Finished parts are in `results.jsonl`: after a stop the same command continues with the others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.crawls import PROJECT
from bench.frontier import waiting

SPARE: Final = 0.1  # of the free disk, for others


@dataclass(frozen=True, slots=True)
class Part:
    """One command. In *arguments* `{size}` is its size, and `{folder}` its own folder."""

    name: str
    arguments: str
    sizes: tuple[int, ...] = (0,)  # the largest that fits is run
    size_bytes: float = 0  # of the disk, for each of its size

    def command(self, size: int, folder: Path) -> list[str]:
        words = self.arguments.split()
        return [sys.executable, "-m", *(word.format(size=size, folder=folder) for word in words)]

    def fitting(self, free: int) -> int | None:
        """Return the largest of the sizes that *free* bytes have room for, or None."""
        room = free * (1 - SPARE)
        return next((size for size in self.sizes if size * self.size_bytes <= room), None)


_SEEN: Final = "bench.seen --urls {size} --folder {folder}"
_WAITING: Final = "bench.frontier --only waiting --folder {folder} --waiting"
_WAITING_BYTES: Final = waiting.BYTES_PER_URL + waiting.SEEN_BYTES
_DOWN: Final = (100_000_000, 30_000_000, 10_000_000, 1_000_000)

SMALL: Final = (
    Part("seen", f"{_SEEN} --seconds 2", (1_000_000,), 60),
    Part("page", "bench.frontier --only page decided --pages 1e4"),
    Part("waiting", f"{_WAITING} 1e5,{{size}} --seen 1e6", (300_000,), _WAITING_BYTES),
    Part("near", "bench.near --pages {size} --folder {folder}", (1_000_000,), 200),
    Part("seeds", "bench.seeds --lines 1e6"),
    Part("slots", "bench.slots"),
)
LARGE: Final = (
    # 1e8 in batches of 5e6, twice while they are merged, and what others reach in ten minutes.
    Part("seen", f"{_SEEN} --seconds 600", _DOWN, 100),
    Part("page", "bench.frontier --only page decided --pages 1e5 --hosts 1e6"),
    Part("reopen", f"{_WAITING} 1e6,{{size}} --seen 1e8", _DOWN[2:], _WAITING_BYTES + 170),
    Part("memory", f"{_WAITING} 1e6,{{size}} --seen 1e6", _DOWN, _WAITING_BYTES),
    Part("near", "bench.near --pages 1e6 {size} --folder {folder}", _DOWN[2:], 200),
    Part("seeds", "bench.seeds --lines 1e6"),
    Part("slots", "bench.slots"),
)


def run(parts: Sequence[Part], home: Path) -> list[dict[str, Any]]:
    """Run those of *parts* that have no result in *home* yet, and return the results of all."""
    home.mkdir(parents=True, exist_ok=True)
    results = home / "results.jsonl"
    done = {(each["name"], each["arguments"]): each for each in _read(results)}
    for part in parts:
        if (part.name, part.arguments) in done:
            continue
        folder = home / part.name
        size = part.fitting(shutil.disk_usage(home).free + _bytes_of(folder))
        if size is None:
            print(f"{part.name}: not run, needs {part.sizes[-1] * part.size_bytes / 1e9:.1f} GB")
            continue
        said = f", the size {size:,} of {part.sizes[0]:,}" if size else ""
        print(f"\n{part.name}: needs {size * part.size_bytes / 1e9:.1f} GB in {folder}{said}")
        folder.mkdir(exist_ok=True)
        result = _run(part, size, folder)
        if not result["code"] or _has_missed(result):  # a part that failed is run again
            done[part.name, part.arguments] = result
            with results.open("a") as file:
                file.write("\n" + json.dumps(result))  # a line before it may be half of one
            shutil.rmtree(folder)
    names = [(part.name, part.arguments) for part in parts]
    return [done[name] for name in names if name in done]


def _run(part: Part, size: int, folder: Path) -> dict[str, Any]:
    command, lines, begun = part.command(size, folder), [], time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
        except BaseException:
            process.terminate()
            raise
    return {
        "name": part.name,
        "arguments": part.arguments,
        "command": " ".join(command[1:]),
        "size": size,
        "code": process.returncode,
        "s": round(time.monotonic() - begun),
        "lines": lines,
    }


def _read(results: Path) -> Iterator[dict[str, Any]]:
    if results.exists():
        for line in results.read_text().splitlines():
            if line.endswith("}"):  # a run that was killed may have left half of one
                yield json.loads(line)


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def print_table(results: Sequence[dict[str, Any]]) -> bool:
    """Print all figures that have a bar. Returns whether one was missed."""
    print("\nall bars")
    for result in results:
        size = f" at {result['size']:,}" if result["size"] else ""
        print(f"{result['name']}{size}, {result['s']} s")
        for line in result["lines"]:
            if "(bar: " in line:
                print(f"  {line}")
    return any(_has_missed(result) for result in results)


def _has_missed(result: dict[str, Any]) -> bool:
    return result["code"] in (0, 1) and any("MISSED" in line for line in result["lines"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    names = sorted({part.name for part in LARGE + SMALL})
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--small", action="store_true", help="the sizes of `make bench`")
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    options = parser.parse_args()
    parts = [part for part in (SMALL if options.small else LARGE) if part.name in options.only]
    results = run(parts, options.folder.absolute())
    missed = print_table(results)
    if {part.name for part in parts} - {result["name"] for result in results}:
        return 2
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
