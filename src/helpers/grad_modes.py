"""Helpers of the chapter "Switch gradients on and off".

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from helpers.autograd import saved_tensors
from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The mode of the modules, and the mode of autograd, under each name.
MODES: dict[str, tuple[bool, Callable[[], AbstractContextManager[Any]]]] = {
    "train()": (True, torch.enable_grad),
    "eval()": (False, torch.enable_grad),
    "no_grad()": (False, torch.no_grad),
    "inference_mode()": (False, torch.inference_mode),
}


def effects(net: nn.Module, x: Tensor) -> dict[str, bool]:
    """What a forward pass of `net` does, in the modes that are on now.

    Runs `net(x)` ten times and puts the buffers of `net` back afterwards.

    Returns:
        `dropout`: two passes over the same `x` differ, so something in `net` is random;
        `statistics`: a buffer of `net` changed, such as the running mean of a BatchNorm;
        `graph`: the output has a graph, which holds what a backward pass needs.
    """
    before = [b.clone() for b in net.buffers()]
    try:
        outputs = [net(x) for _ in range(10)]
        moved = any(not torch.equal(a, b) for a, b in zip(before, list(net.buffers()), strict=True))
    finally:
        with torch.no_grad():
            for buffer, value in zip(net.buffers(), before, strict=True):
                buffer.copy_(value)
    return {
        "dropout": any(not torch.equal(outputs[0], other) for other in outputs[1:]),
        "statistics": moved,
        "graph": outputs[0].grad_fn is not None,
    }


def uses(tensor: Tensor) -> dict[str, bool]:
    """What may be done with `tensor` in code that records gradients; each use is tried.

    Args:
        tensor: of a floating-point dtype. The in-place edit adds zero; where the edit is not
            allowed, nothing happens to it.

    Returns:
        For each use, whether it went through without a `RuntimeError`.
    """
    with torch.inference_mode(False):
        weight = torch.ones((), dtype=tensor.dtype, device=tensor.device, requires_grad=True)

    def edit() -> None:
        with torch.no_grad():
            tensor.add_(0)

    tries: dict[str, Callable[[], Any]] = {
        "add it to a parameter": lambda: tensor + weight,
        "multiply a parameter by it": lambda: tensor * weight,
        "edit it in place": edit,
        "let it require a gradient": lambda: tensor.detach().requires_grad_(),
        "read its version": lambda: tensor._version,
    }
    return {name: _works(attempt) for name, attempt in tries.items()}


def _works(attempt: Callable[[], Any]) -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            attempt()
    except RuntimeError:
        return False
    return True


# ---------------------------------------------------------------- memory


def saved_bytes(net: nn.Module, x: Tensor) -> int:
    """Bytes that autograd keeps for the backward pass of `net(x)`, in the modes that are on now.

    What two operations save is kept once and counted once. The parameters and buffers of `net`
    and `x` itself do not count: they are there anyway.
    """
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # held, so that no later storage takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(x)
    there = {t.untyped_storage()._cdata for t in (x, *net.parameters(), *net.buffers())}
    return sum(storage.nbytes() for key, storage in kept.items() if key not in there)


def tower(depth: int, width: int = 256) -> nn.Sequential:
    """`depth` times Linear, ReLU and Dropout; takes and returns float32 of shape (n, `width`).

    Raises:
        ValueError: `depth` or `width` is not positive.
    """
    if depth < 1 or width < 1:
        raise ValueError(f"expected a positive depth and width, got {depth} and {width}")
    layers = [(nn.Linear(width, width), nn.ReLU(), nn.Dropout()) for _ in range(depth)]
    return nn.Sequential(*(layer for group in layers for layer in group))


def memory_by_mode(depth: int, batch: int, width: int = 256) -> dict[str, int]:
    """Bytes saved for the backward pass of a `tower` under each of `MODES`, for a batch of `batch`.

    Raises:
        ValueError: `depth`, `batch` or `width` is not positive.
    """
    if batch < 1:
        raise ValueError(f"expected a positive batch size, got {batch}")
    net, x = tower(depth, width), torch.ones(batch, width)
    found = {}
    for name, (training, mode) in MODES.items():
        net.train(training)
        with mode():
            found[name] = saved_bytes(net, x)
    return found


def memory_figure(
    depths: Sequence[int] = (1, 2, 4, 8, 16), batches: Sequence[int] = (16, 64, 128, 256)
) -> Figure:
    """Saved bytes of a `tower` against its depth (64 samples) and the batch size (8 blocks)."""
    import matplotlib.pyplot as plt

    looks = {
        "train()": {"color": "#c2410c", "marker": "o"},
        "eval()": {"color": "#0a6b7d", "marker": "s"},
        "no_grad()": {"color": "#555", "marker": "D", "markersize": 9, "markerfacecolor": "white"},
        "inference_mode()": {"color": "#111", "marker": "x", "linestyle": "--"},
    }
    panels = {
        "depth, in blocks (64 samples)": {d: memory_by_mode(d, 64) for d in depths},
        "batch size (8 blocks)": {b: memory_by_mode(8, b) for b in batches},
    }
    figure, axes = plt.subplots(1, 2, figsize=(8, 3))
    for axis, (label, found) in zip(axes, panels.items(), strict=True):
        for name, look in looks.items():
            axis.plot(list(found), [f[name] / 2**20 for f in found.values()], label=name, **look)
        axis.set(xlabel=label, xticks=list(found))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("saved for backward (MiB)")
    axes[0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- exercises


def _network() -> nn.Sequential:
    """A small network with dropout and statistics, some of its modules in either mode."""
    net = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Sequential(nn.ReLU(), nn.Dropout()), nn.Linear(8, 2)
    )
    net[1].running_mean.normal_()
    return net


def check_predict(answer: Callable[[nn.Module, Tensor], Tensor]) -> Verdict:
    """Check `answer(net, x)`: the output in eval mode, without a graph, `net` as it was before.

    `x` is float32 of shape (n, 3), the output of shape (n, 2).
    """

    def case():
        return _network(), torch.randn(random.randint(4, 9), 3)

    def value(f):
        net, x = case()
        expected = copy.deepcopy(net).eval()(x)
        out = f(net, x)
        assert isinstance(out, Tensor), f"expected a tensor, got {type(out).__name__}"
        assert out.shape == expected.shape, f"expected shape (n, 2), got {tuple(out.shape)}"
        assert torch.allclose(out, expected, atol=1e-6), "this is not the output in eval mode"

    def graph(f):
        net, x = case()
        out = []
        saved = saved_tensors(lambda: out.append(f(net, x)))
        assert not out[0].requires_grad, "the output still has a graph"
        assert not saved, "the graph is still built and thrown away: run the net without one"

    def modes(f):
        for mixed in (False, True):
            net, x = case()
            net.train()
            if mixed:
                net[1].eval()  # people freeze BatchNorm like this
            before = [m.training for m in net.modules()]
            f(net, x)
            after = [m.training for m in net.modules()]
            assert any(after), "the net stays in eval mode: what trains it next has no dropout"
            assert after == before, "a module that was in eval mode before is in train mode now"
        net, x = case()
        f(net.eval(), x)
        assert not any(m.training for m in net.modules()), "a net in eval mode was set to train"

    def broken(f):
        net, _ = case()
        with suppress(RuntimeError):  # nn.Linear's, about the shape
            f(net, torch.randn(2, 5))
        assert torch.is_grad_enabled(), "after an error in the net, gradients stay off"
        assert all(m.training for m in net.modules()), "after an error, the net stays in eval mode"

    return _with_gradients(answer, [value, graph, modes, broken])


def check_trainable(answer: Callable[[Tensor, torch.dtype], Tensor]) -> Verdict:
    """Check `answer(values, dtype)`: a leaf of `dtype` with these values, in memory of its own."""

    def sources() -> Iterator[tuple[str, Tensor, torch.dtype]]:
        shape = (random.randint(1, 4), random.randint(1, 4))
        yield "integers", torch.randint(-9, 9, shape), torch.float32
        yield "a plain tensor", torch.randn(shape), torch.float64
        yield "a plain tensor of that dtype", torch.randn(shape), torch.float32
        yield "a parameter", nn.Parameter(torch.randn(shape)), torch.float64
        yield "a parameter of that dtype", nn.Parameter(torch.randn(shape)), torch.float32
        yield "a result with a graph", nn.Parameter(torch.randn(shape)) * 2, torch.float32

    def content(f):
        for name, values, dtype in sources():
            out = f(values, dtype)
            assert isinstance(out, Tensor), f"expected a tensor, got {type(out).__name__}"
            assert out.dtype == dtype, f"{name}: expected {dtype}, got {out.dtype}"
            assert torch.equal(out, values.to(dtype)), f"{name}: the values are not the same"

    def leaf(f):
        for name, values, dtype in sources():
            out = f(values, dtype)
            assert out.requires_grad, f"{name}: the result does not require a gradient"
            assert out.is_leaf, f"{name}: the result is not a leaf, its .grad will stay None"

    def memory(f):
        for name, values, dtype in sources():
            before, flag = values.detach().clone(), values.requires_grad
            out = f(values, dtype)
            with torch.no_grad():
                out.add_(1)
            assert torch.equal(values, before), f"{name}: training the result changes the source"
            assert values.requires_grad == flag, f"{name}: the source's requires_grad changed"

    return _with_gradients(answer, [content, leaf, memory])


def check_stream(answer: Callable[[nn.Module, Iterable[Tensor]], Iterable[Tensor]]) -> Verdict:
    """Check `answer(net, batches)`: yields `net(x)` for each `x`, without a graph.

    The caller's code, which runs between two outputs, keeps its own mode.
    """

    def case():
        return nn.Linear(3, 2), [torch.randn(4, 3) for _ in range(random.randint(2, 5))]

    def walk(f, net, batches):
        """The outputs, and after each of them whether gradients are on here."""
        outputs, flags, stream = [], [], iter(f(net, batches))
        try:
            for out in stream:
                outputs.append(out)
                flags.append(torch.is_grad_enabled())
        finally:
            if hasattr(stream, "close"):
                stream.close()
        return outputs, flags

    def values(f):
        net, batches = case()
        outputs, _ = walk(f, net, batches)
        assert len(outputs) == len(batches), (
            f"expected {len(batches)} outputs for as many batches, got {len(outputs)}"
        )
        for out, x in zip(outputs, batches, strict=True):
            assert isinstance(out, Tensor), f"expected tensors, got {type(out).__name__}"
            right = out.shape == (4, 2) and torch.allclose(out, net(x), atol=1e-6)
            assert right, "an output is not net(x)"

    def graph(f):
        net, batches = case()
        saved = saved_tensors(lambda: walk(f, net, batches))
        assert not any(out.requires_grad for out in walk(f, net, batches)[0]), (
            "the outputs still have a graph"
        )
        assert not saved, "the graph is still built and thrown away: run the net without one"

    def caller(f):
        net, batches = case()
        _, flags = walk(f, net, batches)
        assert all(flags), "between two outputs, gradients are off in the caller's code"
        assert torch.is_grad_enabled(), "after the loop, gradients are off in the caller's code"
        with torch.no_grad():
            _, flags = walk(f, net, batches)
        assert not any(flags), "the caller had switched gradients off, and they were on"

    def lazy(f):
        net, batches = case()
        taken = []
        stream = iter(f(net, (taken.append(x) or x for x in batches)))
        next(stream)
        first = len(taken)
        if hasattr(stream, "close"):
            stream.close()
        assert first < len(batches), "all batches are read before the first output is given out"

    return _with_gradients(answer, [values, graph, caller, lazy])


def _with_gradients(answer: Any, tests: Sequence[Callable[[Any], None]]) -> Verdict:
    """The verdict with gradients on at the start of each test, and the caller's mode after it."""

    def careful(test: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(f: Any) -> None:
            mode = torch.is_grad_enabled()
            try:
                torch.set_grad_enabled(True)
                test(f)
            finally:
                torch.set_grad_enabled(mode)

        return run

    return verdict(answer, [careful(test) for test in tests])
