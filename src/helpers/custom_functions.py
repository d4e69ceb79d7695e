"""Helpers of the chapter on custom functions: check the backward pass of a `Function`.

Source: "Extending PyTorch", https://pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

import gc
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.multiprocessing.reductions import StorageWeakRef

from helpers.forward import equal, tensors_in

_WIDE = (torch.float64, torch.complex128)
_WRONG = "the {order} derivative with respect to {inputs} is wrong"


def check_function(
    function: type[torch.autograd.Function] | Callable[..., Any], *inputs: Any, second: bool = True
) -> list[str]:
    """Return in words what is wrong with the backward pass of `function` at `inputs`.

    The inputs are copied to float64 (complex ones to complex128) on their device. First derivatives
    are compared with finite differences: by each input while it alone requires a gradient, then by
    all of them. If `second`, second derivatives are compared, too. Then follow inputs that are not
    contiguous, a gradient that is expanded or transposed, a second call before the backward pass of
    the first, an input that is edited before the backward pass, memory that is not freed, the
    dtypes of the outputs, and a backward pass in float32.

    Use small sizes, different for each dimension, such as (3, 2): in a square matrix a transposed
    gradient has the right shape. Avoid kinks, such as 0 for a ReLU. gradcheck tolerates absolute
    errors up to 1e-5, so scale a function up whose derivatives are that small. A gradient that
    differs from the true derivative on purpose, as in a straight-through estimator, is reported.

    Args:
        function: a `torch.autograd.Function`, which is called by its `apply`, or a callable that
            takes `inputs` and returns a tensor or a tuple that contains one. A function that works
            in place and returns its input, marked with `ctx.mark_dirty`, is called with clones.
        inputs: at least one floating-point or complex tensor, and the other arguments of the
            function. If some of the tensors require a gradient, the others are held fixed; if none
            does, each of them is differentiated.
        second: whether second derivatives are compared, too. Pass False for a backward pass that is
            marked with `once_differentiable`.

    Returns:
        A sentence for each fault, and advice where there is some; an empty list if there is no
        fault. After a wrong first derivative the remaining checks are skipped.

    Raises:
        TypeError: `function` is a module with weights or buffers, an instance of a Function or not
            callable, or floating-point tensors are in a list, tuple or mapping, which a Function
            does not differentiate.
        ValueError: no input is a dense floating-point or complex tensor with values.
        Exception: the exception of the forward pass in float64.

    Source: https://pytorch.org/docs/stable/notes/gradcheck.html
    """
    call, chosen = _callable(function), _differentiable(inputs)
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        return _faults(call, inputs, chosen, second)


def _faults(
    call: Callable[..., Any], inputs: tuple[Any, ...], chosen: list[int], second: bool
) -> list[str]:
    call, doubles, fault = _forward_in_float64(call, inputs)
    if fault := fault or _output_fault(call, doubles, chosen):
        return [fault]
    if faults := _compare(call, doubles, chosen, "first"):
        return faults + _hint(call, doubles, chosen)
    if faults := _upstream(call, doubles, chosen):
        return faults
    if second and (faults := _compare(call, doubles, chosen, "second")):
        if _differentiable_once(call, doubles, chosen):
            return [*faults, "backward is marked with once_differentiable: pass second=False"]
        return [*faults, "use only torch operations on saved inputs and outputs in backward"]
    return [
        *_strided_inputs(call, doubles, chosen),
        *_layouts(call, doubles, chosen),
        *(_twice(call, doubles, chosen) or _unsaved(call, doubles, chosen)),
        *_leak(call, doubles, chosen),
        *_single(call, inputs, chosen),
    ]


def _forward_in_float64(
    call: Callable[..., Any], inputs: tuple[Any, ...]
) -> tuple[Callable[..., Any], list[Any], str | None]:
    """Return `call` (on clones if it works in place), the inputs in float64, and a fault."""
    doubles = [_copy(x, torch.float64) for x in inputs]
    before = [_copy(x) for x in doubles]
    try:
        first = _tensors(call(*doubles))
    except Exception as error:
        error.add_note("check_function copied the inputs to float64, but not what forward uses")
        raise
    changed = [
        i
        for i, (x, old) in enumerate(zip(doubles, before, strict=True))
        if isinstance(x, Tensor) and not equal(x, old)
    ]
    for i in changed:
        if not any(y is doubles[i] for y in first):  # a marked input is returned itself
            return (
                call,
                before,
                f"forward changed input {i} in place: return a new tensor, or mark the input with "
                "`ctx.mark_dirty` and return it",
            )
    if changed:
        call, doubles, first = _on_clones(call), before, [_copy(y) for y in first]
    again = _tensors(call(*before))
    if not (len(first) == len(again) and all(map(equal, first, again))):
        fault = "two calls of forward returned different results: switch off randomness"
        return call, doubles, fault
    return call, doubles, None


def _output_fault(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> str | None:
    """Return why the outputs cannot be differentiated in float64, or None."""
    outputs = _tensors(call(*_requiring(inputs, chosen)))
    if not any(y.requires_grad for y in outputs):
        return "no output requires a gradient: pass each tensor as a separate argument"
    for i, y in enumerate(outputs):
        if y.requires_grad and not y.isfinite().all():
            return f"output {i} is not finite: use inputs for which all outputs are finite"
        if y.requires_grad and y.dtype not in _WIDE:
            was = inputs[chosen[0]].dtype
            return f"output {i} is {y.dtype} though input {chosen[0]} is {was}: keep its dtype"
    return None


def _on_clones(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: call(*(x.clone() if isinstance(x, Tensor) else x for x in inputs))


def _callable(function: Any) -> Callable[..., Any]:
    if isinstance(function, nn.Module) and (
        any(True for _ in function.parameters()) or any(True for _ in function.buffers())
    ):
        raise TypeError(
            f"expected a Function, got the module {type(function).__name__}: pass the Function "
            "that it applies, with the weights and buffers as inputs"
        )
    if inspect.isclass(function) and issubclass(function, torch.autograd.Function):
        return function.apply
    if inspect.isclass(function) or not callable(function):
        name = function.__name__ if inspect.isclass(function) else type(function).__name__
        raise TypeError(f"expected a subclass of torch.autograd.Function or its apply, got {name}")
    if isinstance(function, torch.autograd.Function):
        raise TypeError(
            f"expected the class {type(function).__name__} itself, got an instance of it: "
            "remove the parentheses"
        )
    return function


def _differentiable(inputs: tuple[Any, ...]) -> list[int]:
    """Return the positions of the inputs that are differentiated."""
    for i, x in enumerate(inputs):
        if isinstance(x, Mapping | list | tuple) and any(map(_has_slopes, tensors_in(x))):
            raise TypeError(
                f"input {i} is a {type(x).__name__} of tensors, which a Function ignores: pass "
                "each tensor as an argument of its own, to a lambda that packs them if need be"
            )
    floating = [i for i, x in enumerate(inputs) if _has_slopes(x)]
    if not floating:
        got = ", ".join(_kind(x) for x in inputs) or "nothing"
        raise ValueError(f"expected a floating-point or complex tensor among the inputs, got {got}")
    for i in floating:
        x = inputs[i]
        if x.layout is not torch.strided or x.is_meta:
            how = "on the meta device" if x.is_meta else f"of layout {x.layout}"
            raise ValueError(f"expected dense tensors with values, input {i} is {how}")
    chosen = [i for i in floating if inputs[i].requires_grad] or floating
    if not any(inputs[i].numel() for i in chosen):
        i = chosen[0]
        raise ValueError(
            f"input {i} is empty, of shape {tuple(inputs[i].shape)}: nothing could be compared"
        )
    return chosen


def _has_slopes(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _kind(x: Any) -> str:
    return f"a tensor of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__


def _copy(x: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a contiguous copy without a graph; floating-point and complex ones in `dtype`."""
    if not isinstance(x, Tensor):
        return x
    if dtype is not None and (x.is_complex() or x.is_floating_point()):
        x = x.to(dtype.to_complex() if x.is_complex() else dtype)
    return x.detach().clone(memory_format=torch.contiguous_format)


def _tensors(result: Any) -> list[Tensor]:
    """Return the tensors of a function's result: itself, or those in a tuple or list."""
    items = result if isinstance(result, list | tuple) else [result]
    tensors = [y for y in items if isinstance(y, Tensor)]
    if not tensors:
        raise TypeError(
            f"expected a tensor or a tuple of tensors from forward, got {_kind(result)}"
        )
    return tensors


def _floating(result: Any) -> tuple[Tensor, ...]:
    return tuple(filter(_has_slopes, _tensors(result)))


def _requiring(inputs: list[Any], needed: list[int]) -> list[Any]:
    return [_copy(x).requires_grad_() if i in needed else _copy(x) for i, x in enumerate(inputs)]


def _fails(
    check: Callable[..., bool], call: Callable[..., Any], inputs: list[Any], needed: list[int]
) -> str | None:
    """Return None if the check passes, "" if values differ, else the first line of the error."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Input #.* requires gradient")
            check(lambda *x: _floating(call(*x)), tuple(_requiring(inputs, needed)))
    except Exception as error:
        message = str(error).strip() or type(error).__name__
        return (
            ""
            if "Jacobian mismatch" in message or "expected to be zero" in message
            else _line(error)
        )
    return None


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _compare(
    call: Callable[..., Any], inputs: list[Any], chosen: list[int], order: str
) -> list[str]:
    """Return the faults of the first or second derivative: by each input alone, then by all."""
    check = gradcheck if order == "first" else gradgradcheck
    alone = {i: _fails(check, call, inputs, [i]) for i in chosen}
    together = alone[chosen[0]] if len(chosen) == 1 else _fails(check, call, inputs, chosen)
    faults = []
    for i, failure in alone.items():
        if failure is None:
            continue
        fault = _WRONG.format(order=order, inputs=f"input {i}")
        if failure:
            fault = f"the {order} derivative with respect to input {i} failed: {failure}"
        if together is None:
            fault += " if no other input requires a gradient: check `ctx.needs_input_grad`"
        faults.append(fault)
    if together is not None and not faults:
        several = " and ".join(f"input {i}" for i in chosen)
        fault = _WRONG.format(order=order, inputs=several)
        if together:
            fault = f"the {order} derivative with respect to {several} failed: {together}"
        faults.append(f"{fault} if all of them require a gradient; each alone is right")
    return faults


def _backward(
    call: Callable[..., Any], inputs: list[Any], chosen: list[int], upstream: list[Tensor] | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs that have a gradient, and the gradients by the chosen inputs."""
    inputs = _requiring(inputs, chosen)
    outputs = [y for y in _tensors(call(*inputs)) if y.requires_grad]
    upstream = [torch.ones_like(y) for y in outputs] if upstream is None else upstream
    leaves = [inputs[i] for i in chosen]
    return outputs, list(
        torch.autograd.grad(outputs, leaves, upstream, allow_unused=True, materialize_grads=True)
    )


def _differentiable_once(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> bool:
    leaves = _requiring(inputs, chosen)
    outputs = [y for y in _tensors(call(*leaves)) if y.requires_grad]
    upstream = [torch.ones_like(y).requires_grad_() for y in outputs]
    by = [leaves[i] for i in chosen]
    first = torch.autograd.grad(outputs, by, upstream, create_graph=True, allow_unused=True)
    try:
        sum(g.abs().sum() for g in first if g is not None).backward()
    except RuntimeError as error:
        return "once_differentiable" in str(error)
    return False


def _hint(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a hint if backward ignores the upstream gradient or forward rounds to float32."""
    try:
        outputs, once = _backward(call, inputs, chosen, None)
        twice = _backward(call, inputs, chosen, [2 * torch.ones_like(y) for y in outputs])[1]
    except Exception:
        return []
    if not all(torch.allclose(2 * a, b) for a, b in zip(once, twice, strict=True)):
        return ["backward must multiply by the gradient that it receives, and it does not"]
    moved = [x + 1e-6 * torch.rand_like(x) if _has_slopes(x) else x for x in inputs]
    if any(map(_rounded, _backward(call, moved, chosen, None)[0])):
        return [
            "forward computes with the precision of float32 or less: keep the dtype of its inputs"
        ]
    return []


def _rounded(x: Tensor) -> bool:
    """Return True if `x` has only the digits of float32; integers do not count."""
    x = torch.view_as_real(x) if x.is_complex() else x
    x = x[x != x.round()]
    return bool(x.numel()) and torch.equal(x, x.float().to(x.dtype))


def _upstream(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a fault if backward edits the gradient that it receives, or loses its digits."""
    outputs = _backward(call, inputs, chosen, None)[0]
    upstream = [torch.randn_like(y) for y in outputs]
    before = [_copy(u) for u in upstream]
    gradients = _backward(call, inputs, chosen, upstream)[1]
    if not all(map(equal, upstream, before)):
        return ["backward changed the gradient that it receives in place: return a new tensor"]
    for i, gradient in zip(chosen, gradients, strict=True):
        if _rounded(gradient):
            return [
                f"the gradient of input {i} has the precision of float32 or less, and the input "
                "is float64: compute in the dtype of the gradient that backward receives"
            ]
    return []


def _layouts(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a fault if a gradient in another memory layout, as after `sum()`, is used wrongly."""
    outputs = _backward(call, inputs, chosen, None)[0]
    random = [torch.randn_like(y) for y in outputs]
    kinds = {
        "expanded, as after `sum()`": [y.new_ones(()).expand_as(y) for y in outputs],
        "transposed": [_transposed(u) for u in random],
    }
    for kind, upstream in kinds.items():
        right = _backward(call, inputs, chosen, [u.contiguous() for u in upstream])[1]
        try:
            got = _backward(call, inputs, chosen, upstream)[1]
        except Exception as error:
            return [f"backward failed for a gradient that is {kind}: {_line(error)}"]
        if not all(torch.allclose(a, b) for a, b in zip(right, got, strict=True)):
            return [f"backward is wrong for a gradient that is {kind}, not contiguous"]
    return []


def _twice(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a fault if a second forward call changes the backward pass of the first."""
    alone = _requiring(inputs, chosen)
    outputs = [y for y in _tensors(call(*alone)) if y.requires_grad]
    ones = [torch.ones_like(y) for y in outputs]
    try:
        again = call(*(0.9 * x if i in chosen else x for i, x in enumerate(alone)))
    except Exception:  # its inputs may be bounded
        return []
    del again
    leaves = [alone[i] for i in chosen]
    gradients = torch.autograd.grad(
        outputs, leaves, ones, allow_unused=True, materialize_grads=True
    )
    right = _backward(call, inputs, chosen, None)[1]
    if all(torch.allclose(a, b) for a, b in zip(right, gradients, strict=True)):
        return []
    return ["backward uses a value that a later call of forward overwrote: store it in ctx"]


def _strided_inputs(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a fault if inputs that are not contiguous fail or give other results."""
    other = [_transposed(x) if isinstance(x, Tensor) and x.dim() else x for x in inputs]
    other = [x.requires_grad_() if i in chosen else x for i, x in enumerate(other)]
    try:
        outputs = [y for y in _tensors(call(*other)) if y.requires_grad]
    except Exception as error:
        return [f"forward failed on inputs that are not contiguous: {_line(error)}"]
    ones = [torch.ones_like(y, memory_format=torch.contiguous_format) for y in outputs]
    expected = _backward(call, inputs, chosen, None)
    try:
        gradients = torch.autograd.grad(
            outputs, [other[i] for i in chosen], ones, allow_unused=True, materialize_grads=True
        )
    except Exception as error:
        return [f"backward failed on inputs that are not contiguous: {_line(error)}"]
    pairs = zip((*expected[0], *expected[1]), (*outputs, *gradients), strict=True)
    if all(torch.allclose(a, b, equal_nan=True) for a, b in pairs):
        return []
    return ["inputs that are not contiguous give other results: use their strides or contiguous()"]


def _unsaved(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a fault if an in-place edit of an input changes the gradient without an error."""
    expected = _backward(call, inputs, chosen, None)[1]
    for edited in chosen:
        leaves = _requiring(inputs, chosen)
        copies = [1 * x if i in chosen else x for i, x in enumerate(leaves)]
        outputs = [y for y in _tensors(call(*copies)) if y.requires_grad]
        ones = [torch.ones_like(y) for y in outputs]
        with torch.no_grad():
            copies[edited].mul_(0.5)
        by = [leaves[i] for i in chosen]
        try:
            gradients = torch.autograd.grad(
                outputs, by, ones, allow_unused=True, materialize_grads=True
            )
        except RuntimeError:  # the version counter detected the edit
            continue
        if not all(torch.allclose(a, b) for a, b in zip(expected, gradients, strict=True)):
            return [
                f"an in-place edit of input {edited} after forward changes the gradient without "
                "an error: store it with `ctx.save_for_backward`"
            ]
    return []


def _leak(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """Return a fault if an output is in a reference cycle, so that deleting it frees nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        outputs = [y for y in _tensors(call(*_requiring(inputs, chosen))) if y.requires_grad]
        references = [StorageWeakRef(y.untyped_storage()) for y in outputs]
        del outputs
        if all(reference.expired() for reference in references):
            return []
    finally:
        if enabled:
            gc.enable()
    return ["an output is not freed when it is deleted: store it with `ctx.save_for_backward`"]


def _transposed(u: Tensor) -> Tensor:
    """Return the same values, transposed in memory; a vector with a gap after each value."""
    return u.mT.contiguous().mT if u.dim() > 1 else torch.stack([u, u], -1)[..., 0]


def _single(call: Callable[..., Any], inputs: tuple[Any, ...], chosen: list[int]) -> list[str]:
    """Return a fault if float32 inputs give outputs of another dtype or a failing backward pass."""
    singles = [_copy(x, torch.float32) for x in inputs]
    try:
        outputs = _tensors(call(*_requiring(singles, chosen)))
    except Exception as error:
        return [f"forward failed in float32: {_line(error)}"]
    for i, y in enumerate(outputs):
        if y.dtype in _WIDE:
            return [f"output {i} is {y.dtype} though the inputs are float32: keep their dtype"]
    try:
        _backward(call, singles, chosen, None)
    except Exception as error:
        return [f"backward failed in float32: {_line(error)}"]
    return []
