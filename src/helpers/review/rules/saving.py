"""Checkpoints that do not contain what they should."""

import ast
import re

from helpers.review.code import CELL
from helpers.review.kinds import is_model, iterated, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    const,
    is_inside,
    method,
    name_of,
    names_in,
    place,
    receiver,
)
from helpers.review.tracing import construction


@rule("checkpoints-whole-error", "raises")
def whole_model(code):
    """`torch.save(model, path)`: pickles the class, and `torch.load` raises an error by default."""
    for call in code.calls_to("torch.save"):
        if not call.args:
            continue
        saved = call.args[0]
        if not isinstance(saved, ast.Name | ast.Attribute):
            continue
        type_name = kind(code, saved)
        unknown = type_name is None and code.value(saved) is None
        named = re.fullmatch(r"(self\.)?(model|net|network)", name_of(saved) or "")
        if (type_name or "").startswith("module:") or unknown and named:
            yield call


@rule("checkpoints-best-alias", "wrong")
def best_alias(code):
    """`best = model.state_dict()` in the loop: the same tensors, which training changes."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            for assignment in values:
                value = _shallow(code, assignment.value)
                if method(value) == "state_dict":
                    if _kept_best(code, assignment, value) and _loaded_or_saved(
                        code, scope, name, assignment
                    ):
                        yield assignment.statement


def _shallow(code, node):
    """Return `state` of the shallow copies `state.copy()`, `dict(state)`, `copy.copy(state)`."""
    if method(node) == "copy" and not code.called(node) and not node.args:
        return receiver(node)
    if (
        code.called(node) == "copy.copy"
        or isinstance(node, ast.Call)
        and name_of(node.func) == "dict"
    ):
        return node.args[0] if len(node.args) == 1 and not node.keywords else node
    return node


def _kept_best(code, assignment, value):
    """Return whether the assignment is in an `if` in a loop that trains."""
    loop = code.loops_around(assignment.statement)
    if not loop or not is_model(code, receiver(value)):
        return False
    if next(ancestors(assignment.statement, ast.If), None) is None:
        return False
    return bool(
        code.methods(loop[-1], "step", follow=2)
        or code.methods(loop[-1], "backward", follow=2)
        or re.search(r"(?i)train|\bfit", code.source_of(loop[-1]))
    )


def _loaded_or_saved(code, scope, name, assignment):
    """Return whether the name is used after the loop, or the attribute is loaded or saved."""
    if name.startswith("self.") and assignment.statement.owner is not None:
        written = re.escape(name)
        match = re.search(
            rf"(load_state_dict|save)\({written}\b", code.source_of(assignment.statement.owner)
        )
        field = re.escape(name.removeprefix("self."))
        return match or re.search(rf"load_state_dict\(\w+\.{field}\)", code.source)
    outer = next(iter([*ancestors(assignment.statement, *LOOPS)][::-1]), None)
    if outer is None:
        return False
    for node in code.walk(scope):
        if isinstance(node, ast.Name | ast.Attribute) and name_of(node) == name:
            if isinstance(node.ctx, ast.Load) and node.lineno > outer.end_lineno:
                return (
                    "deepcopy" not in code.source_of(node.parent)
                    if hasattr(node.parent, "lineno")
                    else True
                )
    return False


@rule("checkpoints-snapshots", "wrong")
def snapshots_alias(code):
    """`states.append(model.state_dict())` in the loop: all entries contain the last state."""
    for call in code.calls:
        operand = call.args[0] if method(call) == "append" and len(call.args) == 1 else None
        operand = code.resolved(operand) if operand is not None else None
        loop = list(ancestors(call, *LOOPS))
        if not loop or method(operand) != "state_dict" or not is_model(code, receiver(operand)):
            continue
        name = name_of(receiver(operand))
        if name and not _rebuilt_in(name, loop[0]) and not _loop_variable(name, loop):
            if code.methods(loop[0], "step", "backward", follow=2):
                yield call


def _loop_variable(name, loops):
    return any(name.partition(".")[0] in names_in(getattr(loop, "target", None)) for loop in loops)


@rule("checkpoints-best-model", "wrong")
def best_model_alias(code):
    """`best_model = model` in the loop: a second name of the model that is still trained."""
    for node in code.nodes_of(ast.Assign):
        name, value = name_of(node.targets[0]), node.value
        loop = list(ancestors(node, *LOOPS))
        if not name or not re.search(r"(?i)(^|[._])best_?(model|net|network)?$", name) or not loop:
            continue
        if not isinstance(value, ast.Name | ast.Attribute) or not is_model(code, value):
            continue
        if next(ancestors(node, ast.If), None) is None or _rebuilt_in(name_of(value), loop[-1]):
            continue
        if code.methods(loop[-1], "backward", "step", follow=2) and _read_after(code, name, loop):
            yield node


def _rebuilt_in(name, loop):
    """Return whether each iteration of the loop creates a model."""
    values = loop.scope.assigned.get(name, ())
    return any(
        loop.lineno <= assignment.statement.lineno <= loop.end_lineno for assignment in values
    )


def _read_after(code, name, loop):
    """Return whether the name is read below the loop, or is an attribute."""
    return name.startswith("self.") or any(
        use.lineno > loop[-1].end_lineno for use in code.uses(code.function_of(loop[-1]), name)
    )


@rule("checkpoints-unloaded", "wrong")
def lost_state_dict(code):
    """`model.load_state_dict` without a call, or `torch.load(path)` whose result is not used."""
    for node in code.nodes_of(ast.Expr):
        if not code.is_display(node):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "load_state_dict":
                yield node
            elif code.called(node.value) == "torch.load" and not any(ancestors(node, ast.Try)):
                if not any(ancestors(node, ast.With)):
                    yield node
    for node in code.nodes_of(ast.Assign):
        name, function = name_of(node.targets[0]), code.function_of(node)
        kept = isinstance(function, ast.Module) or not isinstance(node.targets[0], ast.Name)
        if code.called(node.value) == "torch.load" and not kept:
            if not code.uses(function, name) and "load_state_dict" not in code.source:
                yield node


@rule("checkpoints-strict-nothing", "wrong")
def strict_false(code):
    """`load_state_dict(state, strict=False)` whose result is not used."""
    for node in code.nodes_of(ast.Expr):
        if method(node.value) == "load_state_dict":
            call = node.value
            if name_of(receiver(call)) == "self":
                continue
            if code.const(argument(call, "strict", 1)) is False and call.args:
                operand = call.args[0]
                if code.called(operand) == "torch.load" or _straight_from_file(code, operand):
                    yield node


def _straight_from_file(code, state):
    """Return whether the state comes from `torch.load` and its keys are not changed."""
    base = state.value if isinstance(state, ast.Subscript) else state
    if not isinstance(base, ast.Name):
        return False
    value = code.value(base)
    if isinstance(value, ast.Subscript):
        value = code.value(value.value) if isinstance(value.value, ast.Name) else value.value
    if code.called(value) != "torch.load":
        return False
    name = re.escape(base.id)
    return not re.search(
        rf"{name}\.(pop|items|keys|update)|del {name}|in {name}\b|{name}\[[^\]]*\]\s*=", code.source
    )


@rule("checkpoints-self-load", "wrong")
def loads_itself(code):
    """`target.load_state_dict(target.state_dict())`."""
    for call in code.calls_named("load_state_dict"):
        if call.args and method(call.args[0]) == "state_dict":
            a, b = name_of(receiver(call)), name_of(receiver(call.args[0]))
            if a and a == b and re.search(r"(?i)target|tgt|ema|momentum|shadow|old", a):
                yield call


@rule("checkpoints-no-eval", "wrong")
def no_eval_after_load(code):
    """`net.load_state_dict(torch.load(path))` and `net(x)` under `no_grad`, never `eval()`."""
    modes = r"\.eval\(|\.train\(|backward\(|optim\b|\.training\b|lightning|set_eval|is_train"
    if re.search(modes, code.source):
        yield from _copies_in_training_mode(code)
        return
    for call in code.calls:
        name = name_of(receiver(call)) if method(call) == "load_state_dict" else None
        if not name or not call.args or not is_model(code, receiver(call)):
            continue
        for other in code.calls:
            cut = getattr(other.parent, "attr", "") in ("detach", "data")
            decided = cut or no_graph(code, other) or _reads_class(code, other)
            if name_of(other.func) == name and decided:
                yield other
                break


def _copies_in_training_mode(code):
    """`copy = Net()`, `copy.load_state_dict(state)` and `copy(x)` in a file that trains `net`."""
    for call in code.calls:
        model = receiver(call) if method(call) == "load_state_dict" else None
        if not isinstance(model, ast.Name):
            continue
        constructor = construction(code, model)
        class_name = name_of(constructor.func) if constructor is not None else None
        if class_name not in code.classes or constructor.scope is not call.scope:
            continue
        if not _MODES.search(code.source_of(code.classes[class_name])):
            continue
        uses = [node.parent for node in code.uses(call.scope, model.id)]
        calls = [use for use in uses if isinstance(use, ast.Call) and name_of(use.func) == model.id]
        plain = [
            use
            for use in uses
            if isinstance(use, ast.Attribute) and use.attr in ("load_state_dict", "to", "cuda")
        ]
        after = [use for use in calls if place(use) > place(call)]
        if after and len(calls) + len(plain) == len(uses):
            yield after[0]


_MODES = re.compile(r"(?i)drop|BatchNorm")


@rule("checkpoints-load-path", "raises")
def loads_a_path(code):
    """`model.load_state_dict("model.pt")`: it requires the content, not the path."""
    for call in code.calls_named("load_state_dict"):
        if call.args and is_model(code, receiver(call)):
            operand = call.args[0]
            operand = code.resolved(operand)
            if isinstance(const(operand), str):
                yield call


@rule("checkpoints-load-result", "raises")
def keeps_the_report(code):
    """`model = model.load_state_dict(state)`: the result is a report, not the model."""
    for node in code.nodes_of(ast.Assign):
        call = node.value
        if method(call) == "load_state_dict" and is_model(code, receiver(call)):
            name = name_of(node.targets[0])
            used = [
                c for c in code.calls if name_of(c.func) == name or name_of(receiver(c)) == name
            ]
            if name and any(c.scope is node.scope and c.lineno > node.lineno for c in used):
                yield node


@rule("checkpoints-rebuilt", "wrong", "load_state_dict")
def made_again(code):
    """`optimizer.load_state_dict(state)`, and then `optimizer = Adam(…)`: the state is lost."""
    for call in code.calls:
        name = name_of(receiver(call)) if method(call) == "load_state_dict" else None
        if not name or not isinstance(call.parent, ast.Expr):
            continue
        if CELL in code.source and call.scope is code.tree:
            continue  # cells of a notebook are separate examples
        for assignment in call.scope.assigned.get(name, ()):
            statement = assignment.statement
            if statement.lineno <= call.lineno or not is_inside(call, statement.parent):
                continue
            if not isinstance(statement, ast.Assign) or any(ancestors(call, *LOOPS)):
                break
            fresh = isinstance(assignment.value, ast.Call) and name not in names_in(
                assignment.value
            )
            known = (kind(code, assignment.value) or "").partition(":")[0]
            used = [
                use
                for use in code.uses(call.scope, name)
                if call.end_lineno < use.lineno < statement.lineno
            ]
            if fresh and known in ("optimizer", "scheduler", "module") and not used:
                yield statement
            break


@rule("checkpoints-epoch-unused", "wrong", "epoch")
def epoch_not_used(code):
    """`start_epoch = checkpoint["epoch"]`, and then `range(epochs)`."""
    for node in code.nodes_of(ast.Assign):
        name, value = name_of(node.targets[0]), node.value
        value = value.left if isinstance(value, ast.BinOp) else value
        item = isinstance(value, ast.Subscript) and const(value.slice) in ("epoch", "epochs")
        if not item or not isinstance(node.targets[0], ast.Name):
            continue
        if not re.fullmatch(r"(start|begin|last|resume|initial|first)_?epoch", name):
            continue
        loops = [loop for loop in code.nodes_of(ast.For) if loop.lineno > node.lineno]
        loops = [loop for loop in loops if re.fullmatch(r"\w*epoch\w*", name_of(loop.target) or "")]
        if not code.uses(code.tree, name) and any(_from_zero(loop.iter) for loop in loops):
            yield node


def _from_zero(node):
    """Return True for `range(epochs)`, `range(0, epochs)` and `range(1, n)`, even in `tqdm`."""
    iterable = iterated(node)
    if method(iterable) not in ("range", "trange") or not iterable.args:
        return False
    return len(iterable.args) == 1 or const(iterable.args[0]) in (0, 1)


def _reads_class(code, call):
    """Return whether the class is read from an output, as in `model(x).argmax(1).item()`."""
    parent = call.parent
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    uses = code.uses(call.scope, name) if name else [call]
    ends = ("argmax", "topk", "max", "item", "numpy", "tolist")
    return any(getattr(use.parent, "attr", method(use.parent)) in ends for use in uses)


@rule("checkpoints-best-kept", "wrong", "best")
def best_not_renewed(code):
    """`if acc > best: torch.save(…)`, and no line sets `best`: every later epoch may be saved."""
    for node in code.nodes_of(ast.If):
        test = code.value(node.test) if isinstance(node.test, ast.Name) else node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or node.orelse:
            continue
        if not isinstance(test.ops[0], ast.Gt | ast.Lt | ast.GtE | ast.LtE):
            continue
        sides = [test.left, test.comparators[0]]
        best = [side for side in sides if re.search(r"(?i)(^|[._])best", name_of(side) or "")]
        if len(best) != 1 or not any(ancestors(node, *LOOPS)) or not _saves_model(code, node):
            continue
        name, scope = name_of(best[0]), node.scope
        if name.startswith("self."):
            values = node.owner.attributes.get(name, ()) if node.owner is not None else ()
        else:
            values = scope.assigned.get(name) or code.tree.assigned.get(name, ())
        outside = [
            assignment for assignment in values if not any(ancestors(assignment.statement, *LOOPS))
        ]
        first = values[0].value if values and len(outside) == len(values) else None
        number = isinstance(first, ast.AST) and (
            const(first) is not None or "inf" in ast.unparse(first)
        )
        changed = len(re.findall(rf"\b{re.escape(name)}\s*[-+*/]?=[^=]", code.source))
        if number and changed <= (1 if name.startswith("self.") else len(values)):
            yield node


def _saves_model(code, node):
    return any(
        code.called(call) == "torch.save" or method(call) == "deepcopy"
        for statement in node.body
        for call in code.calls_under(statement)
    )
