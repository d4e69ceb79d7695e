"""Figures on the page: in its language and colours, legible on a phone, large where one asks."""

from __future__ import annotations

import json
import re

import pytest
from book_pages import LANGUAGES, ROOT

from helpers import figures

# Texts that one sees: size in pixels, and how far they reach beyond the page's width.
SEEN = """() => [...document.querySelectorAll(".book-figure text")]
  .filter((text) => text.getClientRects().length && text.checkVisibility())
  .map((text) => {
    const svg = text.closest("svg"), box = text.getBoundingClientRect();
    const frame = svg.getBoundingClientRect();
    return {
      said: text.textContent,
      code: text.getAttribute("style").includes("monospace"),
      pixels: parseFloat(getComputedStyle(text).fontSize) * frame.width / svg.viewBox.baseVal.width,
      beyond: Math.max(box.right - document.documentElement.clientWidth, -box.left),
    };
  })"""


def chapters(lang: str) -> dict[str, list[str]]:
    """The labels in the other language, of every chapter with a figure."""
    found = {}
    for path in sorted((ROOT / "book" / lang).glob("*.ipynb")):
        cells = json.loads(path.read_text("utf8"))["cells"]
        html = "".join(
            "".join(output.get("data", {}).get("text/html", ""))
            for cell in cells
            for output in cell.get("outputs", [])
        )
        if '<figure class="book-figure"' in html:
            other = "en" if lang == "zh" else "zh"
            found[path.stem] = re.findall(f'<text lang="{other}"[^>]*>([^<]*)<', html)
    return found


@pytest.mark.parametrize("lang", LANGUAGES)
def test_labels_are_in_the_pages_language_and_legible_on_a_phone(phone, url, lang):
    for name, others in chapters(lang).items():
        phone.goto(f"{url}/{lang}/{name}.html")
        seen = phone.evaluate(SEEN)
        assert seen, name
        wrong = {s["said"] for s in seen if not s["code"]} & set(others)
        assert not wrong, f"{name}: {wrong}"
        small = {s["said"] for s in seen if s["pixels"] < 9}
        assert not small, f"{name}: {small}"
        wide = {s["said"]: s["beyond"] for s in seen if s["beyond"] > 0}
        assert not wide, f"{name}: {wide}"
        for figure in phone.locator(".book-figure").all():
            assert figure.get_attribute("role") == "img"
            assert len(figure.get_attribute("aria-label")) > 30, name


def test_a_figure_changes_its_colours_with_the_theme(page, url):
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
def test_a_figure_is_enlarged_by_key_and_by_pointer(page, url, lang, words):
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


def test_a_figure_is_larger_than_a_phone_when_enlarged(phone, url):
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
def test_a_figure_stands_on_its_own_ground_in_notebooks(page, host, color):
    figure = figures.draw_curves({"a": [1.0, 2.0]}, "epoch", "loss")._repr_html_()
    page.set_content(host + figure)
    style = page.locator(".book-figure").evaluate(
        "figure => ({ ink: getComputedStyle(figure).color, "
        "paper: getComputedStyle(figure).backgroundColor })"
    )
    light = "rgb(255, 255, 255)" if color == "rgb(34, 34, 34)" else "rgb(18, 21, 28)"
    assert style == {"ink": color, "paper": light}
    assert page.locator("text=epoch").is_visible() and page.locator("text=轮").is_hidden()
