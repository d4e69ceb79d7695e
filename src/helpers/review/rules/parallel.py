"""Gradients that DDP does not average across the processes."""

import ast
import re

from helpers.review.kinds import MOVES, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    ancestors,
    argument,
    descendants,
    exclusive,
    is_inside,
    is_open,
    last_name,
    method,
    name_of,
    place,
    receiver,
)
from helpers.review.tracing import construction

_BY_HAND = re.compile(r"all_reduce\(\w*[^)\n]*\.grad|(?i:average|sync|reduce)_?grad")


@rule("distributed-around", "wrong", "DistributedDataParallel")
def wrapper_bypassed(code):
    """`ddp.module(x)` in a training step: only the wrapper's own call prepares the averaging."""
    if _BY_HAND.search(code.source):
        return
    for call in code.calls:
        wrapper = _wrapper_around(code, call.func)
        if wrapper is None or no_graph(code, call) or not trained_with(code, call):
            continue
        function = code.function_of(call)
        if not any(
            name_of(other_call.func) == wrapper for other_call in code.calls_under(function)
        ):
            yield call


def _wrapper_around(code, func):
    """Return `model` of `model.module(x)` and `model.module.loss(x)`, even through a name."""
    node = func.value if isinstance(func, ast.Attribute) and func.attr != "module" else func
    value = code.resolved(node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.Call) and not value.args:  # a method that unwraps the model
        targets = code.targets(value)
        values = code.return_values(targets[0]) if targets else []
        value = next((expression for expression in values if _is_module_of(expression)), None)
    if isinstance(value, ast.IfExp):
        value = next((arm for arm in (value.body, value.orelse) if _is_module_of(arm)), None)
    return name_of(value.value) if _is_module_of(value) else None


def _is_module_of(node):
    named = isinstance(node, ast.Attribute) and node.attr == "module"
    return named and re.search(
        r"(?i)model|net|ddp|parallel|wrap|^self\.[gd]$|^[gd]$", name_of(node.value) or ""
    )


def trained_with(code, node):
    """Return whether a value is differentiated later in its function, even through names."""
    function, seen = code.function_of(node), set()
    waiting = [node]
    while waiting:
        read = waiting.pop()
        while not isinstance(read, ast.stmt):
            if method(read) in ("backward", "manual_backward") and read is not node:
                return True
            if isinstance(read, ast.Lambda) or read.parent is None:
                break
            read = read.parent
        if not isinstance(read, ast.Assign | ast.AugAssign):
            continue
        targets = read.targets if isinstance(read, ast.Assign) else [read.target]
        for name in {
            n.id for t in targets for n in descendants(t) if isinstance(n, ast.Name)
        } - seen:
            seen.add(name)
            waiting += [
                use
                for use in code.uses(function, name)
                if place(use) > place(node) and len(seen) < 12
            ]
    return False


@rule("distributed-losses", "wrong", "DistributedDataParallel")
def second_backward(code):
    """`real, fake = ddp(x), ddp(z)`, then two backward passes: the second is not averaged."""
    wrapped = [call for call in code.calls if _is_wrapper(code, call.func)]
    for function in dict.fromkeys(map(code.function_of, wrapped)):
        names = {name_of(call.func) for call in wrapped if code.function_of(call) is function}
        for name in (
            names if not re.search(r"no_sync|require_backward_grad_sync", code.source) else ()
        ):
            yield from _not_averaged(code, function, name)


def _is_wrapper(code, func):
    """Return True for a name whose value is a model in DDP."""
    value = code.resolved(func) if name_of(func) and not code.dotted(func) else None
    return code.called(value) == "nn.DistributedDataParallel"


def _not_averaged(code, function, name):
    """Yield each backward pass of a wrapped model without a new forward pass before it."""
    last = None
    for call in sorted(code.calls_under(function), key=place):
        if name_of(call.func) == name and not no_graph(code, call):
            last = None
        elif method(call) == "backward" and not code.called(call) and receiver(call) is not None:
            if not _computed_with(code, receiver(call), name, 0):
                continue
            body = call.parent.parent
            if last is not None and last.parent.parent is body and not exclusive(last, call):
                yield call
            last = call


def _computed_with(code, node, name, depth):
    """Return whether a value is computed from a call of this name without `detach`."""
    waiting = [node]
    while waiting:
        child = waiting.pop()
        if isinstance(child, ast.Call):
            if method(child) in ("detach", "item", "numpy", "tolist"):
                continue
            if name_of(child.func) == name:
                return True
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and depth < 5:
            value = code.value(child)
            value = value if isinstance(value, ast.AST) else getattr(value, "value", None)
            is_expression = isinstance(value, ast.AST) and not is_inside(node, value)
            if is_expression and not no_graph(code, value):
                if _computed_with(code, value, name, depth + 1):
                    return True
        waiting.extend(ast.iter_child_nodes(child))
    return False


@rule("checkpoints-prefix", "raises", "DataParallel|torch.compile")
def keys_with_prefix(code):
    """`torch.save(ddp.state_dict(), path)` and `net.load_state_dict(torch.load(path))`."""
    if re.search(
        r"module\.[\"']|\.module\b|_orig_mod|consume_prefix|strict=False|unwrap", code.source
    ):
        return
    wrapped = {
        target
        for assignment in code.nodes_of(ast.Assign)
        if _WRAPPERS.search(code.called(_unmoved(assignment.value)))
        and (target := name_of(assignment.targets[0]))
    }
    saved = {
        ast.dump(call.args[1])
        for call in code.calls_to("torch.save")
        if len(call.args) == 2
        if method(call.args[0]) == "state_dict" and name_of(receiver(call.args[0])) in wrapped
    }
    for call in code.calls if saved else ():
        operand = call.args[0] if method(call) == "load_state_dict" and call.args else None
        loaded = code.resolved(operand) if isinstance(operand, ast.Name) else operand
        same = code.called(loaded) == "torch.load" and ast.dump(loaded.args[0]) in saved
        if same and not _wrapped(code, call):
            yield call


_WRAPPERS = re.compile(r"DataParallel$|^torch\.compile$")  # they prepend a prefix to each name


def _unmoved(node):
    """Return `x` of `x.cuda()` and `x.to(device)`."""
    while method(node) in ("to", "cuda") and receiver(node) is not None:
        node = receiver(node)
    return node


def _wrapped(code, call):
    """Return True unless the model that is loaded is known and is no wrapper."""
    value = code.value(receiver(call)) if name_of(receiver(call)) else None
    if not isinstance(value, ast.Call):
        return True
    return _WRAPPERS.search(code.called(_unmoved(value))) is not None


@rule("data-parallel-no-sampler", "wrong", "DistributedDataParallel")
def whole_set_in_each_process(code):
    """`DataLoader(train_set, shuffle=True)` next to DDP: each process has the whole dataset."""
    shared = r"DistributedSampler|Iterable|accelerat|prepare\(|split_dataset_by_node|num_replicas"
    by_rank = r"Subset\([^\n]*rank|\[[^\n\]]*rank[^\n\]]*::|shard\(|batch_sampler"
    if re.search(f"(?i){shared}|{by_rank}", code.source):
        return
    if not any(last_name(call.func) in ("DistributedDataParallel", "DDP") for call in code.calls):
        return
    for call in code.calls_to("data.DataLoader"):
        if is_open(call) or argument(call, "sampler", 3):
            continue
        name = name_of(call.parent.targets[0]) if isinstance(call.parent, ast.Assign) else ""
        if code.const(argument(call, "shuffle", 2)) is True and name:
            yield call


@rule("data-parallel-attribute", "raises", "DataParallel")
def attribute_of_wrapper(code):
    """`nn.DataParallel(net).encode(x)`: the wrapper has no attribute of the wrapped model."""
    for node in code.nodes_of(ast.Attribute):
        if node.attr in _OF_MODULES or not name_of(node.value) or name_of(node.value) == "self":
            continue
        wrapper = code.value(node.value)
        while method(wrapper) in MOVES and receiver(wrapper) is not None:
            wrapper = receiver(wrapper)
        if not isinstance(wrapper, ast.Call) or not _PARALLEL.fullmatch(code.called(wrapper)):
            continue
        inner = construction(code, wrapper.args[0]) if wrapper.args else None
        owned = inner is not None and _has_attribute(code, inner, node.attr)
        guarded = any(ancestors(node, ast.If, ast.Try, ast.IfExp)) or "hasattr" in code.source
        if owned and not guarded and isinstance(node.ctx, ast.Load) and not _getattr(code):
            yield node


_PARALLEL = re.compile(
    r"nn\.(DataParallel|DistributedDataParallel)|[\w.]*\.DistributedDataParallel"
)
_OF_MODULES = {
    *("module", "forward", "train", "eval", "parameters", "named_parameters", "modules", "to"),
    *("state_dict", "load_state_dict", "zero_grad", "cuda", "cpu", "half", "float", "training"),
    *("children", "named_children", "named_modules", "buffers", "apply", "device", "device_ids"),
    *("requires_grad_", "double", "no_sync", "dim", "output_device", "type", "bfloat16", "reducer"),
}
_PARTS = re.compile(r"fc|classifier|features|layer[1-4]|conv1|avgpool|heads?|encoder|blocks")


def _has_attribute(code, constructor, name):
    """Return whether the class of a model has a method or an attribute of this name."""
    if code.called(constructor).startswith(("models.", "timm.")):
        return bool(_PARTS.fullmatch(name))
    owner = getattr(constructor.func, "id", "")
    return any(
        (base.name, name) in code.functions or f"self.{name}" in base.attributes
        for base in code.bases(owner)
    )


def _getattr(code):
    """Return whether a class of the file subclasses the wrapper, as with `__getattr__`."""
    return any(name == "__getattr__" for _, name in code.functions)
