"""How a DataLoader hands batches to its workers and the training takes them, as a timeline."""

from __future__ import annotations

from helpers.explorers import Explorer

BATCHES, TRAIN = 12, 2


def loader_explorer(lang: str | None = None) -> Explorer:
    """Choose workers, `prefetch_factor` and how long a batch takes; see what training waits for.

    Nothing is measured: it plays the documented rules. Batches go to the workers in turn, each
    worker has `prefetch_factor` of them ordered, another one is ordered when a batch is taken, and
    they are taken in order (https://pytorch.org/docs/stable/data.html).
    """
    start = {"load": 4, "workers": 4, "ahead": 2, "slow": True, "at": 7}
    return Explorer(
        "loader",
        {"batches": BATCHES, "train": TRAIN, "start": start},
        "A timeline of twelve batches, each fourth slow. Batches go to the workers in turn, so one "
        "of four workers gets all slow ones: they need 38 units of time, and three need 34.",
        lang,
    )
