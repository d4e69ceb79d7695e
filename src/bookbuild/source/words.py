"""The words of pages, notebooks and editions around the texts, in both languages: `words.yml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def table() -> dict[str, dict[str, dict[str, str]]]:
    """Return all words: by group and by name, in each language."""
    text = Path(__file__).with_suffix(".yml").read_text("utf8")
    return yaml.load(text, yaml.CSafeLoader)


def words(lang: str, group: str) -> dict[str, str]:
    """Return the words of a group in one language, by name, with the punctuation of all groups."""
    both = table()["punctuation"] | table()[group]
    return {name: texts[lang] for name, texts in both.items()}


@cache
def search_words() -> dict[str, Any]:
    """Return what a search knows of words: small ones, weak ones, and those that mean the same."""
    return yaml.load(Path(__file__).with_name("search.yml").read_text("utf8"), yaml.CSafeLoader)
