"""Values that are computed and never used."""

import ast
import re

from helpers.review.kinds import batch_loop, is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    descendants,
    exclusive,
    is_inside,
    method,
    name_of,
    names_in,
)
from helpers.review.tracing import is_loss_call

_TARGET = re.compile(
    r"(?i)^(y|ys|gt|labels?|targets?|(true|target|gt|batch)_\w+|\w+_(labels?|gt))$"
)


def assignments(code):
    """Yield scope, name and statement of each `name = call(…)` in a scope with `backward()`."""
    for scope in code.scopes:
        for name, values in scope.assigned.items() if scope.backward else ():
            if name.isidentifier() and not name.startswith("_"):
                for assignment in values:
                    plain = isinstance(assignment.statement, ast.Assign)
                    if plain and assignment.statement.value is assignment.value:
                        if isinstance(assignment.value, ast.Call) and name_of(
                            assignment.statement.targets[0]
                        ):
                            yield scope, name, assignment.statement


@rule("losses-unused", "wrong")
def loss_unused(code):
    """`loss_b = criterion(model(b), y)` that is never read, next to `loss_a.backward()`."""
    for scope, name, statement in assignments(code):
        if re.search(r"(?i)val|test|eval|dev", name):
            continue
        if is_loss_call(code, statement.value) and not code.uses(scope, name):
            if any(ancestors(statement, *LOOPS)) and not no_graph(code, statement):
                yield statement
    yield from _penalty_printed(code)


_PENALTY = re.compile(r"(?i)(^|_)(penalty|gp|regulari[sz]ation|kld|kl_loss|reg_loss)$")


def _penalty_printed(code):
    """`gp = gradient_penalty(real, fake)`, which is printed and not added to a loss."""
    for scope in code.scopes:
        for name, values in scope.assigned.items() if scope.backward else ():
            if not _PENALTY.search(name) or len(values) != 1 or name in scope.backward:
                continue
            statement = values[0].statement
            loop = next(ancestors(statement, *LOOPS), None)
            if loop is None or not isinstance(statement, ast.Assign) or no_graph(code, statement):
                continue
            if not any(isinstance(node, ast.Call) for node in descendants(statement.value)):
                continue
            if not code.methods(loop, "backward") or re.search(
                "item|detach", code.source_of(statement)
            ):
                continue
            if all(_is_read_as_number(use) for use in code.uses(scope, name)):
                yield statement


def _is_read_as_number(node):
    """Return True for a value that is read as a number, as in `gp.item()` and `print(gp)`."""
    parent = node.parent
    number = isinstance(parent, ast.Attribute) and parent.attr in ("item", "detach", "data", "cpu")
    return number or isinstance(parent, ast.FormattedValue) or method(parent) in ("print", "float")


@rule("losses-overwritten", "wrong")
def loss_overwritten(code):
    """`loss += a`, then `loss = b` where `+=` is meant: the first term is lost."""
    for node in code.nodes_of(ast.AugAssign):
        name = name_of(node.target)
        if not name or "loss" not in name.lower() or not isinstance(node.op, ast.Add):
            continue
        later = _next_store(node, name)
        if later is not None and not exclusive(node, later):
            yield later


def _next_store(node, name):
    """Return a plain assignment to the name below a statement, if nothing reads it before."""
    body, position = _block_of(node)
    while position is not None:
        for statement in body[position + 1 :]:
            store = _stored_value(statement, name)
            if store is not None or name in names_in(statement):
                return store
        parent = body[position].parent
        if not isinstance(parent, ast.If):
            return None
        body, position = _block_of(parent)
    return None


def _block_of(node):
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node.parent, field, None)
        if isinstance(block, list) and node in block:
            return block, block.index(node)
    return [], None


def _stored_value(statement, name):
    """Return `name = value`, even as the only assignment to the name in an `if`."""
    if isinstance(statement, ast.If) and not names_in(statement.test) & {name}:
        stores = [inner for inner in statement.body if _stored_value(inner, name) is not None]
        read = [
            inner for inner in statement.body if name in names_in(inner) and inner not in stores
        ]
        return stores[0] if len(stores) == 1 and not read and not statement.orelse else None
    plain = isinstance(statement, ast.Assign) and name_of(statement.targets[0]) == name
    value = getattr(statement, "value", None)
    again = plain and name not in names_in(value) and not isinstance(value, ast.Constant)
    return statement if again else None


@rule("training-output-unused", "wasted")
def output_unused(code):
    """`features_b = model(b)` that is never read, in a loop that uses `model(a)`."""
    outputs = [
        assignment
        for assignment in assignments(code)
        if is_model(code, assignment[2].value.func) and any(ancestors(assignment[2], *LOOPS))
    ]
    for scope, name, statement in outputs:
        if code.uses(scope, name) or no_graph(code, statement):
            continue
        loop = next(ancestors(statement, *LOOPS))
        for _, other, again in outputs:
            same = name_of(again.value.func) == name_of(statement.value.func) and other != name
            if same and is_inside(again, loop) and code.uses(scope, other):
                yield statement
                break


@rule("training-value-unused", "wrong")
def value_unused(code):
    """`x_scaled = (x - mean) / std` that is never read, and `self.net(x)` after it."""
    for function in code.nodes_of(*FUNCTIONS):
        if function.name != "forward" or function.owner is None:
            continue
        for name, values in function.assigned.items():
            plain = len(values) == 1 and isinstance(values[0].statement, ast.Assign)
            if not plain or not isinstance(values[0].value, ast.AST) or code.uses(code.tree, name):
                continue
            if re.fullmatch("identity|residual|shortcut|skip", name):
                yield values[0].statement
                continue
            base = next((b for b in _bases(values[0].value) if name.startswith(f"{b}_")), None)
            later = [n for n in code.uses(function, base or "") if n.lineno > values[0].end[0]]
            if (
                base
                and _computes(values[0].value)
                and any(_is_layer_argument(use) for use in later)
            ):
                yield values[0].statement


def _bases(value):
    """Return the names that an expression reads."""
    return {node.id for node in descendants(value) if isinstance(node, ast.Name)} - {
        "self",
        "torch",
    }


def _computes(value):
    """Return True for a computation, and False for a size, a copy or a detached tensor."""
    if isinstance(value, ast.BinOp):
        return True
    sizes = ("size", "shape", "clone", "detach", "dim", "numel", "copy")
    return isinstance(value, ast.Call) and method(value) not in sizes


def _is_layer_argument(node):
    """Return whether the name is an argument of a layer."""
    parent = node.parent
    layer = isinstance(parent, ast.Call) and (name_of(parent.func) or "").startswith("self.")
    return layer and node in parent.args


@rule("training-output-replaced", "wrong")
def inputs_compared(code):
    """`pred = model(inputs)` that is never read, and `criterion(inputs, targets)`."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            value = values[0].value
            if (
                len(values) != 1
                or not isinstance(value, ast.Call)
                or not is_model(code, value.func)
            ):
                continue
            if code.uses(scope, name) or not value.args or not isinstance(value.args[0], ast.Name):
                continue
            for call in code.calls_under(scope):
                losses = re.search(
                    r"(?i)(^|[._])(criterion|loss_?(fn|func|function))$", name_of(call.func) or ""
                )
                if losses and len(call.args) == 2 and name_of(call.args[0]) == value.args[0].id:
                    if call.lineno > value.lineno:
                        yield call
                        break


@rule("losses-target-unused", "wrong")
def target_unused(code):
    """`loss_fn(encoder(x), decoder(z))` in a loop that moves the target and does not read it."""
    for loop in code.loops:
        names = _moved_targets(loop) if batch_loop(code, loop) else ()
        if not names or any(code.uses(loop, name) for name in names):
            continue
        for call in code.calls_under(loop):
            losses = is_loss_call(code, call) or re.search(
                r"(?i)(^|[._])(criterion|loss_?(fn|func|function)?)$", name_of(call.func) or ""
            )
            if losses and len(call.args) == 2 and all(_is_output(code, a) for a in call.args):
                yield call


def _moved_targets(loop):
    """Return a batch's targets that `y = y.to(device)` reassigns: the loop should read them."""
    batch = {node.id for node in descendants(loop.target) if isinstance(node, ast.Name)}
    renewed = {
        name_of(assignment.targets[0])
        for assignment in loop.body
        if isinstance(assignment, ast.Assign) and isinstance(assignment.value, ast.Call)
    }
    return {name for name in batch & renewed if _TARGET.match(name)}


def _is_output(code, node):
    value = code.resolved(node)
    return isinstance(value, ast.Call) and is_model(code, value.func)


@rule("rate-never-stepped", "wrong")
def scheduler_unused(code):
    """`scheduler = StepLR(optimizer, 30)` that never steps."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            statement = values[-1].statement
            if kind(code, values[-1].value) != "scheduler" or not isinstance(statement, ast.Assign):
                continue
            if name_of(statement.targets[0]) == name and not _mentioned(
                code, scope, name, statement
            ):
                yield statement


def _mentioned(code, scope, name, statement):
    """Return whether another line reads the name or, for an attribute, mentions it."""
    if name.isidentifier():
        return code.uses(scope, name) or isinstance(scope, ast.Module) and not _trains(code)
    rest = code.source.replace(code.source_of(statement), "")
    return name.rpartition(".")[2] in rest or not _trains(code)


def _trains(code):
    return "backward(" in code.source


@rule("names-compared", "wrong", "==")
def compared_as_statement(code):
    """`param.requires_grad == False` as a statement: it compares, and assigns nothing."""
    for node in code.nodes_of(ast.Expr):
        value = node.value
        if not isinstance(value, ast.Compare) or not isinstance(value.ops[0], ast.Eq):
            continue
        assigned = isinstance(value.left, ast.Attribute | ast.Name) and len(value.ops) == 1
        fixed = isinstance(value.comparators[0], ast.Constant)
        if assigned and fixed and not code.is_display(node) and not any(ancestors(node, ast.With)):
            if node.parent is not code.tree or "requires_grad" in ast.unparse(value):
                yield node
