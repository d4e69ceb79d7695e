"""Parse YAML and JSON data files: validate schemas and duplicate keys, with lines in errors."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import fastjsonschema
import yaml

from bookbuild.source.basics import LANGUAGES, BookError, nearest, read_text

_KINDS = {
    "object": "keys and values",
    "array": "a list",
    "string": "a text",
    "boolean": "true or false",
    "number": "a number",
}


class Row(dict):
    """A mapping that stores its first line (`line`) and the line of each key (`lines`)."""

    line = 0

    def __init__(self) -> None:
        self.lines: dict[Hashable, int] = {}


class Schema:
    """Validator of a data file by a JSON schema.

    A `description` in the schema completes "expected …" in the error message for an invalid value;
    without a description the message names the expected type.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    @cached_property
    def _validate(self):
        return fastjsonschema.compile(self.schema)

    def parse(self, text: str, where: str) -> Any:
        """Return the contents of a file; `where` is its name, which ends in `.yml` or `.json`.

        Raises:
            BookError: the text is not valid YAML or JSON, has a duplicate key, or is malformed; the
                message names the file, and in YAML the line.
        """
        data = _json(text, where) if where.endswith(".json") else _yaml(text, where)
        line, problem = self.problem(data)
        if problem and where.endswith(".json"):  # JSON files are generated, not edited by hand
            raise BookError(f"{where}: damaged, restore it with git: {problem}")
        if problem:
            raise BookError(f"{where}:{line}: {problem}" if line else f"{where}: {problem}")
        return data

    def problem(self, data: Any) -> tuple[int, str]:
        """Return the line of the first error (0 if unknown) and a message, "" if data is valid."""
        try:
            self._validate(data)
        except fastjsonschema.JsonSchemaValueException as error:
            return _message(error, data)
        return 0, ""

    def read(self, path: Path, where: str) -> Any:
        """Return the contents of a file from a cache; callers must not modify them.

        Raises:
            BookError: the file is missing, damaged or malformed.
        """
        return _parsed(self, read_text(path, where), where)


@lru_cache(maxsize=64)
def _parsed(schema: Schema, text: str, where: str) -> Any:
    return schema.parse(text, where)


# ---------------------------------------------------------------- schemas


TEXT = {"type": "string"}
BILINGUAL = {
    "type": "object",
    "properties": dict.fromkeys(LANGUAGES, TEXT),
    "required": [*LANGUAGES],
    "additionalProperties": False,
    "description": "a text for en and one for zh",
}
ID = {
    "type": "string",
    "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
    "description": "an id of small letters, digits and hyphens",
}


def mapping(
    required: dict[str, dict], optional: dict[str, dict] | None = None, description: str = ""
) -> dict[str, Any]:
    """Return the schema of a mapping with these required and optional keys and no others."""
    schema = {
        "type": "object",
        "properties": required | (optional or {}),
        "required": [*required],
        "additionalProperties": False,
    }
    return schema | ({"description": description} if description else {})


def non_empty_list(items: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the schema of a non-empty list."""
    return {"type": "array", "items": items, "minItems": 1, "description": description}


def one_line(both: dict[str, str]) -> dict[str, str]:
    """Return the text of each language on one line with single spaces."""
    return {lang: " ".join(both[lang].split()) for lang in LANGUAGES}


def repeated(kind: str, places: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield one line for each value that several places share; a place is (value, location)."""
    locations = defaultdict(list)
    for value, where in places:
        locations[value].append(where)
    for value, (first, *others) in locations.items():
        if others:
            yield f"{first}: the {kind} {value!r} is also that of {', '.join(others)}"


# ---------------------------------------------------------------- files


class _Loader(yaml.CSafeLoader):
    """YAML loader that returns mappings as `Row`s and rejects duplicate keys."""


def _row(loader: _Loader, node: yaml.MappingNode):
    row = Row()
    row.line = node.start_mark.line + 1
    yield row
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="key is not text", problem_mark=key_node.start_mark)
        if key in row:
            first = row.lines[key]
            problem = f"the key {key!r} is given twice, first in line {first}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        row.lines[key] = key_node.start_mark.line + 1
        row[key] = loader.construct_object(value_node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _row)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, (error.problem, error.context)))
        raise BookError(f"{where}:{mark.line + 1 if mark else 1}: {problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BookError(f"{where}: damaged: {' '.join(str(error).split())}") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        problem = f"{where}:{error.lineno}: damaged, restore it with git: {error.msg}"
        raise BookError(problem) from None
    except (ValueError, RecursionError) as error:
        raise BookError(f"{where}: damaged, restore it with git: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} is given twice")
    return row


# ---------------------------------------------------------------- messages


def _message(error: fastjsonschema.JsonSchemaValueException, data: Any) -> tuple[int, str]:
    line, names = 0, []
    for step in error.path[1:]:
        if isinstance(data, list) and step.isdigit() and int(step) < len(data):
            data = data[int(step)]
        elif isinstance(data, dict) and (key := _key(data, step)) is not None:
            line = data.lines[key] if isinstance(data, Row) else line
            names, data = [*names, str(key)], data[key]
        if isinstance(data, Row):
            line = data.line
            if isinstance(data.get("id"), str):
                names = [data["id"]]
    if error.rule == "additionalProperties" and isinstance(error.value, dict):
        unknown, problem = _unknown(error)
        line = error.value.lines.get(unknown, line) if isinstance(error.value, Row) else line
    else:
        problem = _problem(error)
    return line, ": ".join([*names, problem])


def _key(row: dict, step: str) -> Hashable | None:
    return next((key for key in row if str(key) == step), None)


def _problem(error: fastjsonschema.JsonSchemaValueException) -> str:
    schema, value = error.definition, error.value
    if error.rule == "required":
        lacking = [key for key in schema["required"] if key not in value]
        return f"lacks {', '.join(lacking)}"
    if error.rule == "enum":
        return f"{value!r} is none of {', '.join(schema['enum'])}"
    kind = schema.get("type")
    expected = schema.get("description") or _KINDS.get(kind[0] if isinstance(kind, list) else kind)
    return f"expected {expected or error.message}, got {_short(value)}"


def _unknown(error: fastjsonschema.JsonSchemaValueException) -> tuple[Hashable, str]:
    known = [*error.definition.get("properties", ())]
    patterns = error.definition.get("patternProperties", ())
    unknown = next(
        key
        for key in error.value
        if key not in known and not any(re.search(p, str(key)) for p in patterns)
    )
    expected = ", ".join(known) or error.definition.get("description")
    hint = nearest(str(unknown), known, f"expected {expected}")
    return unknown, f"unknown key {unknown!r}: {hint}"


def _short(value: Any) -> str:
    text = repr(dict(value) if isinstance(value, Row) else value)
    return text if len(text) <= 60 else f"{text[:59]}…"
