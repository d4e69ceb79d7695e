"""Figures of the chapter on flex_attention."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "block of queries": "查询的块",
    "block of keys": "键的块",
    "causal": "因果",
    "documents": "文档",
    "window": "窗口",
}
_LOOKS = [("pale grey", ""), ("pale orange", "1"), ("pale blue", "2")]


def draw_blocks(kinds: Mapping[str, Tensor]) -> Figure:
    """Draw the kind of each block of a mask, one panel for each mask.

    Args:
        kinds: by name, what `block_kinds` returns for one sample and head, shape (Q, K): a block
            with 1 or 2 is computed, one without a number is skipped.
    """
    sizes = [(2.4, 0.9 + 0.4 * len(table)) for table in kinds.values()]
    drawing, axes = figure(len(kinds), size=sizes, chinese=_CHINESE)
    for axis, (name, table) in zip(axes, kinds.items(), strict=True):
        for q, row in enumerate(table.tolist()):
            for k, kind in enumerate(row):
                color, mark = _LOOKS[kind]
                axis.barh(q, 0.92, 0.88, left=k - 0.46, color=COLORS[color])
                axis.text(k, q, mark, ha="center", va="center")
        axis.set(xlabel="block of keys", ylabel="block of queries", aspect="equal")
        axis.set(xticks=range(table.shape[1]), yticks=range(table.shape[0]))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.invert_yaxis()
        title(axis, name)
    return drawing
