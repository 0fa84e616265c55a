"""For scrapyd-deploy, which runs it; everything it says is in pyproject.toml."""

from setuptools import setup

setup()
