"""Chinese search without a dictionary: single characters and pairs, here and in the browser."""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from bookbuild.typography import HAN


class SearchHan(SearchEnglish):
    """Index Chinese as characters and pairs, the rest as English.

    A word dictionary cuts the text but not what the reader types, so that most words are not found.
    """

    lang = "zh"
    language_name = "Chinese"
    words = re.compile(rf"[{HAN}]+|[^\W{HAN}]+")
    js_splitter_code = rf"""
var splitQuery = (query) =>
  (query.match(/[{HAN}]+|[^\s\p{{P}}\p{{S}}{HAN}]+/gu) || []).flatMap((word) =>
    /^[{HAN}]{{2,}}/.test(word)
      ? Array.from({{ length: word.length - 1 }}, (_, i) => word.slice(i, i + 2))
      : [word]);
"""

    def split(self, text: str) -> list[str]:
        """The index terms of a text."""
        terms = []
        for word in self.words.findall(text):
            if self.is_han(word):
                terms += [*word, *(word[i : i + 2] for i in range(len(word) - 1))]
            else:
                terms.append(word)
        return terms

    def word_filter(self, word: str) -> bool:
        """Whether a term is indexed."""
        return self.is_han(word) or super().word_filter(word)

    @staticmethod
    def is_han(word: str) -> bool:
        """Whether a term is Chinese."""
        return re.match(f"[{HAN}]", word) is not None


def setup(app: Sphinx) -> None:
    """Register the search language."""
    app.add_search_language(SearchHan)
