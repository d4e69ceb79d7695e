"""Helpers of the chapter "Build a module that owns what it uses".

Source: `torch.nn.Module`, https://pytorch.org/docs/stable/generated/torch.nn.Module.html
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def inventory(module: nn.Module) -> dict[str, str]:
    """What becomes of each attribute of `module` that holds tensors.

    Each word is tried out on a copy: `moves` (it follows `to()` to another device, here the meta
    device), `saves` (it is in the `state_dict`), `trains` (it is in `parameters()` and requires
    grad). An attribute of which nothing is true is `lost`. Attributes without a tensor are left
    out; lists, tuples and dicts are looked into.

    Raises:
        TypeError: `module` is not a module.
        ValueError: `module` lies on the meta device already, so no move could be seen.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected an nn.Module, got {type(module).__name__}")
    held = {name: list(_tensors(value)) for name, value in _attributes(module)}
    if any(t.is_meta for ts in held.values() for t in ts):
        raise ValueError("expected a module with data, got one on the meta device")
    # tensors with a history cannot be copied; as they are not registered, nothing moves them
    memo: dict[int, Any] = {id(t): t for ts in held.values() for t in ts if not t.is_leaf}
    moved = copy.deepcopy(module, memo).to("meta")
    after = {name: list(_tensors(value)) for name, value in _attributes(moved)}
    trained = {id(p) for p in module.parameters() if p.requires_grad}
    saved = [key.split(".")[0] for key in module.state_dict()]
    found = {}
    for name, tensors in held.items():
        facts = {
            "moves": all(t.is_meta for t in after[name]),
            "saves": name in saved,
            "trains": any(id(t) in trained for t in tensors),
        }
        if tensors:
            found[name] = ", ".join(word for word, true in facts.items() if true) or "lost"
    return found


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The attributes that a class sets on itself, registered or not."""
    for registry in (module._parameters, module._buffers, module._modules):
        yield from registry.items()
    yield from ((k, v) for k, v in vars(module).items() if not k.startswith("_"))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def summary(model: nn.Module, *inputs: Tensor) -> str:
    """The table of layers, output shapes and parameters that `torchinfo` makes of `model`.

    It runs `model(*inputs)` once, in eval mode and without gradients. Unlike `torchinfo.summary`
    it gives every layer back its own mode, and leaves out the estimates of time and memory.

    Args:
        model: on the same device as the inputs.
        inputs: what `forward` takes, at least one tensor.

    Raises:
        ValueError: no input is given.
        RuntimeError: the forward pass failed; its own error is the cause.

    Source: https://github.com/TylerYep/torchinfo
    """
    import torchinfo

    if not inputs:
        raise ValueError("summary needs the inputs of forward, got none")
    modes = {module: module.training for module in model.modules()}
    try:
        table = torchinfo.summary(model, input_data=list(inputs), verbose=0)
    finally:
        for module, training in modes.items():
            module.training = training
    lines = str(table).splitlines()
    end = next(n for n, line in enumerate(lines) if line.startswith("Non-trainable params"))
    return "\n".join(lines[: end + 1])


def attention_weights(query: Tensor, key: Tensor, **options: Any) -> Tensor:
    """The weights that `F.scaled_dot_product_attention` uses and does not return.

    The values are the identity matrix, so the output is the weights themselves.

    Args:
        query: floating point, shape (..., Lq, E).
        key: shape (..., Lk, E).
        options: `attn_mask`, `is_causal`, `dropout_p`, `scale`.

    Returns:
        Shape (..., Lq, Lk). Each row adds up to 1; a row that sees no key is 0.

    Source: https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """
    length = key.shape[-2]
    values = torch.eye(length, dtype=key.dtype, device=key.device)
    return F.scaled_dot_product_attention(
        query, key, values.expand(*key.shape[:-1], length), **options
    )


def draw_masks(panels: Mapping[str, Tensor]) -> Figure:
    """Draw who sees whom: a row per query, a column per key, a filled square where it looks.

    Args:
        panels: title to attention weights or booleans of shape (Lq, Lk). What is not zero is
            seen. The queries are the last Lq of the Lk positions.

    Raises:
        ValueError: no panel, or one that is not two-dimensional.
    """
    import matplotlib.pyplot as plt

    if not panels:
        raise ValueError("draw_masks needs at least one panel, got none")
    for title, weights in panels.items():
        if weights.ndim != 2:
            raise ValueError(f"expected shape (Lq, Lk) for {title!r}, got {tuple(weights.shape)}")
    figure, axes = plt.subplots(1, len(panels), figsize=(8, 2.7), squeeze=False)
    for axis, (title, weights) in zip(axes[0], panels.items(), strict=True):
        rows, columns = weights.shape
        for row in range(rows):
            for column in range(columns):
                seen = bool(weights[row, column] != 0)
                face = "#0a6b7d" if seen else "white"
                box = plt.Rectangle((column, row), 1, 1, facecolor=face, edgecolor="#555")
                axis.add_patch(box)
                if seen:
                    axis.plot(column + 0.5, row + 0.5, "o", color="white", markersize=5)
        axis.set(xlim=(-0.05, columns + 0.05), ylim=(rows + 0.05, -0.05), xlabel="key")
        axis.set_aspect("equal", anchor="N")
        axis.set_xticks([c + 0.5 for c in range(columns)], range(columns))
        axis.set_yticks([r + 0.5 for r in range(rows)], range(columns - rows, columns))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(title, fontsize=8, family="monospace")
    axes[0, 0].set_ylabel("query")
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- exercises


def check_count(answer: Callable[[nn.Module], tuple[int, int]]) -> Verdict:
    """Check `answer(model)`: trainable parameters, each counted once, and buffers, in elements."""

    def width() -> int:
        return int(torch.randint(2, 9, ()))

    def ask(f, model):
        got = f(model)
        is_pair = isinstance(got, tuple) and len(got) == 2 and all(type(n) is int for n in got)
        assert is_pair, f"expected two ints, got {got!r}"
        return got

    def plain(f):
        a, b = width(), width()
        got, _ = ask(f, nn.Linear(a, b))
        assert got == a * b + b, "a linear layer from a to b features has a * b + b elements"

    def buffers(f):
        a = width()
        got = ask(f, nn.BatchNorm1d(a))
        assert got[0] == 2 * a, "of BatchNorm1d only scale and shift are parameters"
        assert got[1] == 2 * a + 1, "the buffers of BatchNorm1d are mean, variance and a counter"

    def frozen(f):
        model = nn.Sequential(nn.Linear(width(), 3), nn.Linear(3, 2))
        model[0].requires_grad_(False)
        assert ask(f, model)[0] == 8, "a frozen parameter is counted as trainable"

    def shared(f):
        a = width()
        layer = nn.Linear(a, a)
        got, _ = ask(f, nn.Sequential(layer, nn.ReLU(), layer))
        assert got == a * a + a, "a layer that is used twice is counted twice"

    return verdict(answer, [plain, buffers, frozen, shared])


def check_standardized(answer: Callable[[Tensor, list[int]], nn.Module]) -> Verdict:
    """Check a class `answer(mean, widths)`: everything it needs is registered, as what it is.

    Its forward pass takes off `mean`, then runs for each pair of neighbouring widths a linear
    layer, ReLU and, in training, dropout of 0.5. The mean is saved and not trained.
    """

    def build(f):
        widths = [int(torch.randint(2, 6, ())), *(int(n) for n in torch.randint(32, 48, (2,)))]
        mean = torch.randn(widths[0])
        return f(mean, widths), mean, widths

    def registered(f):
        model, mean, widths = build(f)
        assert isinstance(model, nn.Module), f"expected a module, got {type(model).__name__}"
        shapes = [tuple(p.shape) for p in model.parameters()]
        extra = [s for s in shapes if s == tuple(mean.shape)]
        assert not extra, "the mean is a parameter, so it would be trained"
        right = [shape for a, b in pairwise(widths) for shape in ((b, a), (b,))]
        number = f"{len(right)} parameters, a weight and a bias per layer"
        assert len(shapes) == len(right), f"expected {number}, got {len(shapes)}"
        assert shapes == right, f"expected parameters of the shapes {right}, got {shapes}"

    def saved(f):
        model, mean, _ = build(f)
        state = model.state_dict()
        found = any(v.shape == mean.shape and torch.equal(v, mean) for v in state.values())
        assert found, f"the mean is not saved: the state_dict has {list(state)}"

    def moves(f):
        model, mean, widths = build(f)
        x = torch.randn(8, widths[0])
        right = x - mean
        for weight, bias in zip(*[iter(model.parameters())] * 2, strict=True):
            right = F.linear(right, weight, bias).relu()
        model.eval()
        got = model(x)
        assert torch.equal(got, model(x)), "in eval mode it still drops: two calls differ"
        assert got.shape == right.shape, (
            f"expected shape {tuple(right.shape)}, got {tuple(got.shape)}"
        )
        assert torch.allclose(got, right, atol=1e-5), "in eval mode the values are not right"
        try:
            model.to("meta")(x.to("meta"))
        except RuntimeError:
            raise AssertionError(
                "a tensor that it uses stays behind when the model moves"
            ) from None

    def drops(f):
        model, _, widths = build(f)
        x = torch.randn(8, widths[0])
        model.eval().train()
        assert not torch.equal(model(x), model(x)), "in training mode nothing is dropped"

    return verdict(answer, [registered, saved, moves, drops])


def check_attend(answer: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(q, k, v, keep)`: causal attention of the last queries, without the padding.

    `q` is (N, H, Lq, E), `k` and `v` are (N, H, Lk, E) with Lq <= Lk, all float32; the queries
    are the last Lq positions. `keep` is bool of shape (N, Lk), True for a real token; position 0
    is always one.
    """

    def draw(lq, lk):
        n, h = (int(torch.randint(1, 4, ())) for _ in range(2))
        q, k, v = (torch.randn(n, h, length, 4) for length in (lq, lk, lk))
        return q, k, v, torch.ones(n, lk, dtype=torch.bool)

    def by_hand(q, k, v, keep):
        lq, lk = q.shape[-2], k.shape[-2]
        here = torch.arange(lk - lq, lk)[:, None]
        hidden = (torch.arange(lk) > here) | ~keep[:, None, None]
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v

    def compare(f, batch, wrong):
        got, right = f(*batch), by_hand(*batch)
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        assert got.shape == right.shape, (
            f"expected shape {tuple(right.shape)}, got {tuple(got.shape)}"
        )
        assert not got.isnan().any(), "the result has nan: some query sees no key at all"
        assert torch.allclose(got, right, atol=1e-5), wrong

    def square(f):
        length = int(torch.randint(2, 6, ()))
        compare(f, draw(length, length), "with as many queries as keys it is not causal")

    def cache(f):
        lq = int(torch.randint(1, 4, ()))
        batch = draw(lq, lq + int(torch.randint(1, 4, ())))
        compare(f, batch, "with more keys than queries, the last query must see every key")

    def padding(f):
        lq = int(torch.randint(1, 4, ()))
        batch = draw(lq, lq + int(torch.randint(2, 5, ())))
        batch[-1][torch.rand(batch[-1].shape) < 0.3] = False
        batch[-1][:, 0], batch[-1][:, 1] = True, False
        compare(f, batch, "with padding, not exactly the kept keys are seen")

    return verdict(answer, [square, cache, padding])
