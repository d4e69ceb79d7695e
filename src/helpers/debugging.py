"""Helpers of the chapter on debugging: each inspects a model, a loss or a training step.

They take a model, an optimizer, and a function without arguments that computes the loss or takes
the step, so batches may be tensors, tuples, dictionaries or anything else. A helper restores what
it changes.

Source: "A Recipe for Training Neural Networks", https://karpathy.github.io/2019/04/25/recipe/, and
"Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import itertools
import linecache
import math
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import keystr, tree_leaves, tree_leaves_with_path, tree_map

from helpers import checks
from helpers.forward import copied_buffers, tensors_in, uncompiled

Loss = Callable[[], Tensor]

# ---------------------------------------------------------------- does it learn one batch?


def overfit(model: nn.Module, loss: Loss, optimizer: Optimizer, steps: int = 200) -> list[float]:
    """Train `steps` steps on one batch and return the losses; then restore the model and optimizer.

    `loss()` computes the loss on the same batch each time. Parameters, buffers, gradients, the
    optimizer and PyTorch's random state are restored; plain attributes that the forward pass
    changes are not. The training modes are not changed: dropout in training mode keeps the loss
    above 0.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: the loss is not a single number, or `steps` is below 1.
        RuntimeError: the loss has no graph.
    """
    steps = checks.integer("steps", steps, 1)
    checks.module("model", model), checks.optimizer("optimizer", optimizer)
    checks.function("loss", loss)
    losses = []
    with _undone(model, optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            losses.append(_backward(loss))
            _step(loss, optimizer)
    return losses


def _backward(loss: Loss, must: bool = True) -> float:
    value = loss()
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"loss() must return one number as a tensor, got {got}")
    if value.requires_grad or must:
        value.backward()
    return value.item()


@contextmanager
def _undone(model: nn.Module, optimizer: Optimizer) -> Iterator[None]:
    """Restore parameters, buffers, gradients, the optimizer and the random state afterwards."""
    groups = optimizer.param_groups
    tensors = {id(p): p for group in groups for p in group["params"]}
    tensors |= {id(t): t for t in itertools.chain(model.parameters(), model.buffers())}
    lazy = [t for t in tensors.values() if nn.parameter.is_lazy(t)]
    initialized = [t for t in tensors.values() if not nn.parameter.is_lazy(t)]
    values = [t.detach().clone() for t in initialized]
    gradients = [t.grad for t in initialized]
    buffers = [(m, dict(m._buffers)) for m in model.modules()]
    # load_state_dict() would create new groups and change the dtypes of the state
    state = {p: copy.deepcopy(own) for p, own in optimizer.state.items()}
    options = [{k: copy.deepcopy(v) for k, v in g.items() if k != "params"} for g in groups]
    with _random_state(initialized):
        try:
            for t in initialized:
                t.grad = None
            yield
        finally:
            for module, own in buffers:
                module._buffers.update(own)
            with torch.no_grad():
                for t, value, gradient in zip(initialized, values, gradients, strict=True):
                    t.copy_(value)
                    t.grad = gradient
            for t in lazy:
                t.grad = None
            optimizer.state.clear()
            optimizer.state.update(state)
            for group, own in zip(groups, options, strict=True):
                group.update(own)


def _random_state(tensors: Iterable[Tensor]) -> Any:
    """Restore the random state of the CPU and of the devices of `tensors` after the block."""
    devices = {t.device for t in tensors if t.device.type not in ("cpu", "meta")}
    if not devices:
        return torch.random.fork_rng([])
    kind = next(iter(devices)).type
    return torch.random.fork_rng(sorted({d.index or 0 for d in devices}), device_type=kind)


def _step(loss: Loss, optimizer: Optimizer) -> None:
    """Take a step with the current gradients; LBFGS computes the loss again."""

    def again() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(again if isinstance(optimizer, torch.optim.LBFGS) else None)


# ---------------------------------------------------------------- which parameters move?


def movement(model: nn.Module, loss: Loss, optimizer: Optimizer) -> dict[str, str]:
    """Take one step, return how much each parameter of `model` changed, and restore everything.

    `"moves by 0.12 %"` is the norm of the change relative to that of the parameter. Otherwise the
    value is the reason why it did not change: `"frozen"`, `"not in the optimizer"`, `"no gradient"`
    (the loss does not depend on it), `"gradient is 0"`, `"gradient is nan or inf"`,
    `"learning rate is 0"`, `"step is rounded away"` (too small for the parameter's dtype). If a
    parameter changes without a gradient, by weight decay or momentum, the reason is appended. A
    parameter shared by two modules is listed under its first name.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: the loss is not a single number.
    """
    checks.module("model", model), checks.optimizer("optimizer", optimizer)
    checks.function("loss", loss)
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    changes = {}
    with _undone(model, optimizer):
        optimizer.zero_grad()
        _backward(loss, must=False)  # if all is frozen or detached, the reasons state this
        parameters = dict(model.named_parameters())
        before = {name: p.detach().clone() for name, p in parameters.items()}
        gradients = {n: None if p.grad is None else p.grad.clone() for n, p in parameters.items()}
        if any(gradient is not None for gradient in gradients.values()):
            _step(loss, optimizer)
        for name, p in parameters.items():
            change = (p.detach() - before[name]).abs().cpu().double().norm().item()
            size = before[name].abs().cpu().double().norm().item()
            reason = _why_still(p, gradients[name], groups.get(id(p)))
            if not math.isfinite(change):
                changes[name] = reason or "becomes nan or inf"
            elif change:
                text = f"moves by {100 * change / size:.2g} %" if size else "moves away from 0"
                changes[name] = f"{text}, {reason}" if reason else text
            else:
                changes[name] = reason or "step is rounded away"
    return changes


def _why_still(p: Tensor, gradient: Tensor | None, group: dict[str, Any] | None) -> str:
    """Return why a step may not change a parameter; empty if it should."""
    if not p.requires_grad:
        return "frozen"
    if group is None:
        return "not in the optimizer"
    if gradient is None:
        return "no gradient"
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    if not values.isfinite().all():
        return "gradient is nan or inf"
    if not values.any():
        return "gradient is 0"
    return "learning rate is 0" if float(group.get("lr", 1)) == 0 else ""


# ------------------------------------------------------------- does a sample depend on others?


def neighbours(model: Callable[[Tensor], Tensor], x: Tensor, sample: int = -1) -> list[int]:
    """Return the samples of `x` that the output of one sample depends on; ideally only itself.

    Sample i of `x` and of the output is the i-th along the first dimension. The dependence is read
    from a gradient, so one whose derivative is 0 at `x` is not detected. The last sample is the
    default, because a recurrent layer without `batch_first=True` mixes a sample only with earlier
    ones. BatchNorm in training mode mixes the samples by design. Gradients, buffers and the random
    state are restored. For a model of token IDs, which have no gradient, pass the part after the
    embedding.

    Raises:
        TypeError: `model` cannot be called, `x` is not a tensor, or `sample` is not an int.
        ValueError: `x` has no samples; `x` or the output is not floating point, or `model(x)` is
            not one tensor with as many samples as `x`.
        IndexError: there is no such `sample`.
    """
    if not isinstance(sample, Integral) or isinstance(sample, bool):
        raise TypeError(f"sample must be an int, got {type(sample).__name__}")
    checks.function("model", model)
    if not checks.tensor("x", x).dim():
        raise ValueError("x must have the shape (N, ...), got ()")
    if not x.is_floating_point():
        raise ValueError(f"x must be of a floating point type, got {x.dtype}")
    with torch.inference_mode(False), torch.enable_grad(), _random_state([x]):
        x = x.detach().clone().requires_grad_()
        module = model if isinstance(model, nn.Module) else nn.Module()
        with copied_buffers(module):
            out = model(x.clone())  # a copy, because a model may write into its input
        if not isinstance(out, Tensor) or out.dim() == 0 or len(out) != len(x):
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(f"expected one output for each of the {len(x)} samples, got {got}")
        if not out.is_floating_point():
            raise ValueError(f"the output must be of a floating point type, got {out.dtype}")
        # random weights, because the gradient of a plain sum, as of a softmax, may be 0
        total = (out[sample] * torch.randn_like(out[sample])).sum()
        if not total.requires_grad:
            return []
        (gradient,) = torch.autograd.grad(total, x, allow_unused=True)
    if gradient is None:
        return []
    return gradient.reshape(len(x), -1).ne(0).any(1).nonzero().flatten().tolist()


# ---------------------------------------------------------------- where do shapes grow?


def broadcasting_lines(function: Callable[[], Any]) -> list[str]:
    """Return the lines of `function` that broadcast both operands to a shape larger than either.

    A loss of predictions (n, 1) and targets (n,) does this silently: the result is (n, n). Where it
    is intended, as in a table of all distances, the line is correct.

    Returns:
        `"(8, 1) and (8,) give (8, 8) in: loss = ((pred - y) ** 2).mean()"`, each line once.

    Raises:
        TypeError: `function` cannot be called.
    """
    checks.function("function", function)
    reports: dict[str, None] = {}

    class Watch(TorchDispatchMode):
        supports_higher_order_operators = True
        expanded: tuple[Any, Any, Any] | None = None  # torch's losses expand one operand at a time

        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = op(*args, **(kwargs or {}))
            if not isinstance(out, Tensor) or torch._C._current_autograd_node() is not None:
                return out
            if _opname(op) == "expand":
                before, self.expanded = self.expanded, (_line(), args[0].shape, out.shape)
                if before and (before[0], before[2]) == (_line(), out.shape):
                    self.report([before[1], args[0].shape], out.shape)
            elif torch.Tag.pointwise in getattr(op, "tags", ()):
                self.report([a.shape for a in args if isinstance(a, Tensor)], out.shape)
            return out

        def report(self, shapes: list[torch.Size], out: torch.Size) -> None:
            for one, two in itertools.combinations(shapes, 2):
                large = out.numel() > max(one.numel(), two.numel())
                if large and torch.broadcast_shapes(one, two) == out:
                    text = f"{tuple(one)} and {tuple(two)} give {tuple(out)} in: {_line()[1]}"
                    reports[text] = None
                    return

    with Watch(), uncompiled():
        function()
    return list(reports)


def _opname(op: Any) -> str:
    """Return an operator's name without namespace. Higher-order ones (`cond`) lack `_opname`."""
    return getattr(op, "_opname", None) or op.name()


def _line() -> tuple[str, str]:
    """Return position and text of the innermost line outside of torch and of this module."""
    inside = os.path.dirname(torch.__file__) + os.sep
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path != __file__ and not path.startswith((inside, "<")):
            text = linecache.getline(path, frame.f_lineno, frame.f_globals).strip()
            return f"{path}:{frame.f_lineno}", text or f"{Path(path).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "?", "?"


# ---------------------------------------------------------------- where does a nan come from?


@dataclass(frozen=True)
class Origin:
    """Origin of the first nan or infinity.

    Attributes:
        value: `"nan"` or `"inf"`.
        during: `"forward"`, `"backward"`, or `"input"` if no operation produced the nan: it was in
            the data, the weights or old gradients, and `line` is the first that received it.
        operation: PyTorch's name of the operation, such as `"aten.log"`.
        line: the line of your code; in the backward pass, the line of the forward pass.
        module: the name of the innermost module that ran, if a model was given.
        given: smallest and largest value of each input tensor; or, if some weights were not finite
            before, the names of these parameters and buffers.
    """

    value: str
    during: str
    operation: str
    line: str
    module: str
    given: str


_BLANK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


def first_nonfinite(
    function: Callable[[], Any], model: nn.Module | None = None, infinities: bool = True
) -> Origin | None:
    """Run `function` and return the operation that produced the first nan or infinity.

    Every operation is checked, in the forward pass and in a backward pass inside `function`, on any
    device. An operation is the origin if it returns a nan and received none, or returns an infinity
    and received only finite numbers. Assigning -inf on purpose, as in `masked_fill(mask, -inf)`, is
    not reported; the softmax of a row that is -inf throughout is. This is slow: use it for one
    step.
    `function` runs to its end, or to the error that it raises.

    Args:
        function: computes a loss, a loss and its backward pass, or a whole step.
        model: adds the names of its modules to `Origin.module`.
        infinities: False ignores infinities, such as an intended log(0) in a mask.

    Returns:
        The origin, or None if no operation produced one. The loss of a label whose logit is masked
        with -inf is infinite, and not reported.

    Raises:
        TypeError: `function` cannot be called, or `model` is not a module.
    """
    checks.function("function", function)
    if model is not None:
        checks.module("model", model)
    watch = _Finite(infinities)
    nonfinite = []
    with ExitStack() as stack:
        if model is not None:
            nonfinite = [name for name, t in model.named_parameters() if _kinds(t)]
            nonfinite += [name for name, t in model.named_buffers() if "nan" in _kinds(t)]
            for name, module in model.named_modules():
                stack.enter_context(_named(module, name or type(module).__name__, watch.running))
        stack.enter_context(uncompiled())
        stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
        stack.enter_context(watch)
        try:
            function()
        except Exception:
            if watch.origin is None:
                raise
    if nonfinite:  # the nan already existed before any operation ran
        first = watch.first_input or watch.origin or Origin("inf", "input", "", "", "", "")
        return replace(first, during="input", given=", ".join(nonfinite))
    return watch.origin or watch.first_input


@contextmanager
def _named(module: nn.Module, name: str, running: list[str]) -> Iterator[None]:
    """Add `name` to `running` while the module's forward pass runs, and write it into its nodes."""
    entered: list[set[Any]] = []

    def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
        running.append(name)
        entered.append({t.grad_fn for t in tensors_in((args, kwargs))})

    def leave(_: nn.Module, args: Any, out: Any) -> None:
        running.pop()
        seen = entered.pop() | {None}
        todo = [t.grad_fn for t in tensors_in(out)]
        while todo:
            node = todo.pop()
            if node not in seen and "module" not in node.metadata:
                node.metadata["module"] = name
                todo += [following for following, _ in node.next_functions]

    before = module.register_forward_pre_hook(enter, with_kwargs=True)
    after = module.register_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


class _Finite(TorchDispatchMode):
    """Dispatch mode that records the first operation that produces a nan or an infinity."""

    supports_higher_order_operators = True

    def __init__(self, infinities: bool) -> None:
        super().__init__()
        self.infinities = infinities
        self.origin: Origin | None = None
        self.first_input: Origin | None = None
        self.running: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.origin is not None or _opname(op) in _BLANK:
            return op(*args, **kwargs)
        # without frames, the logarithms that CTC stores for the backward pass are not initialized
        values = tree_leaves(args[:6] if _opname(op) == "_ctc_loss_backward" else (args, kwargs))
        tensors = [v for v in values if isinstance(v, Tensor)]
        # computed before the operation, because it may write into its inputs
        old = set().union(*(_kinds(v) for v in values))
        mutable = getattr(getattr(op, "_schema", None), "is_mutable", False)
        ranges = _ranges(tensors) if old or mutable else None
        out = op(*args, **kwargs)
        results = out[:1] if _opname(op) == "_ctc_loss" else out  # its second: -inf by design
        kinds = set().union(*(_kinds(v) for v in tree_leaves(results)))
        new = "nan" if "nan" in kinds - old else ""
        if self.infinities and not new and kinds and not old:
            new = "inf"
        if new:
            self.origin = self._origin(new, op, ranges or _ranges(tensors))
        elif self.first_input is None and any("nan" in _kinds(v) for v in tensors):
            self.first_input = self._origin("nan", op, ranges or "", during="input")
        return out

    def _origin(self, value: str, op: Any, given: str, during: str = "forward") -> Origin:
        node = torch._C._current_autograd_node()
        line, module = _line()[1], self.running[-1] if self.running else ""
        if node is not None and during != "input":
            during, line, module = "backward", _recorded(node), node.metadata.get("module", "")
        return Origin(value, during, f"{op.namespace}.{_opname(op)}", line, module, given)


def _recorded(node: Any) -> str:
    """Return the line of the forward pass that recorded a node, which anomaly mode stores."""
    inside = os.path.dirname(torch.__file__) + os.sep
    for text in reversed(node.metadata.get("traceback_", [])):
        first, _, line = text.strip().partition("\n")
        path = first.partition('"')[2].partition('"')[0]
        if path and path != __file__ and not path.startswith((inside, "<")):
            return line.strip().splitlines()[0] if line.strip() else first
    return node.name()


def _kinds(value: Any) -> set[str]:
    """Return which of `"nan"` and `"inf"` a number or a tensor contains."""
    if isinstance(value, float):
        return {"nan"} if math.isnan(value) else {"inf"} if math.isinf(value) else set()
    values = _numbers(value)
    if values is None or values.isfinite().all():
        return set()
    return {
        kind for kind, test in (("nan", torch.isnan), ("inf", torch.isinf)) if test(values).any()
    }


def _numbers(value: Any) -> Tensor | None:
    """Return the floating-point values of a tensor, or None if it has none to inspect."""
    if not isinstance(value, Tensor) or nn.parameter.is_lazy(value):
        return None
    if value.device.type == "meta" or type(value) is _fake():
        return None
    value = value.detach()
    if value.layout is torch._mkldnn:
        value = value.to_dense()
    elif value.layout is not torch.strided or value.is_nested:
        value = value._values() if value.is_sparse else value.values()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if not value.is_floating_point() or not value.numel():
        return None
    return value.float() if value.element_size() == 1 else value


def _fake() -> type:
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def _ranges(tensors: Iterable[Tensor]) -> str:
    """Return the smallest and the largest value of each tensor, as text."""
    texts = []
    for tensor in tensors:
        values = _numbers(tensor)
        if values is not None:
            low, high = values.min().item(), values.max().item()
            texts.append(f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}")
    return ", ".join(texts)


# ---------------------------------------------------------------- where do two models part?


@dataclass(frozen=True)
class Difference:
    """First position at which two models differ.

    Attributes:
        module: the name of the module in the first model.
        at: `"output"`, or `"input"` if the inputs of the module already differ, so that the cause
            is a line between the modules.
        largest: the largest difference, or inf if shapes or structures differ.
        call: which call of this module, counted from 0.
    """

    module: str
    at: str
    largest: float
    call: int


def first_difference(
    first: nn.Module,
    second: nn.Module,
    *inputs: Any,
    rtol: float = 1e-4,
    names: Mapping[str, str] | None = None,
    **named: Any,
) -> Difference | None:
    """Return the first module to finish whose input or output differs between two models, or None.

    Both models run without gradients on the same input, converted to their device and floating
    dtype, with the same random numbers. Modules are compared by name; modules that only one model
    has are skipped. Tensors in nested containers and dataclasses are compared. Buffers are
    restored.

    Args:
        first, second: the models, each in the mode in which it is compared.
        rtol: tolerance relative to the larger of the two largest values; float16 and TF32 need
            about 1e-2, bfloat16 3e-2.
        names: for names in the first model that differ, the name in the second model.

    Raises:
        ValueError: both models have submodules, and no submodule of the same name runs in both.
        TypeError: a model is not a module, `rtol` not a number or `names` not a mapping; or a model
            returns no tensor, so that the outputs cannot be compared.
    """
    checks.module("first", first), checks.module("second", second)
    if not checks.number("rtol", rtol) >= 0:
        raise ValueError(f"rtol must be at least 0, got {rtol}")
    renamed = dict(checks.mapping("names", {} if names is None else names))
    one, two = (_record(model, inputs, named) for model in (first, second))
    shared = [(key, (renamed.get(key[0], key[0]), key[1])) for key in one]
    shared = [(mine, theirs) for mine, theirs in shared if theirs in two]
    inside = all(any(model.children()) for model in (first, second))
    if inside and not any(key[0] for key, _ in shared):
        raise ValueError("no module of the same name runs in both models: pass `names`")
    if not (one["", 0][1] or two["", 0][1]):
        raise TypeError("expected tensors in the output of the models, got none")
    for mine, theirs in shared:
        for at, a, b in zip(("input", "output"), one[mine], two[theirs], strict=True):
            largest, size = _gap(a, b)
            if not largest <= rtol * size:
                return Difference(mine[0], at, largest, mine[1])
    return None


def _record(model: nn.Module, inputs: Any, named: Any) -> dict[tuple[str, int], Any]:
    """Return copies of the inputs and outputs of each module call, in order of completion."""
    calls_seen: dict[tuple[str, int], Any] = {}
    calls: Counter[str] = Counter()

    def watch(name: str, module: nn.Module) -> Iterator[Any]:
        inputs_seen: list[Any] = []
        yield module.register_forward_pre_hook(
            lambda _, args, kwargs: inputs_seen.append(_copies((args, kwargs))), with_kwargs=True
        )

        def done(_: nn.Module, args: Any, out: Any) -> None:
            calls_seen[name, calls[name]] = inputs_seen.pop(), _copies(out)
            calls[name] += 1

        yield module.register_forward_hook(done)

    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))

    def fit(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        dtype = weight.dtype if value.is_floating_point() else value.dtype
        return value.detach().to(weight.device, dtype, copy=True)  # the model may write into it

    modules = {name.replace("_orig_mod.", ""): m for name, m in model.named_modules()}  # compiled
    handles = [h for name, module in modules.items() for h in watch(name, module)]
    inputs, named = tree_map(fit, (inputs, named))
    try:
        with torch.no_grad(), _random_state([weight]), uncompiled(), copied_buffers(model):
            model(*inputs, **named)
    finally:
        for handle in handles:
            handle.remove()
    return calls_seen


def _copies(value: Any) -> list[Tensor]:
    """Return copies in double precision; an activation with `inplace=True` overwrites its input."""
    tensors = [t.detach().clone().cpu() for t in tensors_in(value)]
    return [t.to(torch.cdouble if t.is_complex() else torch.double) for t in tensors]


def _gap(a: list[Tensor], b: list[Tensor]) -> tuple[float, float]:
    """Return the largest difference between tensors and their largest value; nan equals nan."""
    if [t.shape for t in a] != [t.shape for t in b]:
        return math.inf, 1.0
    largest = size = 0.0
    for x, y in zip(a, b, strict=True):
        apart = (x != y) & ~(x.isnan() & y.isnan())
        if apart.any():
            gap = (x - y).abs()[apart].max().item()
            largest = max(largest, math.inf if math.isnan(gap) else gap)
        values = torch.stack([x, y]).abs()
        values = values[values.isfinite()]
        size = max(size, values.max().item() if values.numel() else 0.0)
    return largest, size


# ---------------------------------------------------------------- what is where, in which dtype?


def census(model: nn.Module, *others: Any) -> dict[str, list[str]]:
    """Return the tensors of a model and of other containers, grouped by dtype and device.

    The most frequent group comes first. Names are those of parameters and buffers. Plain tensors
    among a module's attributes, also in lists, tuples, dictionaries and dataclasses, are not moved
    by `to()` and are marked. `others` are further containers (a batch, `optimizer.state_dict()`);
    their tensors have a path, such as `"[0]['image']"`. No values are read, so lazy, fake and meta
    tensors are accepted.

    Raises:
        TypeError: `model` is not a module.
    """
    checks.module("model", model)
    groups: dict[str, list[str]] = defaultdict(list)

    def add(name: str, t: Tensor) -> None:
        groups[f"{str(t.dtype).removeprefix('torch.')} on {t.device}"].append(name)

    known = dict(itertools.chain(model.named_parameters(), model.named_buffers()))
    for name, t in known.items():
        add(name, t)
    own = ("_parameters", "_buffers", "_modules")
    seen = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
    for name, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if key not in own}
        for (first, *path), value in tree_leaves_with_path(_as_dicts(plain)):
            if isinstance(value, Tensor) and id(value) not in seen:
                place = f"{name}.{first.key}".lstrip(".") + keystr(tuple(path))
                add(f"{place} (plain attribute)", value)
    for path, value in tree_leaves_with_path(_as_dicts(others)):
        if isinstance(value, Tensor):
            add(keystr(path), value)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _as_dicts(value: Any) -> Any:
    """Return containers, with a dict for each mapping and dataclass unknown to pytree."""

    def entries(x: Any) -> Any:
        if is_dataclass(x) and not isinstance(x, type):
            x = {one.name: getattr(x, one.name, None) for one in fields(x)}
        return _as_dicts(dict(x)) if isinstance(x, Mapping) else x

    return tree_map(entries, value)


# ---------------------------------------------------------------- what is never freed?


def leaks(step: Callable[[], Any], rounds: int = 4) -> dict[str, int]:
    """Return the lines whose tensors outlive every step, with the bytes that each step leaves.

    `step()` is called `rounds` times. A line is listed if tensors that it created in each round but
    the last are still alive at the end, on any device. Tensors created once (the state of an
    optimizer, a cache) or replaced by each step (gradients) are not listed. The result does not
    tell what keeps the tensors alive: a list, an attribute, or the graph of a loss that was kept. A
    store that fills up after more rounds, such as a replay buffer, is listed until `rounds` is
    larger. Tensors that other threads create are not seen.

    Raises:
        TypeError: `step` cannot be called, or `rounds` is not an int.
        ValueError: `rounds` is below 3, too few to tell growth from replacement.
    """
    checks.function("step", step)
    rounds = checks.integer("rounds", rounds, 3)
    created: list[dict[int, tuple[Any, str, int]]] = []

    class Watch(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = op(*args, **(kwargs or {}))
            for t in tree_leaves(out):
                if isinstance(t, Tensor) and t.layout is torch.strided:
                    storage = t.untyped_storage()
                    # a weak reference keeps the address from being reused by another storage
                    if not any(storage._cdata in entries for entries in created):
                        entry = (StorageWeakRef(storage), _line()[1], storage.nbytes())
                        created[-1][storage._cdata] = entry
            return out

    with Watch(), uncompiled():
        for _ in range(rounds):
            created.append({})
            step()
    gc.collect()
    remaining = [Counter() for _ in created]
    for counter, entries in zip(remaining, created, strict=True):
        for reference, line, nbytes in entries.values():
            if not reference.expired():
                counter[line] += nbytes
    lines = set(remaining[0]).intersection(*remaining[1:-1])
    return {line: remaining[-2][line] for line in remaining[-2] if line in lines}


# ---------------------------------------------------------------- where does it hang?


@contextmanager
def watchdog(seconds: float, path: str | os.PathLike, exit: bool = False) -> Iterator[None]:
    """Write the stacks of Python's threads to `path` if the block takes longer than `seconds`.

    At most 100 threads are written, the newest first, each with its innermost 100 functions. The
    timer needs neither the interpreter's lock nor a terminal, so it also works while compiled code
    runs, and in a notebook. The block continues; with `exit=True` the process ends. A process has
    one such timer.

    Raises:
        TypeError: `seconds` is not a number, or `path` not a path.
        ValueError: `seconds` is not above 0, or infinite.

    Source: https://docs.python.org/3/library/faulthandler.html
    """
    checks.positive("seconds", checks.finite("seconds", seconds))
    with open(os.fspath(path), "w") as file:
        faulthandler.dump_traceback_later(seconds, exit=exit, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def waiting_in(path: str | os.PathLike) -> list[str]:
    """Return the main thread's functions from a watchdog dump, innermost first; empty if none.

    The dump is empty if the block finished in time.

    Raises:
        ValueError: the dump ends before the main thread, because there are more than 100.
    """
    text = Path(path).read_text()
    if text.endswith("\n...\n"):
        raise ValueError(f"expected a dump with the main thread; {path} ends after 100 others")
    *_, main = re.split(r"^(?:Current t|T)hread .*\n", text, flags=re.M)
    return re.findall(r'^  File ".*", line \d+ in (.+)$', main, re.M)
