"""Figures of the chapter on flex_attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from helpers.figures import COLORS, Figure, figure, legend, power_of_ten, title

_CHINESE = {
    "by hand": "自己写",
    "sequence length": "序列长度",
    "saved values": "保存的数",
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


def draw_kept(lengths: Sequence[int], kept: Mapping[str, Sequence[int]]) -> Figure:
    """Draw how many values two ways save for backward, over the sequence length."""
    styles = [("orange", "--", "s"), ("teal", "-", "o")]
    drawing, axis = figure(chinese=_CHINESE)
    for (name, numbers), (color, line, marker) in zip(kept.items(), styles, strict=True):
        axis.loglog(
            lengths, numbers, line, color=COLORS[color], marker=marker, markersize=3, label=name
        )
    axis.set(xlabel="sequence length", ylabel="saved values")
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(power_of_ten)
    legend(axis)
    return drawing
