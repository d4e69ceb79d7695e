"""Figures of the chapter on attention."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "query": "查询",
    "key": "键",
    "lower right": "对齐右下角",
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
