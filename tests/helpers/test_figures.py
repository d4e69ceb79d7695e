"""The style that all figures share."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from helpers import figures


def luminance(color: str) -> float:
    """Relative luminance of `#rrggbb`, from WCAG 2.2."""
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", figures.COLORS)
def test_text_is_legible(name):
    color = luminance(figures.COLORS[name])
    if name.startswith("pale"):
        assert (color + 0.05) / (luminance(figures.COLORS["black"]) + 0.05) >= 4.5
    else:
        assert 1.05 / (color + 0.05) >= 4.5


def test_a_figure_has_no_frame_and_a_tight_layout():
    figure, axes = figures.figure(1, 2, size=(6, 2), sharey=True)
    assert figure.get_size_inches().tolist() == [6, 2] and len(axes) == 2
    for axis in axes:
        shown = {side for side, spine in axis.spines.items() if spine.get_visible()}
        assert shown == {"left", "bottom"}
    assert type(figure.get_layout_engine()).__name__ == "TightLayoutEngine"
    _, plain = plt.subplots()
    assert plain.spines["top"].get_visible()  # the style of the reader's own figures stays


def test_a_backend_that_starts_with_the_first_figure_keeps_its_settings(monkeypatch):
    subplots = plt.subplots

    def start(*args, **options):
        plt.rcParams["interactive"] = True  # as Jupyter's backend does
        return subplots(*args, **options)

    monkeypatch.setattr(plt, "subplots", start)
    monkeypatch.setitem(plt.rcParams, "interactive", False)
    figures.figure()
    assert plt.isinteractive()


def test_options_reach_matplotlib():
    figure, axes = figures.figure(squeeze=False, layout="constrained")
    assert axes.shape == (1, 1)
    assert type(figure.get_layout_engine()).__name__ == "ConstrainedLayoutEngine"
