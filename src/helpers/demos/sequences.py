"""Labels of the figures of the chapter on sequences."""

from __future__ import annotations

CHINESE = {
    "packed": "打包",
    "padded": "填充",
    "steps of padding": "填充的步数",
    "spread of the states": "各状态之间的差异",
    "LSTM, forget bias 3": "LSTM，遗忘门偏置 3",
    "steps from the end": "从末尾往前数的步",
    "relative gradient": "相对梯度",
}
