"""Tools of the chapter "Debug training": each asks a model, a loss or a step one question.

They take what every training loop has, a model, an optimizer, and a function without arguments
that computes the loss or takes the step, so batches may be tensors, tuples, dictionaries or
anything else. What a tool changes while it looks, it puts back.

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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import keystr, tree_leaves, tree_leaves_with_path, tree_map

Loss = Callable[[], Tensor]

# ---------------------------------------------------------------- does it learn one batch?


def overfit(model: nn.Module, loss: Loss, optimizer: Optimizer, steps: int = 200) -> list[float]:
    """The losses of `steps` steps on one batch; afterwards everything is as it was.

    `loss()` computes the loss on a batch that stays the same. Parameters, buffers, gradients, the
    optimizer and PyTorch's random state are put back; plain attributes that the forward pass
    changes are not. The modes are the caller's: dropout in training mode keeps the loss from
    reaching 0.

    Raises:
        ValueError: the loss is not one number, or `steps` is below 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
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
    """Put back parameters, buffers, gradients, the optimizer and the random state."""
    groups = optimizer.param_groups
    held = {id(p): p for group in groups for p in group["params"]}
    held |= {id(t): t for t in itertools.chain(model.parameters(), model.buffers())}
    lazy = [t for t in held.values() if nn.parameter.is_lazy(t)]
    real = [t for t in held.values() if not nn.parameter.is_lazy(t)]
    values = [t.detach().clone() for t in real]
    gradients = [t.grad for t in real]
    buffers = [(m, dict(m._buffers)) for m in model.modules()]
    # not state_dict(): loading one gives the optimizer new groups, and its state other dtypes
    state = {p: copy.deepcopy(own) for p, own in optimizer.state.items()}
    options = [{k: copy.deepcopy(v) for k, v in g.items() if k != "params"} for g in groups]
    with _random_state(real):
        try:
            for t in real:
                t.grad = None
            yield
        finally:
            for module, own in buffers:
                module._buffers.update(own)
            with torch.no_grad():
                for t, value, gradient in zip(real, values, gradients, strict=True):
                    t.copy_(value)
                    t.grad = gradient
            for t in lazy:
                t.grad = None
            optimizer.state.clear()
            optimizer.state.update(state)
            for group, own in zip(groups, options, strict=True):
                group.update(own)


def _random_state(tensors: Iterable[Tensor]) -> Any:
    """Put back the random state of the CPU and of the devices of `tensors` at the end."""
    devices = {t.device for t in tensors if t.device.type not in ("cpu", "meta")}
    if not devices:
        return torch.random.fork_rng([])
    kind = next(iter(devices)).type
    return torch.random.fork_rng(sorted({d.index or 0 for d in devices}), device_type=kind)


def _step(loss: Loss, optimizer: Optimizer) -> None:
    """A step with the gradients that are there; LBFGS computes the loss again, and again."""

    def again() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(again if isinstance(optimizer, torch.optim.LBFGS) else None)


# ---------------------------------------------------------------- which parameters move?


def movement(model: nn.Module, loss: Loss, optimizer: Optimizer) -> dict[str, str]:
    """What one step does to each parameter of `model`, by name; afterwards all is as it was.

    `"moves by 0.12 %"` gives the norm of the change against that of the parameter. Otherwise the
    reason why it stays: `"frozen"`, `"not in the optimizer"`, `"no gradient"` (the loss does not
    depend on it), `"gradient is 0"`, `"gradient is nan or inf"`, `"learning rate is 0"`,
    `"step is rounded away"` (too small beside the parameter, in its dtype). What moves without a
    gradient, by weight decay or momentum, says so. A parameter that two modules share stands under
    its first name.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    told = {}
    with _undone(model, optimizer):
        optimizer.zero_grad()
        _backward(loss, must=False)  # where all is frozen or detached, the reasons say so
        parameters = dict(model.named_parameters())
        before = {name: p.detach().clone() for name, p in parameters.items()}
        gradients = {n: None if p.grad is None else p.grad.clone() for n, p in parameters.items()}
        if any(gradient is not None for gradient in gradients.values()):
            _step(loss, optimizer)
        for name, p in parameters.items():
            change = (p.detach() - before[name]).abs().cpu().double().norm().item()
            size = before[name].abs().cpu().double().norm().item()
            why = _why_still(p, gradients[name], groups.get(id(p)))
            if not math.isfinite(change):
                told[name] = why or "becomes nan or inf"
            elif change:
                share = f"moves by {100 * change / size:.2g} %" if size else "moves away from 0"
                told[name] = f"{share}, {why}" if why else share
            else:
                told[name] = why or "step is rounded away"
    return told


def _why_still(p: Tensor, gradient: Tensor | None, group: dict[str, Any] | None) -> str:
    """Why a parameter may stay where it is; empty where a step should move it."""
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


# ---------------------------------------------------------------- does a sample see its neighbours?


def neighbours(model: Callable[[Tensor], Tensor], x: Tensor, sample: int = 0) -> list[int]:
    """Which samples of the batch `x` the output of one sample depends on; only itself, one hopes.

    Sample i of `x` and of the output is their i-th along the first dimension. The answer comes
    from a gradient, so a dependence whose derivative is 0 at `x` is not seen. BatchNorm in
    training mode mixes the samples by design. Gradients, buffers and the random state are left as
    they were. A model of tokens has no gradient by its input: give the part behind the embedding.

    Raises:
        ValueError: `x` or the output has no floating point, or `model(x)` is not one tensor with
            as many samples as `x`.
    """
    if not x.is_floating_point():
        raise ValueError(f"x must be of a floating point type, got {x.dtype}")
    with torch.inference_mode(False), torch.enable_grad(), _random_state([x]):
        x = x.detach().clone().requires_grad_()
        copied = x.clone()  # a model may write into its input
        if isinstance(model, nn.Module):
            buffers = {name: b.clone() for name, b in model.named_buffers()}
            out = torch.func.functional_call(model, buffers, (copied,))
        else:
            out = model(copied)
        if not isinstance(out, Tensor) or out.dim() == 0 or len(out) != len(x):
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(f"expected one output for each of the {len(x)} samples, got {got}")
        if not out.is_floating_point():
            raise ValueError(f"the output must be of a floating point type, got {out.dtype}")
        # random weights, because a sum such as that of a softmax may not depend on anything
        total = (out[sample] * torch.randn_like(out[sample])).sum()
        if not total.requires_grad:
            return []
        (gradient,) = torch.autograd.grad(total, x, allow_unused=True)
    if gradient is None:
        return []
    return gradient.reshape(len(x), -1).ne(0).any(1).nonzero().flatten().tolist()


# ---------------------------------------------------------------- where do shapes grow?


def stretched(function: Callable[[], Any]) -> list[str]:
    """The lines of `function` that broadcast both operands to a shape larger than either.

    A loss that compares predictions (n, 1) with targets (n,) does that without a word: the
    result is (n, n). Where it is meant, as in a table of all distances, the line is right.

    Returns:
        `"(8, 1) and (8,) give (8, 8) in: loss = ((pred - y) ** 2).mean()"`, each line once.
    """
    found: dict[str, None] = {}

    class Watch(TorchDispatchMode):
        expanded: tuple[Any, Any, Any] | None = None  # losses of torch expand one after the other

        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = op(*args, **(kwargs or {}))
            if not isinstance(out, Tensor) or torch._C._current_autograd_node() is not None:
                return out
            if op._opname == "expand":
                before, self.expanded = self.expanded, (_line(), args[0].shape, out.shape)
                if before and (before[0], before[2]) == (_line(), out.shape):
                    self.tell([before[1], args[0].shape], out.shape)
            elif torch.Tag.pointwise in op.tags:
                self.tell([a.shape for a in args if isinstance(a, Tensor)], out.shape)
            return out

        def tell(self, given: list[torch.Size], out: torch.Size) -> None:
            for one, two in itertools.combinations(given, 2):
                large = out.numel() > max(one.numel(), two.numel())
                if large and torch.broadcast_shapes(one, two) == out:
                    told = f"{tuple(one)} and {tuple(two)} give {tuple(out)} in: {_line()[1]}"
                    found[told] = None
                    return

    with Watch(), _eager():
        function()
    return list(found)


def _eager() -> AbstractContextManager[None]:
    """Run compiled functions as they were written, so that each operation is seen."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled; it takes seconds to import
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def _line() -> tuple[str, str]:
    """Place and text of the innermost line that belongs neither to torch nor to this module."""
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
    """Where the first nan or infinity comes from.

    Attributes:
        made: `"nan"` or `"inf"`.
        during: `"forward"`, `"backward"`, or `"input"` where no operation made the nan: it came
            with the data, the weights or old gradients, and `line` is the first that met it.
        operation: PyTorch's name of the operation, such as `"aten.log"`.
        line: the reader's line; in the backward pass that of the forward pass it belongs to.
        module: the name of the innermost module that ran, if a model was given.
        given: the smallest and the largest value of each tensor that went in; or, where some were
            not finite before, the names of the model's parameters and buffers.
    """

    made: str
    during: str
    operation: str
    line: str
    module: str
    given: str


_BLANK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


def first_nonfinite(
    function: Callable[[], Any], model: nn.Module | None = None, infinities: bool = True
) -> Origin | None:
    """Run `function` and tell which operation made the first nan, or the first infinity.

    Every operation is watched, in the forward pass and in a backward pass inside `function`, on
    any device. One counts as the origin if it returns a nan and got none, or an infinity and got
    only finite numbers. So -inf that is written on purpose, as in `masked_fill(mask, -inf)`, is no
    origin, and the softmax of a row that is -inf throughout is one. Slow: for one step at a time.
    `function` runs to its end, or to the error that it raises.

    Args:
        function: computes a loss, a loss and its backward pass, or a whole step.
        model: gives its modules' names to `Origin.module`.
        infinities: False passes over infinities that are meant, such as log(0) in a mask.

    Returns:
        The origin, or None if all stayed finite.
    """
    watch = _Finite(infinities)
    spoilt = []
    with ExitStack() as stack:
        if model is not None:
            spoilt = [name for name, t in model.named_parameters() if _kinds(t)]
            spoilt += [name for name, t in model.named_buffers() if "nan" in _kinds(t)]
            for name, module in model.named_modules():
                stack.enter_context(_named(module, name or type(module).__name__, watch.running))
        stack.enter_context(_eager())
        stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
        stack.enter_context(watch)
        try:
            function()
        except Exception:
            if watch.origin is None:
                raise
    if spoilt:  # whatever came of them, they were there before
        met = watch.met or watch.origin or Origin("inf", "input", "", "", "", "")
        return replace(met, during="input", given=", ".join(spoilt))
    return watch.origin or watch.met


@contextmanager
def _named(module: nn.Module, name: str, running: list[str]) -> Iterator[None]:
    """Keep `name` in `running` while the module's forward pass runs; write it into its nodes."""
    entered: list[set[Any]] = []

    def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
        running.append(name)
        entered.append({v.grad_fn for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)})

    def leave(_: nn.Module, args: Any, out: Any) -> None:
        running.pop()
        seen = entered.pop() | {None}
        todo = [v.grad_fn for v in tree_leaves(out) if isinstance(v, Tensor)]
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
    """Watches operations for the first that makes a nan or an infinity."""

    def __init__(self, infinities: bool) -> None:
        super().__init__()
        self.infinities = infinities
        self.origin: Origin | None = None
        self.met: Origin | None = None
        self.running: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.origin is not None or op._opname in _BLANK:
            return op(*args, **kwargs)
        given = tree_leaves((args, kwargs))
        tensors = [v for v in given if isinstance(v, Tensor)]
        had = [_kinds(v) for v in given]  # before, because the operation may write into them
        said = _ranges(tensors) if any(had) else None
        ranges = _ranges(tensors) if not any(had) and op._schema.is_mutable else said
        out = op(*args, **kwargs)
        results = out[:1] if op._opname == "_ctc_loss" else out  # its second: -inf by design
        made = set().union(*(_kinds(v) for v in tree_leaves(results)))
        old = set().union(*had)
        new = "nan" if "nan" in made - old else ""
        if self.infinities and not new and made and not old:
            new = "inf"
        if new:
            self.origin = self._tell(new, op, ranges or _ranges(tensors))
        elif self.met is None and any("nan" in _kinds(v) for v in tensors):
            self.met = self._tell("nan", op, ranges or "", during="input")
        return out

    def _tell(self, made: str, op: Any, given: str, during: str = "forward") -> Origin:
        node = torch._C._current_autograd_node()
        line, module = _line()[1], self.running[-1] if self.running else ""
        if node is not None and during != "input":
            during, line, module = "backward", _recorded(node), node.metadata.get("module", "")
        return Origin(made, during, f"{op.namespace}.{op._opname}", line, module, given)


def _recorded(node: Any) -> str:
    """The line of the forward pass that recorded a node, which anomaly mode remembers."""
    inside = os.path.dirname(torch.__file__) + os.sep
    for text in reversed(node.metadata.get("traceback_", [])):
        first, _, line = text.strip().partition("\n")
        path = first.partition('"')[2].partition('"')[0]
        if path and path != __file__ and not path.startswith((inside, "<")):
            return line.strip().splitlines()[0] if line.strip() else first
    return node.name()


def _kinds(value: Any) -> set[str]:
    """`"nan"` and `"inf"`, as far as a number or a tensor holds them."""
    if isinstance(value, float):
        return {"nan"} if math.isnan(value) else {"inf"} if math.isinf(value) else set()
    values = _numbers(value)
    if values is None or values.isfinite().all():
        return set()
    return {
        kind for kind, test in (("nan", torch.isnan), ("inf", torch.isinf)) if test(values).any()
    }


def _numbers(value: Any) -> Tensor | None:
    """The floating-point numbers of a tensor, or None where there are none to look at."""
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
    """The smallest and the largest number of each tensor."""
    told = []
    for tensor in tensors:
        values = _numbers(tensor)
        if values is not None:
            low, high = values.min().item(), values.max().item()
            told.append(f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}")
    return ", ".join(told)


# ---------------------------------------------------------------- where do two models part?


@dataclass(frozen=True)
class Difference:
    """The first place where two models differ.

    Attributes:
        module: the name of the module in the first model.
        at: `"output"`, or `"input"` if what goes into the module differs already, so that the
            cause is a line between the modules.
        largest: the largest difference, or inf where shapes or structures differ.
        call: which call of this module, from 0.
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
    """The first module, in the order in which they finish, where two models part; None if nowhere.

    Both run on the same input, brought to each one's device and floating dtype, with the same
    random numbers and without gradients. Modules are compared by name; those that only one model
    has are passed over. Buffers such as BatchNorm's are left as they were.

    Args:
        first, second: the models, each in the mode in which it shall be compared.
        rtol: what counts as different, as a share of the largest value of the two; half precision
            and TF32 need about 1e-2.
        names: which name in the second model a name in the first one has, where they differ.

    Raises:
        ValueError: both models have modules in them, and none of the same name runs in both.
    """
    renamed = dict(names or {})
    one, two = (_record(model, inputs, named) for model in (first, second))
    shared = [(key, (renamed.get(key[0], key[0]), key[1])) for key in one]
    shared = [(mine, theirs) for mine, theirs in shared if theirs in two]
    inside = all(any(model.children()) for model in (first, second))
    if inside and not any(key[0] for key, _ in shared):
        raise ValueError("no module of the same name runs in both: tell `names`")
    for mine, theirs in shared:
        for at, a, b in zip(("input", "output"), one[mine], two[theirs], strict=True):
            largest, size = _gap(a, b)
            if not largest <= rtol * size:
                return Difference(mine[0], at, largest, mine[1])
    return None


def _record(model: nn.Module, inputs: Any, named: Any) -> dict[tuple[str, int], Any]:
    """What goes into each call of each module and comes out, as copies, in the order they end."""
    found: dict[tuple[str, int], Any] = {}
    calls: Counter[str] = Counter()

    def watch(name: str, module: nn.Module) -> Iterator[Any]:
        given: list[Any] = []
        yield module.register_forward_pre_hook(
            lambda _, args, kwargs: given.append(_copies((args, kwargs))), with_kwargs=True
        )

        def done(_: nn.Module, args: Any, out: Any) -> None:
            found[name, calls[name]] = given.pop(), _copies(out)
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
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    inputs, named = tree_map(fit, (inputs, named))
    try:
        with torch.no_grad(), _random_state([weight]), _eager():
            torch.func.functional_call(model, buffers, inputs, named)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _copies(value: Any) -> list[Tensor]:
    """Copies, because an activation with `inplace=True` overwrites what came before it."""
    tensors = [t.detach().clone().cpu() for t in tree_leaves(value) if isinstance(t, Tensor)]
    return [t.to(torch.cdouble if t.is_complex() else torch.double) for t in tensors]


def _gap(a: list[Tensor], b: list[Tensor]) -> tuple[float, float]:
    """The largest difference between tensors, and the largest value in them; nan equals nan."""
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
    """The tensors of a model and of anything else, by dtype and device, the most frequent first.

    Names are those of parameters and buffers; plain tensors among a module's attributes, also in
    lists, tuples and dictionaries, which `to()` does not move, are marked. `others` are such
    containers, too (a batch, `optimizer.state_dict()`), and their tensors have a path, such as
    `"[0]['image']"`. Needs no values, so lazy, fake and meta tensors will do.
    """
    found: dict[str, list[str]] = defaultdict(list)

    def add(name: str, t: Tensor) -> None:
        found[f"{str(t.dtype).removeprefix('torch.')} on {t.device}"].append(name)

    known = dict(itertools.chain(model.named_parameters(), model.named_buffers()))
    for name, t in known.items():
        add(name, t)
    own = ("_parameters", "_buffers", "_modules")
    seen = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
    for name, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if key not in own}
        for (first, *path), value in tree_leaves_with_path(plain):
            if isinstance(value, Tensor) and id(value) not in seen:
                place = f"{name}.{first.key}".lstrip(".") + keystr(tuple(path))
                add(f"{place} (plain attribute)", value)
    for path, value in tree_leaves_with_path(others):
        if isinstance(value, Tensor):
            add(keystr(path), value)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


# ---------------------------------------------------------------- what is never freed?


def leaks(step: Callable[[], Any], rounds: int = 4) -> dict[str, int]:
    """The lines whose tensors outlive every step, with the bytes that each step leaves behind.

    `step()` is called `rounds` times. A line is listed if, at the end, something of each round but
    the last is alive that this line made in it, on any device; so what is made once (the state of
    an optimizer, a cache) and what each step replaces (gradients) is not listed. Who holds it is
    another question: a list, an attribute, or the graph behind a loss that was kept. A store that
    is full after more rounds, such as a replay buffer, is listed until `rounds` is larger.

    Raises:
        ValueError: `rounds` is below 3; fewer do not tell growth from what is replaced.
    """
    if rounds < 3:
        raise ValueError(f"rounds must be at least 3, got {rounds}")
    made: list[dict[int, tuple[Any, str, int]]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = op(*args, **(kwargs or {}))
            for t in tree_leaves(out):
                if isinstance(t, Tensor) and t.layout is torch.strided:
                    storage = t.untyped_storage()
                    # a weak reference keeps the number from being given to another storage
                    if not any(storage._cdata in entries for entries in made):
                        entry = (StorageWeakRef(storage), _line()[1], storage.nbytes())
                        made[-1][storage._cdata] = entry
            return out

    with Watch(), _eager():
        for _ in range(rounds):
            made.append({})
            step()
    gc.collect()
    left = [Counter() for _ in made]
    for counter, entries in zip(left, made, strict=True):
        for reference, line, nbytes in entries.values():
            if not reference.expired():
                counter[line] += nbytes
    lines = set(left[0]).intersection(*left[1:-1])
    return {line: left[-2][line] for line in left[-2] if line in lines}


# ---------------------------------------------------------------- where does it hang?


@contextmanager
def watchdog(seconds: float, path: str | os.PathLike, exit: bool = False) -> Iterator[None]:
    """Write where Python's threads stand to `path` if the block takes longer than `seconds`.

    At most 100 threads, the newest first, each with its innermost 100 functions.

    It needs neither the interpreter's lock nor a terminal, so it also works while compiled code
    runs, and in a notebook. The block goes on; with `exit=True` the process ends. There is one
    such timer in a process.

    Source: https://docs.python.org/3/library/faulthandler.html
    """
    with open(path, "w") as file:
        faulthandler.dump_traceback_later(seconds, exit=exit, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def waiting_in(path: str | os.PathLike) -> list[str]:
    """The functions that the main thread was in, the innermost first; empty if it was in time.

    Raises:
        ValueError: the dump ends before the main thread, because there are more than 100.
    """
    text = Path(path).read_text()
    if text.endswith("\n...\n"):
        raise ValueError(f"expected a dump with the main thread; {path} ends after 100 others")
    *_, main = re.split(r"^(?:Current t|T)hread .*\n", text, flags=re.M)
    return re.findall(r'^  File ".*", line \d+ in (.+)$', main, re.M)
