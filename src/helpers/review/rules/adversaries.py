"""Labels of a discriminator, and the penalty of its gradient."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.signs import CRITIC, of_sample
from helpers.review.syntax import argument, const, is_open, method, name_of, receiver
from helpers.review.tracing import loss_calls

_LOSSES = (
    ("binary_cross_entropy", "BCELoss"),
    ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"),
    ("mse_loss", "MSELoss"),
)


@rule("gan-labels", "wrong", "ones|zeros|full")
def one_label(code):
    """`bce(D(real), ones) + bce(D(fake.detach()), ones)`: both have the same label."""
    if "fill_(" in code.source:
        return
    real, fake = set(), []
    for names in _LOSSES:
        for call, prediction in loss_calls(code, *names):
            score = _score(code, prediction)
            label = _label(code, argument(call, "target", 1))
            if score is None or label is None:
                continue
            if not of_sample(code, score):
                real.add((call.scope, label))
            elif _sample_is_detached(code, score):
                fake.append((call, label))
    for call, label in fake:
        if {label_value for _, label_value in real} == {label} and (call.scope, label) in real:
            yield call


def _score(code, node):
    """Return the call of a discriminator that a loss receives."""
    for _ in range(4):
        if method(node) in ("view", "squeeze", "reshape", "flatten") and receiver(node) is not None:
            node = receiver(node)
        elif name_of(node):
            node = code.value(node)
    named = len(getattr(node, "args", ())) in (1, 2) and name_of(node.func)
    return node if named and CRITIC.fullmatch(named) and not code.called(node) else None


def _sample_is_detached(code, score):
    """Return whether the generated sample that a discriminator receives has no graph."""
    value = code.resolved(score.args[0])
    written = [ast.unparse(side) for side in (score, value) if isinstance(side, ast.AST)]
    return any("detach()" in word or ".data" in word for word in written)


def _label(code, node):
    """Return 1 for `torch.ones(n)`, 0 for `torch.zeros(n)`, None for other targets."""
    for _ in range(5):
        if name_of(node):
            node = code.resolved(node)
        elif method(node) in ("to", "cuda", "float", "type_as", "requires_grad_", "view"):
            node = receiver(node)
        elif method(node) in ("Variable",) and node.args:
            node = node.args[0]
    named = {"ones": 1, "ones_like": 1, "zeros": 0, "zeros_like": 0}
    if method(node) in named:
        return named[method(node)]
    filled = method(node) in ("full", "full_like") and len(node.args) > 1
    number = const(node.args[1]) if filled else None
    return round(number) if isinstance(number, int | float) and 0 <= number <= 1 else None


_PENALTY = re.compile(
    r"- ?1(\.0*)?\)+ ?(\*\* ?2|\.pow\(2|\.square)|pow\(.* - 1(\.0*)?, 2|square\(.* - 1"
)


@rule("gan-penalty-graph", "wrong", "grad(")
def penalty_without_graph(code):
    """`autograd.grad(score, mixed, ones)[0]` in a penalty, without `create_graph=True`."""
    for call in code.calls:
        if code.dotted(call.func) != "torch.autograd.grad" or is_open(call):
            continue
        kept = argument(call, "create_graph", 4)
        function = code.function_of(call)
        penalty = function is not code.tree and _PENALTY.search(code.source_of(function))
        if penalty and (kept is None or const(kept) is False):
            if "norm" in code.source_of(function) or "sqrt" in code.source_of(function):
                yield call
