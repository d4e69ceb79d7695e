"""Checkpoints that do not contain what they should."""

import ast
import re

from helpers.review.code import CELL
from helpers.review.kinds import is_model, iterated, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    above,
    argument,
    const,
    inside,
    method,
    names_in,
    receiver,
    text,
)


@rule("checkpoints-whole-error", "raises")
def whole_model(code):
    """`torch.save(model, path)`: pickles the class, and `torch.load` raises an error by default."""
    for call in code.calls:
        if code.called(call) != "torch.save" or not call.args:
            continue
        saved = call.args[0]
        if not isinstance(saved, ast.Name | ast.Attribute):
            continue
        type_name = kind(code, saved)
        unknown = type_name is None and code.value(saved) is None
        named = re.fullmatch(r"(self\.)?(model|net|network)", text(saved) or "")
        if (type_name or "").startswith("module:") or unknown and named:
            yield call


@rule("checkpoints-best-alias", "wrong")
def best_alias(code):
    """`best = model.state_dict()` in the loop: the same tensors, which training changes."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            for one in values:
                value = _shallow(code, one.value)
                if isinstance(value, ast.Call) and method(value) == "state_dict":
                    if _kept_best(code, one, value) and _loaded_or_saved(
                        code, scope, name, one, value
                    ):
                        yield one.statement


def _shallow(code, node):
    """Return `state` of the shallow copies `state.copy()`, `dict(state)`, `copy.copy(state)`."""
    if method(node) == "copy" and not code.called(node) and not node.args:
        return receiver(node)
    if code.called(node) == "copy.copy" or isinstance(node, ast.Call) and text(node.func) == "dict":
        return node.args[0] if len(node.args) == 1 and not node.keywords else node
    return node


def _kept_best(code, one, value):
    """Return whether the assignment is in an `if` in a loop that trains."""
    loop = code.loops_around(one.statement)
    if not loop or not is_model(code, receiver(value)):
        return False
    if next(above(one.statement, ast.If), None) is None:
        return False
    return bool(
        code.methods(loop[-1], "step", follow=2)
        or code.methods(loop[-1], "backward", follow=2)
        or re.search(r"(?i)train|\bfit", code.part(loop[-1]))
    )


def _loaded_or_saved(code, scope, name, one, value):
    """Return whether the name is used after the loop, or the attribute is loaded or saved."""
    if name.startswith("self.") and one.statement.owner is not None:
        written = re.escape(name)
        own = re.search(rf"(load_state_dict|save)\({written}\b", code.part(one.statement.owner))
        field = re.escape(name.removeprefix("self."))
        return own or re.search(rf"load_state_dict\(\w+\.{field}\)", code.source)
    outer = next(iter([*above(one.statement, *LOOPS)][::-1]), None)
    if outer is None:
        return False
    for node in code.walk(scope):
        if isinstance(node, ast.Name | ast.Attribute) and text(node) == name:
            if isinstance(node.ctx, ast.Load) and node.lineno > outer.end_lineno:
                return (
                    "deepcopy" not in code.part(node.parent)
                    if hasattr(node.parent, "lineno")
                    else True
                )
    return False


@rule("checkpoints-snapshots", "wrong")
def snapshots_alias(code):
    """`states.append(model.state_dict())` in the loop: all entries contain the last state."""
    for call in code.calls:
        given = call.args[0] if method(call) == "append" and len(call.args) == 1 else None
        given = code.resolved(given) if given is not None else None
        loop = list(above(call, *LOOPS))
        if not loop or method(given) != "state_dict" or not is_model(code, receiver(given)):
            continue
        name = text(receiver(given))
        if name and not _rebuilt_in(code, name, loop[0]) and not _loop_variable(name, loop):
            if code.methods(loop[0], "step", "backward", follow=2):
                yield call


def _loop_variable(name, loops):
    return any(name.partition(".")[0] in names_in(getattr(one, "target", None)) for one in loops)


@rule("checkpoints-best-model", "wrong")
def best_model_alias(code):
    """`best_model = model` in the loop: a second name of the model that is still trained."""
    for node in code.of(ast.Assign):
        name, given = text(node.targets[0]), node.value
        loop = list(above(node, *LOOPS))
        if not name or not re.search(r"(?i)(^|[._])best_?(model|net|network)?$", name) or not loop:
            continue
        if not isinstance(given, ast.Name | ast.Attribute) or not is_model(code, given):
            continue
        if next(above(node, ast.If), None) is None or _rebuilt_in(code, text(given), loop[-1]):
            continue
        if code.methods(loop[-1], "backward", "step", follow=2) and _read_after(code, name, loop):
            yield node


def _rebuilt_in(code, name, loop):
    """Return whether each iteration of the loop creates a model."""
    values = loop.scope.assigned.get(name, ())
    return any(loop.lineno <= one.statement.lineno <= loop.end_lineno for one in values)


def _read_after(code, name, loop):
    """Return whether the name is read below the loop, or is an attribute."""
    return name.startswith("self.") or any(
        one.lineno > loop[-1].end_lineno for one in code.uses(code.function(loop[-1]), name)
    )


@rule("checkpoints-unloaded", "wrong")
def lost_state_dict(code):
    """`model.load_state_dict` without a call, or `torch.load(path)` whose result is not used."""
    for node in code.of(ast.Expr):
        if not code.is_display(node):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "load_state_dict":
                yield node
            elif code.called(node.value) == "torch.load" and not any(above(node, ast.Try)):
                if not any(above(node, ast.With)):
                    yield node
    for node in code.of(ast.Assign):
        name, around = text(node.targets[0]), code.function(node)
        kept = isinstance(around, ast.Module) or not isinstance(node.targets[0], ast.Name)
        if code.called(node.value) == "torch.load" and not kept:
            if not code.uses(around, name) and "load_state_dict" not in code.source:
                yield node


@rule("checkpoints-strict-nothing", "wrong")
def strict_false(code):
    """`load_state_dict(state, strict=False)` whose result is not used."""
    for node in code.of(ast.Expr):
        if method(node.value) == "load_state_dict":
            call = node.value
            if text(receiver(call)) == "self":
                continue
            if code.const(argument(call, "strict", 1)) is False and call.args:
                given = call.args[0]
                if code.called(given) == "torch.load" or _straight_from_file(code, given):
                    yield node


def _straight_from_file(code, given):
    """Return whether the state comes from `torch.load` and its keys are not changed."""
    base = given.value if isinstance(given, ast.Subscript) else given
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
    for call in code.calls:
        if method(call) == "load_state_dict" and call.args and method(call.args[0]) == "state_dict":
            a, b = text(receiver(call)), text(receiver(call.args[0]))
            if a and a == b and re.search(r"(?i)target|tgt|ema|momentum|shadow|old", a):
                yield call


@rule("checkpoints-no-eval", "wrong")
def no_eval_after_load(code):
    """`net.load_state_dict(torch.load(path))` and `net(x)` under `no_grad`, never `eval()`."""
    modes = r"\.eval\(|\.train\(|backward\(|optim\b|\.training\b|lightning|set_eval|is_train"
    if re.search(modes, code.source):
        return
    for call in code.calls:
        name = text(receiver(call)) if method(call) == "load_state_dict" else None
        if not name or not call.args or not is_model(code, receiver(call)):
            continue
        for other in code.calls:
            cut = getattr(other.parent, "attr", "") in ("detach", "data")
            decided = cut or no_graph(code, other) or _decides(code, other)
            if text(other.func) == name and decided:
                yield other
                break


@rule("checkpoints-load-path", "raises")
def loads_a_path(code):
    """`model.load_state_dict("model.pt")`: it requires the content, not the path."""
    for call in code.calls:
        if method(call) == "load_state_dict" and call.args and is_model(code, receiver(call)):
            given = call.args[0]
            given = code.resolved(given)
            if isinstance(const(given), str):
                yield call


@rule("checkpoints-load-result", "raises")
def keeps_the_report(code):
    """`model = model.load_state_dict(state)`: the result is a report, not the model."""
    for node in code.of(ast.Assign):
        call = node.value
        if method(call) == "load_state_dict" and is_model(code, receiver(call)):
            name = text(node.targets[0])
            used = [c for c in code.calls if text(c.func) == name or text(receiver(c)) == name]
            if name and any(c.scope is node.scope and c.lineno > node.lineno for c in used):
                yield node


@rule("checkpoints-rebuilt", "wrong", "load_state_dict")
def made_again(code):
    """`optimizer.load_state_dict(state)`, and then `optimizer = Adam(…)`: the state is lost."""
    for call in code.calls:
        name = text(receiver(call)) if method(call) == "load_state_dict" else None
        if not name or not isinstance(call.parent, ast.Expr):
            continue
        if CELL in code.source and call.scope is code.tree:
            continue  # cells of a notebook are separate examples
        for one in call.scope.assigned.get(name, ()):
            statement = one.statement
            if statement.lineno <= call.lineno or not inside(call, statement.parent):
                continue
            if not isinstance(statement, ast.Assign) or any(above(call, *LOOPS)):
                break
            fresh = isinstance(one.value, ast.Call) and name not in names_in(one.value)
            known = (kind(code, one.value) or "").partition(":")[0]
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
    for node in code.of(ast.Assign):
        name, value = text(node.targets[0]), node.value
        value = value.left if isinstance(value, ast.BinOp) else value
        item = isinstance(value, ast.Subscript) and const(value.slice) in ("epoch", "epochs")
        if not item or not isinstance(node.targets[0], ast.Name):
            continue
        if not re.fullmatch(r"(start|begin|last|resume|initial|first)_?epoch", name):
            continue
        loops = [one for one in code.of(ast.For) if one.lineno > node.lineno]
        loops = [one for one in loops if re.fullmatch(r"\w*epoch\w*", text(one.target) or "")]
        if not code.uses(code.tree, name) and any(_from_zero(one.iter) for one in loops):
            yield node


def _from_zero(node):
    """Return True for `range(epochs)`, `range(0, epochs)` and `range(1, n)`, even in `tqdm`."""
    over = iterated(node)
    if method(over) not in ("range", "trange") or not over.args:
        return False
    return len(over.args) == 1 or const(over.args[0]) in (0, 1)


def _decides(code, call):
    """Return whether the class is read from an output, as in `model(x).argmax(1).item()`."""
    up = call.parent
    name = text(up.targets[0]) if isinstance(up, ast.Assign) else None
    uses = code.uses(call.scope, name) if name else [call]
    ends = ("argmax", "topk", "max", "item", "numpy", "tolist")
    return any(getattr(one.parent, "attr", method(one.parent)) in ends for one in uses)


@rule("checkpoints-best-kept", "wrong", "best")
def best_not_renewed(code):
    """`if acc > best: torch.save(…)`, and no line sets `best`: every later epoch may be saved."""
    for node in code.of(ast.If):
        test = code.value(node.test) if isinstance(node.test, ast.Name) else node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or node.orelse:
            continue
        if not isinstance(test.ops[0], ast.Gt | ast.Lt | ast.GtE | ast.LtE):
            continue
        sides = [test.left, test.comparators[0]]
        best = [one for one in sides if re.search(r"(?i)(^|[._])best", text(one) or "")]
        if len(best) != 1 or not any(above(node, *LOOPS)) or not _saves(code, node):
            continue
        name, scope = text(best[0]), node.scope
        if name.startswith("self."):
            values = node.owner.attributes.get(name, ()) if node.owner is not None else ()
        else:
            values = scope.assigned.get(name) or code.tree.assigned.get(name, ())
        outside = [one for one in values if not any(above(one.statement, *LOOPS))]
        first = values[0].value if values and len(outside) == len(values) else None
        number = isinstance(first, ast.AST) and (
            const(first) is not None or "inf" in ast.unparse(first)
        )
        changed = len(re.findall(rf"\b{re.escape(name)}\s*[-+*/]?=[^=]", code.source))
        if number and changed <= (1 if name.startswith("self.") else len(values)):
            yield node


def _saves(code, node):
    return any(
        code.called(one) == "torch.save" or method(one) == "deepcopy"
        for statement in node.body
        for one in code.calls_under(statement)
    )
