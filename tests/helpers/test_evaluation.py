"""Test the metrics of `evaluation` against scikit-learn and torchmetrics, and the checkers."""

from __future__ import annotations

import csv
import errno
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import sk, tm
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from verdicts import expect, seeding

from helpers import binary_losses, evaluation
from helpers.demos import evaluation as demos
from helpers.exercises import evaluation as exercises

FEW = settings(max_examples=40, deadline=None)


@st.composite
def labels(draw, at_least=1):
    c = draw(st.integers(1, 6))
    n = draw(st.integers(at_least, 30))
    column = st.lists(st.integers(0, c - 1), min_size=n, max_size=n)
    return torch.tensor(draw(column)).long(), torch.tensor(draw(column)).long(), c


def quietly(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


# ---------------------------------------------------------------- evaluating


def test_evaluating_restores_each_mode_after_an_exception():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(), nn.Linear(2, 2)))
    model[0].eval()
    model[1].eval()
    model[1][0].train()
    before = [module.training for module in model.modules()]
    with pytest.raises(KeyError), evaluation.evaluating(model) as inside:
        assert inside is model
        assert not any(module.training for module in model.modules())
        assert not model(torch.ones(3, 2)).requires_grad
        raise KeyError
    assert (
        [module.training for module in model.modules()]
        == before
        == [True, False, False]
        + [
            True,
            False,
        ]
    )
    assert torch.is_grad_enabled()


def test_preserve_modes_restores_the_mode_of_each_module_only():
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    with pytest.raises(KeyError), evaluation.preserve_modes(model) as inside:
        assert inside is model and model.training and torch.is_grad_enabled()
        model.eval()
        model[1].train()
        raise KeyError
    assert [m.training for m in model.modules()] == [True, True, False]


def test_evaluating_keeps_disabled_gradients_disabled():
    with torch.no_grad():
        with evaluation.evaluating(nn.Linear(1, 1)):
            pass
        assert not torch.is_grad_enabled()


# ---------------------------------------------------------------- counts


@FEW
@given(labels(), st.sampled_from([torch.int64, torch.int32, torch.uint8]))
def test_confusion_matrix_matches_both_libraries(case, dtype):
    target, prediction, c = case
    got = evaluation.confusion_matrix(target.to(dtype), prediction.to(dtype), c)
    assert got.dtype == torch.int64
    theirs = quietly(sk().confusion_matrix, target, prediction, labels=range(c))
    assert torch.equal(got, torch.tensor(theirs))
    if c > 1:
        assert torch.equal(got, tm().multiclass_confusion_matrix(prediction, target, num_classes=c))
    assert torch.equal(got.sum(1), target.bincount(minlength=c))


@FEW
@given(labels(), st.integers(1, 7))
def test_confusion_matrices_of_batches_add_up(case, size):
    target, prediction, c = case
    parts = zip(target.split(size), prediction.split(size), strict=True)
    added = sum(evaluation.confusion_matrix(t, p, c) for t, p in parts)
    assert torch.equal(added, evaluation.confusion_matrix(target, prediction, c))


@FEW
@given(labels(), st.sampled_from([0, 255, -100]))
def test_confusion_matrix_skips_ignored_positions(case, index):
    target, prediction, c = case
    target = target.clone()
    target[::2] = index
    got = evaluation.confusion_matrix(target, prediction, c, ignore_index=index)
    if c > 1:
        theirs = tm().multiclass_confusion_matrix(
            prediction, target, num_classes=c, ignore_index=index
        )
        assert torch.equal(got, theirs)
    assert got.sum() == (target != index).sum()


def test_confusion_matrix_accepts_images_empty_input_and_uint8():
    mask = torch.full((2, 3, 3), 20, dtype=torch.uint8)
    assert evaluation.confusion_matrix(mask, mask, 21)[20, 20] == 18
    none = torch.zeros(0, dtype=torch.long)
    assert evaluation.confusion_matrix(none, none, 3).tolist() == [[0] * 3] * 3
    wild = torch.tensor([7, 1])  # predicted at an ignored label
    masked = evaluation.confusion_matrix(torch.tensor([9, 1]), wild, 2, ignore_index=9)
    assert masked.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("target", "prediction", "c", "error", "says"),
    [
        (torch.zeros(2), torch.tensor([0, 0]), 2, TypeError, "in target, got torch.float32"),
        (torch.tensor([0]), torch.tensor([True]), 2, TypeError, "in prediction, got torch.bool"),
        (torch.tensor([[0]]), torch.tensor([0]), 2, ValueError, "target (1, 1) and prediction (1"),
        (torch.tensor([0]), torch.tensor([0]), 0, ValueError, "at least one class, got 0"),
        (torch.tensor([0, 255]), torch.tensor([0, 0]), 3, ValueError, "0 ... 2 in target, got 255"),
        (torch.tensor([0]), torch.tensor([-1]), 3, ValueError, "in prediction, got -1"),
    ],
)
def test_confusion_matrix_rejects_invalid_input(target, prediction, c, error, says):
    with pytest.raises(error) as raised:
        evaluation.confusion_matrix(target, prediction, c)
    assert says in str(raised.value)


# ---------------------------------------------------------------- scores and averages


@FEW
@given(labels(), st.sampled_from([0.0, 1.0, math.nan]))
def test_scores_match_scikit_learn(case, zero):
    target, prediction, c = case
    got = evaluation.scores(evaluation.confusion_matrix(target, prediction, c), zero)
    theirs = sk().precision_recall_fscore_support(
        target, prediction, labels=range(c), average=None, zero_division=zero
    )
    for ours, other in zip(got, theirs, strict=True):
        assert np.allclose(ours, other, equal_nan=True)


@FEW
@given(labels(), st.sampled_from([0.0, 1.0, math.nan]))
def test_averages_match_scikit_learn(case, zero):
    target, prediction, c = case
    got = evaluation.averages(evaluation.confusion_matrix(target, prediction, c), zero)
    for how, values in got.items():
        theirs = sk().precision_recall_fscore_support(
            target, prediction, labels=range(c), average=how, zero_division=zero
        )
        if how == "weighted" and math.isnan(values[0]):  # scikit-learn falls back to a mean
            assert not set(target.tolist()) & set(prediction.tolist())
            values, theirs = values[1:], theirs[1:]
        assert np.allclose(values, theirs[: len(values)], equal_nan=True), (how, values, theirs)
    accuracy = (target == prediction).double().mean()
    assert np.allclose(got["micro"], accuracy)
    assert np.isclose(got["weighted"][1], accuracy)


@FEW
@given(labels())
def test_averages_match_torchmetrics_without_absent_classes(case):
    target, prediction, c = case
    got = evaluation.averages(evaluation.confusion_matrix(target, prediction, c + 2))
    for column, score in enumerate((tm().multiclass_precision, tm().multiclass_recall)):
        theirs = score(prediction, target, num_classes=c + 2, average="macro")
        assert np.isclose(got["macro"][column], theirs.item(), atol=1e-6)
    for how in ("micro", "macro", "weighted"):
        theirs = tm().multiclass_f1_score(prediction, target, num_classes=c + 2, average=how)
        assert np.isclose(got[how][2], theirs.item(), atol=1e-6)


def test_zero_division_nan_inflates_the_precision_of_unpredicted_classes():
    truth, never = torch.tensor([0] * 95 + [1] * 5), torch.zeros(100, dtype=torch.long)
    matrix = evaluation.confusion_matrix(truth, never, 2)
    assert evaluation.averages(matrix)["macro"][0] == pytest.approx(0.475)
    assert evaluation.averages(matrix, math.nan)["macro"][0] == pytest.approx(0.95)


def test_scores_of_a_narrow_dtype_do_not_overflow():
    counts = torch.tensor([[200, 3], [4, 100]])
    for dtype in (torch.uint8, torch.int32, torch.float16):
        narrow = counts.to(dtype)
        assert torch.equal(evaluation.scores(narrow).f1, evaluation.scores(counts).f1), dtype
        assert evaluation.averages(narrow) == evaluation.averages(counts), dtype
    large = torch.tensor([[1_500_000_000, 3], [4, 100]], dtype=torch.int32)
    assert torch.equal(evaluation.scores(large).f1, evaluation.scores(large.long()).f1)
    half = torch.tensor([[60_000, 30_000], [0, 1]], dtype=torch.float16)
    assert evaluation.scores(half).support[0] > 80_000


def test_averages_of_nothing_are_nan_and_require_a_square_matrix():
    empty = evaluation.averages(torch.zeros(3, 3, dtype=torch.long), 0.0)
    assert all(math.isnan(v) for values in empty.values() for v in values)
    some = torch.tensor([[2, 0, 0, 0], [0, 0, 1, 0], [0] * 4, [0] * 4])
    assert evaluation.averages(some)["macro"] == pytest.approx([1 / 3] * 3)
    left_out = evaluation.averages(some, math.nan)["macro"]
    assert left_out == pytest.approx([1 / 2, 1 / 2, 1 / 3])
    assert evaluation.averages(some, 0.0)["macro"] == pytest.approx([1 / 4, 1 / 4, 1 / 4])
    one = evaluation.averages(torch.tensor([[4]]))
    assert one == {how: [1.0] * 3 for how in ("micro", "macro", "weighted")}
    for function in (evaluation.scores, evaluation.averages, evaluation.most_confused):
        with pytest.raises(ValueError, match=r"square matrix of counts, got shape \(2, 3\)"):
            function(torch.zeros(2, 3))


@FEW
@given(labels(), st.integers(0, 40))
def test_most_confused_returns_the_largest_mistakes(case, k):
    target, prediction, c = case
    matrix = evaluation.confusion_matrix(target, prediction, c)
    got = evaluation.most_confused(matrix, k)
    mistakes = sorted(
        ((matrix[i, j].item(), -i, -j) for i in range(c) for j in range(c) if i != j), reverse=True
    )
    assert got == [(-i, -j, n) for n, i, j in mistakes if n][:k]


def test_most_confused_rejects_a_negative_k():
    with pytest.raises(ValueError, match="k of at least 0, got -1"):
        evaluation.most_confused(torch.eye(2), -1)


# ---------------------------------------------------------------- top-k, AUROC, calibration


@FEW
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 20))
def test_top_k_accuracy_matches_topk_without_ties(seed, c, n):
    torch.manual_seed(seed)
    logits, target = torch.randn(n, c, dtype=torch.float64), torch.randint(c, (n,))
    for k in range(1, c + 1):
        got = evaluation.top_k_accuracy(logits, target, k)
        hits = (logits.topk(k).indices == target[:, None]).any(1)
        assert got == pytest.approx(hits.double().mean().item())
        if c > 2:
            theirs = quietly(sk().top_k_accuracy_score, target, logits, k=k, labels=range(c))
            assert got == pytest.approx(theirs)
    assert got == 1.0


def test_top_k_accuracy_counts_ties_as_misses():
    logits = torch.tensor([[1.0, 1, 0], [1, 0, 0], [-math.inf, 0, 0]])
    target = torch.tensor([0, 2, 0])
    shares = [evaluation.top_k_accuracy(logits, target, k) for k in (1, 2, 3)]
    assert shares == pytest.approx([0, 1 / 3, 1])


@pytest.mark.parametrize(
    ("logits", "target", "k", "says"),
    [
        (torch.zeros(2), torch.zeros(2), 1, "logits (N, C) and target (N,), got (2,) and (2,)"),
        (torch.zeros(2, 3), torch.zeros(1), 1, "got (2, 3) and (1,)"),
        (torch.zeros(2, 3), torch.zeros(2), 4, "k from 1 to the 3 classes, got 4"),
        (torch.zeros(2, 3), torch.zeros(2), 0, "got 0"),
        (torch.zeros(0, 3), torch.zeros(0), 1, "at least one sample"),
        (torch.full((1, 3), math.nan), torch.zeros(1), 1, "got nan"),
        (torch.zeros(1, 3), torch.tensor([3]), 1, "classes 0 ... 2"),
        (torch.zeros(1, 3), torch.tensor([-1]), 1, "classes 0 ... 2"),
    ],
)
def test_top_k_accuracy_rejects_invalid_input(logits, target, k, says):
    with pytest.raises(TypeError, match="integer classes in target, got torch.float32"):
        evaluation.top_k_accuracy(torch.zeros(1, 3), torch.tensor([0.7]), 1)
    with pytest.raises(ValueError) as raised:
        evaluation.top_k_accuracy(logits, target, k)
    assert says in str(raised.value)


@FEW
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_auroc_with_ties_matches_both_libraries(pairs):
    score = torch.tensor([float(s) for s, _ in pairs])
    target = torch.tensor([int(t) for _, t in pairs])
    if target.min() == target.max():
        with pytest.raises(ValueError, match="only one class"):
            evaluation.auroc(score, target)
        return
    got = evaluation.auroc(score, target)
    decided = evaluation.auroc(score > 0, target)
    assert decided == pytest.approx(evaluation.auroc((score > 0).int(), target))
    assert got == pytest.approx(sk().roc_auc_score(target, score))
    assert got == pytest.approx(tm().binary_auroc(score, target).item(), abs=1e-5)
    assert got == pytest.approx(evaluation.auroc(score.exp(), target.bool()))
    assert got == pytest.approx(1 - evaluation.auroc(-score, target))


@pytest.mark.parametrize(
    ("score", "target", "says"),
    [
        (torch.zeros(2, 2), torch.zeros(2, 2), "shape (N,), got (2, 2)"),
        (torch.zeros(2), torch.zeros(3), "got (2,) and (3,)"),
        (torch.tensor([math.nan, 0]), torch.tensor([0, 1]), "got nan"),
        (torch.zeros(2), torch.tensor([1, 2]), "targets 0 and 1"),
        (torch.zeros(0), torch.zeros(0), "only one class"),
    ],
)
def test_auroc_rejects_invalid_input(score, target, says):
    with pytest.raises(ValueError) as raised:
        evaluation.auroc(score, target)
    assert says in str(raised.value)


@FEW
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([1, 7, 15]))
def test_calibration_error_matches_torchmetrics(seed, n, bins):
    torch.manual_seed(seed)
    probability = (3 * torch.randn(n, 4)).softmax(1).clamp(max=0.9999)
    target = torch.randint(4, (n,))
    confidence, best = probability.max(1)
    got = evaluation.calibration_error(confidence, best == target, bins)
    theirs = tm().multiclass_calibration_error(probability, target, num_classes=4, n_bins=bins)
    assert got == pytest.approx(theirs.item(), abs=1e-4)


def test_calibration_error_at_bin_edges_matches_hand_computation():
    confidence = torch.tensor([0.0, 0.5, 0.6, 1.0])  # bins [0, .5) and [.5, 1]
    correct = torch.tensor([False, True, False, False])
    assert evaluation.calibration_error(confidence, correct, 2) == pytest.approx(
        0.25 * 0 + 0.75 * abs(1 / 3 - 0.7), abs=1e-6
    )
    assert evaluation.calibration_error(torch.ones(3), torch.ones(3, dtype=torch.bool)) == 0


@pytest.mark.parametrize(
    ("confidence", "correct", "bins", "says"),
    [
        (torch.zeros(2, 1), torch.zeros(2, 1), 5, "shape (N,), N > 0, got (2, 1)"),
        (torch.zeros(0), torch.zeros(0), 5, "got (0,)"),
        (torch.zeros(2), torch.zeros(3), 5, "got (2,) and (3,)"),
        (torch.zeros(2), torch.zeros(2), 0, "at least one bin, got 0"),
        (torch.zeros(2), torch.tensor([0, 3]), 5, "correct as booleans"),
        (torch.tensor([1.5]), torch.ones(1), 5, "apply a softmax"),
        (torch.tensor([math.nan]), torch.ones(1), 5, "apply a softmax"),
    ],
)
def test_calibration_error_rejects_invalid_input(confidence, correct, bins, says):
    with pytest.raises(ValueError) as raised:
        evaluation.calibration_error(confidence, correct, bins)
    assert says in str(raised.value)


# ---------------------------------------------------------------- report and figures

MATRIX = torch.tensor([[3, 2, 1, 0], [0, 5, 0, 0], [4, 0, 0, 0], [0, 0, 0, 0]])


def read(path):
    with open(path, newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_report_round_trips_through_csv(tmp_path):
    path = tmp_path / "report.csv"
    names = ["猫", 'a "b", c', "two\nlines", "none"]
    evaluation.write_report(path, MATRIX, names)
    rows = read(path)
    assert [row["class"] for row in rows] == [*names, "all"]
    assert [int(row["support"]) for row in rows] == [6, 5, 4, 0, 15]
    assert rows[0]["recall"] == "0.500" and rows[0]["mistaken for"] == 'a "b", c:2 two\nlines:1'
    assert rows[0]["precision"] == "0.429" and rows[1]["f1"] == "0.833"
    assert rows[2]["recall"] == rows[2]["precision"] == "0.000"
    assert [rows[3][c] for c in ("precision", "recall", "f1", "mistaken for")] == [""] * 4
    assert rows[4]["recall"] == "0.533" and rows[4]["precision"] == rows[4]["f1"] == ""
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf") and b"\r\r\n" not in data
    assert [p.name for p in tmp_path.iterdir()] == ["report.csv"]


def test_report_supports_empty_matrices_and_fewer_confused_classes(tmp_path):
    evaluation.write_report(tmp_path / "r.csv", torch.zeros(1, 1, dtype=torch.long), ["a"])
    assert [row["recall"] for row in read(tmp_path / "r.csv")] == ["", ""]
    evaluation.write_report(tmp_path / "r.csv", MATRIX, "abcd", confused=1)
    assert read(tmp_path / "r.csv")[0]["mistaken for"] == "b:2"


def test_report_of_a_normalized_matrix_contains_its_accuracy(tmp_path):
    evaluation.write_report(tmp_path / "r.csv", torch.tensor([[0.9, 0.1], [0.2, 0.8]]), "ab")
    assert (tmp_path / "r.csv").read_text("utf-8-sig").splitlines()[-1].endswith(",,0.850,,")


def test_full_disk_keeps_the_old_report(tmp_path, monkeypatch):
    path = tmp_path / "report.csv"
    path.write_text("old")

    write = type(path).write_bytes

    def full(self, data):
        write(self, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        evaluation.write_report(path, MATRIX, "abcd")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.csv"]


def test_write_report_rejects_invalid_input(tmp_path):
    with pytest.raises(ValueError, match="expected 4 names, got 3"):
        evaluation.write_report(tmp_path / "r.csv", MATRIX, "abc")
    with pytest.raises(FileNotFoundError):
        evaluation.write_report(tmp_path / "nowhere" / "r.csv", MATRIX, "abcd")
    with pytest.raises(ValueError, match="square"):
        evaluation.write_report(tmp_path / "r.csv", MATRIX[:2], "ab")
    assert not list(tmp_path.iterdir())


def test_draw_confusion_draws_every_count():
    figure = demos.draw_confusion(MATRIX, "abcd")
    axis = figure.axes[0]
    shown = {tuple(map(round, t.get_position())): t.get_text() for t in axis.texts}
    want = {(j, i): str(int(MATRIX[i, j])) for i in range(4) for j in range(4) if MATRIX[i, j]}
    assert shown == want  # x is the column, the prediction
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("predicted class", "true class")
    assert axis.yaxis_inverted() and not axis.xaxis_inverted()
    assert [t.get_text() for t in axis.get_yticklabels()] == list("abcd")
    shade = {tuple(p.get_xy()): p.get_alpha() for p in axis.patches}
    assert shade[-0.5, -0.5] == pytest.approx(0.25)  # half the share of the class
    assert shade[0.5, -0.5] == 0.5  # half of min(1, 5 * 2/6)
    assert shade[2.5, -0.5] == 0
    with pytest.raises(ValueError, match=r"shape \(1, 1\) for 1 names, got \(4, 4\)"):
        demos.draw_confusion(MATRIX, "a")


def test_draw_reliability_draws_accuracy_over_confidence():
    confidence = torch.tensor([0.25, 0.25, 0.95, 0.95])
    correct = torch.tensor([True, False, True, True])
    figure = demos.draw_reliability({"a": (confidence, correct), "b": (confidence, correct)})
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a", "b"]
    dots = figure.axes[0].collections[0].get_offsets()
    assert np.allclose(dots, [[0.25, 0.5], [0.95, 1.0]])
    with pytest.raises(ValueError, match="at least one panel"):
        demos.draw_reliability({})


def test_draw_precision_recall_marks_the_thresholds():
    score = torch.tensor([0.1, 0.4, 0.6, 0.9])
    target = torch.tensor([False, True, False, True])
    figure = demos.draw_precision_recall(score, target, {"all": 0.0, "top": 0.8, "none": 2.0})
    _, *marks, guess = figure.axes[0].lines
    places = [(m.get_xdata()[0], m.get_ydata()[0]) for m in marks]
    assert places == [(1.0, 0.5), (0.5, 1.0), (0.0, 0.0)]
    assert list(guess.get_ydata()) == [0.5, 0.5]
    with pytest.raises(ValueError, match="at least one positive"):
        demos.draw_precision_recall(score, target & False, {})


# ---------------------------------------------------------------- exercises


def right_accuracy(model, loader):
    device = next(model.parameters()).device
    correct = total = 0
    with evaluation.evaluating(model):
        for x, y in loader:
            guess, y = model(x.to(device)).argmax(1), y.to(device)
            if guess.shape != y.shape:
                raise ValueError("shape")
            correct += (guess == y).sum()
            total += len(y)
    if not total:
        raise ValueError("empty")
    return correct.item() / total


@torch.inference_mode()
def other_accuracy(model, loader):
    pairs = list(loader)
    if not sum(map(len, (x for x, _ in pairs))) or any(y.shape != x.shape[:1] for x, y in pairs):
        raise ValueError("expected samples with labels (n,)")
    modes = {m: m.training for m in model.modules()}
    model.eval()
    same = torch.cat([model(x).argmax(1) == y for x, y in pairs])
    for module, mode in modes.items():
        module.training = mode
    return float(same.double().mean())


def broadcasts(model, loader):
    correct = total = 0
    with evaluation.evaluating(model):
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum()
            total += len(y)
    if not total:
        raise ValueError("empty")
    return correct.item() / total


def empty_raises(error):
    def answer(model, loader):
        pairs = list(loader)
        if not pairs:
            raise error
        return right_accuracy(model, pairs)

    return answer


def reads_twice(model, loader):
    total = sum(len(y) for _, y in loader)
    return right_accuracy(model, loader) * total / max(total, 1)


def checked(bad=lambda i, guess, y: guess.shape != y.shape, lost=(), train_at_error=False):
    """Return a right answer with another comparison, or with modes left changed at an exit."""

    def answer(model, loader):
        modes = {m: m.training for m in model.modules()}

        def back(where):
            for module, mode in modes.items() if where not in lost else ():
                module.training = mode
            if where in lost and train_at_error:
                model.train()

        model.eval()
        correct = total = 0
        with torch.no_grad():
            for i, (x, y) in enumerate(loader):
                guess = model(x).argmax(1)
                if bad(i, guess, y):
                    back("shape")
                    raise ValueError("shape")
                correct, total = correct + (guess == y).sum().item(), total + len(y)
        back("empty" if not total else "end")
        if not total:
            raise ValueError("empty")
        return correct / total

    return answer


def modes_lost_by_an_error(model, loader):
    pairs = list(loader)
    if not pairs:
        raise ValueError("empty")
    modes = {m: m.training for m in model.modules()}
    model.eval()
    assert all(y.ndim == 1 for _, y in pairs)
    found = right_accuracy(model, pairs)
    for module, mode in modes.items():
        module.training = mode
    return found


def accuracy(count=True, evaluate=True, quiet=True, restore=None, result=float):
    def answer(model, loader):
        was = model.training
        if evaluate:
            model.eval()
        with torch.set_grad_enabled(not quiet):
            same = [model(x).argmax(1) == y for x, y in loader]
        if restore is not None:
            model.train(was and restore == "was" or restore == "train")
        parts = torch.cat(same) if count else torch.stack([s.double().mean() for s in same])
        return result(parts.double().mean())

    return answer


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (right_accuracy, None),
        (other_accuracy, None),
        (lambda m, b: right_accuracy(m, ((x.half(), y) for x, y in b)), "expected 0."),
        (seeding(right_accuracy), "state of torch was changed"),
        (broadcasts, "an error for labels of shape (n, 1)"),
        (empty_raises(AttributeError("item")), "your code raised AttributeError"),
        (
            lambda m, b: right_accuracy(m, pairs) if (pairs := list(b)) else 0.0,
            "a ValueError for a loader without samples, got",
        ),
        (reads_twice, "your code raised ValueError"),
        (modes_lost_by_an_error, "after the error for labels (n, 1), the mode is not restored"),
        (checked(), None),
        (checked(lambda i, guess, y: guess.ndim != y.ndim), "labels of shape (1,) in the last"),
        (checked(lambda i, guess, y: not i and guess.shape != y.shape), "labels of shape (n, 1)"),
        (checked(lost=["shape"], train_at_error=True), "after the error for labels (n, 1)"),
        (checked(lost=["empty"]), "after the error for an empty loader, the mode"),
        (lambda model, loader: ..., "expected a float, got ellipsis"),
        (accuracy(evaluate=False), "ran in training mode"),
        (accuracy(count=False), "the mean of the batches' accuracies"),
        (accuracy(result=lambda a: 100 * float(a)), "not a percentage"),
        (accuracy(result=lambda a: float(a) / 2), "expected 0."),
        (accuracy(result=lambda a: math.nan), "got nan"),
        (accuracy(result=lambda a: a), "expected a Python float, got Tensor"),
        (accuracy(result=lambda a: np.float64(a)), "expected a Python float, got float64"),
        (accuracy(quiet=False), "recorded a graph"),
        (accuracy(), "was in training mode before and is in evaluation mode now"),
        (accuracy(restore="train"), "the mode of a layer was changed"),
        (accuracy(restore="was"), "the mode of a layer was changed"),
    ],
)
def test_check_accuracy_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(5):
        torch.manual_seed(seed)
        expect(exercises.check_accuracy(answer), says)


def right_mistaken(matrix, c, k):
    row = matrix[c].clone()
    row[c] = 0
    k = min(k, row.count_nonzero().item())
    return row.argsort(descending=True)[:k].tolist()


def mistaken(lines=lambda m, c: m[c], diagonal=False, zeros=False, inplace=False, flip=True):
    def answer(matrix, c, k):
        m = matrix if inplace else matrix.clone()
        if not diagonal:
            m[c, c] = -1
        line = lines(m, c)
        order = line.argsort(descending=flip).tolist()
        return [j for j in order if (zeros and line[j] >= 0) or line[j] > 0][:k]

    return answer


def by_count(matrix, c, k):
    classes = {n: j for j, n in enumerate(matrix[c].tolist()) if j != c and n}
    return [classes[n] for n in sorted(classes, reverse=True)][:k]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (right_mistaken, None),
        (mistaken(), None),
        (
            lambda m, c, k: [j for i, j, _ in evaluation.most_confused(m, m.numel()) if i == c][:k],
            None,
        ),
        (lambda m, c, k: None, "expected a list, got None"),
        (lambda m, c, k: list(m[c].argsort()), "a list of Python ints"),
        (mistaken(inplace=True), "the matrix was changed"),
        (mistaken(diagonal=True), "the class itself is in the list"),
        (
            lambda m, c, k: m[:, c].argsort(descending=True)[:k].tolist(),
            "the class itself is in the list",
        ),
        (mistaken(lines=lambda m, c: m[:, c]), "this is the column"),
        (by_count, "expected "),
        (lambda m, c, k: [j for j in mistaken()(m, c, k) if m[c, j] > 1], "classes for k="),
        (lambda m, c, k: mistaken()(m, c, k or len(m)), "expected 0 classes for k=0"),
        (mistaken(zeros=True), "never mistaken for"),
        (mistaken(flip=False), "expected the most frequent ones"),
        (lambda m, c, k: mistaken()(m, c, k)[:1], "expected 3 classes for k=3, got 1"),
        (lambda m, c, k: mistaken()(m, c, k)[::-1], "expected the most frequent ones"),
        (lambda m, c, k: right_mistaken(m.float(), c, k), "expected the most frequent ones"),
        (seeding(right_mistaken), "state of torch was changed"),
        (lambda m, c, k: mistaken()(m, c, 3), "expected 1 classes for k=1, got 3"),
    ],
)
def test_check_mistaken_for_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(5):
        torch.manual_seed(seed)
        expect(exercises.check_mistaken_for(answer), says)


def matrix_of(batches, c):
    return sum(evaluation.confusion_matrix(t, p, c) for t, p in batches)


def right_macro(batches, c):
    matrix = matrix_of(batches, c)
    size = matrix.sum(0) + matrix.sum(1)
    return (2 * matrix.diag()[size > 0] / size[size > 0]).mean().item()


def only_predicted(batches, c):
    matrix = matrix_of(batches, c)
    kept = matrix.sum(0) > 0
    return (2 * matrix.diag() / (matrix.sum(0) + matrix.sum(1)))[kept].mean().item()


def joined_macro(batches, c):
    target, prediction = (torch.cat(column) for column in zip(*batches, strict=True))
    return sk().f1_score(target, prediction, average="macro", zero_division=0)


def f1_of_means(batches, c):
    precision, recall = evaluation.averages(matrix_of(batches, c), 0.0)["macro"][:2]
    return 2 * precision * recall / (precision + recall)


def with_nan(batches, c):
    precision, recall, *_ = evaluation.scores(matrix_of(batches, c))
    return (2 * precision * recall / (precision + recall)).mean().item()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (right_macro, None),
        (joined_macro, None),
        (lambda b, c: tm().multiclass_f1_score(
            torch.cat([p for _, p in b]), torch.cat([t for t, _ in b]), c, average="macro"), None),
        (lambda b, c: ..., "expected one number, got ellipsis"),
        (lambda b, c: evaluation.scores(matrix_of(b, c)).f1, "expected one number, got Tensor"),
        (with_nan, "the result is nan"),
        (lambda b, c: sum(right_macro([x], c) for x in b) / len(b), "mean of the batches' scores"),
        (lambda b, c: evaluation.averages(matrix_of(b, c), 0.0)["macro"][2], "appear nowhere"),
        (lambda b, c: evaluation.averages(matrix_of(b, c))["weighted"][2], "the weighted average"),
        (lambda b, c: evaluation.averages(matrix_of(b, c))["micro"][2], "the accuracy"),
        (lambda b, c: evaluation.averages(matrix_of(b, c))["macro"][1], "the macro recall"),
        (lambda b, c: evaluation.averages(matrix_of(b, c))["macro"][0], "the macro precision"),
        (f1_of_means, "the mean precision and the mean recall"),
        (lambda b, c: right_macro(b, c) / 2, "expected 0."),
        (lambda b, c: round(right_macro(b, c), 2), "expected 0."),
        (seeding(right_macro), "state of torch was changed"),
        (only_predicted, "expected 0."),
    ],
)  # fmt: skip
def test_check_macro_f1_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(5):
        torch.manual_seed(seed)
        expect(exercises.check_macro_f1(answer), says)


def test_check_mistaken_for_rejects_skipping_the_largest_entry():
    def drops_the_first(matrix, c, k):
        row = matrix[c]
        return row.argsort(descending=True)[1 : min(k + 1, row.count_nonzero())].tolist()

    for _ in range(10):
        found = exercises.check_mistaken_for(drops_the_first)
        assert not found.passed, found


def test_check_macro_f1_rejects_dropping_classes_without_targets():
    def occurring(batches, num_classes):
        matrix = sum(evaluation.confusion_matrix(t, p, num_classes) for t, p in batches)
        occurs = matrix.sum(1) > 0
        size = matrix.sum(0) + matrix.sum(1)
        return (2 * matrix.diag()[occurs] / size[occurs]).mean().item()

    for _ in range(5):
        found = exercises.check_macro_f1(occurring)
        assert not found.passed and "without those only predicted" in found.message, found


def test_check_accuracy_rejects_gradients_left_disabled():
    def leaves_it_off(model, loader):
        torch.set_grad_enabled(False)
        correct = total = 0
        with evaluation.evaluating(model):
            for x, y in loader:
                guess = model(x).argmax(1)
                if guess.shape != y.shape:
                    raise ValueError("shapes")
                correct, total = correct + (guess == y).sum(), total + len(y)
        if not total:
            raise ValueError("no sample")
        return correct.item() / total

    found = exercises.check_accuracy(leaves_it_off)
    torch.set_grad_enabled(True)
    assert not found.passed and "gradients stay switched off" in found.message


def test_recall_of_1_does_not_imply_the_largest_entry_of_a_column():
    target = torch.tensor([0] * 1000 + [1] * 5)
    prediction = torch.tensor([0] * 990 + [1] * 10 + [1] * 5)
    assert (target == prediction).float().mean() > 0.98
    assert evaluation.confusion_matrix(target, prediction, 2)[:, 1].argmax() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda a: evaluation.confusion_matrix(a, a, 2),
        lambda a: evaluation.scores(a),
        lambda a: evaluation.auroc(a, a),
        lambda a: evaluation.top_k_accuracy(a[None], a, 1),
        lambda a: evaluation.calibration_error(a, a),
    ],
)
def test_arrays_raise_a_type_error(call):
    with pytest.raises(TypeError, match="expected a tensor as .*, got ndarray: torch.as_tensor"):
        call(np.array([0, 1]))


def test_no_float64_is_computed_which_mps_does_not_have():
    class Narrow(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            assert getattr(out, "dtype", None) != torch.float64, function
            return out

    scores, target = torch.rand(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    with Narrow():
        evaluation.confusion_matrix(target, scores.argmax(1), 3)
        evaluation.top_k_accuracy(scores, target, 2)
        evaluation.auroc(scores[:, 0], target == 0)
        binary_losses.soft_iou_loss(torch.rand(2, 1, 4, 4), torch.ones(2, 1, 4, 4).byte())
