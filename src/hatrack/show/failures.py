"""What to say of errors that are not ours: of a mistake in the command line itself, of too little disk or memory."""

from __future__ import annotations

import sys
from typing import Any

import typer

from hatrack import atomic
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
    _, *quoted = words.split("'")
    if (
        command is not None
        and hasattr(command, "commands")
        and words.startswith("No such command")
        and len(quoted) > 1
        and quoted[0]
    ):
        return unknown("command", quoted[0], command.commands)
    hint = f" (see: {error.ctx.command_path} --help)" if error.ctx is not None else ""
    return HatrackError(words + hint)


def ran_out(error: BaseException) -> str | None:
    """Say what ran out, and where; None where the error is another one. Nothing that was saved is lost by it."""
    if isinstance(error, OSError) and error.errno in atomic.FULL:
        return f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return "memory ran out"
    torch = sys.modules.get("torch")  # an error of torch's comes from a torch that is there
    return "the GPU's memory ran out" if torch and isinstance(error, torch.OutOfMemoryError) else None
