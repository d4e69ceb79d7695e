"""Simulate the timeline of a DataLoader: batches in workers and in the training loop."""

from __future__ import annotations

from helpers.explorers import Explorer

BATCHES, TRAIN = 12, 2


def loader_explorer(lang: str | None = None) -> Explorer:
    """Choose workers, `prefetch_factor` and batch times; see when training waits.

    The timeline simulates the documented rules without measurements. Batches are assigned in
    turn to workers; each prefetches `prefetch_factor` batches; using a batch requests the next
    one; and batches are used in order (https://pytorch.org/docs/stable/data.html).
    """
    start = {"load": 4, "workers": 4, "ahead": 2, "slow": True, "at": 7}
    return Explorer(
        "loader",
        {"batches": BATCHES, "train": TRAIN, "start": start},
        {
            "en": (
                "A timeline of twelve batches, every fourth of them slow. Batches are assigned "
                "to the workers in turn, so one of four workers gets all slow ones: four "
                "workers need 38 units of time, and three need 34."
            ),
            "zh": (
                "十二个批的时间线，每四个批里有一个慢批。批轮流分配给工作进程，所以四个工作进程"
                "中有一个分到全部慢批：四个需要 38 个时间单位，三个只需要 34 个。"
            ),
        },
        lang,
    )
