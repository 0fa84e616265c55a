"""Packages of Debian, for measurements on real pages: fetched with apt-get, and unpacked only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path


def download(folder: Path, packages: Iterable[str]) -> None:
    """Unpack those of *packages*, NAME or NAME=VERSION, that are not in *folder* yet, each into a
    folder that is named so. Files keep the dates that they have in the package."""
    debs = folder / "debs"
    for package in packages:
        if not (folder / package).exists():
            debs.mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", "-qq", package], cwd=debs, check=True)
            name, _, version = package.partition("=")
            # apt-get writes the colon of an epoch as %3a.
            (deb,) = debs.glob(f"{name}_{version.replace(':', '%3a') or '*'}_*.deb")
            subprocess.run(["dpkg-deb", "-x", deb, folder / package], check=True)


def versions(package: str) -> list[str]:
    """Return the versions of *package* that apt knows, the newest first."""
    listed = subprocess.run(
        ["apt-cache", "madison", package], capture_output=True, text=True, check=True
    ).stdout
    return list(dict.fromkeys(line.split("|")[1].strip() for line in listed.splitlines()))
