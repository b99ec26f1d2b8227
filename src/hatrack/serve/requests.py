"""A request's body → what is asked; and never more of it in memory than was agreed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from hatrack.serve import npy
from hatrack.serve.refused import Refused, crowded

ITEMS = 256
AT_ONCE = 8  # bodies of the largest size whose bytes may be held at a time
_FIELDS = {"task", "inputs", "dtype", "logits"}
JSON, NPY = "application/json", ("application/octet-stream", "application/x-npy")


class Bodies:
    """Reads bodies, and keeps count of the bytes that are held."""

    def __init__(self, largest: int) -> None:
        self._largest, self._held = largest, 0

    async def read(self, stream: AsyncIterator[bytes], told: str | None) -> bytes:
        """Return a body; `told` is its length as its head has it. Give its bytes back with `release`."""
        if told is not None and told.isascii() and told.isdigit() and int(told) > self._largest:
            self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async for part in stream:
                size += len(part)
                self._held += len(part)
                parts.append(part)
                if size > self._largest:
                    self._too_large()
                if self._held > AT_ONCE * self._largest:
                    raise crowded()
        except BaseException:
            self._held -= size
            raise
        return b"".join(parts)

    def release(self, body: bytes) -> None:
        """Say that a body is not needed any more."""
        self._held -= len(body)

    def _too_large(self) -> NoReturn:
        raise Refused(f"a request may have {self._largest:,} bytes (--max-body).", 413)


def asked(body: bytes, kind: str, task: str | None) -> dict[str, Any] | list[Any]:
    """Return what a body asks for: one question as an object, or a list of what should be such."""
    if kind in NPY:
        if task is None:
            raise Refused("a body of .npy needs the task's name: POST /predict?task=NAME.")
        return {"task": task, "inputs": npy.read(body)}
    if kind != JSON:
        raise Refused(f"Content-Type must be {JSON}, or {NPY[0]} for .npy; got {kind or 'none'}.", 415)
    try:
        said = json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise Refused("the body is JSON nested deeper than any input.") from None
    except UnicodeDecodeError:
        raise Refused("the body is not JSON (no UTF-8).") from None
    except json.JSONDecodeError as error:
        raise Refused(f"the body is not JSON ({error.msg}: line {error.lineno}, column {error.colno}).") from None
    except Refused:
        raise
    except ValueError:  # more digits than Python turns into a number
        raise Refused("the body holds a number of too many digits.") from None
    if isinstance(said, dict):
        return said
    if not isinstance(said, list):
        raise Refused('expected {"task": …, "inputs": …}, or a list of such.')
    if not 1 <= len(said) <= ITEMS:
        raise Refused(f"a list may hold 1 to {ITEMS} questions, got {len(said)}.", 413 if said else 400)
    return said


def checked(item: Any) -> dict[str, Any]:
    """Return one question, if it is one."""
    if not isinstance(item, dict) or not {"task", "inputs"} <= item.keys() <= _FIELDS:
        got = ", ".join(map(repr, sorted(item))) or "nothing" if isinstance(item, dict) else "no object"
        raise Refused(f'expected {{"task": …, "inputs": …}} and, if wanted, "dtype" and "logits"; got {got[:200]}.')
    if not isinstance(item["task"], str):
        raise Refused('"task" must be the name of a task.')
    if item.get("dtype") not in (None, "uint8"):
        raise Refused('"dtype" may be "uint8", for bytes as numbers; leave it out otherwise.')
    if item.get("logits") not in (None, True, False):
        raise Refused('"logits" must be true or false.')
    return item


def _no_number(name: str) -> NoReturn:
    raise Refused(f"the body holds {name}; expected finite numbers.")
