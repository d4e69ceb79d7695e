"""Test the style and the SVG of figures: colours, languages, reproducible bytes."""

from __future__ import annotations

import gzip
import math
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest

from helpers import figures


def luminance(color: str) -> float:
    """Return the relative luminance of `#rrggbb` as defined in WCAG 2.2."""
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colors", [figures.COLORS, figures.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", sorted({*figures.COLORS} - {"white"}))
def test_text_has_sufficient_contrast(colors, name):
    assert set(colors) == set(figures.COLORS)
    ground = colors["black"] if name.startswith("pale") else colors["white"]
    assert contrast(colors[name], ground) >= 4.5


def test_figure_has_no_frame_and_keeps_rc_params():
    before = dict(plt.rcParams)
    figure, axes = figures.figure(2, size=(3, 2), chinese={})
    assert [panel.get_size_inches().tolist() for panel in figure.panels] == [[3, 2]] * 2
    assert figure.axes == axes
    for axis in axes:
        shown = {side for side, spine in axis.spines.items() if spine.get_visible()}
        assert shown == {"left", "bottom"}
    assert dict(plt.rcParams) == before and not plt.get_fignums()


def test_figure_accepts_panels_sizes_and_subplot_options():
    figure, axes = figures.figure(size=(3, 2), nrows=2, squeeze=False)
    assert axes.shape == (2, 1) and len(figure.panels) == 1
    figure, _ = figures.figure(2, size=[(1, 2), (3, 1)])
    assert [panel.get_size_inches().tolist() for panel in figure.panels] == [[1, 2], [3, 1]]
    with pytest.raises(ValueError, match="got 0 and"):
        figures.figure(0)
    with pytest.raises(ValueError, match=r"got 3 and \[\(1, 2\), \(3, 1\)\]"):
        figures.figure(3, size=[(1, 2), (3, 1)])


@pytest.mark.parametrize("count", [0, 5])
def test_draw_curves_rejects_fewer_than_1_or_more_than_4_curves(count):
    with pytest.raises(ValueError, match=f"1 to 4 curves, got {count}"):
        figures.draw_curves({str(n): [1.0] for n in range(count)}, "x", "y")


CURVES = {"train": [3.0, 2.0, 1.5], "one & <two>": [1.0, 1.0, 1.0]}


def drawn(**options):
    options = {"chinese": {"train": "训练"}} | options
    return figures.draw_curves(CURVES, "epoch", "loss after 20 steps", **options)


def texts(html: str) -> dict[str | None, list[str]]:
    """Return the labels of a figure by language."""
    found: dict[str | None, list[str]] = {}
    for node in ElementTree.fromstring(re.sub("<style>.*?</style>", "", html)).iter("text"):
        found.setdefault(node.get("lang"), []).append(node.text)
    return found


def test_labels_are_rendered_in_both_languages():
    figure = drawn(chinese={"train": "训练", "loss after {} steps": "{} 步之后的损失"})
    text = texts(figure._repr_html_())
    assert text["en"] == ["epoch", "loss after 20 steps", "train"]
    assert text["zh"] == ["轮", "20 步之后的损失", "训练"]
    assert "one & <two>" in text[None]
    assert repr(figure) == "<figure: epoch · loss after 20 steps · train · one & <two>>"


def test_code_is_not_translated():
    figure, axis = figures.figure(chinese={"lr": "学习率"})
    figures.title(axis, "lr", code=True)
    axis.set_xlabel("lr")
    text = texts(figure._repr_html_())
    assert text["zh"] == ["学习率"] and "lr" in text[None]


def test_every_colour_follows_the_theme():
    figure, axis = figures.figure()
    for number, color in enumerate(figures.COLORS.values()):
        axis.plot([0, number], color=color)
    svg = figure._repr_html_().partition("</style>")[2]
    assert not re.search("#[0-9a-f]{6}[^\\w]", svg.replace('href="#', ""))
    for name in figures.COLORS:
        assert f"--fig-{name.replace(' ', '-')}:" in figures.STYLE
        if name != "black":
            assert f"stroke:var(--fig-{name.replace(' ', '-')})" in svg


def test_html_is_reproducible_and_small():
    one, two = drawn()._repr_html_(), drawn()._repr_html_()
    assert one == two == drawn()._repr_html_()
    assert len(gzip.compress(one.encode())) < 3000
    assert not any(word in one for word in ("Matplotlib", "<metadata", "<!--", "xlink"))


def test_ids_inside_a_drawing_are_unique():
    figure, axes = figures.figure(2)
    for axis, end in zip(axes, (1, 2), strict=True):
        axis.plot([0, end], "o-")
    html = figure._repr_html_()
    names = re.findall(r' id="([^"]+)"', html)
    assert len(names) == len(set(names)) >= 4
    assert {*re.findall(r'href="#([^"]+)"', html), *re.findall(r"url\(#([^)]+)", html)} <= {*names}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1, "1"),
        (0.01, "0.01"),
        (1000, "1000"),
        (1e-5, "1e-5"),
        (1e10, "1e10"),
        (2, ""),
        (0, ""),
        (math.inf, ""),
    ],
)
def test_power_of_ten_formats_ticks(value, says):
    assert figures.power_of_ten(value) == says


def test_logarithmic_axis_uses_power_of_ten():
    html = figures.draw_curves({"a": [1.0, 1e-4]}, "step", "loss", log=True)._repr_html_()
    assert {"0.01", "1e-4"} <= set(texts(html)[None]) and "tspan" not in html


@pytest.mark.parametrize(
    ("environment", "speaks"),
    [
        ({"JPY_SESSION_NAME": "/home/a/book/zh/detach.ipynb", "LANG": "en_US.UTF-8"}, "zh"),
        ({"JPY_SESSION_NAME": "book/en/detach.ipynb", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"JPY_SESSION_NAME": "/zh/other/detach.ipynb", "LANG": "en_US"}, "en"),
        ({"LC_ALL": "zh_TW", "LANG": "en_US"}, "zh"),
        ({}, "en"),
    ],
)
def test_language_follows_the_notebook_or_the_locale(monkeypatch, environment, speaks):
    for name in ("JPY_SESSION_NAME", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert figures.language() == speaks
    assert f'lang="{speaks}"><style>' in drawn()._repr_html_()
