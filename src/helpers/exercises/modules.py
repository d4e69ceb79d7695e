"""Checkers of the exercises of the chapter on modules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import in_two_modes, instance, ints, leaves, unchanged


def _count_width() -> int:
    return int(torch.randint(2, 9, ()))


def _count_ask(f, model):
    got = leaves(f, "the model")(model)
    is_pair = isinstance(got, tuple | list) and len(got) == 2
    assert is_pair, f"expected two ints, got {got!r}"
    return ints(list(got), "expected two ints")


def _count_plain(f):
    a, b = _count_width(), _count_width()
    got, _ = _count_ask(f, nn.Linear(a, b))
    assert got == a * b + b, "a linear layer from a to b features has a * b + b elements"


def _count_buffers(f):
    a = _count_width()
    got = _count_ask(f, nn.BatchNorm1d(a))
    assert got[0] == 2 * a, "the parameters of BatchNorm1d are only scale and shift"
    assert got[1] == 2 * a + 1, "the buffers of BatchNorm1d are mean, variance and a counter"
    model = nn.Linear(a, 1)
    model.register_buffer("scratch", torch.zeros(a), persistent=False)
    assert _count_ask(f, model)[1] == a, "a non-persistent buffer is a buffer, too"
    model.register_buffer("ids", torch.arange(a))
    assert _count_ask(f, model)[1] == 2 * a, "a buffer of integers is a buffer, too"


def _count_frozen(f):
    model = in_two_modes(nn.Sequential(nn.Linear(_count_width(), 3), nn.Linear(3, 2)))
    model[0].requires_grad_(False)
    assert _count_ask(f, model)[0] == 8, "a frozen parameter is counted as trainable"
    model[1].bias.requires_grad_(False)
    assert _count_ask(f, model)[0] == 6, "a frozen parameter is counted as trainable"


def _count_shared(f):
    a = _count_width()
    layer = nn.Linear(a, a)
    got, _ = _count_ask(f, nn.Sequential(layer, nn.ReLU(), layer))
    assert got == a * a + a, "a layer that is used twice is counted twice"


def _count_tied(f):
    a, b = _count_width(), _count_width()
    embedding, head = nn.Embedding(a, b), nn.Linear(b, a, bias=False)
    head.weight = embedding.weight
    got, _ = _count_ask(f, nn.Sequential(embedding, head))
    assert got == a * b, "a weight that two layers share is counted twice"


def _count_nested(f):
    a = _count_width()
    norm = nn.BatchNorm1d(a, affine=False)
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(a, a), norm)), norm)
    got = _count_ask(f, model)
    assert got[0] == a * a + a, "a layer inside of a nested module is not counted"
    assert got[1] == 2 * a + 1, "the buffers of a layer that is used twice count once"


def check_count(answer: Callable[[nn.Module], tuple[int, int]]) -> Verdict:
    """Check `answer(model)`: trainable parameters, each counted once, and buffers, in elements."""

    return verdict(
        answer,
        [_count_plain, _count_buffers, _count_frozen, _count_shared, _count_tied, _count_nested],
    )


def _standardized_build(f):
    widths = [int(torch.randint(2, 6, ())), *(int(n) for n in torch.randint(32, 48, (2,)))]
    mean = torch.randn(widths[0])
    return f(mean, widths), mean, widths


def _standardized_registered(f):
    model, mean, widths = _standardized_build(f)
    instance("a module", model, nn.Module)
    shapes = [tuple(p.shape) for p in model.parameters() if p.requires_grad]
    extra = [s for s in shapes if s == tuple(mean.shape)]
    assert not extra, "the mean is a parameter that requires grad, so it would be trained"
    right = [shape for a, b in pairwise(widths) for shape in ((b, a), (b,))]
    number = f"{len(right)} parameters, a weight and a bias per layer"
    assert len(shapes) == len(right), f"expected {number}, got {len(shapes)}"
    assert shapes == right, f"expected parameters of the shapes {right}, got {shapes}"


def _standardized_equal(f):
    model = f(torch.zeros(4), [4, 4, 4])
    shapes = [tuple(p.shape) for p in model.parameters() if p.requires_grad]
    assert shapes == 2 * [(4, 4), (4,)], f"with equal widths the parameters have shapes {shapes}"


def _standardized_saved(f):
    model, mean, _ = _standardized_build(f)
    state = model.state_dict()
    saved = any(torch.equal(v.flatten(), mean) for v in state.values())
    assert saved, f"the mean is not saved: the state_dict has {list(state)}"


def _standardized_moves(f):
    model, mean, widths = _standardized_build(f)
    x = torch.randn(8, widths[0])
    right = x - mean
    trained = [p for p in model.parameters() if p.requires_grad]
    for weight, bias in zip(trained[::2], trained[1::2], strict=True):
        right = F.linear(right, weight, bias).relu()
    model.eval()
    with unchanged(x=x):
        got = model(x)
    assert torch.equal(got, model(x)), "in eval mode dropout is still active: two calls differ"
    assert got.shape == right.shape, f"expected shape {tuple(right.shape)}, got {tuple(got.shape)}"
    assert torch.allclose(got, right, atol=1e-5), "in eval mode the values are not right"
    try:
        model.to("meta")(x.to("meta"))
    except RuntimeError:
        raise AssertionError("a tensor that forward uses is not moved with the model") from None
    first, second = (f(mean + shift, widths).eval() for shift in (0, 1))
    second.load_state_dict(first.state_dict())
    loaded = torch.allclose(first(x), second(x), atol=1e-5)
    assert loaded, "after load_state_dict, forward still uses the mean of the constructor"


def _standardized_drops(f):
    model, _, widths = _standardized_build(f)
    x = torch.randn(8, widths[0])
    model.eval().train()
    assert not torch.equal(model(x), model(x)), "in training mode dropout is not active"


def _standardized_learns(f):
    model, _, widths = _standardized_build(f)
    x = torch.randn(8, widths[0], requires_grad=True)
    out = model.train()(x)
    assert out.requires_grad, "no gradient flows through forward, so no layer is trained"
    out.sum().backward()
    for name, p in model.named_parameters():
        trained = p.grad is not None or not p.requires_grad
        assert trained, f"{name} gets no gradient, so it is not trained"
    assert x.grad is not None, "no gradient flows back to the input"


def _standardized_halves(f):
    model = f(torch.zeros(3), [3, 40])  # a single layer, so that dropout is visible in the output
    x = torch.randn(200, 3)
    full, kept = model.eval()(x), model.train()(x)
    full, kept = full[full > 0], kept[full > 0]
    share = (kept == 0).float().mean().item()
    assert abs(share - 0.5) < 0.1, (
        f"in training mode {share:.0%} of the values are dropped, expected 50%"
    )
    doubled = torch.allclose(kept[kept != 0], 2 * full[kept != 0], atol=1e-5)
    assert doubled, "in training mode the values that are kept must be doubled"


def _standardized_every_layer(f):
    model = f(torch.zeros(3), [3, 40, 400])
    with torch.no_grad():
        for p in model.parameters():
            p.abs_()  # all values are positive, so only dropout makes zeros
    x = torch.rand(8, 3) + 1
    full, kept = model.eval()(x), model.train()(x)
    assert (kept == 0).float().mean() > 0.3, "in training mode the last layer has no dropout"
    hidden = not torch.allclose(kept[kept != 0], 2 * full[kept != 0], rtol=1e-3)
    assert hidden, "in training mode only the last layer has dropout: it follows every layer"


def check_standardized(answer: Callable[[Tensor, list[int]], nn.Module]) -> Verdict:
    """Check a class `answer(mean, widths)`: its layers and its mean are registered.

    Its forward pass subtracts `mean`, then runs for each pair of neighbouring widths a linear
    layer, ReLU and, in training, dropout of 0.5. The mean is saved and not trained: a buffer, or
    a parameter that requires no gradient.
    """
    return verdict(
        answer,
        [
            _standardized_registered,
            _standardized_equal,
            _standardized_saved,
            _standardized_moves,
            _standardized_drops,
            _standardized_learns,
            _standardized_halves,
            _standardized_every_layer,
        ],
        draws=True,
    )
