"""Helpers of the chapter on functions of one's own: is this backward right?

Source: "Extending PyTorch", https://pytorch.org/docs/stable/notes/extending.html
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

_WIDE = (torch.float64, torch.complex128)
_WRONG = "the {order} derivative by {inputs} is wrong"


def check_function(
    function: type[torch.autograd.Function] | Callable[..., Any], *inputs: Any, second: bool = True
) -> list[str]:
    """Say in words what is wrong with the backward of `function` at `inputs`.

    The inputs are copied to float64 (complex ones to complex128), on the device where they are,
    and what is compared with small differences of the outputs is: the derivative by each input
    while it alone requires a gradient, then by all together; the same for the second derivative
    if `second`. Then come a gradient that arrives expanded or transposed, a second call before the
    backward pass of the first, the dtypes of the outputs, and a backward pass in float32.

    Give every dimension another size, small ones, such as (3, 2): in a square matrix a transposed
    gradient has the right shape. Keep away from kinks, such as 0 for a ReLU. What differs from
    the true derivative on purpose, as a straight-through estimator does, counts as wrong here.

    Args:
        function: A `torch.autograd.Function`, which is called by its `apply`, or what takes
            `inputs` and returns a tensor or a tuple in which there is one. What works in place
            and returns its input, marked with `ctx.mark_dirty`, is called with clones.
        inputs: At least one floating-point or complex tensor, and whatever else the function
            takes. If some of them require a gradient, the others are held fixed; if none does,
            each of these tensors is differentiated.
        second: Whether the second derivative is looked at, too.

    Returns:
        A sentence for each fault, none if all is well. After a wrong first derivative the second
        is not looked at.

    Raises:
        TypeError: `function` is a module with weights or buffers, an object of a Function or cannot
            be called, or floating-point tensors came in a list, tuple or mapping, where a Function
            does not see them.
        ValueError: no input is a floating-point or complex tensor with numbers in it.
        Exception: the forward pass in float64 failed.

    Source: https://pytorch.org/docs/stable/notes/gradcheck.html
    """
    call, chosen = _callable(function), _differentiable(inputs)
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        return _faults(call, inputs, chosen, second)


def _faults(
    call: Callable[..., Any], inputs: tuple[Any, ...], chosen: list[int], second: bool
) -> list[str]:
    doubles = [_copy(x, torch.float64) for x in inputs]
    before = [_copy(x) for x in doubles]
    try:
        first = _tensors(call(*doubles))
    except Exception as error:
        error.add_note("check_function has copied the inputs to float64, what is inside it has not")
        raise
    changed = [
        i
        for i, (x, old) in enumerate(zip(doubles, before, strict=True))
        if isinstance(x, Tensor) and not _same(x, old)
    ]
    for i in changed:
        if not any(y is doubles[i] for y in first):  # it is the same object if it was marked
            return [
                f"forward changed input {i} in place: compute something new, or mark it with "
                "`ctx.mark_dirty` and return it"
            ]
    if changed:
        call, doubles, first = _on_clones(call), before, [_copy(y) for y in first]
    again = _tensors(call(*before))
    if not (len(first) == len(again) and all(map(_same, first, again))):
        return ["forward returned something else the second time: switch off what is random"]
    outputs = _tensors(call(*_requiring(doubles, chosen)))
    if not any(y.requires_grad for y in outputs):
        return ["no output requires a gradient: does forward get each tensor by itself?"]
    for i, y in enumerate(outputs):
        if y.requires_grad and not y.isfinite().all():
            return [f"output {i} is not finite here: give inputs at which every number is"]
        if y.requires_grad and y.dtype not in _WIDE:
            was = doubles[chosen[0]].dtype
            return [f"output {i} is {y.dtype} though input {chosen[0]} is {was}: keep its dtype"]

    if faults := _compare(call, doubles, chosen, "first"):
        return faults + _hint(call, doubles, chosen)
    if faults := _upstream(call, doubles, chosen):
        return faults
    if second and (faults := _compare(call, doubles, chosen, "second")):
        return [*faults, "compute in backward with torch, from saved inputs and outputs alone"]
    return [
        *_layouts(call, doubles, chosen),
        *_twice(call, doubles, chosen),
        *_single(call, inputs, chosen),
    ]


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
            f"expected the class {type(function).__name__} itself, got an object of it: "
            "leave the parentheses away"
        )
    return function


def _differentiable(inputs: tuple[Any, ...]) -> list[int]:
    """The places of the inputs that are differentiated."""
    for i, x in enumerate(inputs):
        inside = list(x.values()) if isinstance(x, Mapping) else x
        if isinstance(inside, list | tuple) and any(map(_has_slopes, inside)):
            raise TypeError(
                f"input {i} is a {type(x).__name__} of tensors, which a Function does not see: "
                "pass each tensor as an argument of its own, to a lambda that packs them if need be"
            )
    floating = [i for i, x in enumerate(inputs) if _has_slopes(x)]
    if not floating:
        got = ", ".join(_kind(x) for x in inputs) or "nothing"
        raise ValueError(f"expected a floating-point or complex tensor among the inputs, got {got}")
    for i in floating:
        x = inputs[i]
        if x.layout is not torch.strided or x.is_meta:
            how = "on the meta device" if x.is_meta else f"of layout {x.layout}"
            raise ValueError(f"expected dense tensors with numbers in them, input {i} is {how}")
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
    """A contiguous copy without history; floating-point and complex ones with the digits asked."""
    if not isinstance(x, Tensor):
        return x
    if dtype is not None and (x.is_complex() or x.is_floating_point()):
        x = x.to(dtype.to_complex() if x.is_complex() else dtype)
    return x.detach().clone(memory_format=torch.contiguous_format)


def _same(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())


def _tensors(result: Any) -> list[Tensor]:
    """The tensors that a function returned: itself, or those in a tuple or list."""
    items = result if isinstance(result, list | tuple) else [result]
    found = [y for y in items if isinstance(y, Tensor)]
    if not found:
        raise TypeError(
            f"expected a tensor or a tuple of tensors from forward, got {_kind(result)}"
        )
    return found


def _floating(result: Any) -> tuple[Tensor, ...]:
    return tuple(filter(_has_slopes, _tensors(result)))


def _requiring(inputs: list[Any], needed: list[int]) -> list[Any]:
    return [_copy(x).requires_grad_() if i in needed else _copy(x) for i, x in enumerate(inputs)]


def _fails(
    check: Callable[..., bool], call: Callable[..., Any], inputs: list[Any], needed: list[int]
) -> str | None:
    """None if the check passes, "" if numbers differ, else the first line of the error."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Input #.* requires gradient")
            check(lambda *x: _floating(call(*x)), tuple(_requiring(inputs, needed)))
    except Exception as error:
        said = str(error).strip() or type(error).__name__
        return "" if "Jacobian mismatch" in said or "expected to be zero" in said else _line(error)
    return None


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _compare(
    call: Callable[..., Any], inputs: list[Any], chosen: list[int], order: str
) -> list[str]:
    """The faults of the first or second derivative: by each input alone, then by all."""
    check = gradcheck if order == "first" else gradgradcheck
    alone = {i: _fails(check, call, inputs, [i]) for i in chosen}
    together = alone[chosen[0]] if len(chosen) == 1 else _fails(check, call, inputs, chosen)
    faults = []
    for i, said in alone.items():
        if said is None:
            continue
        fault = _WRONG.format(order=order, inputs=f"input {i}")
        if said:
            fault = f"the {order} derivative by input {i} failed: {said}"
        if together is None:
            fault += " while no other input requires a gradient: look at `ctx.needs_input_grad`"
        faults.append(fault)
    if together is not None and not faults:
        several = " and ".join(f"input {i}" for i in chosen)
        fault = _WRONG.format(order=order, inputs=several)
        if together:
            fault = f"the {order} derivative by {several} failed: {together}"
        faults.append(f"{fault} while they all require a gradient; each one alone is right")
    return faults


def _backward(
    call: Callable[..., Any], inputs: list[Any], chosen: list[int], upstream: list[Tensor] | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs that have a gradient, and the gradients by the chosen inputs."""
    inputs = _requiring(inputs, chosen)
    outputs = [y for y in _tensors(call(*inputs)) if y.requires_grad]
    upstream = [torch.ones_like(y) for y in outputs] if upstream is None else upstream
    wanted = [inputs[i] for i in chosen]
    return outputs, list(
        torch.autograd.grad(outputs, wanted, upstream, allow_unused=True, materialize_grads=True)
    )


def _hint(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """A wrong gradient that does not double with upstream has left upstream out."""
    try:
        outputs, once = _backward(call, inputs, chosen, None)
        twice = _backward(call, inputs, chosen, [2 * torch.ones_like(y) for y in outputs])[1]
    except Exception:
        return []
    if not all(torch.allclose(2 * a, b) for a, b in zip(once, twice, strict=True)):
        return ["backward must multiply by the gradient that it gets: twice of it gave no double"]
    moved = [x + 1e-6 * torch.rand_like(x) if _has_slopes(x) else x for x in inputs]
    if any(map(_rounded, _backward(call, moved, chosen, None)[0])):
        return [
            "forward computes with the digits of float32 or fewer: keep the dtype of its inputs"
        ]
    return []


def _rounded(x: Tensor) -> bool:
    """Has it the digits of float32 alone? Whole numbers say nothing."""
    x = torch.view_as_real(x) if x.is_complex() else x
    x = x[x != x.round()]
    return bool(x.numel()) and torch.equal(x, x.float().to(x.dtype))


def _upstream(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """What a backward does to the gradient that comes: nothing, and its digits are kept."""
    outputs = _backward(call, inputs, chosen, None)[0]
    upstream = [torch.randn_like(y) for y in outputs]
    before = [_copy(u) for u in upstream]
    gradients = _backward(call, inputs, chosen, upstream)[1]
    if not all(map(_same, upstream, before)):
        return ["backward changed the gradient that it got in place: compute something new"]
    for i, gradient in zip(chosen, gradients, strict=True):
        if _rounded(gradient):
            return [
                f"the gradient by input {i} has the digits of float32 or fewer though the input "
                "is float64: compute in the dtype of the gradient that backward gets"
            ]
    return []


def _layouts(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """The gradient may arrive in any memory layout: `sum()` sends one number, expanded."""
    outputs = _backward(call, inputs, chosen, None)[0]
    random = [torch.randn_like(y) for y in outputs]
    kinds = {
        "expanded, as after `sum()`": [y.new_ones(()).expand_as(y) for y in outputs],
        "transposed": [u.T.contiguous().T if u.dim() == 2 else _strided(u) for u in random],
    }
    for kind, upstream in kinds.items():
        right = _backward(call, inputs, chosen, [u.contiguous() for u in upstream])[1]
        try:
            got = _backward(call, inputs, chosen, upstream)[1]
        except Exception as error:
            return [f"backward failed on a gradient that came {kind}: {_line(error)}"]
        if not all(torch.allclose(a, b) for a, b in zip(right, got, strict=True)):
            return [f"backward is wrong for a gradient that came {kind}: it is not contiguous"]
    return []


def _twice(call: Callable[..., Any], inputs: list[Any], chosen: list[int]) -> list[str]:
    """A layer may be called again before the backward pass of its first call."""
    alone = _requiring(inputs, chosen)
    outputs = [y for y in _tensors(call(*alone)) if y.requires_grad]
    ones = [torch.ones_like(y) for y in outputs]
    try:
        again = call(*(0.9 * x if i in chosen else x for i, x in enumerate(alone)))
    except Exception:  # its inputs may be bounded
        return []
    del again
    wanted = [alone[i] for i in chosen]
    got = torch.autograd.grad(outputs, wanted, ones, allow_unused=True, materialize_grads=True)
    right = _backward(call, inputs, chosen, None)[1]
    if all(torch.allclose(a, b) for a, b in zip(right, got, strict=True)):
        return []
    return ["backward uses what a later call of forward has left: keep it in ctx"]


def _strided(u: Tensor) -> Tensor:
    """The same values, with a gap after each one."""
    return torch.stack([u, u], -1)[..., 0]


def _single(call: Callable[..., Any], inputs: tuple[Any, ...], chosen: list[int]) -> list[str]:
    """What float32 brings: outputs of this dtype, and a backward pass that runs."""
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
