"""Show output sizes and windows of convolution and pooling layers."""

from __future__ import annotations

from helpers.explorers import Explorer

_SHARED = {"n": [1, 10], "k": [1, 5], "s": [1, 3], "p": [0, 3], "d": [1, 3]}
RANGES: dict[str, dict[str, list[int]]] = {
    "conv": _SHARED,
    "transposed": {**_SHARED, "n": [1, 6], "op": [0, 2]},
    "max": {**_SHARED, "ceil": [0, 1]},
    "adaptive": {"n": [1, 10], "o": [1, 10]},
}


def conv_explorer(lang: str | None = None) -> Explorer:
    """Choose a layer and its settings; see its output size, and the input of each output cell.

    The element computes both in JavaScript; tests compare every setting with PyTorch.
    """
    start = {"n": 8, "k": 3, "s": 2, "p": 0, "d": 1, "op": 0, "ceil": 0, "o": 3, "j": 2}
    return Explorer(
        "conv",
        {"ranges": RANGES, "start": {"kind": "conv", **start}},
        {
            "en": (
                "A row of 8 input positions and the 3 output positions of a convolution with "
                "kernel size 3 and stride 2, with lines to the positions that each reads: the last "
                "input position is never read. Other settings, transposed convolution and pooling "
                "can be chosen."
            ),
            "zh": (
                "一行 8 个输入位置，以及核大小为 3、步幅为 2 的卷积得到的 3 个输出位置，连线指向"
                "每个输出位置读取的输入位置：最后一个输入位置没有被读取。还可以选择其他设置、转置"
                "卷积和池化。"
            ),
        },
        lang,
    )
