"""Write the TOML of spec.toml: scalars and arrays at the top, then one table a group.

The standard library reads TOML (`tomllib`) but does not write it. TOML has no null; None is written as
"none", which `spec.resolve` turns back where the setting accepts None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dumps(document: Mapping[str, Any]) -> str:
    """Return `document` as TOML text; tables within its tables and arrays are written on one line."""
    top = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping)}
    blocks = [_lines(top)] if top else []
    blocks += [f"[{_key(name)}]\n{_lines(table)}" for name, table in tables.items()]
    return "\n".join(blocks)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _string(key)


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items())}}}"
    raise TypeError(f"no TOML for {type(value).__name__}: {value!r}")


def _string(text: str) -> str:
    # JSON's escapes are TOML's too, except that TOML also forbids a bare DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
