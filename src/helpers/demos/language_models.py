"""Figures of the chapter on language models."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from helpers.figures import COLORS, Figure, figure
from helpers.language_models import IGNORED, Characters

_CHINESE = {"tokens": "词元", "by ID": "按编号", "by position": "按位置"}


def symbols(ids: Tensor, characters: Characters) -> list[str]:
    """Return the text for `ids`, shape (T,): characters, `■` for EOS, `·` for -100."""
    special = {characters.end: "■", IGNORED: "·"}
    return [special.get(i) or characters.characters[i] for i in ids.tolist()]


def draw_labels(ids: Tensor, labels: Mapping[str, Tensor], characters: Characters) -> Figure:
    """Draw the tokens of a text in boxes, and below them their labels under each name.

    Args:
        ids: shape (T,).
        labels: named, each of shape (T,).
        characters: the vocabulary of both.
    """
    rows = {"tokens": ids} | dict(labels)
    drawing, axis = figure(size=(3.5, 0.42 * len(rows) + 0.1), chinese=_CHINESE)
    for y, (name, row) in enumerate(rows.items()):
        axis.text(-0.3, y, name, ha="right", va="center")
        for x, symbol in enumerate(symbols(row, characters)):
            pale = {"■": "pale orange", "·": "pale grey"}.get(symbol, "pale blue")
            axis.barh(y, 0.92, 0.8, x + 0.04, color=COLORS[pale])
            axis.text(x + 0.5, y, symbol, ha="center", va="center", family="monospace")
    axis.set(xlim=(-3.2, len(ids)), ylim=(len(rows) - 0.5, -0.5))
    axis.axis("off")
    return drawing
