"""Test list pages: filter, permanent addresses, and content without scripts."""

from __future__ import annotations

import re

import pytest
from book_pages import LANGUAGES
from bs4 import BeautifulSoup

from helpers.review.review import RULES


def shown(page) -> list[str]:
    """Return the ids of the visible entries."""
    return page.locator(".filtered li[id]").evaluate_all(
        "all => all.filter(e => e.offsetParent).map(e => e.id)"
    )


@pytest.mark.parametrize(
    ("address", "words", "expected", "most"),
    [
        ("en/symptoms", "nan mixed", "loss-nan-mixed-precision", 5),
        ("en/symptoms", "gpu memory freed", "gpu-memory-not-freed", 8),
        ("zh/symptoms", "损失不下降", "loss-does-not-go-down", 8),
        ("zh/symptoms", "爆显存", "memory-grows-every-step", 8),
        ("en/pitfalls", "clone", "views-expand-error", 40),
        ("zh/pitfalls", "batch_first Multihead", "modules-batch-first", 5),
        ("en/review", "softmax twice", "losses-double-softmax", 12),
        ("zh/review", "调度器 轮数", "rate-per-batch", 12),
        ("en/by_name", "DataLoader", "torch.utils.data.DataLoader", 30),
    ],
)
def test_filter_keeps_only_matching_entries(page, url, address, words, expected, most):
    page.goto(f"{url}/{address}.html")
    every = shown(page)
    page.fill("[data-filter]", words)
    left = shown(page)
    assert expected in left and len(left) <= most < len(every)
    for heading in page.locator(".filtered :is(h2, h3)").all():
        section = heading.locator("xpath=..")
        assert heading.is_visible() == (section.locator("li[id]:not([hidden])").count() > 0)
    page.fill("[data-filter]", "")
    assert shown(page) == every


@pytest.mark.parametrize("name", ["index", "symptoms", "cheat_sheet", "by_name"])
def test_placeholder_has_the_colour_of_muted_text(page, url, name):
    page.goto(f"{url}/en/{name}.html")
    field = page.locator("article [placeholder]").first
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    colours = """field => {
      const probe = field.parentElement.appendChild(document.createElement("span"));
      probe.style.color = "var(--pst-color-text-muted)";
      return [getComputedStyle(field, "::placeholder").color, getComputedStyle(probe).color];
    }"""
    placeholder, muted = field.evaluate(colours)
    assert placeholder == muted


@pytest.mark.parametrize("lang", LANGUAGES)
def test_tables_of_the_status_page_fit_on_a_desktop(page, url, lang):
    page.goto(f"{url}/{lang}/status.html")
    tables = page.locator("#status table")
    assert tables.count() >= 3
    assert not tables.evaluate_all(
        "all => all.filter(e => e.parentElement.scrollWidth > e.parentElement.clientWidth)"
        ".map(e => e.closest('section').id)"
    )


@pytest.mark.parametrize("lang", LANGUAGES)
def test_filter_without_matches_shows_a_message(page, url, lang):
    page.goto(f"{url}/{lang}/symptoms.html?q=zymurgy")
    assert shown(page) == []
    assert page.locator(".filter [role=status]").inner_text()


def test_linked_symptom_is_opened(page, url):
    page.goto(f"{url}/zh/symptoms.html#loss-nan")
    assert page.locator("#loss-nan details").get_attribute("open") is not None
    assert page.locator("#loss-inf details").get_attribute("open") is None
    page.evaluate("location.hash = '#loss-inf'")
    page.wait_for_selector("#loss-inf details[open]")


def test_lists_are_complete_without_scripts(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name, least in (("symptoms", 60), ("review", 123), ("pitfalls", 120), ("by_name", 250)):
        page.goto(f"{url}/en/{name}.html")
        assert page.locator(".filtered li[id]:visible").count() >= least
    page.goto(f"{url}/en/symptoms.html")
    page.click("#loss-nan summary")
    assert page.locator("#loss-nan ol a").first.is_visible()
    context.close()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_review_page_lists_each_rule_once_with_its_section_link(site, lang):
    soup = BeautifulSoup((site / lang / "review.html").read_text("utf8"), "html.parser")
    rules = soup.select(".review-rules > li[id]")
    assert sorted(rule["id"] for rule in rules) == sorted(RULES)
    assert len(soup.select(".review-report a[href]")) == 7
    links = [rule.select_one("p > a[href]")["href"] for rule in rules]
    links += [link["href"] for link in soup.select(".review-report a[href]")]
    pages = {}
    for link in links:
        name, _, anchor = link.partition("#")
        if name not in pages:
            pages[name] = re.findall(r' id="([^"]+)"', (site / lang / name).read_text("utf8"))
        assert not anchor or anchor in pages[name], link


@pytest.mark.parametrize("lang", LANGUAGES)
def test_home_symptoms_and_llms_link_to_the_review_page(site, lang):
    for name in ("index", "symptoms"):
        soup = BeautifulSoup((site / lang / f"{name}.html").read_text("utf8"), "html.parser")
        assert soup.select('.bd-article a[href="review.html"]'), name
        assert soup.select('.bd-links a[href="review.html"]'), name
    assert re.search(rf"\]\(\S*{lang}/review\.md\): ", (site / "llms.txt").read_text("utf8"))
    twin = (site / lang / "review.md").read_text("utf8")
    assert "train.py:13" in twin and "losses.append(loss.item())" in twin


def test_review_styles_appear_on_no_other_page(site):
    for name in ("detach", "symptoms"):
        assert "review-rules" not in (site / f"en/{name}.html").read_text("utf8")
    for style in site.glob("*/_static/styles/*.css"):
        assert "review-r" not in style.read_text("utf8")
