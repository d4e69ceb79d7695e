"""The loop that draws samples from a diffusion model."""

import ast
import re

from helpers.review.kinds import is_model, iterated
from helpers.review.registry import rule
from helpers.review.syntax import ancestors, const, method, name_of, operands

_POSTERIOR = re.compile(r"(?i)posterior|tilde|prev|next|var\b|variance|\beta\b|ddim")
_NOISE = ("randn_like", "randn", "normal")


@rule("diffusion-last-noise", "wrong", "cumprod|alpha_bar|alphas_bar|alpha_hat")
def noise_in_last_step(code):
    """`x = mean + torch.sqrt(beta[t]) * torch.randn_like(x)` for every t, also for the last one."""
    for loop in code.nodes_of(ast.For):
        if not _to_zero(loop) or not _denoises(code, loop) or _depends_on_step(code, loop):
            continue
        for node in code.walk(loop):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                if not isinstance(node.parent, ast.BinOp) and _adds_noise(code, node, loop):
                    yield node


def _to_zero(loop):
    """Return whether a loop over the steps counts down to 0."""
    iterable = iterated(loop.iter)
    if method(iterable) == "reversed" and iterable.args:
        inner = iterable.args[0]
        first = inner.args[0] if method(inner) == "range" and len(inner.args) > 1 else None
        return method(inner) == "range" and (first is None or const(first) == 0)
    if method(iterable) != "range" or len(iterable.args) != 3:
        return False
    return const(iterable.args[1]) == const(iterable.args[2]) == -1


def _denoises(code, loop):
    """Return whether the loop calls a network with the sample and the step."""
    return any(
        is_model(code, call.func) and len(call.args) + len(call.keywords) > 1
        for call in code.calls_under(loop)
    )


def _depends_on_step(code, loop):
    """Return whether a condition or a mask may leave the noise out of the last step."""
    if any(isinstance(node, ast.If | ast.IfExp | ast.Compare) for node in code.walk(loop)):
        return True
    return bool(re.search(r"(?i)mask|nonzero", code.source_of(loop)))


def _adds_noise(code, node, loop):
    """Return whether a sum contains new noise times the square root of β of the step."""
    for side in (node.left, node.right):
        factors = operands(side, ast.Mult)
        drawn = [factor for factor in factors if _is_noise(code, factor, loop)]
        others = [
            code.resolved(factor) if name_of(factor) else factor
            for factor in factors
            if factor not in drawn
        ]
        written = " ".join(
            ast.unparse(factor) for factor in (*factors, *others) if isinstance(factor, ast.AST)
        )
        if len(drawn) == 1 and others and re.search(r"(?i)beta", written):
            if not _POSTERIOR.search(written):
                return True
    return False


def _is_noise(code, node, loop):
    value = code.value(node) if isinstance(node, ast.Name) else node
    drawn = isinstance(value, ast.Call) and method(value) in _NOISE
    return drawn and loop in ancestors(value, ast.For)
