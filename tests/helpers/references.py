"""Import scikit-learn and torchmetrics at the first use: collecting the tests takes 8 s less."""

from __future__ import annotations

from types import ModuleType


def sk() -> ModuleType:
    from sklearn import metrics

    return metrics


def tm() -> ModuleType:
    from torchmetrics.functional import classification

    return classification
