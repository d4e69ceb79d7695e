"""Show learning-rate schedules with and without warm-up."""

from __future__ import annotations

import itertools
from typing import Any

from helpers.demos.learning_rate import LOSSES, build
from helpers.explorers import Explorer
from helpers.learning_rate import rates

EPOCHS = 50
BASE = 0.1
GRID: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "StepLR": (
        "StepLR(optimizer, step_size={step_size}, gamma={gamma})",
        {"step_size": ("10", "15", "20"), "gamma": ("0.1", "0.5")},
    ),
    "MultiStepLR": (
        "MultiStepLR(optimizer, milestones={milestones}, gamma={gamma})",
        {"milestones": ("[20, 40]", "[25, 35, 45]"), "gamma": ("0.1", "0.5")},
    ),
    "ExponentialLR": (
        "ExponentialLR(optimizer, gamma={gamma})",
        {"gamma": ("0.8", "0.9", "0.95")},
    ),
    "LinearLR": (
        "LinearLR(optimizer, start_factor=1.0, end_factor={end_factor}, total_iters={total_iters})",
        {"end_factor": ("0.0", "0.1"), "total_iters": ("25", "50")},
    ),
    "CosineAnnealingLR": (
        "CosineAnnealingLR(optimizer, T_max={T_max}, eta_min={eta_min})",
        {"T_max": ("50", "40", "20"), "eta_min": ("0.0", "0.01")},
    ),
    "CosineAnnealingWarmRestarts": (
        "CosineAnnealingWarmRestarts(optimizer, T_0={T_0}, T_mult={T_mult})",
        {"T_0": ("10", "20"), "T_mult": ("1", "2")},
    ),
    "LambdaLR": (
        "LambdaLR(optimizer, lambda t: {rule})",
        {"rule": ("t / 10", "min(1, (t + 1) / 10)", "1 / (1 + t) ** 0.5", "0.95 ** t")},
    ),
    "OneCycleLR": (
        "OneCycleLR(optimizer, max_lr=0.1, total_steps=50, "
        "pct_start={pct_start}, div_factor={div_factor})",
        {"pct_start": ("0.3", "0.1", "0.5"), "div_factor": ("25", "5")},
    ),
    "ReduceLROnPlateau": (
        "ReduceLROnPlateau(optimizer, mode={mode}, factor={factor}, patience={patience})",
        {"mode": ('"min"', '"max"'), "factor": ("0.1", "0.3"), "patience": ("5", "10")},
    ),
}
# OneCycleLR sets the learning rate at every step; ReduceLROnPlateau cannot be in SequentialLR.
WITHOUT_WARM_UP = ("OneCycleLR", "ReduceLROnPlateau")


def warmed(code: str) -> str:
    """Return the code of a scheduler after ten epochs of linear warm-up."""
    return (
        "SequentialLR(optimizer, [LinearLR(optimizer, start_factor=0.1, total_iters=10), "
        f"{code}], milestones=[10])"
    )


def settings(name: str) -> list[str]:
    """Return the code of each setting of a schedule in `GRID`; the last parameter changes fastest.

    Raises:
        ValueError: `name` is not in `GRID`.
    """
    if name not in GRID:
        raise ValueError(f"no schedule {name!r}; there are {', '.join(GRID)}")
    template, parameters = GRID[name]
    return [
        template.format(**dict(zip(parameters, values, strict=True)))
        for values in itertools.product(*parameters.values())
    ]


def explored(code: str) -> list[float]:
    """Return the learning rates of `EPOCHS` epochs from `BASE`, to four significant digits."""
    values = rates(build(code), EPOCHS, lr=BASE, metrics=LOSSES[:EPOCHS])
    return [float(f"{round(value, 12):.4g}") for value in values]


def schedule_explorer(lang: str | None = None) -> Explorer:
    """Choose a schedule and its parameters; see its curve and the learning rate of each epoch."""
    schedules = []
    for name, (_, parameters) in GRID.items():
        rows = []
        for code in settings(name):
            row: dict[str, Any] = {"code": code, "rates": explored(code)}
            if name not in WITHOUT_WARM_UP:
                row["warm"] = explored(warmed(code))
            rows.append(row)
        texts = {}
        if name == "ReduceLROnPlateau":
            texts["losses"] = [round(loss, 2) for loss in LOSSES[:EPOCHS]]
        schedules.append({"name": name, "parameters": parameters, "rows": rows, **texts})
    names = list(GRID)
    start = {
        "one": names.index("CosineAnnealingLR"),
        "p": 0,
        "q": 0,
        "r": 0,
        "warm": True,
        "at": EPOCHS - 1,
    }
    return Explorer(
        "schedule",
        {"epochs": EPOCHS, "warmed": warmed("{}"), "schedules": schedules, "start": start},
        {
            "en": (
                "Nine learning-rate schedules over 50 epochs, with and without ten epochs of "
                "warm-up. After a warm-up, a cosine with T_max=50 is cut off before its end; "
                "T_max=40 fits."
            ),
            "zh": (
                "50 轮的九种学习率调度，可以带十轮预热，也可以不带。预热之后，T_max=50 的余弦退"
                "火在结束之前就被截断，T_max=40 则正好。"
            ),
        },
        lang,
    )
