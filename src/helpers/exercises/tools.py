"""Provide assertions for checkers; each raises an AssertionError with a sentence for readers."""

from __future__ import annotations

import ctypes
import functools
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def between(low: int, high: int) -> int:
    """Return a random int from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, ()))


def kind(value: object) -> str:
    """Return the name of the type of `value`, "None" for None."""
    return "None" if value is None else type(value).__name__


def instance(expected: str, got: Any, *types: type) -> Any:
    """Return `got` if it is an instance of `types`; `expected` describes them, such as "a dict"."""
    assert isinstance(got, types), f"expected {expected}, got {kind(got)}"
    return got


def a_tensor(
    got: Any,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    name: str = "",
) -> Tensor:
    """Return `got` if it is a tensor of this shape and dtype; the sentence calls it `name`.

    NumPy arrays, numbers, tuples and None are rejected.
    """
    where = f"{name}: " if name else ""
    assert isinstance(got, Tensor), f"{where}expected a tensor, got {kind(got)}"
    if shape is not None:
        assert got.shape == tuple(shape), (
            f"{where}expected shape {tuple(shape)}, got {tuple(got.shape)}"
        )
    assert dtype is None or got.dtype == dtype, f"{where}expected {dtype}, got {got.dtype}"
    return got


def tensors(got: Any, count: int, complaint: str) -> Sequence[Tensor]:
    """Return `got` if it is a tuple or list of `count` tensors; else raise with `complaint`."""
    assert isinstance(got, tuple | list) and len(got) == count, complaint
    assert all(isinstance(t, Tensor) for t in got), complaint
    return got


def a_float(got: Any, name: str = "") -> float:
    """Return `got` as a float; accepts NumPy floats, rejects tensors and ints."""
    assert isinstance(got, Real) and not isinstance(got, Integral), (
        f"{name}{': ' * bool(name)}expected a float, got {kind(got)}"
    )
    return float(got)


def an_int(got: Any, name: str = "") -> int:
    """Return `got` as an int; accepts NumPy ints, rejects tensors and bools."""
    assert isinstance(got, Integral) and not isinstance(got, bool), (
        f"{name}{': ' * bool(name)}expected an int, got {kind(got)}"
    )
    return int(got)


def ints(got: Any, complaint: str = "expected a list of ints") -> list[int]:
    """Return `got`, a list of Python or NumPy ints, as a list of int; else raise."""
    assert isinstance(got, list), f"{complaint}, got {kind(got)}"
    for number in got:
        whole = isinstance(number, Integral) and not isinstance(number, bool)
        assert whole, f"{complaint}, got a list with {number!r}"
    return [int(number) for number in got]


def close(
    got: Any, right: Tensor, wrong: str = "", rtol: float = 1e-5, atol: float = 1e-5, name: str = ""
) -> None:
    """Raise with the sentence `wrong` unless `got` is a tensor close to `right`.

    Shape and dtype must be equal. Without `wrong` the sentence gives the first difference. The
    tolerances are for float32 and divided by 100,000 for float64.
    """
    a_tensor(got, right.shape, right.dtype, name)
    if right.dtype == torch.float64:
        rtol, atol = 1e-5 * rtol, 1e-5 * atol
    differs = ~torch.isclose(got, right, rtol=rtol, atol=atol, equal_nan=True)
    if differs.any():
        place = differs.nonzero()[0].tolist()
        at = f" at {place}" if place else ""
        mine, theirs = (t[tuple(place)].item() for t in (got, right))
        raise AssertionError(wrong or f"{name or 'the result'}{at} is {mine:.5g}, not {theirs:.5g}")


def in_dtypes(
    f: Callable[..., Any],
    right: Callable[..., Any],
    *inputs: Any,
    near: float = 0,
    wider: bool = False,
) -> None:
    """Raise if `f` differs from `right` in values or dtype for float64 and bfloat16 inputs.

    Floating-point tensors in `inputs` are cast, changed to values that float32 cannot represent,
    and made non-contiguous. Both functions return one or several tensors; `right` runs in float64.
    `near` is the minimum tolerance; with `wider` a result may have a wider dtype than the inputs.
    """
    # By chance 1 of 200 numbers survives rounding to float32 within 1e-10, so test two offsets.
    for dtype, own, step in (
        (torch.float64, 1e-10, 2**-30),
        (torch.float64, 1e-10, 2**-29),
        (torch.bfloat16, 0.1, 0),
    ):
        name, near = f"with {str(dtype)[6:]} inputs", max(near, own)
        floats = [isinstance(x, Tensor) and x.is_floating_point() for x in inputs]
        given = [
            _transposed((x.detach().double() * (1 + step)).to(dtype)) if cast else x
            for x, cast in zip(inputs, floats, strict=True)
        ]
        exact = [x.double() if cast else x for x, cast in zip(given, floats, strict=True)]
        try:
            got, want = f(*given), right(*exact)
        except RuntimeError as error:
            raise AssertionError(f"{name} it fails: {error}") from error
        if isinstance(want, Tensor):
            got, want = [got], [want]
        for mine, theirs in zip(tensors(got, len(want), name), want, strict=True):
            more = wider and isinstance(mine, Tensor) and mine.dtype.itemsize > dtype.itemsize
            a_tensor(mine, theirs.shape, None if more else dtype, name)
            far = ~torch.isclose(mine.double(), theirs, rtol=near, atol=near, equal_nan=True)
            assert not far.any(), f"{name} the result is wrong, or digits are lost"


def _transposed(t: Tensor) -> Tensor:
    """Return a copy of a tensor, not contiguous if it has several dimensions."""
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t


def in_two_modes(model: nn.Module) -> Any:
    """Put the last submodule into evaluation mode and return `model`.

    A test can then detect an answer that calls `train()`.
    """
    list(model.modules())[-1].eval()
    return model


def with_gradients(model: nn.Module) -> Any:
    """Give all trainable parameters but the last a gradient and return `model`.

    A checker thus notices an answer that clears gradients, and one that adds some. A single
    parameter gets a gradient.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained[:-1] or trained:
        p.grad = torch.ones_like(p)
    return model


def learns(loss: Any, inputs: Tensor | Sequence[Tensor], wrong: str) -> list[Tensor]:
    """Return the gradients of the sum of `loss`; raise with `wrong` if an input gets none."""
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    assert loss.requires_grad, wrong
    gradients = torch.autograd.grad(loss.sum(), inputs, retain_graph=True, allow_unused=True)
    assert all(g is not None for g in gradients), wrong
    return list(gradients)


def on_one_device(f: Callable[..., Tensor], *inputs: Any) -> None:
    """Run `f` on fake tensors of a GPU; raise if it mixes devices. No GPU is needed.

    Other errors are ignored, because a fake tensor has no values for an answer to read.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=False):
        fakes = [
            torch.empty(x.shape, dtype=x.dtype, device="cuda") if isinstance(x, Tensor) else x
            for x in inputs
        ]
        try:
            device = f(*fakes).device.type
        except Exception as error:
            device = "cuda" if "device" not in str(error).lower() else "the CPU and the GPU"
    assert device == "cuda", (
        "on a GPU it mixes devices: create new tensors on the device of the input"
        if device != "cpu"
        else "with inputs on a GPU the result is on the CPU"
    )


# ---------------------------------------------------------------- unchanged state


class _Filters(list):
    """Copy of the warning filters; equal if the general ones are equal.

    A general filter has a built-in category and applies to all messages and modules; packages add
    others when they are imported.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Filters) and self._general() == other._general()

    __hash__ = None

    def _general(self) -> list[Any]:
        return [
            entry
            for entry in self
            if entry[1] is entry[3] is None and entry[2].__module__ == "builtins"
        ]


def _set_filters(before: _Filters) -> None:
    warnings.filters[:] = before
    with warnings.catch_warnings():
        pass  # a warning that the other filters hid is shown again


_CUDNN = ("enabled", "benchmark", "deterministic")


def _set_cudnn(before: list[bool]) -> None:
    for name, value in zip(_CUDNN, before, strict=True):
        setattr(torch.backends.cudnn, name, value)


_SDPA = ("flash", "mem_efficient", "math", "cudnn")


def _set_sdpa(before: list[bool]) -> None:
    for name, value in zip(_SDPA, before, strict=True):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(value)


def _set_autocast(before: tuple[bool, torch.dtype]) -> None:
    torch.set_autocast_enabled("cpu", before[0])
    torch.set_autocast_dtype("cpu", before[1])


# Settings of the process: the sentence if one was changed, functions that read and set it
_SETTINGS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    (
        "the default dtype of torch was changed: pass dtype to the functions that create tensors",
        torch.get_default_dtype,
        torch.set_default_dtype,
    ),
    (
        "anomaly mode was changed for all that follows: use torch.autograd.detect_anomaly() in a "
        "with statement",
        torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    (
        "torch.use_deterministic_algorithms was changed for all that follows",
        torch.get_deterministic_debug_mode,  # also whether they only warn
        torch.set_deterministic_debug_mode,
    ),
    (
        "torch.set_num_threads was changed for all that follows",
        torch.get_num_threads,
        torch.set_num_threads,
    ),
    (
        "torch.set_float32_matmul_precision was changed for all that follows",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    (
        "torch.set_default_device was changed for all that follows",
        torch.get_default_device,
        torch.set_default_device,
    ),
    (
        "autocast was changed for all that follows: use torch.autocast in a with statement",
        lambda: (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        _set_autocast,
    ),
    (
        "a flag of torch.backends.cudnn was changed for all that follows: use "
        "torch.backends.cudnn.flags() in a with statement",
        lambda: [getattr(torch.backends.cudnn, name) for name in _CUDNN],
        _set_cudnn,
    ),
    (
        "a backend of scaled_dot_product_attention was switched for all that follows: use "
        "torch.nn.attention.sdpa_kernel in a with statement",
        lambda: [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in _SDPA],
        _set_sdpa,
    ),
    (
        "numpy.seterr was changed for all that follows: use numpy.errstate() in a with statement",
        np.geterr,
        lambda before: np.seterr(**before),
    ),
    (
        "a warning filter was changed for all that follows: use warnings.catch_warnings() in a "
        "with statement",
        lambda: _Filters(warnings.filters),
        _set_filters,
    ),
)


@contextmanager
def global_state_kept() -> Iterator[None]:
    """Run the block with gradients enabled and its own seed; raise if it changes global state.

    The state is grad mode, the seeds of `random`, NumPy and PyTorch, and `_SETTINGS`. It is
    restored, as is the state of PyTorch's CPU generator, from which one number is drawn. If this
    check and a test of the block both fail, the changed state is reported, because it may cause
    the other failure.
    """
    seed, settings = between(2**40, 2**60), [read() for _, read, _ in _SETTINGS]
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the GPUs
        try:
            yield
        except Exception as wrong:
            if not re.search("gradients|random|state of", str(wrong)):
                _global_state_is(seed, settings, python, numpy)
            raise
        else:
            _global_state_is(seed, settings, python, numpy)
        finally:
            for (_, read, write), before in zip(_SETTINGS, settings, strict=True):
                if read() != before:
                    write(before)
            if _seeded_python(python):
                random.setstate(python)
            if _seeded_numpy(numpy):
                np.random.set_state(numpy)


def _global_state_is(seed: int, settings: list[Any], python: Any, numpy: Any) -> None:
    assert torch.is_grad_enabled(), (
        "gradients stay switched off for all that follows: use torch.no_grad() as a decorator or "
        "in a with statement"
    )
    assert torch.initial_seed() == seed, (
        "the random state of torch was changed: leave out torch.manual_seed, or give a "
        "torch.Generator the seed"
    )
    assert not _seeded_python(python), (
        "random was seeded for all that follows: restore its state, or use random.Random(seed)"
    )
    assert not _seeded_numpy(numpy), (
        "numpy.random was seeded for all that follows: restore its state, or use "
        "numpy.random.default_rng(seed)"
    )
    for (sentence, read, _), before in zip(_SETTINGS, settings, strict=True):
        assert read() == before, sentence


_ROUNDS = 50  # a test draws fewer than 50 * 624 numbers


def _seeded_python(before: Any) -> bool:
    """Return whether the state of `random` was set, not reached from `before` by drawing.

    The generator computes 624 words at a time; drawing only moves a position until all are used.
    """
    now = random.getstate()[1][:-1]
    if now == before[1][:-1]:
        return False
    copy = random.Random()
    copy.setstate(before)
    for _ in range(_ROUNDS):
        if copy.getstate()[1][:-1] == now:
            return False
        copy.getrandbits(32 * 624)
    return True


def _seeded_numpy(before: Any) -> bool:
    """Return whether the state of `numpy.random` was set, not reached from `before` by drawing."""
    now = np.random.get_state()[1]
    if np.array_equal(now, before[1]):
        return False
    copy = np.random.RandomState()
    copy.set_state(before)
    for _ in range(_ROUNDS):
        if np.array_equal(copy.get_state()[1], now):
            return False
        copy.bytes(4 * 624)
    return True


def random_states() -> dict[str, Any]:
    """Return the states of the global generators of Python, NumPy and PyTorch (CPU only)."""
    name, keys, *rest = np.random.get_state()
    state = torch.get_rng_state()
    return {
        "random": random.getstate(),
        "numpy.random": (name, keys.tobytes(), *rest),
        # numpy() would count as a read where a checker records the reads of an answer
        "torch": ctypes.string_at(state.data_ptr(), state.nbytes),
    }


@contextmanager
def random_state_kept(wrong: str = "the stream of {} is not where it was") -> Iterator[None]:
    """Raise if the block advances a global generator; `{}` in `wrong` becomes its name."""
    before = random_states()
    yield
    for name, state in random_states().items():
        assert state == before[name], wrong.format(name)


def without_draws(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `answer` so that a call raises if it advances a global generator."""

    @functools.wraps(answer)
    def asked(*arguments: Any, **named: Any) -> Any:
        with random_state_kept(
            "the random state of {} was changed: draw no random numbers, or use a generator of "
            "your own"
        ):
            return answer(*arguments, **named)

    return asked


Fact = tuple[str, str, Any]  # category, sentence if the value changed, value to compare


@contextmanager
def unchanged(but: str = "", **named: Any) -> Iterator[None]:
    """Raise if the block changes one of the objects; the sentence calls it by its keyword.

    Checks tensors (values, requires_grad, gradients), arrays, modules (also modes of all
    submodules, settings, hooks, names of the attributes, and identity of the parameters),
    optimizers, dicts, lists and tuples. `but` lists what may change, such as "values gradients".
    If the block raises, nothing is checked.
    """
    before = {name: list(_facts(value, name)) for name, value in named.items()}
    yield
    for name, value in named.items():
        after = {sentence: fact for _, sentence, fact in _facts(value, name)}
        for about, sentence, fact in before[name]:
            if about not in but.split():
                assert sentence in after and _same(fact, after[sentence]), sentence


def leaves(
    answer: Callable[..., Any], *names: str, but: str = "", copied: bool = True
) -> Callable[..., Any]:
    """Wrap `answer` so that it raises if it changes its arguments (see `unchanged`).

    `names` are the names of the arguments in the sentence, in order; "" skips an argument. With
    `copied`, tensors with several dimensions are passed as copies that are not contiguous.
    """

    def asked(*arguments: Any) -> Any:
        if copied:
            arguments = tuple(_transposed(a) if type(a) is Tensor else a for a in arguments)
        given = {n: a for n, a in zip(names, arguments, strict=False) if n}
        with unchanged(but, **given):
            return answer(*arguments)

    return asked


def _facts(value: Any, name: str, hint: str = ": work on a copy") -> Iterator[Fact]:
    if isinstance(value, Tensor):
        yield "values", f"{name} was changed{hint}", _Bits(value)
        yield "requires_grad", f"requires_grad of {name} was changed", value.requires_grad
        grad = value.grad if value.is_leaf else None
        bits = None if grad is None else _Bits(grad)
        yield "gradients", f"the gradient of {name} was changed", bits
        hooks = (value._backward_hooks, getattr(value, "_post_accumulate_grad_hooks", None))
        yield (
            "hooks",
            f"a hook is left on {name}, or another's is gone",
            [len(h or ()) for h in hooks],
        )
    elif isinstance(value, np.ndarray):
        bits = (value.dtype, value.shape, value.tobytes())
        yield "values", f"{name} was changed{hint}", bits
    elif isinstance(value, nn.Module):
        yield from _facts_of_module(value, name)
    elif isinstance(value, Optimizer):
        for n, group in enumerate(value.param_groups):
            yield from _facts(group, f"group {n} of {name}", "")
    elif isinstance(value, Mapping | list | tuple):
        keys = list(value) if isinstance(value, Mapping) else len(value)
        yield "entries", f"{name} was changed: entries were added, removed or moved", keys
        items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
        yield "objects", f"{name} was changed: it has other entries now", [id(v) for _, v in items]
        for key, item in items:
            yield from _facts(item, f"{name}[{key!r}]", hint)


def _facts_of_module(model: nn.Module, name: str) -> Iterator[Fact]:
    for path, module in model.named_modules():
        where = f"{path} of {name}" if path else name
        mode = "training" if module.training else "eval"
        yield "modes", f"{where} came in {mode} mode and was left in another", module.training
        hooks = [len(h) for k, h in vars(module).items() if k.endswith("_hooks")]
        yield "hooks", f"a hook is left on {where}, or another's is gone", hooks
        own = [name for name in vars(module) if not name.startswith("_")]  # torch.compile adds some
        names = [*own, *module._modules, *module._parameters, *module._buffers]
        yield "attributes", f"an attribute is left on {where}, or another is gone", sorted(names)
        if type(module).__module__.startswith("torch.nn"):
            yield "settings", f"a setting of {where} was changed", _settings(module)
    named = (*model.named_parameters(), *model.named_buffers())
    ids = [(path, id(tensor)) for path, tensor in named]
    yield "objects", f"{name} has other parameters or buffers than before", ids
    for path, tensor in named:
        yield from _facts(tensor, f"{path} of {name}", "")


def _settings(module: nn.Module) -> dict[str, Any]:
    kinds = Real | str | tuple
    return {k: v for k, v in vars(module).items() if isinstance(v, kinds) and k != "training"}


class _Bits:
    """Copy of a tensor's values, dtype and shape, for comparison; nan equals nan."""

    def __init__(self, tensor: Tensor) -> None:
        self.kind = (tensor.dtype, tensor.shape, tensor.device, tensor.layout)
        plain = type(tensor) in (Tensor, nn.Parameter)  # a fake tensor has no values
        numbers = plain and not tensor.is_meta and tensor.layout == torch.strided
        self.values = tensor.detach().clone() if numbers else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Bits) or self.kind != other.kind:
            return False
        if self.values is None or other.values is None:
            return True
        same = self.values == other.values
        return bool((same | ((self.values != self.values) & (other.values != other.values))).all())


def _same(before: Any, after: Any) -> bool:
    return before is after or (type(before) is type(after) and bool(before == after))
