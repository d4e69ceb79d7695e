"""Checkers of the exercises of the chapter "Evaluation metrics"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from helpers.evaluation import averages, confusion_matrix, scores
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import (
    instance,
    ints,
    kind,
    leaves,
    random_state_kept,
    unchanged,
    with_gradients,
)

RANDOM = "the state of {} was changed: this needs no random numbers"


class _Probe(nn.Module):
    """Model that returns its rolled inputs as logits, wrong in training mode; records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.fixed = nn.Parameter(torch.ones(()), requires_grad=False)
        self.frozen = nn.Dropout()
        self.active = nn.Dropout()
        self.recorded = self.trained = False

    def forward(self, x: Tensor) -> Tensor:
        out = x * self.scale
        self.recorded |= out.requires_grad
        self.trained |= self.training
        return out.roll(2 if self.training else 1, 1)


def _accuracy_case(
    dtype: torch.dtype = torch.float32,
) -> tuple[_Probe, list[tuple[Tensor, Tensor]], float, float]:
    batches, shares, right, total = [], [], 0, 0
    for size, hits in ((4, 2), (4, 2), (last := int(torch.randint(1, 4, ())), last)):
        labels = torch.randint(1, 4, (size,))  # argmax of equal logits is 0, never right
        best = (labels + (torch.arange(size) >= hits) * 2) % 4  # two off: a roll fixes nothing
        x = (torch.rand(size, 1, dtype=dtype) + 2).repeat(1, 4)
        x[torch.arange(size), best] += 500 * torch.finfo(dtype).eps  # lost in a narrower dtype
        batches.append((x.roll(-1, 1), labels))
        shares.append(hits / size)
        right, total = right + hits, total + size
    return with_gradients(_Probe().to(dtype)), batches, right / total, sum(shares) / 3


def _accuracy_value(f: Callable, dtype: torch.dtype = torch.float32) -> None:
    model, batches, want, mean = _accuracy_case(dtype)
    with random_state_kept(RANDOM):
        got = f(model, iter(batches))
    assert isinstance(got, (float, int)) or hasattr(got, "item"), (
        f"expected a float, got {kind(got)}"
    )
    assert not model.trained, "the model ran in training mode"
    number = float(got)
    assert math.isfinite(number), f"expected a fraction of the samples, got {number}"
    assert abs(number - mean) > 1e-4, (
        "this is the mean of the batches' accuracies; the last batch is smaller and must count less"
    )
    assert abs(number - 100 * want) > 1e-3, "expected a fraction, not a percentage"
    assert abs(number - want) < 1e-6, f"expected {want:.3f}, got {number:.3f}"
    assert type(got) is float, f"expected a Python float, got {kind(got)}"


def _accuracy_no_graph(f: Callable) -> None:
    model, batches, *_ = _accuracy_case()
    with unchanged("modes", model=model, loader=batches):
        f(model, batches)
    assert not model.recorded, "autograd recorded a graph for every batch"


def _accuracy_modes(f: Callable) -> None:
    for training in (True, False):
        model, batches, *_ = _accuracy_case()
        model.train(training).frozen.eval()
        model.active.train()
        f(model, batches)
        assert model.training == training, (
            f"the model was in {_mode(training)} mode before and is in "
            f"{_mode(not training)} mode now"
        )
        assert not model.frozen.training and model.active.training, (
            "the mode of a layer was changed: train() and eval() set the mode of all submodules"
        )


def _accuracy_shapes(f: Callable) -> None:
    for shape in ("(n, 1)", "(1,)"):
        model, (*batches, (x, y)), *_ = _accuracy_case()
        model.frozen.eval()
        bad = (x, y[:, None]) if shape == "(n, 1)" else (x.repeat(2, 1), y[:1])
        try:
            got = f(model, [*batches, bad])
        except Exception:  # any error is accepted
            kept = model.training and model.active.training and not model.frozen.training
            assert kept, f"after the error for labels {shape}, the mode is not restored"
        else:
            raise AssertionError(
                f"expected an error for labels of shape {shape} in the last batch, got {got}"
            )


def _accuracy_empty(f: Callable) -> None:
    for loader in ([], [(torch.ones(0, 4), torch.ones(0).long())]):
        model, *_ = _accuracy_case()
        try:
            got = f(model, loader)
        except ValueError:
            assert model.training, "after the error for an empty loader, the mode is not restored"
        else:
            raise AssertionError(f"expected a ValueError for a loader without samples, got {got}")


def check_accuracy(
    answer: Callable[[nn.Module, Iterable[tuple[Tensor, Tensor]]], float],
) -> Verdict:
    """Check `answer(model, loader)`: the accuracy over all samples; the model is not changed.

    `loader` gives (inputs, labels), the last batch smaller than the others; the model maps inputs
    to logits (n, 4). The result is a Python float in [0, 1]. Labels of another shape than (n,)
    raise an error, and a loader without samples a `ValueError`. The loader can be read only once.
    """
    return verdict(
        answer,
        [
            _accuracy_value,
            lambda f: _accuracy_value(f, torch.float64),
            _accuracy_no_graph,
            _accuracy_modes,
            _accuracy_shapes,
            _accuracy_empty,
        ],
    )


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


def _mistaken_for_draw() -> tuple[Tensor, int]:
    size, c = int(torch.randint(6, 9, ())), int(torch.randint(6, ()))
    matrix = torch.randperm(size * size).reshape(size, size) + 1
    matrix.fill_diagonal_(size * size + 5)
    others = [j for j in range(size) if j != c]
    matrix[c, others[-1]] = 0
    _, rarest, *_, most, _ = matrix[c].argsort().tolist()  # after the zero, before the diagonal
    matrix[c, rarest] = 1
    column = int(matrix[:, c].argsort()[-2])
    return _mistaken_for_draw() if column in (rarest, most) else (matrix, c)


def _mistaken_for_compare(f: Callable, matrix: Tensor, c: int, k: int) -> None:
    with random_state_kept(RANDOM):
        got = leaves(f, "the matrix")(matrix.T.contiguous().T, c, k)
    instance("a list", got, list)
    got = ints(got, "expected a list of Python ints")
    assert c not in got, "the class itself is in the list: the diagonal counts correct predictions"
    row = [(n, j) for j, n in enumerate(matrix[c].tolist()) if n and j != c]
    want = [j for _, j in sorted(row, reverse=True)][:k]
    column = [(n, i) for i, n in enumerate(matrix[:, c].tolist()) if n and i != c]
    assert not k or got != [i for _, i in sorted(column, reverse=True)][:k], (
        "this is the column: the classes that are mistaken for c, not those it is mistaken for"
    )
    assert all(matrix[c, j] for j in got), "the list contains a class that c was never mistaken for"
    assert len(got) == len(want), f"expected {len(want)} classes for k={k}, got {len(got)}"
    assert len({*got}) == len(got) and matrix[c, got].equal(matrix[c, want]), (
        "expected the most frequent ones, the most frequent first"
    )


def _mistaken_for_value(f: Callable) -> None:
    _mistaken_for_compare(f, *_mistaken_for_draw(), 3)


def _mistaken_for_first(f: Callable) -> None:
    _mistaken_for_compare(f, *_mistaken_for_draw(), 1)
    _mistaken_for_compare(f, *_mistaken_for_draw(), 0)


def _mistaken_for_few(f: Callable) -> None:
    matrix, c = _mistaken_for_draw()
    _mistaken_for_compare(f, matrix, c, len(matrix) + 3)
    matrix[c, matrix[c].argsort()[-4:-1]] = 7  # tied classes, in any order
    _mistaken_for_compare(f, matrix, c, len(matrix) + 3)


def _mistaken_for_poor(f: Callable) -> None:
    matrix, c = _mistaken_for_draw()
    matrix[c, c] = 0  # never right: the diagonal is not the largest entry
    _mistaken_for_compare(f, matrix, c, 3)


def _mistaken_for_large(f: Callable) -> None:
    matrix, c = _mistaken_for_draw()
    _mistaken_for_compare(f, torch.where(matrix > 0, 37 * matrix + 2**40, 0), c, 3)  # many pixels


def check_mistaken_for(answer: Callable[[Tensor, int, int], list[int]]) -> Verdict:
    """Check `answer(matrix, c, k)`: the classes that c is mistaken for, most frequent first.

    At most k of them, without c itself and without those that never happened; a list of ints.
    """

    return verdict(
        answer,
        [
            _mistaken_for_value,
            _mistaken_for_first,
            _mistaken_for_few,
            _mistaken_for_poor,
            _mistaken_for_large,
        ],
    )


def _macro_f1_others(batches: Sequence[tuple[Tensor, Tensor]], c: int) -> dict[str, float]:
    whole = confusion_matrix(*map(torch.cat, zip(*batches, strict=True)), c)
    parts = [averages(confusion_matrix(t, p, c))["macro"][2] for t, p in batches]
    means, filled = averages(whole), averages(whole, 0.0)
    precision, recall = filled["macro"][:2]
    return {
        "the mean of the batches' scores": sum(parts) / len(parts),
        "the average over all classes, also those that appear nowhere": filled["macro"][2],
        "the average over the classes that occur, without those only predicted": float(
            scores(whole).f1.nan_to_num()[whole.sum(1) > 0].mean()
        ),
        "the weighted average": means["weighted"][2],
        "the accuracy": means["micro"][2],
        "the F1 of the mean precision and the mean recall": (
            2 * precision * recall / (precision + recall)
        ),
        "the macro recall": means["macro"][1],
        "the macro precision": means["macro"][0],
    }


def _macro_f1_draw(c: int, missing: int) -> tuple[list[tuple[Tensor, Tensor]], int, float]:
    while True:
        target = torch.cat([torch.arange(c), torch.randint(c, (5 * c,)).clamp(min=1)])
        prediction = torch.where(torch.rand(6 * c) < 0.5, target, torch.randint(c, (6 * c,)))
        prediction[prediction == c - 1] = 0  # the last class is never predicted
        prediction[0] = 0
        if missing:
            prediction[1] = c  # predicted, and nowhere true
        batches = list(zip(target.split(c + 1), prediction.split(c + 1), strict=True))
        want = averages(confusion_matrix(target, prediction, c + missing))["macro"][2]
        wrong = _macro_f1_others(batches, c + missing)
        if missing == 0:
            wrong.pop("the average over all classes, also those that appear nowhere")
            wrong.pop("the average over the classes that occur, without those only predicted")
        values = sorted([want, *wrong.values()])
        if all(b - a > 0.002 for a, b in itertools.pairwise(values)):
            return batches, c + missing, want


def _macro_f1_compare(f: Callable, missing: int) -> None:
    batches, c, want = _macro_f1_draw(int(torch.randint(4, 7, ())), missing)
    with random_state_kept(RANDOM):
        got: Any = leaves(f, "batches")(batches, c)
    assert isinstance(got, (float, int)) or getattr(got, "ndim", None) == 0, (
        f"expected one number, got {kind(got)}"
    )
    got = float(got)
    assert not math.isnan(got), "the result is nan: 0 was divided by 0"
    if abs(got - want) < 1e-4:
        return
    for what, value in _macro_f1_others(batches, c).items():
        assert abs(got - value) > 1e-4, f"this is {what}"
    raise AssertionError(f"expected {want:.6g}, got {got:.6g}")


def check_macro_f1(
    answer: Callable[[Sequence[tuple[Tensor, Tensor]], int], float],
) -> Verdict:
    """Check `answer(batches, num_classes)`: the macro F1 of all samples.

    `batches` contains (target, prediction), int64 of shape (n,). A class that occurs and is never
    predicted has F1 0; one that is neither in the targets nor in the predictions does not count.
    """
    return verdict(answer, [lambda f: _macro_f1_compare(f, 0), lambda f: _macro_f1_compare(f, 2)])
