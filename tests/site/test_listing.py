"""Symptoms, pitfalls and names: the filter, the permanent addresses, and without scripts."""

from __future__ import annotations

import pytest
from book_pages import LANGUAGES


def shown(page) -> list[str]:
    """The ids of the entries that a reader sees."""
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
        ("en/by_name", "DataLoader", "torch.utils.data.DataLoader", 30),
    ],
)
def test_the_filter_leaves_what_fits(page, url, address, words, expected, most):
    page.goto(f"{url}/{address}.html")
    every = shown(page)
    page.fill("[data-filter]", words)
    left = shown(page)
    assert expected in left and len(left) <= most < len(every)
    for heading in page.locator(".filtered h2").all():
        section = heading.locator("xpath=..")
        assert heading.is_visible() == (section.locator("li[id]:not([hidden])").count() > 0)
    page.fill("[data-filter]", "")
    assert shown(page) == every


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_nothing_fits_is_said(page, url, lang):
    page.goto(f"{url}/{lang}/symptoms.html?q=zymurgy")
    assert shown(page) == []
    assert page.locator(".filter [role=status]").inner_text()


def test_a_linked_symptom_is_open(page, url):
    page.goto(f"{url}/zh/symptoms.html#loss-nan")
    assert page.locator("#loss-nan details").get_attribute("open") is not None
    assert page.locator("#loss-inf details").get_attribute("open") is None
    page.evaluate("location.hash = '#loss-inf'")
    page.wait_for_selector("#loss-inf details[open]")


def test_the_lists_are_whole_without_scripts(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name, least in (("symptoms", 60), ("pitfalls", 120), ("by_name", 250)):
        page.goto(f"{url}/en/{name}.html")
        assert page.locator(".filtered li[id]:visible").count() >= least
    page.goto(f"{url}/en/symptoms.html")
    page.click("#loss-nan summary")
    assert page.locator("#loss-nan ol a").first.is_visible()
    context.close()
