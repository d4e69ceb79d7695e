"""Show PPO's clipped objective for one sample, and its gradient with respect to the ratio."""

from __future__ import annotations

import torch

from helpers.explorers import Explorer

CLIP = 0.2
RATIOS = [(n + 0.5) / 10 for n in range(20)]  # none at a kink of the objective
KINKS = (0.0, 1 - CLIP, 1 + CLIP, 2.0)  # the objective is linear between these ratios


def clipped(ratio: float, advantage: float, clip: float = CLIP) -> list[float]:
    """Return the objective min(r A, clamp(r) A) and its gradient with respect to the ratio r.

    Args:
        ratio: new probability of the action divided by the old one.
        advantage: advantage of the action.
        clip: epsilon; the ratio is clipped to [1 - clip, 1 + clip].

    Returns:
        Objective and gradient, rounded to two digits.
    """
    r = torch.tensor(ratio, dtype=torch.float64, requires_grad=True)
    objective = torch.min(r * advantage, r.clamp(1 - clip, 1 + clip) * advantage)
    (gradient,) = torch.autograd.grad(objective, r)
    return [round(objective.item(), 2), round(gradient.item(), 2) + 0.0]


def ppo_explorer(lang: str | None = None) -> Explorer:
    """Choose a ratio and the sign of the advantage; see the objective and its gradient."""
    signs = (1.0, -1.0)
    data = {
        "clip": CLIP,
        "ratios": RATIOS,
        "kinks": KINKS,
        "signs": [[clipped(r, sign) for r in RATIOS] for sign in signs],
        "lines": [[clipped(r, sign)[0] for r in KINKS] for sign in signs],
    }
    return Explorer(
        "ppo",
        data,
        {
            "en": (
                "PPO's objective of one sample over the ratio. For a positive advantage it rises "
                "up to the ratio 1.2 and is flat beyond it; for a negative one it is flat below "
                "0.8 and falls from there."
            ),
            "zh": (
                "一个样本的 PPO 目标函数随比值的变化。优势为正时，它上升到比值 1.2，之后是平的；"
                "优势为负时，它在 0.8 以下是平的，之后下降。"
            ),
        },
        lang,
    )
