"""Create the book's figures: vector drawings in the reader's colour theme and language.

A figure consists of panels, side by side on wide screens and below each other on a phone.
Matplotlib draws each panel; its SVG is displayed with the colours of `COLORS` as CSS variables
and every label in both languages.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours for light and dark themes. Lines, marks and text have a contrast ratio of at least 4.5:1;
# the pale colours fill boxes under black text.
COLORS = {
    "teal": "#0a6b7d",
    "orange": "#c2410c",
    "violet": "#7a5195",
    "grey": "#555555",
    "black": "#222222",
    "white": "#ffffff",
    "pale blue": "#cfe8ff",
    "pale orange": "#ffe3cc",
    "pale grey": "#e3e3e3",
}
DARK = {
    "teal": "#5cc5d8",
    "orange": "#ff9f6b",
    "violet": "#c9a5e4",
    "grey": "#a5aebd",
    "black": "#e3e7ee",
    "white": "#12151c",
    "pale blue": "#1d3d5f",
    "pale orange": "#5a3416",
    "pale grey": "#333b49",
}
# Translations of labels used in several chapters; `{}` represents a number.
CHINESE = {
    "step": "步",
    "epoch": "轮",
    "loss": "损失",
    "training loss": "训练损失",
    "validation loss": "验证损失",
    "accuracy": "准确率",
    "layer": "层",
    "batch size": "批量大小",
    # labels that cells pass to `draw_curves`
    "zero_grad in each step": "每一步都 zero_grad",
    "zero_grad forgotten": "忘了 zero_grad",
    "w, minimizing w²": "w，目标是最小化 w²",
    "norm of its gradient": "梯度的范数",
    "step, {} per decade": "步，每 {} 步变为十倍",
    "train, running mean": "训练集，训练中的平均",
    "train, after the epoch": "训练集，这一轮之后",
    "validation": "验证集",
}
_DARK_PAGES = (
    "html[data-theme=dark],html[theme=dark],body[data-jp-theme-light=false],body.vscode-dark"
)


_INK = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_LOOK = {
    **dict.fromkeys(_INK, COLORS["black"]),
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _variables(colors: Mapping[str, str]) -> str:
    return ";".join(f"--{_variable(name)}:{color}" for name, color in colors.items())


def _variable(name: str) -> str:
    return "fig-" + name.replace(" ", "-")


STYLE = (
    ".book-figure{display:flex;flex-wrap:wrap;align-items:flex-start;gap:1rem;margin:0;"
    f"color:var(--fig-black);background:var(--fig-white);{_variables(COLORS)}}}"
    f":is({_DARK_PAGES}) .book-figure{{{_variables(DARK)}}}"
    ".book-figure svg{min-width:0;height:auto;overflow:visible;"
    "stroke-linejoin:round;fill:currentColor}"
    ".book-figure image{image-rendering:pixelated}"
    ".book-figure [lang=zh],.book-figure:lang(zh) [lang=en]{display:none}"
    ".book-figure:lang(zh) [lang=zh]{display:inline}"
)


class Figure:
    """Figure made of panels, displayed as the last value of a cell in Jupyter and on the site.

    Attributes:
        panels: the Matplotlib figure of each panel.
        chinese: the Chinese text of each English label.
    """

    def __init__(self, panels: Sequence[Any], chinese: Mapping[str, str]) -> None:
        self.panels, self.chinese = list(panels), CHINESE | dict(chinese)

    @property
    def axes(self) -> list[Axes]:
        """The axes of all panels."""
        return [axis for panel in self.panels for axis in panel.axes]

    def labels(self) -> list[str]:
        """Return the English labels in reading order, without tick labels."""
        from matplotlib.text import Text

        labels: dict[str, None] = {}
        for axis in self.axes:
            ticks = {id(t) for a in (axis.xaxis, axis.yaxis) for t in a.findobj(Text)}
            ticks -= {id(axis.xaxis.label), id(axis.yaxis.label)}
            texts = [t for t in axis.findobj(Text) if id(t) not in ticks and t.get_visible()]
            labels |= dict.fromkeys(" ".join(t.get_text().split()) for t in texts)
        return [label for label in labels if label]

    def __repr__(self) -> str:
        return f"<figure: {' · '.join(self.labels())}>"

    def _repr_html_(self) -> str:
        panels = "\n".join(_panel(panel, self.chinese) for panel in self.panels)
        style = f"<style>{STYLE}</style>"
        return f'<figure class="book-figure" lang="{language()}">{style}\n{panels}\n</figure>'


def figure(
    panels: int | None = None,
    *,
    size: tuple[float, float] | Sequence[tuple[float, float]] = (3.5, 2.3),
    chinese: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[Figure, Any]:
    """Create a figure in the style of the book.

    Write labels in English, and code in a monospaced font; `chinese` translates the labels. A phone
    shows about 3.5 inches without scaling, and two panels of that width fit side by side on a page.

    Args:
        panels: number of panels; None for a single panel, returned without a list.
        size: width and height of a panel in inches, or of each panel.
        chinese: Chinese text of the labels, in addition to `CHINESE`; `{}` represents a number.
        options: further arguments of `matplotlib.figure.Figure.subplots` for each panel.

    Returns:
        The figure, and the result of `subplots`: one result if `panels` is None, else a list.

    Raises:
        TypeError: `panels` is not an int, or `size` not a tuple.
        ValueError: `panels` is less than 1, or the number of sizes differs from it.
    """
    import matplotlib
    from matplotlib.figure import Figure as Panel

    count = 1 if panels is None else panels
    if not isinstance(count, int) or not isinstance(size, Sequence) or not size:
        raise TypeError(
            f"expected a number of panels, and a size as a tuple: got {panels!r} and {size!r}"
        )
    sizes = [size] * count if isinstance(size[0], int | float) else list(size)
    if count < 1 or len(sizes) != count:
        raise ValueError(f"a figure needs a panel, and a size of each: got {panels} and {size}")
    with matplotlib.rc_context(_LOOK):
        drawn = [Panel(figsize=shape, layout="constrained") for shape in sizes]
        axes = [panel.subplots(**options) for panel in drawn]
    return Figure(drawn, chinese or {}), axes[0] if panels is None else axes


def legend(axis: Any, columns: int = 1, **options: Any) -> None:
    """Draw the legend above the axes, in `columns` columns; `options` as for `Axes.legend`."""
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "borderaxespad": 0.2}
    style = {"frameon": False, "fontsize": 8.5, "ncols": columns, "handlelength": 2.2}
    axis.legend(**place | style | options)


def title(axis: Any, text: str, code: bool = False) -> None:
    """Set a panel's title above its left end; `code` uses a monospaced font."""
    axis.set_title(text, loc="left", fontsize=9, family="monospace" if code else None)


def draw_curves(
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    log: bool = False,
    chinese: Mapping[str, str] | None = None,
) -> Figure:
    """Draw up to four curves over 1, 2, 3, … with a legend above.

    Args:
        curves: values of each curve by its name.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        log: if True, the y axis is logarithmic.
        chinese: see `figure`.

    Raises:
        TypeError: `curves` is not a dict, or a label not a str.
        ValueError: `curves` is empty or contains more than four curves.
    """
    styles = [("teal", "-", "o"), ("orange", "--", "s"), ("grey", ":", "^"), ("black", "-.", "")]
    if not isinstance(curves, Mapping):
        raise TypeError(f"curves must be a dict, got {type(curves).__name__}")
    if not isinstance(xlabel, str) or not isinstance(ylabel, str):
        raise TypeError(f"expected labels as text, got {xlabel!r} and {ylabel!r}")
    if not 1 <= len(curves) <= len(styles):
        raise ValueError(f"draw_curves needs 1 to {len(styles)} curves, got {len(curves)}")
    drawing, axis = figure(chinese=chinese)
    for (name, values), (color, line, marker) in zip(curves.items(), styles, strict=False):
        steps = range(1, len(values) + 1)
        axis.plot(steps, values, line, color=COLORS[color], marker=marker, markersize=3, label=name)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        axis.set_yscale("log")
    axis.xaxis.get_major_locator().set_params(integer=True)
    if len(curves) > 1:
        legend(axis)
    return drawing


def language() -> str:
    """Return `"en"` or `"zh"`: the notebook's folder, else the language of the locale."""
    notebook = os.environ.get("JPY_SESSION_NAME", "").replace("\\", "/")
    if folder := re.search(r"(?:^|/)(en|zh)/[^/]*$", notebook):
        return folder[1]
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG"))
    return "zh" if next(filter(None, names), "").lower().startswith("zh") else "en"


# ---------------------------------------------------------------- conversion of Matplotlib's SVG

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_NAMES = {color: name for name, color in COLORS.items()} | {"#000000": "black"}
_LEFT_OUT = ("metadata", "style")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")


def power_of_ten(value: float, _: object = None) -> str:
    """Return a tick label: powers of ten as 0.01 to 1000 or 1e-5, "" for other values."""
    exponent = round(math.log10(value)) if 0 < value < math.inf else 0
    if not math.isclose(value, 10.0**exponent):
        return ""
    return f"{value:g}" if -2 <= exponent <= 3 else f"1e{exponent}"


def _panel(panel: Any, chinese: Mapping[str, str]) -> str:
    import matplotlib
    from matplotlib.ticker import LogFormatter, NullFormatter

    for axis in (a for axes in panel.axes for a in (axes.xaxis, axes.yaxis)):
        if isinstance(axis.get_major_formatter(), LogFormatter):
            axis.set_major_formatter(power_of_ten)
            axis.set_minor_formatter(NullFormatter())
    written = StringIO()
    # Keep text as text elements; make ids and bytes reproducible.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "book"}):
        panel.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(written.getvalue())
    prefix = "fig" + hashlib.sha256(written.getvalue().encode()).hexdigest()[:6]
    body = "".join(_node(child, chinese, prefix) for child in root)
    width, height = (float(n) for n in root.get("viewBox", "").split()[2:])
    pixels = width / 72 * 96
    shown = f"flex:{pixels:.0f} 1 {0.9 * pixels:.0f}px;max-width:min(100%,{1.25 * pixels:.0f}px)"
    return f'<svg viewBox="0 0 {width:g} {height:g}" style="{shown}">{body}</svg>'


def _node(node: ElementTree.Element, chinese: Mapping[str, str], prefix: str) -> str:
    """Serialize an element with the book's colours and labels, without Matplotlib's metadata."""
    tag = node.tag.removeprefix(_SVG)
    if tag in _LEFT_OUT or tag.startswith("{"):
        return ""
    inside = "".join(_node(child, chinese, prefix) for child in node)
    written = _attributes(node, tag, prefix)
    if tag in ("text", "tspan") and node.text and node.text.strip():
        code = "monospace" in node.get("style", "")
        english, translation = escape(node.text), "" if code else _translated(node.text, chinese)
        if translation:
            return (
                f'<text lang="en"{written}>{english}</text>'
                f'<text lang="zh"{written}>{escape(translation)}</text>'
            )
        inside = english
    if tag in ("g", "defs") and not (inside and written):
        return inside if tag == "g" or not inside else f"<defs>{inside}</defs>"
    return f"<{tag}{written}>{inside}</{tag}>" if inside else f"<{tag}{written}/>"


def _attributes(node: ElementTree.Element, tag: str, prefix: str) -> str:
    attributes = {}
    for name, value in node.attrib.items():
        if name == _LINK:
            name, value = "href", value.replace("#", f"#{prefix}", 1) if tag == "use" else value
        elif name == "id":
            value = f"{prefix}{value}"
            if tag == "g":
                continue
        elif name == "clip-path":
            value = value.replace("#", f"#{prefix}")
        elif name == "style":
            value = _style(value, tag)
        elif name in ("d", "x", "y", "width", "height", "transform"):
            value = _short(value) if tag != "image" else value
        if value and not (name == "transform" and value.startswith("rotate(0")):
            attributes[name] = value
    return "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())


def _style(written: str, tag: str) -> str:
    """Return a style attribute with the colours of the book and without the font."""
    kept = []
    for declaration in filter(None, (part.strip() for part in written.split(";"))):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        family = value if name in ("font", "font-family") else ""
        if name == "font":  # Matplotlib before 3.11
            kept += [f"font-size:{size}" for size in re.findall(r"[\d.]+px", value)]
            kept += ["font-weight:bold"] if re.search(r"\b(?:bold|700)\b", value) else []
        elif name != "font-family":
            color = _NAMES.get(value)
            if tag == "text" and color == "black":
                continue  # equal to the figure's default
            kept.append(f"{name}:var(--{_variable(color)})" if color else f"{name}:{value}")
        if "monospace" in family:
            kept.append("font-family:var(--pst-font-family-monospace,monospace)")
    return ";".join(kept)


def _short(numbers: str) -> str:
    """Return coordinates in points with one decimal and single spaces."""
    shorter = re.sub(r"-?\d+\.\d+", lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), numbers)
    shorter = re.sub(r"-0(?![\d.])", "0", shorter)
    return re.sub(r"\s*([a-zA-Z])\s+", r"\1", " ".join(shorter.split()))


def _translated(label: str, chinese: Mapping[str, str]) -> str:
    """Return the Chinese text of a label with its numbers inserted, "" if there is none."""
    if label in chinese:
        return chinese[label]
    translation = chinese.get(_NUMBER.sub("{}", label), "")
    return translation.format(*_NUMBER.findall(label)) if "{}" in translation else translation
