"""The one place that says which version this is: packaging and the User-Agent read it here."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
