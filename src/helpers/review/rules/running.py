"""Values that run over the steps: decays, totals of all processes, statistics, saved states."""

import ast
import re

from helpers.review.axes import axes
from helpers.review.kinds import batch_loop
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    exclusive,
    is_inside,
    method,
    name_of,
    names_in,
    place,
    receiver,
)
from helpers.review.tracing import construction

_DECAY = re.compile(r"(?i)(decay|momentum|ema_?(rate|beta|alpha)|^beta|^alpha|^tau|keep_rate)$")


@rule("fine-tuning-average-decay", "wrong", "min(")
def decay_overwritten(code):
    """`self.decay = min(self.decay, (1 + n) / (10 + n))` in each step: it keeps the first value."""
    for node in code.nodes_of(ast.Assign):
        name = name_of(node.targets[0]) if len(node.targets) == 1 else None
        if not name or not _DECAY.search(name.rpartition(".")[2]) or "lr" in name:
            continue
        least = [
            child
            for child in descendants(node.value)
            if name_of(getattr(child, "func", None)) == "min"
        ]
        if len(least) != 1 or len(least[0].args) != 2 or name not in map(name_of, least[0].args):
            continue
        other = next(arg for arg in least[0].args if name_of(arg) != name)
        if _rises(code, other) and _in_each_step(node, name):
            yield node


def _rises(code, node):
    """Return True for a quotient of a step count, such as `(1 + n) / (10 + n)`."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if not isinstance(value, ast.AST):
        return False
    quotients = [
        operation
        for operation in descendants(value)
        if isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Div)
    ]
    return any(
        names_in(quotient.right)
        and any(isinstance(n, ast.BinOp | ast.Constant) for n in descendants(quotient))
        and any(const(n) is not None for n in descendants(quotient.right))
        for quotient in quotients
    )


def _in_each_step(node, name):
    """Return whether a method other than `__init__`, or a loop, updates the setting."""
    if name.startswith("self.") and node.owner is not None:
        assignments = [
            assignment
            for assignment in node.owner.attributes[name]
            if getattr(assignment.statement.scope, "name", "") == "__init__"
        ]
        return len(assignments) == 1 and len(node.owner.attributes[name]) == 2
    loops = [*ancestors(node, *LOOPS)]
    if not loops or not isinstance(node.targets[0], ast.Name):
        return False
    inner = [v for v in node.scope.assigned.get(name, ()) if is_inside(v.statement, loops[-1])]
    return len(inner) == 1


# ---------------------------------------------------------------- totals of all processes


@rule("distributed-metric-running", "wrong", "all_reduce|reduce_|gather|aggregate")
def total_reduced_again(code):
    """`total += …; dist.all_reduce(total)` for each batch: earlier sums are added again."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not batch_loop(code, loop):
            continue
        if any(method(other_call) == "zero_" for other_call in code.calls_under(loop)):
            continue
        for call in code.calls_under(loop):
            inner = next(ancestors(call, *LOOPS), None)
            if inner is not loop and (inner is None or not is_inside(inner, loop)):
                continue
            name = _reduced_name(code, call)
            if name and _adds_to_earlier_value(code, loop, name, call):
                yield call


def _reduced_name(code, call):
    """Return the name that `dist.all_reduce(total)` or a local function reduces."""
    op = argument(call, "op", 1)
    if code.called(call) == "dist.all_reduce":
        summed = op is None or re.search(r"SUM|AVG", ast.unparse(op))
        return name_of(call.args[0]) if call.args and summed else None
    parent = call.parent
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not call.args:
        return None
    name = name_of(parent.targets[0])
    if name is None or name_of(call.args[0]) != name:
        return None
    functions = code.targets(call)
    reduces = len(functions) == 1 and any(
        code.called(other_call) == "dist.all_reduce"
        for other_call in code.calls_under(functions[0], 2)
    )
    return name if reduces else None


def _adds_to_earlier_value(code, loop, name, call):
    """Return whether a loop adds to a value that is set before the loop."""
    if "[" in name:
        return False
    values = loop.scope.assigned.get(name, ())
    before = code.assigned_before(loop.scope, name, loop)
    if not before:
        return False
    fresh = [
        assignment
        for assignment in values
        if is_inside(assignment.statement, loop)
        and assignment.statement is not call.parent
        and name not in _names_read(assignment.value)
    ]
    added = any(
        isinstance(node, ast.AugAssign)
        and name_of(node.target) == name
        and isinstance(node.op, ast.Add)
        for node in code.walk(loop)
    )
    grown = [
        assignment
        for assignment in values
        if is_inside(assignment.statement, loop)
        and assignment.statement is not call.parent
        and name in _names_read(assignment.value)
    ]
    under = [branch for branch in ancestors(call, ast.If) if is_inside(branch, loop)]
    return not fresh and (added or bool(grown)) and not under


def _names_read(value):
    return names_in(value if isinstance(value, ast.AST) else value.value)


# ---------------------------------------------------------------- one BatchNorm for several layers


@rule("normalization-shared", "wrong", "BatchNorm")
def one_norm_for_layers(code):
    """`self.bn(self.conv1(x))` and `self.bn(self.conv2(x))`: one set of running statistics."""
    for (owner, name), forward in code.functions.items():
        if owner is None or name != "forward":
            continue
        layers = {}
        for call in code.calls_under(forward):
            norm = name_of(call.func) or ""
            if not norm.startswith("self.") or len(call.args) != 1 or "[" in norm:
                continue
            if not re.match(r"nn\.(Sync)?BatchNorm", code.called(construction(code, call.func))):
                continue
            layers.setdefault(norm, []).append((call, _layer_of(code, call.args[0])))
        for pairs in layers.values():
            values = [pair for _, pair in pairs]
            several = len({*values}) == len(values) > 1 and None not in values
            if several and not any(exclusive(pairs[0][0], pair) for pair, _ in pairs[1:]):
                yield pairs[1][0]


def _layer_of(code, node, depth=0):
    """Return the attribute of the layer with parameters that computes an expression."""
    if depth > 5:
        return None
    if isinstance(node, ast.Name):
        value = code.value(node)
        return _layer_of(code, value, depth + 1) if isinstance(value, ast.AST) else None
    if not isinstance(node, ast.Call):
        return None
    layer = code.called(construction(code, node.func)) if not code.called(node) else ""
    if re.match(r"nn\.(Linear|Conv(Transpose)?\dd|LazyLinear|LazyConv\dd|Bilinear)$", layer):
        name = name_of(node.func)
        return name if name and name.startswith("self.") and "[" not in name else None
    if code.called(node) in ("F.relu", "F.leaky_relu", "F.dropout", "torch.relu") and node.args:
        return _layer_of(code, node.args[0], depth + 1)
    if layer in ("nn.ReLU", "nn.Dropout", "nn.LeakyReLU", "nn.MaxPool2d") and node.args:
        return _layer_of(code, node.args[0], depth + 1)
    return None


# ---------------------------------------------------------------- states loaded before `setup()`


@rule("checkpoints-resume-none", "wrong", "load_state_dict")
def loaded_before_made(code):
    """`if self.optimizer is not None: self.optimizer.load_state_dict(…)` before `setup()`."""
    for node in code.nodes_of(ast.If):
        name = _guarded_attribute(node)
        resume = code.function_of(node)
        if name is None or node.orelse or not isinstance(resume, FUNCTIONS) or node.owner is None:
            continue
        assignments = node.owner.attributes.get(name, [])
        scopes = {
            assignment.statement.scope
            for assignment in assignments
            if not _is_none(assignment.value)
        }
        constructor = code.functions.get((node.owner.name, "__init__"))
        if (
            not scopes
            or constructor is None
            or len(scopes) == len({assignment.statement.scope for assignment in assignments})
        ):
            continue
        late = _reaching_methods(code, node.owner, scopes)
        if constructor in late or resume in late:
            continue
        if _is_resumed_first(code, resume, late):
            yield node


def _guarded_attribute(node):
    """Return `self.optimizer` of `if self.optimizer is not None …: self.optimizer.load…`."""
    tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
    names = [
        name_of(test.left)
        for test in tests
        if isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and const(test.comparators[0]) is None
        and isinstance(test.comparators[0], ast.Constant)
    ]
    names += [name_of(test) for test in tests if name_of(test)]
    loads = [
        name_of(receiver(call))
        for statement in node.body
        for call in descendants(statement)
        if method(call) == "load_state_dict"
    ]
    words = [name for name in names if name and name.startswith("self.") and name in loads]
    return words[0] if len(words) == 1 else None


def _is_none(value):
    return isinstance(value, ast.Constant) and value.value is None


def _reaching_methods(code, owner, scopes):
    """Return the methods that assign, and the methods that call them through `self`."""
    reaching = set(scopes)
    for _ in range(4):
        for (name, _method), function in code.functions.items():
            if name != owner.name or function in reaching:
                continue
            calls = [
                call for call in code.calls_under(function) if name_of(receiver(call)) == "self"
            ]
            inner = [code.functions.get((owner.name, method(call))) for call in calls]
            if any(callee in reaching for callee in inner):
                reaching.add(function)
    return reaching


def _is_resumed_first(code, resume, late):
    """Return whether each object calls `resume` before it creates the attribute."""
    names = {function.name for function in late}
    orders = []
    for call in code.calls:
        if method(call) != resume.name or receiver(call) is None or code.called(call):
            continue
        others = [
            other_call
            for other_call in code.calls_under(code.function_of(call))
            if method(other_call) in names
            and name_of(receiver(other_call)) == name_of(receiver(call))
        ]
        before = [other for other in others if place(other) < place(call)]
        orders.append(bool(others) and not before)
    return bool(orders) and all(orders)


# ---------------------------------------------------------------- the norm of a gradient


@rule("gan-penalty-norm", "wrong", "grad(")
def norm_of_one_axis(code):
    """`(g.norm(2, dim=1) - 1) ** 2` of the gradient of images: the norm over the channels."""
    for call in code.calls_named("norm"):
        if code.called(call).startswith("nn."):
            continue
        function = code.called(call) == "torch.norm"
        operand = call.args[0] if function and call.args else receiver(call)
        dim = argument(call, "dim", 1 + function)
        if code.const(dim) != 1 or not isinstance(operand, ast.Name):
            continue
        if _less_one(call) and _gradient_of(code, operand):
            yield call


def _less_one(call):
    parent = call.parent
    return (
        isinstance(parent, ast.BinOp)
        and isinstance(parent.op, ast.Sub)
        and const(parent.right) == 1
    )


def _gradient_of(code, name):
    """Return whether the name is `autograd.grad(…, inputs=mixed)[0]` of over two axes."""
    value = code.value(name)
    value = value.value if isinstance(value, ast.Subscript) else getattr(value, "value", value)
    if method(value) != "grad":
        return False
    mixed = argument(value, "inputs", 1)
    mixed = mixed.elts[0] if isinstance(mixed, ast.List | ast.Tuple) and mixed.elts else mixed
    source = code.value(mixed) if isinstance(mixed, ast.Name) else None
    for _ in range(6):
        if method(source) not in ("requires_grad_", "detach", "clone", "to", "cuda", "Variable"):
            break
        inner = source.args[0] if method(source) == "Variable" and source.args else receiver(source)
        source = code.value(inner) if isinstance(inner, ast.Name) else inner
    parts = (
        [node for node in descendants(source) if isinstance(node, ast.Name | ast.Call)]
        if isinstance(source, ast.AST)
        else []
    )
    return any((axes(code, part) or 0) > 2 for part in parts)
