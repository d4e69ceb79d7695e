"""Show the effects of train and eval, the grad modes and freezing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from helpers.autograd import watch_saved
from helpers.explorers import Explorer

MODES = {
    "enable_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}
SIZE, SAMPLES = 4, 64


def switched(mode: str, *, training: bool, frozen: bool) -> dict[str, Any]:
    """Compute features of a network under a grad mode, then train a new layer on them.

    Args:
        mode: a key of `MODES`.
        training: call `train()` on the network, else `eval()`.
        frozen: call `requires_grad_(False)` on the network.

    Returns:
        `differ`: True if two passes over the same input differ. `moved`: True if a buffer changed.
        `kept`: bytes saved for a backward pass, without parameters and buffers of the network.
        `weights`: number of the network's parameters with a gradient after the new layer's
        `backward`. `error`: error message of training the new layer, or "".
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE), nn.Dropout())
    net.train(training).requires_grad_(not frozen)
    x, head = torch.randn(SAMPLES, SIZE), nn.Linear(SIZE, 2)
    buffers = [buffer.clone() for buffer in net.buffers()]
    with MODES[mode](), watch_saved() as alive:
        features = net(x)
        kept = alive.bytes(but=net)
        again = net(x)
    return {
        "differ": not torch.equal(features, again),
        "moved": any(map(_unequal, buffers, net.buffers())),
        "kept": kept,
        "error": _train(head, features),
        "weights": sum(p.grad is not None for p in net.parameters()),
    }


def _unequal(before: Tensor, after: Tensor) -> bool:
    return not torch.equal(before, after)


def _train(head: nn.Module, features: Tensor) -> str:
    try:
        head(features).square().sum().backward()
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return ""


def modes_explorer(lang: str | None = None) -> Explorer:
    """Set three switches, and point at an effect to see which switch causes it."""
    rows = [
        [[switched(mode, training=t, frozen=f) for f in (False, True)] for t in (False, True)]
        for mode in MODES
    ]
    return Explorer(
        "modes",
        {"modes": list(MODES), "rows": rows},
        {
            "en": (
                "no_grad() alone leaves Dropout random and BatchNorm's statistics updated. "
                "eval() alone saves activations for a backward pass. Features for a new head "
                "need eval() and either no_grad() or a frozen network; under inference_mode() "
                "they cannot train the head."
            ),
            "zh": (
                "只用 no_grad()，Dropout 仍然是随机的，BatchNorm 的滑动统计量也会更新。只用 "
                "eval()，仍会为反向传播保存激活值。为新的头提取特征，需要 eval()，再加上 "
                "no_grad() 或冻结的网络；在 inference_mode() 下得到的特征不能用来训练头。"
            ),
        },
        lang,
    )
