"""Factors of a focal loss, of sinusoidal positions, of noise and of a gradient penalty."""

import ast
import re

from helpers.review.code import has_parameter
from helpers.review.registry import rule
from helpers.review.rules.formulas import number
from helpers.review.syntax import ancestors, argument, const, method, name_of, operands, receiver
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
    for node in code.nodes_of(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            parts = [
                factor
                for outer_factor in factors(node)
                for factor in factors(_expanded(code, outer_factor))
            ]
            powers = [power(code, part) for part in parts]
            for base, exponent in filter(None, powers):
                if base is None or not re.search(r"(?i)gamma|focus", name_of(exponent) or ""):
                    continue
                shown = _probability(code, base)
                same = shown & {logarithm for part in parts for logarithm in _logarithm(code, part)}
                true = not same and _of_true_class(code, base)
                if same or true and any(_cross_entropy(code, part) for part in parts):
                    yield node


def _expanded(code, node):
    """Return the value of a name if it is a product or a power, else the node."""
    value = code.resolved(node) if name_of(node) else node
    known = isinstance(value, ast.AST) and (isinstance(value, ast.BinOp) or power(code, value))
    return value if known else node


def _probability(code, node):
    """Return texts of a probability: its own, and `ce` of `exp(-ce)`."""
    shown = {ast.unparse(node)}
    value = code.resolved(node) if name_of(node) else node
    if method(value) == "exp":
        inner = next(factors(operand(code, value)), None) if operand(code, value) else None
        shown |= {ast.unparse(inner)} if inner is not None else set()
    return shown


def _logarithm(code, node):
    """Return texts of the argument of a logarithm, and of a name that may be one."""
    names = {ast.unparse(node)}
    value = code.resolved(node) if name_of(node) else node
    if isinstance(value, ast.UnaryOp):
        value = value.operand
        names.add(ast.unparse(value))
    if method(value) in ("log", "log1p"):
        inner = operand(code, value)
        clamped = method(inner) in ("clamp", "clip")
        inner = operand(code, inner) if clamped else inner
        plus = isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add)
        inner = inner.left if plus else inner  # `log(p + eps)`
        names |= {ast.unparse(inner)} if inner is not None else set()
    return names


def _of_true_class(code, node):
    """Return whether a value is `p * y + (1 - p) * (1 - y)` or `where(y == 1, p, 1 - p)`."""
    value = code.resolved(node) if name_of(node) else node
    if method(value) == "where" and len(value.args) == 3:
        is_one = isinstance(value.args[0], ast.Compare) and const(value.args[0].comparators[0]) == 1
        return (
            is_one and name_of(value.args[1]) is not None and _complement(value.args[2]) is not None
        )
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    counts = sorted(
        sum(_complement(factor) is not None for factor in factors(side))
        for side in (value.left, value.right)
    )
    return counts == [0, 2]


def _complement(node):
    """Return `x` of `1 - x`."""
    minus = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return node.right if minus and const(node.left) == 1 else None


def _cross_entropy(code, node):
    value = code.resolved(node) if name_of(node) else node
    named = re.search(r"(?i)^(bce|ce)(_?loss)?$|^log_?p_?t$", name_of(node) or "")
    return "cross_entropy" in method(value) or bool(named)


# ---------------------------------------------------------------- sinusoidal positions


@rule("attention-position-frequency", "wrong", "sin(")
def frequencies_rise(code):
    """`exp(arange(0, d, 2) * (log(10000.0) / d))` without a minus, `10000 ** (2 * i / d)`."""
    for call in code.calls:
        angle = operand(code, call) if method(call) == "sin" else None
        if angle is not None and (_rises(code, angle) == 1 or _index_is_doubled(code, angle)):
            yield call


def _rises(code, node, depth=0):
    """Return 1 for a frequency up to 10000, -1 for one down to 1 / 10000, None for others."""
    if depth > 8 or node is None:
        return None
    if isinstance(node, ast.Subscript) and code.value(node) is None:
        return _rises(code, node.value, depth + 1)  # `rate[None]`
    if name_of(node):
        value = code.value(node)
        return _rises(code, value, depth + 1) if isinstance(value, ast.AST) else None
    if method(node) == "exp":
        return _sign(code, operand(code, node))
    if (base := power(code, node)) is not None:
        return _sign(code, base[1], True) if (number(code, base[0]) or 0) >= 1000 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        left, right = (_rises(code, side, depth + 1) for side in (node.left, node.right))
        if left is not None and right is not None:
            return None
        return left or right and (right if isinstance(node.op, ast.Mult) else -right)
    kept = method(node) in _MOVES and not code.called(node)
    return _rises(code, receiver(node), depth + 1) if kept else None


def _sign(code, node, large=False):
    """Return the sign of a product with `log(10000)`; None if a part may have either sign."""
    sign = 1
    for part in _signed_factors(code, node):
        if part is _MINUS or (number(code, part) or 0) < 0:
            sign *= -1
        elif method(part) == "log" and part.args:
            large |= (number(code, part.args[0]) or 0) >= 1000
        elif isinstance(part, ast.BinOp):
            if re.search(r"log|arange", ast.unparse(part)):
                return None
    return sign if large else None


_MINUS = ast.USub()


def _signed_factors(code, node, depth=0):
    """Yield the factors and divisors of a value, through names, and `_MINUS` for each sign."""
    if depth > 10 or node is None:
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and const(node) is None:
        yield _MINUS
        yield from _signed_factors(code, node.operand, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        yield from _signed_factors(code, node.left, depth + 1)
        yield from _signed_factors(code, node.right, depth + 1)
    elif name_of(node) and isinstance(
        value := code.value(node), ast.UnaryOp | ast.BinOp | ast.Call
    ):
        yield from _signed_factors(code, value, depth + 1)
    elif method(node) in ("float", "to", "unsqueeze", "double") and receiver(node) is not None:
        yield from _signed_factors(code, receiver(node), depth + 1)
    elif isinstance(node, ast.AST):
        yield node


def _index_is_doubled(code, node, depth=0):
    """Return whether `10000 ** (2 * i / d)` has an `i` that grows by 2 already."""
    if depth > 6 or not isinstance(node, ast.AST):
        return False
    if name_of(node):
        return _index_is_doubled(code, code.value(node), depth + 1)
    if (base := power(code, node)) is not None:
        if (number(code, base[0]) or 0) < 1000:
            return False
        parts = [*_signed_factors(code, base[1])]
        return any(code.const(part) in (2, 2.0) for part in parts) and any(
            _by_two(part) for part in parts
        )
    if isinstance(node, ast.BinOp):
        return any(_index_is_doubled(code, side, depth + 1) for side in (node.left, node.right))
    return isinstance(node, ast.Call) and any(
        _index_is_doubled(code, arg, depth + 1) for arg in node.args
    )


def _by_two(node):
    """Return whether a node is `arange(0, d, 2)`, or the variable of `range(0, d, 2)`."""
    if isinstance(node, ast.Name):
        for loop in ancestors(node, ast.For):
            if name_of(loop.target) == node.id:
                node = loop.iter
                break
    return method(node) in ("range", "arange") and const(argument(node, "step", 2)) == 2


# ---------------------------------------------------------------- noise of diffusion


@rule("diffusion-other-noise", "wrong", "randn")
def noise_drawn_again(code):
    """`x_t = a * x0 + b * randn_like(x0)` and `mse_loss(model(x_t, t), randn_like(x0))`."""
    for place, sides in _compared_pairs(code):
        for output, target in (sides, sides[::-1]):
            model = code.resolved(output)
            if not isinstance(model, ast.Call) or code.called(model) or not model.args:
                continue
            tensor, drawn = model.args[0], _noise(code, target)
            mixed = code.resolved(tensor)
            if isinstance(mixed, ast.BinOp) and isinstance(mixed.op, ast.Add):
                used = [
                    _noise(code, factor)
                    for side in operands(mixed, ast.Add)
                    for factor in factors(side)
                ]
                used = [name for name in used if name is not None]
                passed = {drawn, *used} & {_PASSED}
                again = drawn is not None and not passed and drawn not in used
                same = name_of(target) is not None and name_of(target) == name_of(tensor)
                if used and (again or same):
                    yield place


def _compared_pairs(code):
    """Yield losses and squared differences with their two sides."""
    for call in code.calls:
        sides = [argument(call, "input", 0), argument(call, "target", 1)]
        if None not in sides and is_loss_call(code, call):
            yield call, sides
    for node in code.nodes_of(ast.BinOp):
        parent = node.parent
        squared = (
            isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow) and parent.left is node
        )
        squared = squared or method(parent) in ("square", "abs", "pow", "norm")
        squared = squared or getattr(parent, "attr", "") in ("square", "abs", "pow", "norm")
        if isinstance(node.op, ast.Sub) and squared:
            yield node, [node.left, node.right]


_PASSED = ast.Pass()  # a parameter, with noise only as its default


def _noise(code, node):
    """Return the call of `randn` that a value comes from, `_PASSED` for a parameter."""
    if isinstance(node, ast.Name) and node.id in node.scope.assigned:
        if has_parameter(node.scope, node.id):
            return _PASSED
    value = code.resolved(node) if name_of(node) else node
    while method(value) in _MOVES and receiver(value) is not None and not code.called(value):
        value = receiver(value)
    if isinstance(value, ast.IfExp):
        value = value.body if method(value.body).startswith("randn") else value.orelse
    return value if method(value) in ("randn", "randn_like") else None


# ---------------------------------------------------------------- the gradient penalty


@rule("gan-penalty-epsilon", "wrong", "grad(")
def one_epsilon(code):
    """`eps = torch.rand(1)` in `eps * real + (1 - eps) * fake` of a gradient penalty."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or not _penalized(code, node):
            continue
        sides = [[*factors(node.left)], [*factors(node.right)]]
        for side, other in (sides, sides[::-1]):
            rest = {name_of(_complement(part)) for part in other} - {None}
            mixed = [part for part in side if name_of(part) in rest]
            if mixed and _is_single_number(code, mixed[0]):
                yield node
                break


def _penalized(code, node):
    """Return whether the function of a mixture also computes a gradient."""
    calls = code.calls_under(code.function_of(node))
    return any(code.dotted(call.func) == "torch.autograd.grad" for call in calls)


def _is_single_number(code, node):
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
    return all(code.const(size) == 1 for size in sizes)
