"""Explorers on a bare page, as in an output frame of Colab: two of a kind, in both languages."""

from __future__ import annotations

import pytest

from helpers.demos.memory_caching import notes_trace
from helpers.explorers.allocator import allocator_explorer
from helpers.explorers.batch import batch_explorer
from helpers.explorers.conv import conv_explorer
from helpers.explorers.copy import copy_explorer
from helpers.explorers.mean import mean_explorer
from helpers.explorers.move import move_explorer
from helpers.explorers.schedule import schedule_explorer
from helpers.explorers.stride import stride_explorer

EXPLORERS = [
    batch_explorer,
    conv_explorer,
    copy_explorer,
    mean_explorer,
    move_explorer,
    schedule_explorer,
    stride_explorer,
    lambda lang: allocator_explorer(notes_trace(), lang=lang),
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
