"""Show which training windows contain a target of a test window."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.explorers import Explorer
from helpers.time_series import windows

STEPS, LENGTH = 20, 4
HORIZONS, SPLITS = (1, 2, 3, 4), tuple(range(9, 17))
METHODS = ("random", "windows", "series")
TRAIN, LEAK, TEST, UNUSED = "tlex"


def parts(method: str, starts: Tensor, targets: Tensor, split: int) -> tuple[Tensor, Tensor]:
    """Return the masks of training windows and of test windows, bool of shape (N,).

    Args:
        method: "random" draws as many test windows as "windows" at random; "windows" cuts the
            list of windows where the targets begin at `split`; "series" cuts the series
            there, so that training windows end before `split`.
        starts: first input of each window, shape (N,).
        targets: steps of each window's targets, shape (N, H).
        split: first step of the test part.
    """
    test = targets[:, 0] >= split
    if method == "random":
        order = torch.randperm(len(starts), generator=torch.Generator().manual_seed(0))
        test = test[order]
    train = targets[:, -1] < split if method == "series" else ~test
    return train, test


def kinds(method: str, horizon: int, split: int) -> str:
    """Return a letter per window: t training, l training with a leak, e test, x unused.

    A training window leaks if one of its values, input or target, is a target of a test window.
    """
    inputs, targets = windows(torch.arange(STEPS), LENGTH, horizon)
    train, test = parts(method, inputs[:, 0], targets, split)
    both = torch.cat([inputs, targets], dim=1)
    leaks = train & torch.isin(both, targets[test]).any(1)
    letters = (
        torch.full((len(both),), ord(UNUSED))
        .masked_fill(train, ord(TRAIN))
        .masked_fill(leaks, ord(LEAK))
        .masked_fill(test, ord(TEST))
    )
    return "".join(map(chr, letters.tolist()))


def leak_explorer(lang: str | None = None) -> Explorer:
    """Change how and where to split and the horizon, and see which training windows leak."""
    return Explorer(
        "leak",
        {
            "steps": STEPS,
            "length": LENGTH,
            "horizons": HORIZONS,
            "splits": SPLITS,
            "kinds": [[[kinds(m, h, s) for s in SPLITS] for h in HORIZONS] for m in METHODS],
        },
        {
            "en": (
                "The windows of a series of 20 steps, 4 inputs and 3 targets each. After a random "
                "split most training windows contain a target of a test window. If the list of "
                "windows is cut, the last 2 do; if the series is cut, none does."
            ),
            "zh": (
                "长度为 20 的序列的所有窗口，每个窗口 4 个输入、3 个目标。随机划分之后，"
                "大多数训练窗口含有某个测试窗口的目标。按窗口列表切开，最后 2 个含有；"
                "按时间切开序列，一个也没有。"
            ),
        },
        lang,
    )
