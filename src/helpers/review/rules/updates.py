"""Losses whose graph contains weights that an optimizer has changed, and unused critics."""

import ast
import re

from helpers.review.kinds import no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    exclusive,
    method,
    name_of,
    names_in,
    place,
    receiver,
)
from helpers.review.tracing import is_loss_call

_CUT = ("detach", "item", "data", "numpy", "tolist")


@rule("backward-stepped", "raises", ".step()")
def weights_stepped_before(code):
    """`opt_d.step()` between `fake = D(G(z))` and the `backward()` of a loss of `fake`."""
    for call in code.calls:
        loop = next(ancestors(call, *LOOPS), None) if method(call) == "backward" else None
        if loop is None:
            continue
        for step in code.methods(loop, "step"):
            if not place(step) < place(call) or exclusive(step, call):
                continue
            models = _models(code, receiver(step))
            if models and _passed_before(code, receiver(call), models, step):
                yield call
                break


def _models(code, optimizer):
    """Return the names of the modules whose parameters an optimizer receives."""
    constructor = code.resolved(optimizer)
    if not code.called(constructor).startswith("optim."):
        return set()
    return {
        name_of(receiver(call)) for call in ast.walk(constructor) if method(call) == "parameters"
    }


def _passed_before(code, loss, models, step, depth=0):
    """Return whether a value depends on a call of a module above the step."""
    if depth > 6:
        return False
    if isinstance(loss, ast.Name | ast.Attribute) and (value := code.value(loss)) is not None:
        same_scope = isinstance(value, ast.AST) and value.scope is step.scope
        return same_scope and _passed_before(code, value, models, step, depth + 1)
    if isinstance(loss, ast.Call) and name_of(loss.func) in models:
        inputs = loss.args if place(loss) < place(step) and not no_graph(code, loss) else []
        return any(_is_computed(code, operand) for operand in inputs)
    if isinstance(loss, ast.Attribute) and loss.attr in _CUT:
        return False
    operands = [node for node in ast.iter_child_nodes(loss) if isinstance(node, ast.expr)]
    return any(_passed_before(code, operand, models, step, depth) for operand in operands)


def _is_computed(code, node):
    """Return whether the input of the module is the output of another one, with its graph."""
    if isinstance(node, ast.Name | ast.Attribute):
        node = code.value(node)
    computed = isinstance(node, ast.Call) and not code.called(node)
    return computed and method(node) not in (*_CUT, "to", "cuda", "float")


@rule("rl-critic-unused", "wrong", "log_prob|logprob|logp")
def critic_unused(code):
    """`-(returns * log_probs).sum()` next to `mse_loss(values, returns)`: an unused critic."""
    for call in code.calls:
        if not is_loss_call(code, call):
            continue
        names = [_name_in(argument(call, "input", 0)), _name_in(argument(call, "target", 1))]
        if None in names:
            continue
        for values, returns in (names, names[::-1]):
            if not _VALUES.search(values) or _ADVANTAGE.search(returns):
                continue
            product = _policy_term(code, call, returns, values)
            if product is not None and not _uses_values(call.scope, returns, values):
                yield product
                break


_VALUES = re.compile(r"(?i)^(self\.)?(state_?)?(values?|vals?|critic\w*|baselines?)(_preds?)?$")
_ADVANTAGE = re.compile(r"(?i)adv|delta|td_|value|target")
_LOG_PROB = re.compile(r"(?i)log_?p")


def _name_in(node):
    """Return the name in `values`, `values.squeeze()` and `returns.detach()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return name_of(node)


def _policy_term(code, value_loss, returns, values):
    """Return the product of log-probabilities and returns in the same step as the value loss."""
    loop = next(ancestors(value_loss, *LOOPS), None)
    if loop is None and not isinstance(value_loss.scope, FUNCTIONS):
        return None
    for node in code.nodes_of(ast.BinOp):
        if node.scope is not value_loss.scope or not isinstance(node.op, ast.Mult):
            continue
        if next(ancestors(node, *LOOPS), None) is not loop:
            continue
        sides = [ast.unparse(node.left), ast.unparse(node.right)]
        names = [_name_in(node.left), _name_in(node.right)]
        if returns in names and any(_LOG_PROB.search(side) for side in sides):
            if values not in names_in(node):
                return node
    return None


def _uses_values(scope, returns, values):
    """Return whether the returns are computed from the values, or normalized by an advantage."""
    assignments = scope.assigned.get(returns, ())
    sources = [
        ast.unparse(assignment.value)
        for assignment in assignments
        if isinstance(assignment.value, ast.AST)
    ]
    return any(
        re.search(rf"(?i)\b{re.escape(values)}\b|adv|value|critic", source) for source in sources
    )
