"""The console script `gossamer`: the commands of `scrapy` in any folder, without a project.

Rule: the settings are those of the project that `scrapy` would find here (SCRAPY_SETTINGS_MODULE, a
scrapy.cfg in this folder or above), and without one the crawler's own. It has no command that
`scrapy` has not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from scrapy import cmdline
from scrapy.commands import ScrapyCommand
from scrapy.settings import BaseSettings
from scrapy.utils.conf import closest_scrapy_cfg, init_env
from scrapy.utils.project import ENVVAR, get_project_settings

from crawler.model.types import VERSION
from crawler.report.messages import print_error

OUR_SETTINGS: Final = "crawler.settings"
OUR_COMMANDS: Final = "crawler.commands"
OUR_ADDON: Final = "crawler.addon.Addon"
# Those of our commands that run a spider, or fetch as one would.
_FETCHING: Final = frozenset(
    {"crawl", "share", "runspider", "shell", "fetch", "view", "parse", "check"}
)


def main() -> None:
    """Run the command of `sys.argv`, and exit with its status."""
    words = sys.argv[1:]
    init_env(os.environ.get("SCRAPY_PROJECT", "default"))
    os.environ.setdefault(ENVVAR, OUR_SETTINGS)  # for the processes that this one starts, too
    settings = get_project_settings()
    if not settings["COMMANDS_MODULE"]:
        settings.set("COMMANDS_MODULE", OUR_COMMANDS, "project")
    if editor := os.environ.get("EDITOR"):
        settings["EDITOR"] = editor
    command = next((word for word in words if not word.startswith("-")), None)
    commands = cmdline._get_commands_dict(settings, inproject=True)
    if "--version" in words and command is None:
        print(f"gossamer {VERSION}")
    elif command is None:
        print(_overview(commands))
    elif command not in commands:
        near = get_close_matches(command, commands, 1)
        hint = f"did you mean {near[0]}?" if near else "gossamer alone lists what there is"
        _refuse(f"there is no command {command}; {hint}")
    elif command in _FETCHING and not _has_addon(settings):
        _refuse(
            f"the project of {closest_scrapy_cfg() or os.environ[ENVVAR]} does not use the crawler:"
            f' write ADDONS = {{"{OUR_ADDON}": 500}} into its settings, or run this command outside'
            " its folder"
        )
    else:
        vars(cmdline)["ScrapyArgumentParser"] = CommandParser
        cmdline.execute(["gossamer", *words], settings)


def _refuse(error: str) -> NoReturn:
    print_error(error)
    sys.exit(2)


class CommandParser(cmdline.ScrapyArgumentParser):
    """Scrapy's parser of a command's options, with our name in its usage."""

    def __init__(self, *, usage: str, **given: Any) -> None:
        super().__init__(prog="gossamer", usage=usage.replace("scrapy ", "gossamer ", 1), **given)


def _has_addon(settings: BaseSettings) -> bool:
    """Return whether the project has our add-on, by its path or its class."""
    return any(
        addon == OUR_ADDON or getattr(addon, "__module__", "") == OUR_ADDON.rpartition(".")[0]
        for addon in settings.getdict("ADDONS")
    )


def _overview(commands: Mapping[str, ScrapyCommand]) -> str:
    """Return the list of commands: ours, then those of Scrapy and of the project."""
    ours = {name for name, command in commands.items() if _is_ours(command)}
    return "\n".join(
        [
            "usage: gossamer COMMAND [options] [arguments]",
            "",
            *_lines(commands, ours),
            "",
            "Of Scrapy, or of the project in this folder:",
            *_lines(commands, commands.keys() - ours),
            "",
            "gossamer COMMAND -h shows the options of one, gossamer --version the version.",
            "A crawl: gossamer crawl -a seeds=URL -a scope=host -s CRAWLER_CONTACT=ADDRESS",
        ]
    )


def _lines(commands: Mapping[str, ScrapyCommand], names: set[str]) -> list[str]:
    return [f"  {name:<13} {commands[name].short_desc()}" for name in sorted(names)]


def _is_ours(command: ScrapyCommand) -> bool:
    return type(command).__module__.startswith(f"{OUR_COMMANDS}.")


if __name__ == "__main__":
    main()
