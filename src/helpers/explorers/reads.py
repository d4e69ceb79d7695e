"""Show the steps that a sentence vector depends on, for each way to take it from an RNN."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from helpers import sequences
from helpers.explorers import Explorer

LENGTHS = (3, 5, 2)
HIDDEN = 4
_ROWS = torch.arange(len(LENGTHS))
WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "out[:, -1]": lambda out, h, lengths: out[:, -1],
    "out[:, 0]": lambda out, h, lengths: out[:, 0],
    "out[rows, lengths - 1]": lambda out, h, lengths: out[_ROWS, lengths - 1],
    "h[-1]": lambda out, h, lengths: h[-1],
    "h.view(N, -1)": lambda out, h, lengths: h.view(len(lengths), -1),
    "cat([h[-2], h[-1]], dim=1)": lambda out, h, lengths: torch.cat([h[-2], h[-1]], dim=1),
}


def read_by(way: str, sample: int, *, both: bool, packed: bool) -> list[Tensor] | None:
    """Return the steps that the vector of one sentence depends on in a padded batch of `LENGTHS`.

    Args:
        way: a key of `WAYS`: how to take the vectors from the output and the state of an LSTM with
            one layer and `batch_first`.
        sample: index of the sentence.
        both: use a bidirectional LSTM.
        packed: pass a packed batch.

    Returns:
        Steps that each group of `HIDDEN` elements of the vector depends on: a list of bool tensors
        of shape (3, 5). None if the line raises, because there is no such state.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lstm = nn.LSTM(3, HIDDEN, bidirectional=both, batch_first=True)
        x = torch.randn(len(LENGTHS), max(LENGTHS), 3)
    lengths = torch.tensor(LENGTHS)
    for row, length in zip(x, LENGTHS, strict=True):
        row[length:] = 0

    def vector(x: Tensor) -> Tensor:
        out, (h, _) = sequences.run_packed(lstm, x, lengths) if packed else lstm(x)
        return WAYS[way](out, h, lengths)[sample]

    try:
        halves = len(vector(x)) // HIDDEN
    except IndexError:
        return None
    return [
        sequences.reads(lambda x, i=i: vector(x)[i * HIDDEN : (i + 1) * HIDDEN], x)
        for i in range(halves)
    ]


def reads_explorer(lang: str | None = None) -> Explorer:
    """Choose layer, batch and line, and see which steps each sentence's vector depends on."""

    def table(way: str, both: bool, packed: bool) -> list[list[str]] | None:
        reads = [read_by(way, n, both=both, packed=packed) for n in range(len(LENGTHS))]
        if None in reads:
            return None
        return [
            ["".join(str(int(step)) for step in half.flatten()) for half in halves]
            for halves in reads
        ]

    choices = [(both, packed) for both in (False, True) for packed in (False, True)]
    return Explorer(
        "reads",
        {
            "lengths": LENGTHS,
            "ways": list(WAYS),
            "read": [[table(way, *choice) for way in WAYS] for choice in choices],
        },
        {
            "en": (
                "Three sentences of 3, 5 and 2 words in a padded batch, and the words that the "
                "vector of each depends on. The last step of the output depends on padding, and "
                "its backward half on a single step. Only the last two states of a packed "
                "batch depend on each sentence in both directions and on nothing else."
            ),
            "zh": (
                "一个填充过的批里有三个句子，长度分别是 3、5、2 个词；图中显示每个句子的向量依赖"
                "哪些词。输出的最后一步依赖填充，其中反向的一半只依赖一步。只有打包的批的最后"
                "两个状态，从两个方向依赖整个句子，而且不依赖别的内容。"
            ),
        },
        lang,
    )
