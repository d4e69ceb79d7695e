"""Show the effects of temperature, top-k and top-p on the logits of a language model."""

from __future__ import annotations

import torch

from helpers.explorers import Explorer
from helpers.language_models import filter_logits

TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
TOP_P = tuple(n / 10 for n in range(1, 11))
LOGITS = torch.tensor([2.6, 2.1, 1.6, 1.2, 0.6, -0.2, -1.1, -2.3], dtype=torch.float64)


def sampling_explorer(lang: str | None = None) -> Explorer:
    """Change temperature, top-k and top-p, and see which words can be sampled.

    The logits of eight words after “The sea is” are invented.
    """
    kept = [
        [
            [int(filter_logits(LOGITS, t, k, p).isfinite().sum()) for p in TOP_P]
            for k in range(1, len(LOGITS) + 1)
        ]
        for t in TEMPERATURES
    ]
    chances = [[round(x, 4) for x in (LOGITS / t).softmax(-1).tolist()] for t in TEMPERATURES]
    return Explorer(
        "sampling",
        {"temperatures": TEMPERATURES, "p": TOP_P, "chances": chances, "kept": kept},
        {
            "en": (
                "Probabilities of the next word. A low temperature raises the largest ones, "
                "top-k keeps a fixed number of them, and top-p as many as are needed: the same "
                "top-p may keep more words at a higher temperature."
            ),
            "zh": (
                "下一个词的概率。温度低时，最大的概率更大；top-k 保留固定个数的词，top-p 则按需"
                "要保留：温度更高时，同样的 top-p 可能保留更多的词。"
            ),
        },
        lang,
    )
