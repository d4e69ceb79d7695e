"""Figures of the chapter on attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from helpers.figures import COLORS, Figure, figure, legend, power_of_ten, title

_CHINESE = {
    "query": "查询",
    "key": "键",
    "lower right": "对齐右下角",
    "by hand": "自己写",
    "sequence length": "序列长度",
    "saved values": "保存的数",
}


def draw_seen(masks: Mapping[str, Tensor]) -> Figure:
    """Draw which keys each query attends to, one panel for each mask.

    Args:
        masks: bool tensors of shape (Lq, Lk), True for a key that is seen, by their names; a name
            with `=` is shown as code.
    """
    sizes = [(3.5, 0.75 + 0.33 * len(mask)) for mask in masks.values()]
    drawing, axes = figure(len(masks), size=sizes, chinese=_CHINESE)
    for axis, (name, mask) in zip(axes, masks.items(), strict=True):
        for q, row in enumerate(mask.tolist()):
            for k, seen in enumerate(row):
                color = COLORS["teal"] if seen else COLORS["pale grey"]
                axis.barh(q, 0.92, 0.88, left=k - 0.46, color=color)
        axis.set(xlabel="key", ylabel="query", aspect="equal")
        axis.set(xticks=range(mask.shape[1]), yticks=range(mask.shape[0]))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.invert_yaxis()
        title(axis, name, code="=" in name)
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
