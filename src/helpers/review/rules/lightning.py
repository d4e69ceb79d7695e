"""Hooks of LightningModule."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.syntax import const, method, receiver


def _hooks(code, name):
    """Yield the methods of a name in the classes that derive from LightningModule."""
    manual = re.search(r"automatic_optimization *= *False", code.source)
    for (owner, method_name), function in code.functions.items():
        bases = [base for cls in code.bases(owner or "") for base in cls.bases]
        derived = any((code.dotted(base) or "").endswith("LightningModule") for base in bases)
        if method_name == name and derived and not manual:
            yield function


@rule("lightning-no-loss", "wrong", "training_step")
def step_without_loss(code):
    """`training_step` without `return loss`, or with `return loss.item()`: no optimizer step."""
    for function in _hooks(code, "training_step"):
        values = code.return_values(function)
        if not values and not _is_stub(function):
            yield function
        for value in values:
            number = method(value) in ("item", "detach") and receiver(value) is not None
            if number and len(values) == 1:
                yield value


def _is_stub(function):
    """Return True for an empty method, one that raises, and one that calls another."""
    last = function.body[-1]
    computed = [assignment for assignment in function.body if isinstance(assignment, ast.Assign)]
    return isinstance(last, ast.Raise) or not computed


@rule("lightning-no-optimizer", "wrong", "configure_optimizers")
def optimizer_not_returned(code):
    """`configure_optimizers` that creates an optimizer and does not return it."""
    for function in _hooks(code, "configure_optimizers"):
        calls = [call for call in code.calls_under(function) if "optim." in code.called(call)]
        if calls and not [
            statement for statement in code.walk(function) if isinstance(statement, ast.Return)
        ]:
            yield function


@rule("lightning-backward", "raises", "training_step")
def backward_in_step(code):
    """`loss.backward()` in `training_step`: Lightning calls it again."""
    for function in _hooks(code, "training_step"):
        for call in code.methods(function, "backward"):
            kept = any(
                keyword.arg == "retain_graph" and const(keyword.value) for keyword in call.keywords
            )
            if not kept and isinstance(call.parent, ast.Expr) and not call.args:
                yield call
