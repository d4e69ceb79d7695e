"""Test that the loader explorer's rules equal a real DataLoader's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader, Dataset, get_worker_info

from helpers.demos.data_loading import schedule
from helpers.explorers.loader import BATCHES, TRAIN, loader_explorer

GRID = list(itertools.product((1, 3, 4, 8), range(7), (1, 2, 4), (False, True)))
PLAN = "(all) => all.map((one) => customElements.get('loader-explorer').plan(...one))"


def loads(load: int, slow: bool) -> list[int]:
    return [load * (3 if slow and i % 4 == 3 else 1) for i in range(BATCHES)]


@pytest.fixture
def plans(show):
    page = show(loader_explorer())
    return lambda *all_of_them: page.evaluate(PLAN, [list(one) for one in all_of_them])


class LoadingWorkers(Dataset):
    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, get_worker_info().id


class Orders:
    """Yield one index per batch, and count the batches that DataLoader has requested."""

    def __init__(self) -> None:
        self.ordered = 0

    def __iter__(self) -> Iterator[list[int]]:
        for batch in range(BATCHES):
            self.ordered += 1
            yield [batch]


@pytest.mark.parametrize(("workers", "ahead"), [(1, 2), (2, 1), (2, 3)])
def test_plan_matches_a_real_data_loader(plans, workers, ahead):
    orders = Orders()
    loader = DataLoader(LoadingWorkers(), batch_sampler=orders, num_workers=workers,
                        prefetch_factor=ahead)  # fmt: skip
    (plan,) = plans((loads(4, True), TRAIN, workers, ahead))
    for taken, (index, worker) in enumerate(loader):
        assert (index.item(), worker.item()) == (taken, plan[taken]["worker"])
        now = plan[taken]["taken"]
        assert orders.ordered == sum(one["from"] <= now for one in plan)
        assert orders.ordered - taken - 1 <= workers * ahead
    assert taken == BATCHES - 1


def test_plan_of_equal_batches_matches_the_figure(plans):
    grid = [one for one in GRID if not one[3]]
    found = plans(*((loads(load, False), TRAIN, n, ahead) for load, n, ahead, _ in grid))
    for (load, n, ahead, _), plan in zip(grid, found, strict=True):
        rows = schedule(load, TRAIN, BATCHES, n, ahead)
        assert [one["taken"] for one in plan] == [begin for _, begin, _ in rows["train"]]
        for batch, one in enumerate(plan):
            assert (batch, one["begin"], one["end"]) in rows[f"load {one['worker']}"]


def test_every_plan_satisfies_the_scheduling_rules(plans):
    found = plans(*((loads(load, slow), TRAIN, n, ahead) for load, n, ahead, slow in GRID))
    for (load, n, ahead, slow), plan in zip(GRID, found, strict=True):
        now = 0
        for batch, (one, load_time) in enumerate(zip(plan, loads(load, slow), strict=True)):
            before = [b for b in plan[:batch] if b["worker"] == one["worker"]]
            assert one["end"] - one["begin"] == load_time and one["worker"] == batch % max(n, 1)
            assert one["begin"] == max([one["from"], *(b["end"] for b in before)])
            assert one["taken"] == max(now, one["end"]) and one["wait"] == one["taken"] - now
            if n:
                assert one["from"] == (
                    plan[batch - n * ahead]["taken"] if batch >= n * ahead else 0
                )
            now = one["taken"] + TRAIN


STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent.split("✓")[0],
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    rows: all(".lines > div").map((r) => [...r.querySelectorAll("[data-point]")]
      .map((b) => +b.textContent)),
    waits: all(".lines .bad").length, mine: all(".mine").map((b) => +b.textContent) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_explorer_opens_with_a_slower_extra_worker_and_task_completes(show, lang):
    page = show(loader_explorer(), lang=lang, width=375)
    element = page.locator("loader-explorer")
    now = element.evaluate(STATE)
    numbers = [int(n) for n in re.findall(r"\d+", now["said"])]
    assert numbers[:4] == [4, 38, 3, 34] and now["mine"] == [7, 7]
    assert numbers[4:] == [7, 0, 3, 12, 24, 4]  # ordered at 0, worker 3, 12 to 24, waits 4
    assert now["rows"] == [list(range(12)), *([*range(n, 12, 4)] for n in range(4))]
    workers, _, load = element.get_by_role("slider").all()
    load.press("ArrowLeft")
    done = []
    for n in range(7):
        workers.fill(str(n))
        now = element.evaluate(STATE)
        assert len(now["rows"]) == 1 + max(1, n)
        if now["waits"] == 1:
            done.append(n)
        assert now["done"] == bool(done)
    assert done == [5, 6]
    element.locator(".lines button").nth(4).focus()
    page.keyboard.press("ArrowRight")
    assert element.evaluate(STATE)["mine"] == [5, 5]


CUT = """(e) => [...e.shadowRoot.querySelectorAll(".lines [data-point]")].filter((box) => {
  const range = document.createRange();
  range.selectNodeContents(box);
  const [text, edge] = [range.getBoundingClientRect(), box.getBoundingClientRect()];
  const shown = text.top < edge.bottom - 2;
  return shown && (text.left < edge.left || text.right > edge.right);
}).map((box) => box.textContent)"""


@pytest.mark.parametrize("width", [320, 800])
def test_page_truncates_no_number(show, width):
    element = show(loader_explorer(), width=width).locator("loader-explorer")
    for load, workers, slow in itertools.product((1, 4, 8), (0, 1, 3, 6), (False, True)):
        element.evaluate(
            "(e, state) => e.set(state)", {"load": load, "workers": workers, "slow": slow}
        )
        assert element.evaluate(CUT) == [], (load, workers, slow)
