"""Timeline of a DataLoader: batches are assigned to workers and used by the training."""

from __future__ import annotations

from helpers.explorers import Explorer

BATCHES, TRAIN = 12, 2


def loader_explorer(lang: str | None = None) -> Explorer:
    """Choose workers, `prefetch_factor` and the time of a batch; see what training waits for.

    Nothing is measured: the documented rules are simulated. Batches are assigned to the workers in
    turn, each worker prefetches `prefetch_factor` of them, another one is requested when a batch is
    used, and they are used in order (https://pytorch.org/docs/stable/data.html).
    """
    start = {"load": 4, "workers": 4, "ahead": 2, "slow": True, "at": 7}
    return Explorer(
        "loader",
        {"batches": BATCHES, "train": TRAIN, "start": start},
        "A timeline of twelve batches, each fourth slow. Batches go to the workers in turn, so one "
        "of four workers gets all slow ones: they need 38 units of time, and three need 34.",
        lang,
    )
