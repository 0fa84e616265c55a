"""Refuses `COMMANDS_MODULE = "crawler.ops.commands"`, the value of older versions.

Rule: Scrapy imports that module before any other code of ours, so only its import can name the new
one. Nothing else imports this file.
"""

raise SystemExit(
    'COMMANDS_MODULE is "crawler.ops.commands", which has moved: write'
    ' COMMANDS_MODULE = "crawler.commands" in the settings of your project'
)
