"""Test figures on pages: language, colours, legibility on phones, enlarged view."""

from __future__ import annotations

import pytest

from helpers import figures


def test_figure_colours_follow_the_theme(page, url):
    page.goto(f"{url}/en/normalization.html")
    colors = """() => [...document.querySelectorAll(".book-figure [style*=teal]")]
      .map((line) => getComputedStyle(line).stroke)"""
    seen = []
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        seen.append(set(page.evaluate(colors)))
        slab = page.locator(".text_html:has(> .book-figure)").first
        assert slab.evaluate("e => getComputedStyle(e).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert seen == [{"rgb(10, 107, 125)"}, {"rgb(92, 197, 216)"}]


@pytest.mark.parametrize(("lang", "words"), [("en", "Enlarge Close"), ("zh", "放大 关闭")])
def test_figure_is_enlarged_by_key_and_pointer(page, url, lang, words):
    enlarge, close = words.split()
    page.goto(f"{url}/{lang}/normalization.html")
    opener = page.get_by_role("button", name=enlarge).first
    figure = page.locator("main .book-figure").first
    width = figure.locator("svg").first.bounding_box()["width"]
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog.enlarged")
    assert dialog.get_attribute("aria-label") == figure.get_attribute("aria-label")
    assert dialog.locator("svg").first.bounding_box()["width"] > 1.5 * width
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert opener.evaluate("button => button === document.activeElement")
    figure.click()
    dialog.get_by_role("button", name=close).click()
    assert dialog.count() == 0


def test_enlarged_figure_is_wider_than_a_phone(phone, url):
    phone.goto(f"{url}/en/normalization.html")
    phone.locator("button.enlarge").first.click()
    shown = phone.locator("dialog.enlarged svg").first.bounding_box()
    assert shown["width"] > 500
    box = phone.locator("dialog.enlarged").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 375


@pytest.mark.parametrize(
    ("host", "color"),
    [
        ("<html><body>", "rgb(34, 34, 34)"),
        ("<html><body data-jp-theme-light='true'>", "rgb(34, 34, 34)"),
        ("<html><body data-jp-theme-light='false'>", "rgb(227, 231, 238)"),
        ("<html><body class='vscode-dark'>", "rgb(227, 231, 238)"),
        ("<html theme='dark'><body>", "rgb(227, 231, 238)"),
    ],
    ids=["alone", "JupyterLab light", "JupyterLab dark", "Visual Studio Code", "Colab"],
)
def test_figure_sets_its_background_in_notebooks(page, host, color):
    figure = figures.draw_curves({"a": [1.0, 2.0]}, "epoch", "loss")._repr_html_()
    page.set_content(host + figure)
    style = page.locator(".book-figure").evaluate(
        "figure => ({ ink: getComputedStyle(figure).color, "
        "paper: getComputedStyle(figure).backgroundColor })"
    )
    light = "rgb(255, 255, 255)" if color == "rgb(34, 34, 34)" else "rgb(18, 21, 28)"
    assert style == {"ink": color, "paper": light}
    assert page.locator("text=epoch").is_visible() and page.locator("text=轮").is_hidden()
