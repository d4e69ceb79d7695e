"""Factors of a focal loss, of sinusoidal positions, of noise and of a gradient penalty."""

import ast
import re

from helpers.review.code import parameter
from helpers.review.registry import rule
from helpers.review.rules.formulas import number
from helpers.review.syntax import above, argument, const, method, receiver, text
from helpers.review.tracing import is_loss_call

_MOVES = ("to", "cuda", "type_as", "float", "view", "expand", "expand_as", "unsqueeze", "reshape")


def factors(node):
    """Yield the factors of a product, without signs."""
    if isinstance(node, ast.UnaryOp):
        yield from factors(node.operand)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from factors(node.left)
        yield from factors(node.right)
    else:
        yield node


def operand(code, call):
    """Return `x` of `torch.exp(x)` and of `x.exp()`."""
    return (call.args[0] if call.args else None) if code.called(call) else receiver(call)


def power(code, node):
    """Return base and exponent of `a ** b`, `torch.pow(a, b)` and `a.pow(b)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return node.left, node.right
    if method(node) in ("pow", "power") and node.args:
        return operand(code, node), node.args[-1]
    return None


@rule("losses-focal-factor", "wrong", "gamma|focus")
def focal_of_easy(code):
    """`pt ** gamma * ce` with `pt = exp(-ce)`: the factor is `(1 - pt) ** gamma`."""
    for node in code.of(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            parts = [one for given in factors(node) for one in factors(_value(code, given))]
            powers = [power(code, one) for one in parts]
            for base, exponent in filter(None, powers):
                if base is None or not re.search(r"(?i)gamma|focus", text(exponent) or ""):
                    continue
                shown = _probability(code, base)
                same = shown & {one for part in parts for one in _logarithm(code, part)}
                true = not same and _of_true_class(code, base)
                if same or true and any(_cross_entropy(code, one) for one in parts):
                    yield node


def _value(code, node):
    """Return the value of a name if it is a product or a power, else the node."""
    value = code.resolved(node) if text(node) else node
    known = isinstance(value, ast.AST) and (isinstance(value, ast.BinOp) or power(code, value))
    return value if known else node


def _probability(code, node):
    """Return texts of a probability: its own, and `ce` of `exp(-ce)`."""
    shown = {ast.unparse(node)}
    value = code.resolved(node) if text(node) else node
    if isinstance(value, ast.Call) and method(value) == "exp":
        inner = next(factors(operand(code, value)), None) if operand(code, value) else None
        shown |= {ast.unparse(inner)} if inner is not None else set()
    return shown


def _logarithm(code, node):
    """Return texts of the argument of a logarithm, and of a name that may be one."""
    names = {ast.unparse(node)}
    value = code.resolved(node) if text(node) else node
    if isinstance(value, ast.UnaryOp):
        value = value.operand
        names.add(ast.unparse(value))
    if isinstance(value, ast.Call) and method(value) in ("log", "log1p"):
        inner = operand(code, value)
        clamped = method(inner) in ("clamp", "clip")
        inner = operand(code, inner) if clamped else inner
        plus = isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add)
        inner = inner.left if plus else inner  # `log(p + eps)`
        names |= {ast.unparse(inner)} if inner is not None else set()
    return names


def _of_true_class(code, node):
    """Return whether a value is `p * y + (1 - p) * (1 - y)` or `where(y == 1, p, 1 - p)`."""
    value = code.resolved(node) if text(node) else node
    if method(value) == "where" and len(value.args) == 3:
        one = isinstance(value.args[0], ast.Compare) and const(value.args[0].comparators[0]) == 1
        return one and text(value.args[1]) is not None and _complement(value.args[2]) is not None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    counts = sorted(
        sum(_complement(one) is not None for one in factors(side))
        for side in (value.left, value.right)
    )
    return counts == [0, 2]


def _complement(node):
    """Return `x` of `1 - x`."""
    minus = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return node.right if minus and const(node.left) == 1 else None


def _cross_entropy(code, node):
    value = code.resolved(node) if text(node) else node
    named = re.search(r"(?i)^(bce|ce)(_?loss)?$|^log_?p_?t$", text(node) or "")
    return "cross_entropy" in method(value) or bool(named)


# ---------------------------------------------------------------- sinusoidal positions


@rule("attention-position-frequency", "wrong", "sin(")
def frequencies_rise(code):
    """`exp(arange(0, d, 2) * (log(10000.0) / d))` without a minus, `10000 ** (2 * i / d)`."""
    for call in code.calls:
        given = operand(code, call) if method(call) == "sin" else None
        if given is not None and (_rises(code, given) == 1 or _doubled(code, given)):
            yield call


def _rises(code, node, depth=0):
    """Return 1 for a frequency up to 10000, -1 for one down to 1 / 10000, None for others."""
    if depth > 8 or node is None:
        return None
    if isinstance(node, ast.Subscript) and code.value(node) is None:
        return _rises(code, node.value, depth + 1)  # `rate[None]`
    if text(node):
        value = code.value(node)
        return _rises(code, value, depth + 1) if isinstance(value, ast.AST) else None
    if isinstance(node, ast.Call) and method(node) == "exp":
        return _sign(code, operand(code, node))
    if (base := power(code, node)) is not None:
        return _sign(code, base[1], True) if (number(code, base[0]) or 0) >= 1000 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        left, right = (_rises(code, one, depth + 1) for one in (node.left, node.right))
        if left is not None and right is not None:
            return None
        return left or right and (right if isinstance(node.op, ast.Mult) else -right)
    kept = method(node) in _MOVES and not code.called(node)
    return _rises(code, receiver(node), depth + 1) if kept else None


def _sign(code, node, large=False):
    """Return the sign of a product with `log(10000)`; None if a part may have either sign."""
    sign = 1
    for one in _parts(code, node):
        if one is _MINUS or (number(code, one) or 0) < 0:
            sign *= -1
        elif method(one) == "log" and one.args:
            large |= (number(code, one.args[0]) or 0) >= 1000
        elif isinstance(one, ast.BinOp):
            if re.search(r"log|arange", ast.unparse(one)):
                return None
    return sign if large else None


_MINUS = ast.USub()


def _parts(code, node, depth=0):
    """Yield the factors and divisors of a value, through names, and `_MINUS` for each sign."""
    if depth > 10 or node is None:
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and const(node) is None:
        yield _MINUS
        yield from _parts(code, node.operand, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        yield from _parts(code, node.left, depth + 1)
        yield from _parts(code, node.right, depth + 1)
    elif text(node) and isinstance(value := code.value(node), ast.UnaryOp | ast.BinOp | ast.Call):
        yield from _parts(code, value, depth + 1)
    elif method(node) in ("float", "to", "unsqueeze", "double") and receiver(node) is not None:
        yield from _parts(code, receiver(node), depth + 1)
    elif isinstance(node, ast.AST):
        yield node


def _doubled(code, node, depth=0):
    """Return whether `10000 ** (2 * i / d)` has an `i` that grows by 2 already."""
    if depth > 6 or not isinstance(node, ast.AST):
        return False
    if text(node):
        return _doubled(code, code.value(node), depth + 1)
    if (base := power(code, node)) is not None:
        if (number(code, base[0]) or 0) < 1000:
            return False
        parts = [*_parts(code, base[1])]
        return any(code.const(one) in (2, 2.0) for one in parts) and any(
            _by_two(code, one) for one in parts
        )
    if isinstance(node, ast.BinOp):
        return any(_doubled(code, one, depth + 1) for one in (node.left, node.right))
    return isinstance(node, ast.Call) and any(_doubled(code, one, depth + 1) for one in node.args)


def _by_two(code, node):
    """Return whether a node is `arange(0, d, 2)`, or the variable of `range(0, d, 2)`."""
    if isinstance(node, ast.Name):
        for loop in above(node, ast.For):
            if text(loop.target) == node.id:
                node = loop.iter
                break
    return method(node) in ("range", "arange") and const(argument(node, "step", 2)) == 2


# ---------------------------------------------------------------- noise of diffusion


@rule("diffusion-other-noise", "wrong", "randn")
def noise_drawn_again(code):
    """`x_t = a * x0 + b * randn_like(x0)` and `mse_loss(model(x_t, t), randn_like(x0))`."""
    for place, sides in _compared(code):
        for output, target in (sides, sides[::-1]):
            model = code.resolved(output)
            if not isinstance(model, ast.Call) or code.called(model) or not model.args:
                continue
            given, drawn = model.args[0], _noise(code, target)
            mixed = code.resolved(given)
            if isinstance(mixed, ast.BinOp) and isinstance(mixed.op, ast.Add):
                used = [_noise(code, one) for side in _sum(mixed) for one in factors(side)]
                used = [one for one in used if one is not None]
                passed = {drawn, *used} & {_PASSED}
                again = drawn is not None and not passed and drawn not in used
                same = text(target) is not None and text(target) == text(given)
                if used and (again or same):
                    yield place


def _compared(code):
    """Yield losses and squared differences with their two sides."""
    for call in code.calls:
        sides = [argument(call, "input", 0), argument(call, "target", 1)]
        if None not in sides and is_loss_call(code, call):
            yield call, sides
    for node in code.of(ast.BinOp):
        up = node.parent
        squared = isinstance(up, ast.BinOp) and isinstance(up.op, ast.Pow) and up.left is node
        squared = squared or method(up) in ("square", "abs", "pow", "norm")
        squared = squared or getattr(up, "attr", "") in ("square", "abs", "pow", "norm")
        if isinstance(node.op, ast.Sub) and squared:
            yield node, [node.left, node.right]


def _sum(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_sum(node.left), *_sum(node.right)]
    return [node]


_PASSED = ast.Pass()  # a parameter, with noise only as its default


def _noise(code, node):
    """Return the call of `randn` that a value comes from, `_PASSED` for a parameter."""
    if isinstance(node, ast.Name) and node.id in node.scope.assigned:
        if parameter(node.scope, node.id):
            return _PASSED
    value = code.resolved(node) if text(node) else node
    while method(value) in _MOVES and receiver(value) is not None and not code.called(value):
        value = receiver(value)
    if isinstance(value, ast.IfExp):
        value = value.body if method(value.body).startswith("randn") else value.orelse
    return value if method(value) in ("randn", "randn_like") else None


# ---------------------------------------------------------------- the gradient penalty


@rule("gan-penalty-epsilon", "wrong", "grad(")
def one_epsilon(code):
    """`eps = torch.rand(1)` in `eps * real + (1 - eps) * fake` of a gradient penalty."""
    for node in code.of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or not _penalized(code, node):
            continue
        sides = [[*factors(node.left)], [*factors(node.right)]]
        for one, other in (sides, sides[::-1]):
            rest = {text(_complement(part)) for part in other} - {None}
            mixed = [part for part in one if text(part) in rest]
            if mixed and _single(code, mixed[0]):
                yield node
                break


def _penalized(code, node):
    """Return whether the function of a mixture also computes a gradient."""
    calls = code.calls_under(code.function(node))
    return any(code.dotted(one.func) == "torch.autograd.grad" for one in calls)


def _single(code, node):
    """Return whether a value is one random number, such as `torch.rand(1).expand(n, 1)`."""
    value = code.resolved(node)
    while method(value) in (*_MOVES, "expand", "expand_as", "item") and not code.called(value):
        value = receiver(value)
    name = code.called(value)
    if name in ("random.random", "random.uniform", "numpy.random.random", "numpy.random.uniform"):
        return name.startswith("random") or len(value.args) + len(value.keywords) <= 2
    if name not in ("torch.rand", "numpy.random.rand"):
        return False
    sizes = value.args
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
        sizes = sizes[0].elts
    return all(code.const(one) == 1 for one in sizes)
