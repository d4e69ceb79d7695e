"""Losses whose graph contains weights that an optimizer has changed, and unused critics."""

import ast
import re

from helpers.review.kinds import is_optimizer, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    exclusive,
    last_name,
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
        if loop is None or receiver(call) is None or no_graph(code, call):
            continue
        for step in code.methods(loop, "step"):
            if step.scope is not call.scope or not place(step) < place(call):
                continue
            if next(ancestors(step, *LOOPS), None) is not loop or exclusive(step, call):
                continue
            models = _models(code, receiver(step))
            if models and _passed_before(code, receiver(call), models, step, loop):
                yield call
                break


def _models(code, optimizer):
    """Return the names of the modules whose parameters an optimizer receives."""
    if optimizer is None or not is_optimizer(code, optimizer):
        return set()
    constructor = code.resolved(optimizer)
    if not isinstance(constructor, ast.Call) or not code.called(constructor).startswith("optim."):
        return set()
    return {
        name_of(receiver(call))
        for call in ast.walk(constructor)
        if method(call) == "parameters" and name_of(receiver(call))
    }


def _passed_before(code, loss, models, step, loop, depth=0):
    """Return whether a value depends on a call of a module above the step, in the same loop."""
    if depth > 6 or not isinstance(loss, ast.AST):
        return False
    if isinstance(loss, ast.Name | ast.Attribute) and name_of(loss):
        value = code.value(loss)
        if not isinstance(value, ast.AST):
            return False
        same_iteration = value.scope is step.scope and next(ancestors(value, *LOOPS), None) is loop
        return same_iteration and _passed_before(code, value, models, step, loop, depth + 1)
    if isinstance(loss, ast.Call):
        if method(loss) in _CUT or no_graph(code, loss):
            return False
        if name_of(loss.func) in models and place(loss) < place(step):
            return any(_is_computed(code, operand) for operand in loss.args)
    operands = [operand for operand in ast.iter_child_nodes(loss) if isinstance(operand, ast.expr)]
    operands += [operand.value for operand in getattr(loss, "keywords", ())]
    if isinstance(loss, ast.Attribute) and loss.attr in _CUT:
        return False
    return any(_passed_before(code, operand, models, step, loop, depth) for operand in operands)


def _is_computed(code, node):
    """Return whether the input of the module is the output of another one, with its graph."""
    if isinstance(node, ast.Name | ast.Attribute):
        node = code.value(node)
    if not isinstance(node, ast.Call) or method(node) in _CUT or no_graph(code, node):
        return False
    return not code.called(node) and last_name(node.func) not in (
        "to",
        "cuda",
        "float",
        "view",
        "size",
    )


@rule("rl-critic-unused", "wrong", "log_prob|logprob|logp")
def critic_unused(code):
    """`-(returns * log_probs).sum()` next to `mse_loss(values, returns)`: an unused critic."""
    for call in code.calls:
        if not is_loss_call(code, call) or len(call.args) < 2:
            continue
        names = [_name_in(operand) for operand in call.args[:2]]
        if None in names:
            continue
        for values, returns in (names, names[::-1]):
            if not _VALUES.search(values) or _ADVANTAGE.search(returns):
                continue
            product = _policy_term(code, call, returns, values)
            if product is not None and not _uses_values(code, call.scope, returns, values):
                yield product
                break


_VALUES = re.compile(r"(?i)^(self\.)?(state_?)?(values?|vals?|critic\w*|baselines?)(_preds?)?$")
_ADVANTAGE = re.compile(r"(?i)adv|delta|td_|value|target")
_LOG_PROB = re.compile(r"(?i)log_?p")


def _name_in(node):
    """Return the name in `values`, `values.squeeze()` and `returns.detach()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
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
            if not _VALUES.search(" ".join(sides)) and values not in names_in(node):
                return node
    return None


def _uses_values(code, scope, returns, values):
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
