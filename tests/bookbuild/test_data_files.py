"""Test the parser of data files: an error has one line with file, line, id and field."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bookbuild.source import claims, messages, moved, symptoms, versions
from bookbuild.source.basics import BookError
from bookbuild.source.checkout import Book
from bookbuild.source.data_files import BILINGUAL, ID, Schema, mapping, non_empty_list

ROW = mapping(
    {"id": ID, "says": BILINGUAL}, {"kind": {"enum": ["a", "b"]}, "wraps": {"type": "boolean"}}
)
SCHEMA = Schema({"type": "object", "additionalProperties": non_empty_list(ROW, "a list of rows")})
GOOD = "rows:\n- id: one\n  says: {en: x, zh: y}\n- id: two\n  says:\n    en: x\n    zh: y\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    zh: y", "", "f.yml:6: two: says: lacks zh"),
        ("    zh: y", "    zh: 3", "f.yml:7: two: says: zh: expected a text, got 3"),
        ("    zh: y", "    zh: y\n    de: z", "f.yml:8: two: says: unknown key 'de': expected en"),
        ("id: two", "id: Two", "f.yml:4: Two: id: expected an id of small letters, digits"),
        ("id: two", "id: two\n  kind: c", "f.yml:5: two: kind: 'c' is none of a, b"),
        ("id: two", "id: two\n  knid: a", "f.yml:5: two: unknown key 'knid': did you mean kind?"),
        ("id: two", "id: two\n  wraps: 1", "f.yml:5: two: wraps: expected true or false, got 1"),
        ("id: two", "id: two\n  id: six", "f.yml:5: the key 'id' is given twice, first in line 4"),
        ("id: two", "id: two\n  [1]: six", "f.yml:5: key is not text"),
        ("id: two", "id: two: six", "f.yml:4: mapping values are not allowed in this context"),
        ("rows:", "rows: []\nmore:", "f.yml:1: rows: expected a list of rows, got []"),
        ("rows:\n", "", "f.yml: expected keys and values, got [{'id': 'one'"),
        (GOOD, "[" * 5000, "f.yml"),
        (GOOD, "a: 2026-99-99", "f.yml: damaged: month must be in 1..12"),
    ],
)
def test_invalid_yaml_error_names_line_and_key(old, new, message):
    assert SCHEMA.parse(GOOD, "f.yml")["rows"][1].lines["says"] == 5
    with pytest.raises(BookError, match=re.escape(message)) as error:
        SCHEMA.parse(GOOD.replace(old, new), "f.yml")
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rows": [\n{"id"', "f.json:2: damaged, restore it with git: Expecting ':' delimiter"),
        ('{"rows": [{"id": 3}]}', "f.json: damaged, restore it with git: rows: "),
        ('{"rows": 1, "rows": 2}', "f.json: damaged, restore it with git: the key 'rows' is given"),
        ('{"rows":' * 100_000, "f.json: damaged, restore it with git: "),
    ],
)
def test_damaged_json_raises_one_line_error(text, message):
    with pytest.raises(BookError, match=re.escape(message)) as error:
        SCHEMA.parse(text, "f.json")
    assert "\n" not in str(error.value)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "says", "en", "x.y", "a[0]", "{b}"]), inner)
    ),
    max_leaves=8,
)
SCHEMAS = [SCHEMA, messages.SCHEMA, symptoms.SCHEMA, claims.SCHEMA, moved._SCHEMA, versions._TESTED]


@given(st.sampled_from(SCHEMAS), ANYTHING)
def test_any_content_parses_or_raises_one_line_error(schema, data):
    for name, text in (("f.json", json.dumps(data)), ("f.yml", yaml.safe_dump(data))):
        try:
            schema.parse(text, name)
        except BookError as error:
            assert "\n" not in str(error) and str(error).startswith(name)


def test_chained_moves_resolve_to_the_last_address(tmp_path):
    (tmp_path / "book").mkdir()
    path = tmp_path / "book/moved.yml"
    path.write_text("a: b#c\nb#c: d\nd: e\n")
    assert moved.load(Book(tmp_path)) == {"a": "e", "b#c": "e", "d": "e"}
    path.write_text("a: b\nb: c\nc: b\n")
    with pytest.raises(BookError, match="a: leads back to itself: a → b → c"):
        moved.load(Book(tmp_path))
