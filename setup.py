"""For scrapyd-deploy, which runs it, and what pyproject.toml cannot say: where the project's home
is. That knows only who publishes it: `make release HOME_URL=https://...`."""

import os
import re
import sys
from pathlib import Path

import setuptools

if int(setuptools.__version__.split(".")[0]) < 77:
    sys.exit("setuptools 77 or newer is needed for the licence: pip install -U setuptools")

home = os.environ.get("GOSSAMER_HOME_URL", "").rstrip("/")
readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setuptools.setup(
    # Links to other files lead nowhere on a package index.
    long_description=re.sub(r"\]\((?!https?:|#)", f"]({home}/blob/main/", readme)
    if home
    else readme,
    long_description_content_type="text/markdown",
    project_urls={
        "Source": home,
        "Documentation": f"{home}/tree/main/docs",
        "Changes": f"{home}/blob/main/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
    if home
    else {},
)
