"""Checkers of the exercises of the chapter on the modes of autograd."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from helpers.autograd import saved_tensors
from helpers.exercises import Verdict, verdict
from helpers.exercises.modes import called_in_its_modes
from helpers.exercises.tools import a_tensor, close, in_two_modes, random_state_kept, unchanged


def _network() -> nn.Sequential:
    """Return a small network with dropout, BatchNorm and a frozen bias."""
    net = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Sequential(nn.ReLU(), nn.Dropout()), nn.Linear(8, 2)
    )
    net[1].running_mean.normal_()
    net[0].bias.requires_grad_(False)
    return net


def _predict_case(dtype=torch.float32):
    return _network().to(dtype), torch.randn(3, random.randint(4, 9), dtype=dtype).T


def _predict_value(f, dtype=torch.float32):
    net, x = _predict_case(dtype)
    expected = copy.deepcopy(net).eval()(x)
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    drawn = random_state_kept("in eval mode nothing is drawn, and the state of {} has changed")
    with drawn, unchanged("modes", net=net, x=x):
        out = a_tensor(f(net, x))
        assert out.shape == expected.shape, f"expected shape (n, 2), got {tuple(out.shape)}"
        close(out, expected, "this is not the output in eval mode")


def _predict_single(f):
    net, x = _predict_case()
    close(f(net, x[:1]), copy.deepcopy(net).eval()(x[:1]).detach(), "wrong for a single sample")


def _predict_graph(f):
    net, x = _predict_case()
    out = []
    saved = saved_tensors(lambda: out.append(f(net, x)))
    assert not out[0].requires_grad, "the output still has a graph"
    assert not saved, "a graph is built and then discarded: run the net without recording"


def _predict_modes(f):
    for mixed in (False, True):
        net, x = _predict_case()
        net.train()
        if mixed:
            net[0].eval()  # the other linear layer stays in train mode
            net[1].eval()  # a frozen BatchNorm
        before = [m.training for m in net.modules()]
        f(net, x)
        after = [m.training for m in net.modules()]
        assert any(after), "the net stays in eval mode, so further training has no dropout"
        assert after == before, "a module that was in eval mode before is now in train mode"
    net, x = _predict_case()
    net.eval()[2][1].train()  # dropout that stays active in evaluation
    f(net, x)
    assert net[2][1].training and not net[2].training, (
        "a layer that was in train mode inside of a net in eval mode has changed its mode"
    )
    net, x = _predict_case()
    f(net.eval(), x)
    assert not any(m.training for m in net.modules()), "a net in eval mode was set to train mode"


def _predict_broken(f):
    net, _ = _predict_case()
    with suppress(RuntimeError):  # nn.Linear's, about the shape
        f(net, torch.randn(2, 5))
    assert torch.is_grad_enabled(), "after an error in the net, gradients stay off"
    assert all(m.training for m in net.modules()), "after an error, the net stays in eval mode"


def _predict_caller(f):
    with torch.no_grad():
        f(*_predict_case())
        assert not torch.is_grad_enabled(), (
            "the caller had switched gradients off, and they are on after the call"
        )


def check_predict(answer: Callable[[nn.Module, Tensor], Tensor]) -> Verdict:
    """Check `answer(net, x)`: the output in eval mode, without a graph, `net` as it was before.

    `x` is float32 or float64 of shape (n, 3), the output of shape (n, 2).
    """
    return verdict(
        answer,
        [
            _predict_value,
            lambda f: _predict_value(f, torch.float64),
            _predict_single,
            _predict_graph,
            _predict_modes,
            _predict_broken,
            _predict_caller,
        ],
        draws=True,
    )


def check_trainable(answer: Callable[[Tensor, torch.dtype], Tensor]) -> Verdict:
    """Check `answer(values, dtype)`: a leaf of `dtype` with these values, in separate memory."""

    def sources() -> Iterator[tuple[str, Tensor, torch.dtype]]:
        shape = (random.randint(1, 4), random.randint(1, 4))
        yield "a single number", torch.randn(()), torch.float32
        yield "an empty tensor", torch.randn(0, 2), torch.float64
        yield "integers", torch.randint(-9, 9, shape), torch.float32
        yield "a plain tensor", torch.randn(shape), torch.float64
        yield "a plain tensor of that dtype", torch.randn(shape), torch.float32
        yield "float64", torch.randn(shape, dtype=torch.float64), torch.float64
        yield "a parameter", nn.Parameter(torch.randn(shape)), torch.float64
        yield "a parameter of that dtype", nn.Parameter(torch.randn(shape)), torch.float32
        yield "bfloat16", torch.randn(shape).bfloat16(), torch.float32
        yield "an expanded tensor", torch.randn(1).expand(shape), torch.float32
        yield "a result with a graph", nn.Parameter(torch.randn(shape)) * 2, torch.float32

    def content(f):
        for name, values, dtype in sources():
            out = f(values, dtype)
            a_tensor(out)
            assert out.dtype == dtype, f"{name}: expected {dtype}, got {out.dtype}"
            assert torch.equal(out, values.to(dtype)), f"{name}: the values are not the same"

    def leaf(f):
        for name, values, dtype in sources():
            out = f(values, dtype)
            assert out.requires_grad, f"{name}: the result does not require a gradient"
            assert out.is_leaf, f"{name}: the result is not a leaf, so its .grad stays None"

    def memory(f):
        for name, values, dtype in sources():
            before, flag = values.detach().clone(), values.requires_grad
            out = f(values, dtype)
            with torch.no_grad():
                out += torch.arange(1, out.numel() + 1).view(out.shape)
            assert torch.equal(values, before), f"{name}: training the result changes the source"
            assert values.requires_grad == flag, f"{name}: the source's requires_grad changed"

    def inference(f):
        with torch.inference_mode():
            values = torch.randn(3)
        out = f(values, torch.float32)
        assert not out.is_inference(), "for an inference tensor, the result is one too"

    return verdict(answer, [content, leaf, memory, inference])


def _stream_case(dtype=torch.float32):
    net = in_two_modes(nn.Sequential(nn.Linear(3, 2, dtype=dtype), nn.Identity()))
    net[0].bias.requires_grad_(False)
    return net, list(torch.randn(random.randint(4, 6), 3, 4, dtype=dtype).mT)


def _stream_walk(f, net, batches):
    """Return the outputs, and the caller's grad mode after each."""
    outputs, flags, stream = [], [], iter(f(net, batches))
    try:
        for out in stream:
            outputs.append(out)
            flags.append(torch.is_grad_enabled())
    finally:
        if hasattr(stream, "close"):
            stream.close()
    return outputs, flags


def _stream_values(f, dtype=torch.float32):
    net, batches = _stream_case(dtype)
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    with called_in_its_modes(net), unchanged(net=net, batches=batches):
        outputs, _ = _stream_walk(f, net, batches)
    assert len(outputs) == len(batches), (
        f"expected {len(batches)} outputs for as many batches, got {len(outputs)}"
    )
    for out, x in zip(outputs, batches, strict=True):
        close(out, net(x), "an output is not net(x)")


def _stream_graph(f):
    net, batches = _stream_case()
    saved = saved_tensors(lambda: _stream_walk(f, net, batches))
    assert not any(out.requires_grad for out in _stream_walk(f, net, batches)[0]), (
        "the outputs still have a graph"
    )
    assert not saved, "a graph is built and then discarded: run the net without recording"


def _stream_caller(f):
    net, batches = _stream_case()
    _, flags = _stream_walk(f, net, batches)
    assert all(flags), "between two outputs, gradients are off in the caller's code"
    assert torch.is_grad_enabled(), "after the loop, gradients are off in the caller's code"
    for _ in f(net, batches):
        trained = [p.requires_grad for p in net.parameters()]
        assert trained == [True, False], (
            "between two outputs, requires_grad of a parameter is changed in the caller's code"
        )
    with torch.no_grad():
        _, flags = _stream_walk(f, net, batches)
        flags.append(torch.is_grad_enabled())
    assert not any(flags), (
        "the caller had switched gradients off, and they are on between two outputs or after the "
        "loop"
    )
    with torch.enable_grad():  # restores the mode of this function
        outputs = iter(f(net, batches))
        for on in (True, False, True):
            torch.set_grad_enabled(on)
            next(outputs)
            assert torch.is_grad_enabled() == on, (
                "the caller has changed the grad mode between two outputs, and the next output "
                "changes it back"
            )


def _stream_lazy(f):
    net, batches = _stream_case()
    taken = []
    stream = iter(f(net, (taken.append(x) or x for x in batches)))
    next(stream)
    first = len(taken)
    if hasattr(stream, "close"):
        stream.close()
    assert first < len(batches), "all batches are read before the first output is yielded"
    assert first == 1, "the next batch is read before an output is yielded"


def _stream_broken(f):
    net, _ = _stream_case()
    with suppress(RuntimeError):  # nn.Linear's, about the shape
        _stream_walk(f, net, [torch.randn(2, 5)])
    assert torch.is_grad_enabled(), "after an error in the net, gradients stay off"


def check_stream(answer: Callable[[nn.Module, Iterable[Tensor]], Iterable[Tensor]]) -> Verdict:
    """Check `answer(net, batches)`: yields `net(x)` for each `x`, without a graph.

    The caller's code, which runs between two outputs, keeps its own mode.
    """
    return verdict(
        answer,
        [
            _stream_values,
            lambda f: _stream_values(f, torch.float64),
            _stream_graph,
            _stream_caller,
            _stream_lazy,
            _stream_broken,
        ],
    )
