"""Figures: explorers, custom elements that also stand alone in Colab and Jupyter, and curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Explorer:
    """An interactive figure: `<name data="…">` with its script, shown as a cell's last value.

    The script lives in `helpers/explorers/<name>.js` and defines the custom element `<name>`.
    It speaks the language of the page around it, or of the browser where it stands alone.

    Args:
        name: the element's name, such as `"allocator-explorer"`.
        data: anything `json` can write; the element reads it from its `data` attribute.
        fallback: one sentence shown where scripts do not run; it describes the figure.
        lang: `"en"` or `"zh"`, to choose the language of the labels.

    Raises:
        ValueError: no script of that name ships with `helpers`, or `lang` is another language.
    """

    def __init__(self, name: str, data: Any, fallback: str, lang: str | None = None) -> None:
        if lang not in (None, "en", "zh"):
            raise ValueError(f"lang must be 'en', 'zh' or None, got {lang!r}")
        self.name, self.fallback, self.lang = name, fallback, lang
        self.script = _script(name)
        self.data = json.dumps(data, separators=(",", ":"))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.fallback}>"

    def _repr_html_(self) -> str:
        lang = f' lang="{self.lang}"' if self.lang else ""
        return (
            f'<{self.name}{lang} data="{escape(self.data)}">{escape(self.fallback)}</{self.name}>\n'
            f"<script>{self.script}</script>"
        )


@cache
def _script(name: str) -> str:
    folder = files("helpers") / "explorers"
    path = folder / f"{name}.js"
    if not path.is_file():
        known = sorted(
            p.name.removesuffix(".js") for p in folder.iterdir() if p.name.endswith(".js")
        )
        raise ValueError(f"no explorer named {name!r}; there are {', '.join(known) or 'none'}")
    return path.read_text("utf8").strip()


def draw_curves(
    curves: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, log: bool = False
) -> Figure:
    """Draw up to four curves over 1, 2, 3, … with a legend; `log` makes the y axis logarithmic.

    Raises:
        ValueError: there is no curve, or there are more than four.
    """
    import matplotlib.pyplot as plt

    styles = [("#0a6b7d", "-", "o"), ("#c2410c", "--", "s"), ("#555", ":", "^"), ("#222", "-.", "")]
    if not 1 <= len(curves) <= len(styles):
        raise ValueError(f"draw_curves needs 1 to {len(styles)} curves, got {len(curves)}")
    figure, axis = plt.subplots(figsize=(7, 2.8))
    for (name, values), (color, line, marker) in zip(curves.items(), styles, strict=False):
        steps = range(1, len(values) + 1)
        axis.plot(steps, values, line, color=color, marker=marker, markersize=4, label=name)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        axis.set_yscale("log")
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=len(curves), frameon=False, fontsize=9
    )
    figure.tight_layout()
    return figure
