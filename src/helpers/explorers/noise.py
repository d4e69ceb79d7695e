"""Show the share of the data that a diffusion model's noise schedule keeps at each step."""

from __future__ import annotations

import torch

from helpers.explorers import Explorer

STEPS = (50, 100, 1000)
LAST = (0.02, 0.05, 0.1, 0.2, 0.4)
PARTS = 10
CENTRES, WEIGHTS, STD = (-1.0, 1.0), (0.2, 0.8), 0.3


def left(steps: int, last: float) -> list[float]:
    """Return the alpha-bars after 0, 1/10, 2/10, … of all steps; betas rise from 1e-4 to `last`."""
    betas = torch.linspace(1e-4, last, steps, dtype=torch.float64)
    bars = torch.cat([torch.ones(1, dtype=torch.float64), (1 - betas).cumprod(0)])
    return [float(f"{bars[part * steps // PARTS].item():.4g}") for part in range(PARTS + 1)]


def noise_explorer(lang: str | None = None) -> Explorer:
    """Change the steps and last beta of a schedule; see the distribution of the noisy data."""
    return Explorer(
        "noise",
        {
            "steps": STEPS,
            "last": LAST,
            "left": [[left(steps, last) for last in LAST] for steps in STEPS],
            "centres": CENTRES,
            "weights": WEIGHTS,
            "std": STD,
        },
        {
            "en": (
                "The distribution of noisy data. After 1000 steps whose betas rise to 0.02 it is "
                "nearly the standard normal; after 50 such steps 60% of the data's variance is "
                "left."
            ),
            "zh": (
                "加噪后数据的分布。beta 升到 0.02 的 1000 步之后，它几乎就是标准正态分布；"
                "这样的 50 步之后，数据的方差还剩 60%。"
            ),
        },
        lang,
    )
