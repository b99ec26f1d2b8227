"""Mistakes in the command line itself, put like all others: what was given, what is accepted, the nearest."""

from __future__ import annotations

from typing import Any

import typer

from hatrack.errors import HatrackError, unknown

# Newer versions of typer carry their own copy of click; the class is reached the same way in all of them.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def restated(error: Any) -> HatrackError:
    """Return a usage error of typer as one line; an unknown option or command gets the nearest one."""
    command = error.ctx.command if error.ctx is not None else None
    option = getattr(error, "option_name", None)
    if command is not None and option is not None and type(error).__name__ == "NoSuchOption":
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        accepted = [name for parameter in shown for name in parameter.opts if name.startswith("-")]
        return unknown("option", option, [*accepted, "--help"])
    words = error.format_message()
    named = _quoted(words)
    if command is not None and hasattr(command, "commands") and words.startswith("No such command") and named:
        return unknown("command", named, command.commands)
    hint = f" (see: {error.ctx.command_path} --help)" if error.ctx is not None else ""
    return HatrackError(words + hint)


def _quoted(words: str) -> str | None:
    """Return the first 'quoted' part of a message."""
    parts = words.split("'")
    return parts[1] if len(parts) > 2 else None
