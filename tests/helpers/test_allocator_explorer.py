"""Test that the allocator explorer shows the model's numbers in a browser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from traces import notes_trace

from helpers.allocator import MIB, format_size, random_trace, replay
from helpers.demos.memory_caching import FRAGMENTATION_CAPACITY, fragmentation_trace
from helpers.explorers.allocator import allocator_explorer


def test_explorer_data_matches_the_replay() -> None:
    explorer = allocator_explorer(fragmentation_trace(), FRAGMENTATION_CAPACITY, lang="zh")
    data = json.loads(explorer.data)
    steps = replay(fragmentation_trace(), FRAGMENTATION_CAPACITY)
    assert data["capacity"] == "40.00 MiB"
    assert len(data["steps"]) == len(steps)
    for shown, step in zip(data["steps"], steps, strict=True):
        counters = step.counters
        assert [value for value, _ in shown["now"]] == [
            counters.allocated,
            counters.reserved,
            counters.max_allocated,
            counters.max_reserved,
        ]
        assert sum(s["size"] for s in shown["segments"]) == counters.reserved
        held = sum(b[0] for s in shown["segments"] for b in s["blocks"] if b[2])
        assert held == counters.allocated
        assert ("oom" in shown["did"]) == (step.error is not None)
    assert data["steps"][data["start"]]["did"]["oom"] == [1, "12.00 MiB"]
    failed = data["steps"][data["start"]]
    assert failed["wanted"] == 12 * MIB and failed["pieces"] == ["20.00 MiB", "5.00 MiB"]
    assert "22.00 MiB are allocated and 40.00 MiB reserved" in explorer.fallback["en"]
    with pytest.raises(ValueError, match="at least one operation"):
        allocator_explorer([])


def counters(page: Any) -> list[str]:
    """Return the sizes in the table, with ordinary spaces for no-break spaces."""
    return [text.replace("\xa0", " ") for text in page.locator("tbody td").all_inner_texts()]


def test_every_step_shows_the_numbers_of_the_model(show: Any) -> None:
    trace = [*random_trace(3, 25), ("reset_peak",)]
    steps = replay(trace, 60 * MIB)
    page = show(allocator_explorer(trace, 60 * MIB))
    assert any(step.error for step in steps)
    page.get_by_role("slider").press("Home")
    for number, step in enumerate(steps, start=1):
        if number > 1:
            page.get_by_role("button", name="Next").click()
        status = page.locator("[aria-live=polite]").inner_text()
        assert page.get_by_role("slider").get_attribute("aria-valuetext") == (
            f"Step {number} of 26"
        )
        assert page.locator(".wanted").count() == (step.error is not None)
        assert ("out of memory" in status) == (step.error is not None)
        now = step.counters
        assert counters(page) == [
            format_size(value)
            for value in (now.allocated, now.max_allocated, now.reserved, now.max_reserved)
        ]
        shown = page.evaluate(
            """() => [...document.querySelector("allocator-explorer").shadowRoot
              .querySelectorAll(".segment .blocks")].map((row) => ({
                label: row.ariaLabel.replaceAll("\u00a0", " "),
                held: [...row.children].map((block) => block.classList.contains("hold")),
                width: row.getBoundingClientRect().width }))"""
        )
        assert len(shown) == len(step.snapshot)
        for row, segment in zip(shown, step.snapshot, strict=True):
            blocks = segment["blocks"]
            assert row["held"] == [b["state"] == "active_allocated" for b in blocks]
            assert row["label"] == ", ".join(
                f"{b['name'] or 'free'} {format_size(b['size'])}" for b in blocks
            )
        sizes = [s["total_size"] for t in steps for s in t.snapshot]
        largest = max([*sizes, *(t.operation[2] for t in steps if t.error)])
        for row, segment in zip(shown, step.snapshot, strict=True):
            share = row["width"] / page.locator(".heap").bounding_box()["width"]
            assert share == pytest.approx(segment["total_size"] / largest, abs=0.01)


def test_status_describes_the_operation(show: Any) -> None:
    page = show(allocator_explorer(notes_trace()))
    status = page.locator("[aria-live=polite]")

    def at(number: int) -> str:
        page.get_by_role("slider").fill(str(number - 1))
        return status.inner_text().replace("\u00a0", " ").split("✓")[0].strip()

    assert at(3) == (
        "Allocate images 1, 1.18 MiB: no free block fits, so a new segment of 20.00 MiB is "
        "reserved; the block takes 1.18 MiB; the remaining 18.82 MiB stay free."
    )
    assert at(4).startswith("Allocate output 1, 3.88 MiB: a free block of the cache is used again;")
    assert at(5) == (
        "Free output 1: the block of 3.88 MiB stays reserved; it merges with its free neighbour."
    )
    assert at(15) == "Empty the cache: a free segment goes back to the device, 20.00 MiB."
    assert page.locator(".segment").count() == 1


def test_language_follows_page_or_attribute(show: Any) -> None:
    trace = fragmentation_trace()
    page = show(allocator_explorer(trace, FRAGMENTATION_CAPACITY), lang="zh-CN")
    assert page.locator("[aria-live=polite]").inner_text().replace("\u00a0", " ") == (
        "分配 big，12.00 MiB：显存不足：放不下 12.00 MiB 的段。"
        "空闲的共有 20.00 MiB，但最大的一块只有 5.00 MiB。"
    )
    text = page.get_by_role("group").inner_text().replace("\u00a0", " ")
    for term in ("已分配显存", "已保留显存", "峰值", "段 1", "空闲", "设备：40.00 MiB"):
        assert term in text
    forced = show(allocator_explorer(trace, lang="zh"), lang="en")
    assert forced.get_by_role("button", name="下一步").count() == 1
    english = show(allocator_explorer(trace, lang="en"), lang="zh-CN")
    assert english.get_by_role("button", name="Next").count() == 1


def task(page: Any) -> str:
    return page.locator(".task").inner_text().replace("\u00a0", " ")


def test_explorer_opens_at_the_failure_and_task_completes(show: Any) -> None:
    page = show(allocator_explorer(fragmentation_trace(), FRAGMENTATION_CAPACITY), width=375)
    text = page.locator("[aria-live=polite]")
    assert (
        text.inner_text()
        .replace("\u00a0", " ")
        .endswith("20.00 MiB are free, but the largest piece has 5.00 MiB.")
    )
    assert task(page) == "Task: here 12.00 MiB do not fit. Go to the step where they do."
    for step in (15, 16, 17):
        assert task(page).startswith("Task"), step
        page.get_by_role("button", name="Next").click()
    assert task(page).startswith("✓ Done") and "big again" in text.inner_text()


def test_explorer_without_failure_opens_at_the_most_unused(show: Any) -> None:
    trace = notes_trace()
    unused = [s.counters.reserved - s.counters.allocated for s in replay(trace)]
    page = show(allocator_explorer(trace))
    slider = page.get_by_role("slider")
    at = int(slider.input_value())
    assert unused[at] == max(unused) and max(unused) not in unused[at + 1 :]
    slider.press("Home")
    for number in range(1, len(unused) + 1):
        assert task(page).startswith("Task" if number < 15 else "✓ Done"), number
        slider.press("ArrowRight") if number < 15 else None


def test_keyboard_reaches_every_control(show: Any) -> None:
    page = show(allocator_explorer(notes_trace()))
    slider = page.get_by_role("slider")

    def focused() -> str:
        return page.evaluate(
            """() => { const e = document.querySelector("allocator-explorer").shadowRoot
              .activeElement; return e && (e.ariaLabel || e.type); }"""
        )

    def at() -> str:
        return slider.get_attribute("aria-valuetext")

    slider.press("Home")
    page.keyboard.press("Shift+Tab")
    assert focused() == "Back"
    page.keyboard.press("Enter")  # there is no step before the first
    assert at() == "Step 1 of 15"
    page.keyboard.press("Tab")
    assert focused() == "range"
    page.keyboard.press("Tab")
    assert focused() == "Next"
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
    assert at() == "Step 3 of 15"
    slider.press("End")
    assert at() == "Step 15 of 15"
    page.keyboard.press("ArrowLeft")
    assert at() == "Step 14 of 15"


def test_pointer_on_the_curves_selects_a_step(show: Any) -> None:
    page = show(allocator_explorer(notes_trace()), width=800)
    box = page.locator(".facts svg").bounding_box()
    for step in (3, 15, 1):
        page.mouse.move(box["x"] + (step - 0.5) / 15 * box["width"], box["y"] + 20)
        assert page.get_by_role("slider").input_value() == str(step - 1)


def test_several_explorers_on_a_page_are_independent(show: Any) -> None:
    page = show(
        allocator_explorer(notes_trace()),
        allocator_explorer(fragmentation_trace(), FRAGMENTATION_CAPACITY),
    )
    first, second = page.get_by_role("slider").all()
    before = first.input_value()
    page.get_by_role("button", name="Next").nth(1).click()
    assert (first.input_value(), second.input_value()) == (before, "14")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("lang", ["en", "zh-CN"])
def test_narrow_screen_requires_no_sideways_scroll(show: Any, lang: str, dark: bool) -> None:
    page = show(allocator_explorer(random_trace(0, 60)), lang=lang, width=375, dark=dark)
    page.get_by_role("slider").fill("40")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    # A label is shown whole or not at all
    cut = page.evaluate(
        """() => [...document.querySelector("allocator-explorer").shadowRoot
          .querySelectorAll(".block span")].filter((span) => {
            const a = span.getBoundingClientRect(), b = span.parentNode.getBoundingClientRect();
            return a.top < b.bottom - 2 && a.right > b.right + 1; }).map((s) => s.textContent)"""
    )
    assert cut == []
    colour = page.evaluate(
        """() => getComputedStyle(document.querySelector("allocator-explorer").shadowRoot
          .querySelector("section")).backgroundColor"""
    )
    assert colour == ("rgb(18, 21, 28)" if dark else "rgb(255, 255, 255)")


def test_fallback_without_scripts_is_a_sentence() -> None:
    html = allocator_explorer(notes_trace())._repr_html_()
    assert ">A figure that steps through 15 operations of the caching allocator. " in html
    assert "2.00 KiB are allocated and 2.00 MiB reserved" in html
