"""Explorers on a bare page, as in an output frame of Colab: two of a kind, in both languages."""

from __future__ import annotations

import pytest

from helpers import (
    convolution,
    cuda_semantics,
    data_parallel,
    detach,
    learning_rate,
    losses,
    memory_caching,
    views_and_copies,
)

EXPLORERS = [
    views_and_copies.stride_explorer,
    convolution.conv_explorer,
    learning_rate.schedule_explorer,
    detach.copy_explorer,
    losses.mean_explorer,
    cuda_semantics.move_explorer,
    data_parallel.batch_explorer,
    lambda lang: memory_caching.allocator_explorer(memory_caching.notes_trace(), lang=lang),
]


@pytest.mark.parametrize("make", EXPLORERS)
def test_two_of_a_kind_stand_on_one_page_each_in_its_language(page, make):
    english, chinese = make(lang="en"), make(lang="zh")
    page.set_content(f"<!doctype html><main>{english._repr_html_()}{chinese._repr_html_()}</main>")
    elements = page.locator(english.name)
    assert elements.count() == 2
    texts = []
    for element in elements.all():
        control = element.locator("button, input, select").first
        assert control.is_visible()
        # the sentence for readers without scripts is a child that the shadow tree hides
        assert element.evaluate("e => e.shadowRoot !== null")
        texts.append(element.evaluate("e => e.shadowRoot.textContent"))
    assert "的" in texts[1] and "的" not in texts[0]
