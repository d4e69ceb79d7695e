"""Test the helpers of `backward` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import autograd, backward
from helpers.exercises import backward as exercises
from helpers.figures import draw_curves

# ---------------------------------------------------------------- saved tensors


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 5))
def test_saved_tensors_are_freed_with_their_graph(steps, size):
    x = torch.ones(size, requires_grad=True)
    each = len(autograd.saved_tensors(lambda: x.exp().sin()))
    kept = []
    with autograd.watch_saved() as alive:
        assert alive.count() == 0
        for step in range(steps):
            kept.append(x.exp().sin().sum())
            assert alive.count() == each * (step + 1)
    for step, y in enumerate(kept):
        y.backward(retain_graph=step == 0)
    assert alive.count() == each  # only the first graph was retained
    kept.clear()
    del y
    assert alive.count() == 0 == alive.bytes()


def test_summing_losses_keeps_their_graphs():
    model, held = nn.Linear(4, 1), {}
    for way in ("keep", "item", "backward", "no_grad"):
        total = 0
        with autograd.watch_saved() as alive, torch.set_grad_enabled(way != "no_grad"):
            for _ in range(20):
                loss = model(torch.randn(3, 4)).square().mean()
                if way == "backward":
                    loss.backward()
                total += loss.item() if way == "item" else loss
                del loss
        held[way] = alive.count()
    assert held.pop("keep") >= 40
    assert set(held.values()) == {0}


def test_bytes_count_each_storage_once_and_exclude_the_model():
    model = nn.Linear(4, 2, bias=False)
    x = torch.ones(3, 4, requires_grad=True)
    with autograd.watch_saved() as alive:
        y = model(x)
        z = x * x  # saves x twice more
    size = {"x": x.nbytes, "weight": model.weight.nbytes}
    assert alive.bytes() == size["x"] + size["weight"]
    assert alive.bytes(but=model) == size["x"]
    del z
    assert alive.bytes(but=model) == size["x"]
    del y
    assert alive.bytes() == 0


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_bytes_count_indices_and_values_of_a_sparse_matrix(layout):
    matrix, w = torch.eye(3).to_sparse(layout=layout), torch.ones(3, 2, requires_grad=True)
    with autograd.watch_saved() as alive:
        y = matrix @ w
    assert y.requires_grad and alive.bytes() >= 3 * 4 + 3 * 8


@pytest.mark.parametrize("retain", [False, True])
def test_accumulation_keeps_one_micro_batch_unless_the_graph_is_retained(retain):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    counts, kept = [], []
    with autograd.watch_saved() as alive:
        for piece in torch.randn(16, 4).split(4):
            loss = model(piece.clone()).square().mean()
            counts.append(alive.bytes(but=model))
            loss.backward(retain_graph=retain)
            if retain:
                kept.append(loss)
            assert retain or alive.count() == 0
    assert (len(set(counts)) == 1) is not retain


def test_gradients_are_unchanged_under_watch_saved():
    x = torch.randn(3, requires_grad=True)
    right = torch.autograd.grad(x.exp().sin().sum(), x)[0]
    with autograd.watch_saved():
        y = x.exp().sin().sum()
    assert torch.equal(torch.autograd.grad(y, x)[0], right)


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize("log", [False, True])
def test_draw_curves_draws_the_given_values(log):
    curves = {"a": [1.0, 10.0, 100.0], "b": [2.0]}
    figure = draw_curves(curves, "step", "size", log)
    (axis,) = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert drawn == curves
    assert list(axis.lines[0].get_xdata()) == [1, 2, 3]
    assert axis.get_yscale() == ("log" if log else "linear")
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "size")
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["a", "b"]
    assert len({line.get_linestyle() for line in axis.lines}) == 2  # not by colour alone


@pytest.mark.parametrize("count", [0, 5])
def test_draw_curves_rejects_fewer_than_1_or_more_than_4_curves(count):
    with pytest.raises(ValueError, match=f"1 to 4 curves, got {count}"):
        draw_curves({str(i): [1.0] for i in range(count)}, "x", "y")


# ---------------------------------------------------------------- blame


def test_blame_reports_the_line_of_an_in_place_edit():
    def step():
        x = torch.ones(3, requires_grad=True)
        y = F.softmax(x, dim=0)  # goes through torch's own Python code
        z = x.sin()
        y.mul_(2)
        (y + z).sum().backward()

    found = backward.blame(step)
    assert found["operation"] == "SoftmaxBackward0"
    assert found["line"].startswith("y = F.softmax(x, dim=0)")
    assert found["error"].endswith("has been modified by an inplace operation")


def test_blame_reports_the_first_nan():
    def step():
        x = torch.zeros(2, requires_grad=True)
        r = x.sqrt()
        (r * 0).sum().backward()

    found = backward.blame(step)
    assert found["operation"] == "SqrtBackward0" and found["line"] == "r = x.sqrt()"
    assert "returned nan values" in found["error"]


def test_blame_returns_none_without_an_error():
    x = torch.ones(2, requires_grad=True)
    assert backward.blame(lambda: x.exp().sum().backward()) is None
    assert torch.allclose(x.grad, torch.full((2,), math.e))
    assert not torch.is_anomaly_enabled()


def test_blame_propagates_other_errors_and_resets_the_mode():
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        backward.blame(lambda: torch.ones(2, requires_grad=True).backward())
    with pytest.raises(ZeroDivisionError):
        backward.blame(lambda: 1 / 0)  # not in a backward pass
    assert not torch.is_anomaly_enabled()


def test_blame_reports_the_line_of_a_failing_custom_function():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, upstream):
            raise ValueError("no such mode: fast")

    def step():
        y = Broken.apply(torch.ones(2, requires_grad=True))
        y.sum().backward()

    found = backward.blame(step)
    assert found["operation"] == "BrokenBackward" and found["error"] == "no such mode"
    assert found["line"].startswith("y = Broken.apply(")


def test_blame_keeps_the_warnings_of_the_function():
    def step():
        warnings.warn("mine", UserWarning, stacklevel=1)
        torch.zeros(2, requires_grad=True).sqrt().sum().mul(0).backward()

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert backward.blame(step)["operation"] == "SqrtBackward0"
    assert [str(w.message) for w in shown] == ["mine"]
    with warnings.catch_warnings(), pytest.raises(UserWarning, match="mine"):
        warnings.simplefilter("error")
        backward.blame(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert backward.blame(step)["operation"] == "SqrtBackward0"
    assert not torch.is_anomaly_enabled()


# ---------------------------------------------------------------- the drawn graph


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 9))
def test_levels_are_the_longest_paths_from_the_output(data, size):
    nodes = {0: []}
    for node in range(1, size):
        for before in data.draw(st.sets(st.integers(0, node - 1), min_size=1)):
            nodes[before].append(node)
        nodes[node] = []

    def longest(node):
        befores = [b for b, afters in nodes.items() if node in afters]
        return max((longest(b) + 1 for b in befores), default=0)

    levels = autograd._levels(nodes)
    assert levels == {node: longest(node) for node in nodes}


def test_shorter_path_keeps_the_level_of_a_node():
    nodes = {0: [1, 2], 1: [4], 2: [3], 3: [4], 4: []}
    for afters in ([1, 2], [2, 1]):
        assert autograd._levels(nodes | {0: afters})[4] == 3


def test_graphs_with_many_paths_and_long_chains_are_drawn():
    x = torch.ones(2, requires_grad=True)
    residual, chain = x, x
    for _ in range(40):
        residual = residual + residual.sin()
    for _ in range(3000):
        chain = chain + 1
    levels = autograd._levels(autograd.graph(residual))
    assert max(levels.values()) == 80 and len(levels) == 81
    assert max(autograd._levels(autograd.graph(chain)).values()) == 3000
    transposed = x.reshape(1, 2)
    for _ in range(2000):
        transposed = transposed.t()
    assert len(autograd._shorten(autograd.graph(transposed))) == 2
    figure = autograd.draw_graphs({"y": residual}, {"x": x})
    assert "x" in [text.get_text() for text in figure.axes[0].texts]


# ---------------------------------------------------------------- nodes kept by a running loss


def test_sum_of_losses_keeps_the_nodes_of_every_step():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 1))
    nodes = {}
    for way in ("loss", "detach", "item"):
        total, counts = torch.zeros(()), []
        for _ in range(4):
            loss = model(torch.randn(2, 3)).square().mean()
            loss.backward()
            total = total + {"loss": loss, "detach": loss.detach(), "item": loss.item()}[way]
            counts.append(len(autograd.graph(total)))
        nodes[way] = counts
    steps = torch.tensor(nodes["loss"]).diff().tolist()
    assert len(set(steps)) == 1 and steps[0] >= 6
    assert nodes["detach"] == nodes["item"] == [0] * 4


# ---------------------------------------------------------------- claims about torch


@pytest.mark.parametrize(
    ("operation", "editable"),
    [
        (torch.sin, ["output"]),
        (torch.square, ["output"]),
        (nn.Linear(2, 2), ["output"]),
        (torch.exp, ["input"]),
        (torch.tanh, ["input"]),
        (torch.sigmoid, ["input"]),
        (torch.relu, ["input"]),
        (nn.Softmax(dim=0), ["input"]),
        (torch.neg, ["input", "output"]),
        (lambda x: x + 1, ["input", "output"]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_autograd_allows_edits_of_unsaved_tensors_only(operation, editable, dtype):
    operation = operation.to(dtype) if isinstance(operation, nn.Module) else operation
    fine = []
    for edited in ("input", "output"):
        x = torch.ones(2, dtype=dtype, requires_grad=True) * 1
        y = operation(x)
        {"input": x, "output": y}[edited].add_(1)
        try:
            y.sum().backward()
            fine.append(edited)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
    assert fine == editable


def test_autograd_grad_adds_to_a_retained_gradient():
    x = torch.ones(2, requires_grad=True)
    h = x * 2
    h.retain_grad()
    y = h.sum()
    torch.autograd.grad(y, h, retain_graph=True)
    y.backward()
    assert h.grad.tolist() == [2.0, 2.0] and x.grad.tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_deepcopy_rejects_old_weight_norm_and_pruned_layers():
    old = nn.utils.weight_norm(nn.Linear(2, 2))
    pruned = nn.utils.prune.random_unstructured(nn.Linear(2, 2), "weight", amount=0.5)
    for layer in (old, pruned):
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(layer)
    new = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert torch.equal(copy.deepcopy(new).weight, new.weight)


def test_tensor_hook_works_on_a_resnet_where_a_full_backward_hook_raises():
    torchvision = pytest.importorskip("torchvision")
    net = torchvision.models.resnet18()
    for module in net.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    layer, x, arrived = net.layer1[0].bn2, torch.randn(2, 3, 32, 32), []
    handle = layer.register_full_backward_hook(lambda *gradients: None)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        net(x)
    handle.remove()

    def watch(module, inputs, output):
        output.register_hook(arrived.append)

    layer.register_forward_hook(watch)
    net(x).sum().backward()
    assert len(arrived) == 1


# ---------------------------------------------------------------- exercises


def by_count(model, chunks, clear=True):
    if clear:
        model.zero_grad()
    count = sum((labels != -100).sum() for _, labels in chunks)
    for x, labels in chunks:
        (F.cross_entropy(model(x), labels, reduction="sum") / count).backward()


def by_weighted_means(model, chunks):
    for p in model.parameters():
        p.grad = None
    counts = [(labels != -100).sum() for _, labels in chunks]
    for (x, labels), n in zip(chunks, counts, strict=True):
        if n:
            (F.cross_entropy(model(x), labels) * n / sum(counts)).backward()


def by_float32_shares(model, chunks):
    """Weight chunks by their share of the labels in float32: right, to seven digits."""
    counts = [(labels != -100).sum() for _, labels in chunks]
    model.zero_grad()
    for (x, labels), n in zip(chunks, counts, strict=True):
        if n:
            (F.cross_entropy(model(x), labels) * (n / sum(counts))).backward()


def mean_of_means(model, chunks):
    model.zero_grad()
    for x, labels in chunks:
        (F.cross_entropy(model(x), labels) / len(chunks)).backward()


def no_division(model, chunks):
    model.zero_grad()
    for x, labels in chunks:
        F.cross_entropy(model(x), labels).backward()


def by_samples(model, chunks):
    model.zero_grad()
    count = sum(len(labels) for _, labels in chunks)
    for x, labels in chunks:
        (F.cross_entropy(model(x), labels, reduction="sum") / count).backward()


def all_at_once(model, chunks):
    model.zero_grad()
    count = sum((labels != -100).sum() for _, labels in chunks)
    sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in chunks).div(count).backward()


def zero_in_the_loop(model, chunks):
    count = sum((labels != -100).sum() for _, labels in chunks)
    for x, labels in chunks:
        model.zero_grad()
        (F.cross_entropy(model(x), labels, reduction="sum") / count).backward()


def one_batch(model, chunks):
    model.zero_grad()
    x, labels = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    F.cross_entropy(model(x), labels).backward()


def and_stepped(model, chunks):
    by_count(model, chunks)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def by_grad(model, chunks):
    count, parameters = sum((y != -100).sum() for _, y in chunks), list(model.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for x, labels in chunks:
        loss = F.cross_entropy(model(x), labels, reduction="sum") / count
        for t, g in zip(total, torch.autograd.grad(loss, parameters), strict=True):
            t += g
    for p, t in zip(parameters, total, strict=True):
        p.grad = t


def own_mean(model, chunks):
    model.zero_grad()
    counts = [(labels != -100).sum() for _, labels in chunks]
    for (x, labels), n in zip(chunks, counts, strict=True):
        rows = model(x).log_softmax(1)[torch.arange(len(x)), labels.clamp(min=0)]
        own = -(rows * (labels != -100)).sum() / n
        (own * n / sum(counts)).backward()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (by_count, None),
        (by_weighted_means, None),
        (by_float32_shares, None),
        (lambda m, c: None, "a parameter has no gradient"),
        (no_division, "even with the same number of labels"),
        (by_samples, "even with the same number of labels"),
        (zero_in_the_loop, "even with the same number of labels"),
        (mean_of_means, "chunks with few labels have too much weight"),
        (own_mean, "nan: the mean over a chunk without labels"),
        (lambda m, c: by_count(m, c, clear=False), "the old gradients are still included"),
        (all_at_once, "the graphs of several chunks exist"),
        (one_batch, "the model received several chunks at once"),
        (and_stepped, "a weight has changed"),
        (by_grad, None),
    ],
)
def test_check_accumulate_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_accumulate(answer), says)


def norms_by_grad(losses, parameters):
    found = []
    for loss in losses:
        grads = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        found.append(nn.utils.get_total_norm(grads).item())
    return found


def norms_by_hand(losses, parameters, unused=True, square=lambda g: g.float().square()):
    found = []
    for loss in losses:
        grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=unused)
        found.append(sum(square(g).sum() for g in grads if g is not None).sqrt().item())
    return found


def norms_by_backward(losses, parameters, restore=True, retain=True):
    kept = [p.grad for p in parameters]
    found = []
    for i, loss in enumerate(losses):
        for p in parameters:
            p.grad = None
        loss.backward(retain_graph=retain or i < len(losses) - 1)
        found.append(
            nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]).item()
        )
    if restore:
        for p, g in zip(parameters, kept, strict=True):
            p.grad = g
    return found


def norms_accumulated(losses, parameters):
    found = []
    for loss in losses:
        loss.backward(retain_graph=True)
        found.append(torch.cat([p.grad.flatten() for p in parameters]).norm().item())
    return found


def norms_freed(losses, parameters):
    found = []
    for loss in losses:
        grads = torch.autograd.grad(loss, parameters)
        found.append(torch.cat([g.flatten() for g in grads]).norm().item())
    return found


def zeros_for_none(losses, parameters):
    found = norms_by_backward(losses, parameters)
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return found


def sum_of_norms(losses, parameters):
    return [
        sum(g.norm() for g in torch.autograd.grad(loss, parameters, retain_graph=True)).item()
        for loss in losses
    ]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (norms_by_grad, None),
        (norms_by_hand, None),
        (norms_by_backward, None),
        (lambda ls, ps: norms_by_hand(ls, ps, unused=False), "two heads"),
        (lambda ls, ps: [*norms_by_grad(ls[:1], ps), 1.0, 1.0][: len(ls)], "a norm is wrong"),
        (lambda ls, ps: norms_by_hand(ls, ps, square=torch.square), "overflow in float16"),
        (lambda ls, ps: torch.tensor(norms_by_grad(ls, ps)), "expected a float, got Tensor"),
        (lambda ls, ps: tuple(norms_by_grad(ls, ps)), None),
        (lambda ls, ps: None, "return one number for each loss"),
        (lambda ls, ps: norms_by_grad(ls, ps)[:2], "return one number for each loss"),
        (norms_accumulated, "a norm is wrong"),
        (sum_of_norms, "a norm is wrong"),
        (norms_freed, "your code raised RuntimeError: Trying to backward"),
        (zeros_for_none, "was changed"),
        (lambda ls, ps: norms_by_backward(ls, ps, restore=False), ".grad was changed"),
        (lambda ls, ps: norms_by_backward(ls, ps, retain=False), "the graph was freed"),
    ],
)
def test_check_loss_gradients_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_loss_gradients(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize("parts", [torch.unbind, lambda x: x.split(2), lambda x: x.chunk(2)])
def test_in_place_edit_of_one_of_several_views_raises(parts):
    x = torch.ones(4, 3, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        parts(x)[0].add_(1)


def test_grad_of_a_detached_input_raises_unused_error():
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad((x.detach() * w).sum(), x)  # computed from x, but detached


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_deepcopy_fails_on_a_stored_output_with_a_graph(training, recorded):
    class Keeps(nn.Linear):
        def forward(self, x):
            self.features = super().forward(x)
            return self.features

    net = Keeps(3, 2).train(training)
    with torch.set_grad_enabled(recorded):
        net(torch.ones(1, 3))
    if not recorded:
        assert copy.deepcopy(net).features.shape == (1, 2)
        return
    with pytest.raises(RuntimeError, match="deepcopy protocol"):
        copy.deepcopy(net)


def test_anomaly_mode_reports_the_operation_that_propagates_nan():
    w = torch.zeros(1, 3, requires_grad=True)
    label = torch.tensor([0])
    found = backward.blame(lambda: F.cross_entropy(w / torch.zeros(1, 3), label).backward())
    assert found["operation"] == "LogSoftmaxBackward0"  # neither the division nor the loss


@pytest.mark.parametrize(
    ("name", "skips"),
    [*((n, True) for n in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop")), ("LBFGS", False)],
)
def test_optimizers_except_lbfgs_skip_parameters_without_a_gradient(name, skips):
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = getattr(torch.optim, name)([p, q], lr=0.1)
    for gradient in (torch.ones(2), None):
        before = q.detach().clone()
        p.grad, q.grad = torch.ones(2), gradient
        optimizer.step(lambda: (p * p).sum())
    assert torch.equal(q, before) == skips


def test_accumulation_with_class_weights_requires_the_sum_of_weights():
    layer, x, weight = nn.Linear(4, 3), torch.randn(8, 4), torch.tensor([1.0, 5.0, 2.0])
    y = torch.tensor([0, 1, 2, 1, 2, -100, -100, -100])
    whole = torch.autograd.grad(F.cross_entropy(layer(x), y, weight=weight), layer.weight)[0]
    labels = y[y != -100]
    for count, right in ((weight[labels].sum(), True), (len(labels), False)):
        layer.zero_grad()
        for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
            total = F.cross_entropy(layer(part), target, weight=weight, reduction="sum")
            (total / count).backward()
        assert torch.allclose(layer.weight.grad, whole, atol=1e-6) == right


@pytest.mark.parametrize(("dtype", "left"), [(torch.float32, 0.0), (torch.half, 2.0)])
def test_addition_shares_its_gradient_if_the_dtypes_match(dtype, left):
    x = torch.ones(2, requires_grad=True)
    skip, branch = x * 1, (x * 3).to(dtype)
    branch.register_hook(lambda g: g.mul_(0))
    ((skip + branch) * 2).sum().backward()
    assert x.grad.tolist() == [left, left]


def test_check_accumulate_rejects_a_changed_random_state():
    def seeded(model, chunks):
        torch.manual_seed(0)
        model.zero_grad()
        count = sum((labels != -100).sum() for _, labels in chunks)
        for x, labels in chunks:
            (F.cross_entropy(model(x), labels, reduction="sum") / count).backward()

    expect(exercises.check_accumulate(seeded), "the random state of torch was changed")
