"""Load the labels of pages, notebooks and editions in both languages from `words.yml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def table() -> dict[str, dict[str, dict[str, str]]]:
    """Return all labels as group -> name -> language -> text."""
    text = Path(__file__).with_suffix(".yml").read_text("utf8")
    return yaml.load(text, yaml.CSafeLoader)


def words(lang: str, group: str) -> dict[str, str]:
    """Return the labels of a group in one language, by name, and the shared punctuation."""
    both = table()["punctuation"] | table()[group]
    return {name: texts[lang] for name, texts in both.items()}


@cache
def search_words() -> dict[str, Any]:
    """Return the search vocabulary (`search.yml`): small words, weak words and synonyms."""
    return yaml.load(Path(__file__).with_name("search.yml").read_text("utf8"), yaml.CSafeLoader)
