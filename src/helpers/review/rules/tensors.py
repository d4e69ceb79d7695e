"""Operations whose result is lost or differs from the expected one."""

import ast
import re

from helpers.review.kinds import MOVES, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    descendants,
    is_inside,
    is_open,
    method,
    name_of,
    names_in,
    receiver,
)

_PURE = {
    "detach",
    "clamp",
    "squeeze",
    "unsqueeze",
    "permute",
    "view",
    "contiguous",
    "clone",
    "softmax",
    "log_softmax",
    "argmax",
    "expand",
    "masked_fill",
    "type_as",
    "view_as",
    "sigmoid",
    "relu",
    "normalize",
    "flatten",
    "transpose",
    "reshape",
}


@rule("tensors-convert-lost", "wrong")
def result_unused(code):
    """`x.to(device)` of a tensor as a statement: `x` stays where it was."""
    yield from _moved_in_loop(code)
    for node in code.nodes_of(ast.Expr):
        if not isinstance(node.value, ast.Call):
            continue
        call = node.value
        base = receiver(call)
        if _JOINS.fullmatch(code.dotted(call.func) or "") and not argument(call, "out"):
            if not code.is_display(node) and not isinstance(node.parent, ast.With | ast.Module):
                yield node
        if base is None or code.dotted(call.func) or code.is_display(node):
            continue
        gradient = (name_of(base) or "").removesuffix(".data").endswith(".grad")
        tensor = gradient or kind(code, base) in ("tensor", "loss")
        if method(call) in _PURE | MOVES - {"type"} and tensor:
            if not any(ancestors(node, ast.Try)) and not isinstance(node.parent, ast.With):
                yield node


_JOINS = re.compile(r"torch\.(cat|stack|unsqueeze|squeeze|permute|transpose|clamp|reshape|flatten)")


def _moved_in_loop(code):
    """`for key, v in batch.items(): v = v.to(device)`: the entry of the dict stays the same."""
    for loop in code.nodes_of(ast.For):
        over_dict = method(loop.iter) in ("items", "values") and not code.called(loop.iter)
        names = {node.id for node in descendants(loop.target) if isinstance(node, ast.Name)}
        last = loop.body[-1]
        if not over_dict or len(loop.body) != 1 or not isinstance(last, ast.Assign):
            continue
        name = name_of(last.targets[0])
        if (
            name in names
            and method(last.value) in ("to", "cuda")
            and name_of(receiver(last.value)) == name
        ):
            if not any(use.lineno > last.lineno for use in code.uses(loop.scope, name)):
                yield last


@rule("tensors-type-string", "wrong")
def type_compared(code):
    """`x.type() == torch.float32`: a string is never equal to a dtype."""
    dtype = re.compile(r"torch\.(float|int|half|long|double|bool|uint|bfloat)\w*")
    for node in code.nodes_of(ast.Compare):
        if method(node.left) == "type" and not node.left.args:
            if (
                isinstance(node.left.func, ast.Attribute)
                and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is)
                and dtype.fullmatch(code.dotted(node.comparators[0]) or "")
            ):
                yield node


@rule("tensor-recipes-lost", "wrong")
def shuffled_tensor(code):
    """`random.shuffle(tensor)` repeats and loses rows."""
    for call in code.calls_to("random.shuffle", "numpy.random.shuffle"):
        if call.args:
            if kind(code, call.args[0]) == "tensor" and code.called(call) == "random.shuffle":
                yield call


@rule("tensors-appended-shared", "wrong")
def one_buffer(code):
    """`buffer[:] = x` and `rows.append(buffer)` in a loop: all entries are one array."""
    constructors = re.compile(r"(torch|numpy)\.(zeros|empty|ones|zeros_like|empty_like)")
    for call in code.calls:
        operand = call.args[0] if method(call) == "append" and len(call.args) == 1 else None
        loop = next(ancestors(call, *LOOPS), None)
        if loop is None or not isinstance(operand, ast.Name):
            continue
        values = call.scope.assigned.get(operand.id, ())
        if len(values) != 1 or not constructors.fullmatch(code.called(values[0].value)):
            continue
        outside = values[0].statement.lineno < loop.lineno
        written = [
            assignment
            for assignment in code.walk(loop)
            if isinstance(assignment, ast.Assign)
            and isinstance(assignment.targets[0], ast.Subscript)
            if name_of(assignment.targets[0].value) == operand.id
            and assignment.lineno < call.lineno
        ]
        listed = name_of(receiver(call))
        kept = call.scope.assigned.get(listed or "", ())
        created_in_loop = any(
            is_inside(assignment.statement, loop) for assignment in kept
        )  # a new list in each pass
        if outside and written and not created_in_loop:
            yield call


@rule("tensor-recipes-where-nan", "wrong")
def where_nan(code):
    """`torch.where(x > 0, x.sqrt(), 0)`: the gradient of the other branch is nan."""
    for call in code.calls_to("torch.where"):
        if len(call.args) != 3 or no_graph(code, call):
            continue
        for arm in map(code.resolved, call.args[1:]):
            if method(arm) in ("sqrt", "log") and isinstance(arm.func, ast.Attribute):
                operand = arm.args[0] if code.dotted(arm.func) and arm.args else receiver(arm)
                if name_of(operand) and name_of(operand) in names_in(call.args[0]):
                    yield call


@rule("tensors-default-type", "wasted")
def default_type(code):
    """`torch.set_default_tensor_type`, which is deprecated."""
    yield from code.calls_to("torch.set_default_tensor_type")


@rule("grad-modes-variable", "wrong")
def volatile(code):
    """`Variable(x, volatile=True)`: it has no effect any more."""
    for call in code.calls:
        if (
            code.called(call).endswith("autograd.Variable")
            and argument(call, "volatile") is not None
        ):
            yield call


@rule("fine-tuning-pretrained-warns", "wasted")
def pretrained(code):
    """`models.resnet18(pretrained=True)`, which is deprecated."""
    for call in code.calls:
        if (
            re.match(r"models\.[a-z]", code.called(call))
            and argument(call, "pretrained") is not None
        ):
            yield call


@rule("tensors-scalar-graph", "wrong")
def tensor_of_losses(code):
    """`torch.tensor([loss_a, loss_b])` cuts the graph; the sum has no gradient."""
    for call in code.calls_to("torch.tensor"):
        if call.args and isinstance(call.args[0], ast.List):
            items = call.args[0].elts
            if len(items) > 1 and all(kind(code, item) == "loss" for item in items):
                target = call.parent
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr in ("sum", "mean")
                    and not no_graph(code, call)
                ) and (
                    isinstance(target.parent.parent, ast.Assign)
                    and name_of(target.parent.parent.targets[0]) in call.scope.backward
                ):
                    yield call

    yield from _tensor_of_list(code)


def _tensor_of_list(code):
    """`torch.tensor(log_probs)` in a differentiated loss: it cuts the graphs of the elements."""
    for call in code.calls:
        name = code.called(call)
        operand = call.args[0] if name in ("torch.tensor", "torch.FloatTensor") and call.args else 0
        if not name_of(operand) or argument(call, "requires_grad") or no_graph(code, call):
            continue
        filled = _appended_values(code, operand)
        if filled and all(map(_has_graph, filled)) and _in_loss(call):
            yield call


def _appended_values(code, node):
    """Return the values that `append` adds to a list of this function or of the object."""
    name = name_of(node)
    if isinstance(node, ast.Name):
        function = code.function_of(node)
        local = isinstance(code.value(node), ast.List)
        calls = code.methods(
            function if local and name in function.assigned else code.tree, "append"
        )
    else:
        calls = [call for call in code.calls_named("append") if call.owner is node.owner]
    return [
        call.args[0] for call in calls if name_of(receiver(call)) == name and len(call.args) == 1
    ]


def _has_graph(node):
    """Return True for `dist.log_prob(action)` with its graph, even with a sign or a weight."""
    written = ast.unparse(node)
    return "log_prob(" in written and not re.search(r"item\(|detach|numpy|\.data\b", written)


def _in_loss(node):
    """Return whether the expression around the node, or its name, is differentiated."""
    statement = next(ancestors(node, ast.Assign), None)
    if statement is None:
        return any(method(call) == "backward" for call in ancestors(node, ast.Call))
    return name_of(statement.targets[0]) in node.scope.backward


@rule("modules-plain-error", "wrong")
def plain_tensor(code):
    """`self.scale = torch.randn(2)` in a module: it stays on the CPU and is not saved."""
    from helpers.review.rules.modules import module_classes

    for node in module_classes(code):
        for name, values in node.attributes.items():
            if name.count(".") != 1 or len(values) != 1:
                continue
            assignment = values[0]
            value, _moved = assignment.value, False
            while method(value) in ("to", "cuda") and receiver(value):
                value, _moved = receiver(value), True
            if _left_on_cpu(code, node, name, assignment):
                yield assignment.statement
            if code.called(value) not in ("torch.randn", "torch.rand") or is_open(value):
                continue
            if (
                assignment.statement.scope is not code.tree
                and _is_no_leaf(code, value, name)
                and getattr(assignment.statement.scope, "name", "") == "__init__"
                and _used_in_forward(code, node, name)
            ):
                yield assignment.statement


_MADE = re.compile(r"torch\.(zeros|ones|arange|linspace|eye|tril|triu|full|FloatTensor|tensor)$")


def _left_on_cpu(code, owner, name, assignment):
    """Return whether a computed tensor is added to the input of `forward` on another device."""
    source = code.source_of(owner)
    if not re.search(r"\.cuda\(|\.to\((device|args\.device|['\"]cuda)", code.source) or re.search(
        r"device|\.to\(|\.cuda\(|type_as|register_buffer|nn\.Parameter", source
    ):
        return False
    value = assignment.value
    for _ in range(6):
        if isinstance(value, ast.Name):
            value = code.value(value)
        elif isinstance(value, ast.Call) and not code.called(value):
            value = receiver(value)
        elif isinstance(value, ast.Subscript):
            value = value.value
        else:
            break
    creator = code.called(value)
    if not _MADE.match(creator) or getattr(assignment.statement.scope, "name", "") != "__init__":
        return False
    if creator == "torch.tensor" and value.args and not isinstance(value.args[0], ast.List):
        return False  # a number may be on another device
    forward = code.functions.get((owner.name, "forward"))
    return forward is not None and any(
        isinstance(node, ast.BinOp)
        and name
        in (
            name_of(s.value if isinstance(s, ast.Subscript) else s) for s in (node.left, node.right)
        )
        for node in code.walk(forward)
    )


def _is_no_leaf(code, value, name):
    """Return whether no gradient is required, or no optimizer of the file contains the tensor."""
    if code.const(argument(value, "requires_grad")) is None:
        return True
    reads = re.findall(rf"(?<!self)\.{name[5:]}\b|\[{re.escape(name)}\b", code.source)
    return not reads and "optim" in code.source and ".parameters()" in code.source


def _used_in_forward(code, node, name):
    forward = code.functions.get((node.name, "forward"))
    return forward is not None and re.search(rf"{re.escape(name)}\b", code.source_of(forward))


@rule("tensors-item-backward", "raises")
def backward_of_number(code):
    """`loss.item().backward()`."""
    for call in code.calls:
        if (
            method(call) == "backward"
            and method(receiver(call)) in ("item", "detach")
            or method(call) == "backward"
            and _sum_of_numbers(code, receiver(call))
        ):
            yield call


def _sum_of_numbers(code, node):
    """Return True for `sum(loss.item() for loss in losses)`, even through a name."""
    value = code.resolved(node) if isinstance(node, ast.Name) else node
    operand = value.args[0] if method(value) == "sum" and len(value.args) == 1 else None
    return isinstance(operand, ast.GeneratorExp | ast.ListComp) and method(operand.elt) == "item"
