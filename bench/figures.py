"""Figures of a benchmark beside their bars."""

from __future__ import annotations


class Figures:
    """Prints figures beside their bars, and knows whether one was missed."""

    def __init__(self) -> None:
        self.missed = False

    def note(self, what: str, figure: float, most: float | None = None, written: str = "") -> None:
        """Print *figure*, as it is *written*; *most* is its bar."""
        self.show(what, written or f"{figure:.2f}", "" if most is None else f"{most:,g}",
                  most is None or figure <= most)  # fmt: skip

    def show(self, what: str, figure: str, bar: str = "", is_met: bool = True) -> None:
        self.missed |= not is_met
        verdict = f"  (bar: {bar}{'' if is_met else ', MISSED'})" if bar else ""
        print(f"{what:<62} {figure:>16}{verdict}", flush=True)
