"""Losses with the wrong sign: ranking losses and critics."""

import ast
import re

from helpers.review.code import Part
from helpers.review.registry import rule
from helpers.review.rules.learning import negated
from helpers.review.syntax import argument, const, descendants, method, name_of, names_in, receiver
from helpers.review.tracing import construction

_PAIRS = (
    (re.compile(r"(?i)(^|_)(pos(itives?)?|chosen|ap)(_|$)"), "pos"),
    (re.compile(r"(?i)(^|_)(neg(atives?)?|rejected|an)(_|$)"), "neg"),
)
_DISTANCE = re.compile(
    r"(?i)dist|(^|_)d(_|$)|d_?a[pn]|pairwise_distance|cdist|norm\(|\*\* 2|pow\(2"
)
_SCORE = re.compile(r"(?i)score|sim|logit|pred|reward|cos(?!t)|\bout|\bsum\(|matmul|bmm")


def terms(node, sign=1):
    """Yield the terms of a sum with their signs, without constant factors."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from terms(node.left, sign)
        yield from terms(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from terms(node.operand, -sign)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        left, right = const(node.left), const(node.right)
        if isinstance(left, int | float) and isinstance(node.op, ast.Mult):
            yield from terms(node.right, sign if left > 0 else -sign)
        elif isinstance(right, int | float):
            yield from terms(node.left, sign if right > 0 else -sign)
        else:
            yield node, sign
    else:
        yield node, sign


def _side(node, code=None):
    """Return `pos` or `neg` for a score or distance of such a pair, by its name or its value."""
    name = name_of(node) or ""
    sides = {side for pattern, side in _PAIRS if pattern.search(name.rpartition(".")[2])}
    if not sides and code is not None and isinstance(value := code.value(node), ast.Call):
        words = names_in(value)
        sides = {side for pattern, side in _LONG if any(map(pattern.fullmatch, words))}
    return sides.pop() if len(sides) == 1 else None


_LONG = (
    (re.compile(r"(?i)pos(itives?)?(_\w+)?|p"), "pos"),
    (re.compile(r"(?i)neg(atives?)?(_\w+)?|n"), "neg"),
)


def _measure(code, node):
    """Return `distance` or `score` by the name, else by the value; None if it is not known."""
    name = name_of(node) or ""
    value = code.value(node)
    value = value.value if isinstance(value, Part) else value
    for written in (name, ast.unparse(value) if isinstance(value, ast.AST) else ""):
        kinds = [bool(_DISTANCE.search(written)), bool(_SCORE.search(written))]
        if any(kinds):
            return None if all(kinds) else "distance" if kinds[0] else "score"
    return None


def _pair_order(code, node):
    """Return 1 if an expression grows when the pairs are in the right order, -1 if it falls."""
    sides = [(_side(term, code), _measure(code, term), sign) for term, sign in terms(node)]
    sides = [side for side in sides if side[0]]
    if sorted(side[0] for side in sides) != ["neg", "pos"] or sides[0][2] == sides[1][2]:
        return 0
    (positive,) = [side for side in sides if side[0] == "pos"]
    if positive[1] is None or sides[0][1] != sides[1][1]:
        return 0
    return positive[2] if positive[1] == "score" else -positive[2]


@rule("losses-ranking-sign", "wrong", "pos|neg|margin|chosen|ontrastive|iamese")
def ranking_inverted(code):
    """`relu(d_neg - d_pos + margin)`: the loss falls when the pairs are in the wrong order."""
    for call in code.calls:
        margin = _hinge_argument(code, call)
        if margin is not None:
            is_inverted = _pair_order(code, margin) == 1 and not negated(code, call)
        elif method(call) in ("logsigmoid", "log"):
            is_inverted = _increasing(code, call)
        else:
            is_inverted = _swapped(code, call)
        if is_inverted:
            yield call
    yield from _repelled(code)


def _hinge_argument(code, call):
    """Return the argument of `relu`, `softplus` or `clamp(…, min=0)`."""
    name, method_name = code.called(call), method(call)
    if (
        name
        and not name.startswith(("F.", "torch."))
        or method_name not in ("relu", "softplus", "clamp", "clamp_min", "max", "maximum")
    ):
        return None
    if method_name in ("max", "maximum"):
        zeros = [
            arg
            for arg in call.args
            if const(arg) == 0 or re.search(r"zeros|tensor\(\[?0", ast.unparse(arg))
        ]
        others = [arg for arg in call.args if arg not in zeros]
        return _named(code, others[0]) if len(zeros) == len(others) == 1 else None
    base = call.args[0] if name and call.args else receiver(call) if not name else None
    least = argument(call, "min", 1 if name else 0)
    if method_name.startswith("clamp") and const(least) not in (0, 0.0) or name_of(base) == "self":
        return None
    if not name and method_name not in ("clamp", "clamp_min", "relu"):
        return None
    return _named(code, base)


def _named(code, node):
    """Return the sum that a name refers to, else the expression itself."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    return value if isinstance(value, ast.BinOp) else node


def _increasing(code, call):
    """Return True for a loss `log(sigmoid(pos - neg))` or `-log(sigmoid(neg - pos))`."""
    inner = call.args[0] if call.args and code.called(call) else receiver(call)
    if method(call) == "log":
        inside = [*terms(inner)] if inner is not None else []
        inner = next((term for term, _ in inside if method(term) == "sigmoid"), None)
        inner = (inner.args[0] if inner.args else receiver(inner)) if inner is not None else None
    order = _pair_order(code, _named(code, inner)) if inner is not None else 0
    if order == -1:
        return negated(code, call)
    return order == 1 and not negated(code, call) and _is_loss(call)


def _is_loss(node):
    """Return whether a value is returned by a loss, or assigned to a name of a loss."""
    while isinstance(node.parent, ast.Call | ast.Attribute | ast.BinOp):
        node = node.parent
    if isinstance(node.parent, ast.Assign):
        return bool(re.search(r"(?i)loss", name_of(node.parent.targets[0]) or ""))
    owner, function_name = getattr(node.owner, "name", ""), getattr(node.scope, "name", "")
    return isinstance(node.parent, ast.Return) and "loss" in f"{owner} {function_name}".lower()


def _swapped(code, call):
    """Return True for a margin or triplet loss whose arguments are in the wrong order."""
    name = code.called(call)
    constructor = (
        call if name.startswith("F.") else construction(code, call.func) if not name else None
    )
    kind_name = method(constructor) if code.called(constructor).startswith(("F.", "nn.")) else ""
    if re.match(r"TripletMargin|triplet_margin", kind_name) and len(call.args) == 3:
        return [_side(arg) for arg in call.args[1:]] == ["neg", "pos"]
    if not re.fullmatch(r"MarginRankingLoss|margin_ranking_loss", kind_name) or len(call.args) != 3:
        return False
    first, second, target = call.args
    sign = _sign_of(code, target)
    measures = {_measure(code, first), _measure(code, second)}
    if not sign or {_side(first), _side(second)} != {"pos", "neg"} or len(measures) != 1:
        return False
    grows = 1 if _side(first) == "pos" else -1
    order = {"score": grows, "distance": -grows}.get(measures.pop(), 0)
    return order == -sign


def _sign_of(code, node):
    """Return the sign of `torch.ones(n)`, `-torch.ones(n)` or `torch.full((n,), -1)`."""
    value, sign = code.resolved(node) if name_of(node) else node, 1
    for _ in range(4):
        parts = [*terms(value)] if isinstance(value, ast.AST) else []
        if len(parts) != 1:
            return 0
        value, sign = parts[0][0], sign * parts[0][1]
        if method(value) not in ("to", "cuda", "float", "expand_as") or receiver(value) is None:
            break
        value = receiver(value)
    if method(value) in ("ones", "ones_like"):
        return sign
    arguments = value.args if method(value) in ("full", "full_like", "tensor", "Tensor") else ()
    filled = getattr(arguments[-1], "elts", [arguments[-1]]) if arguments else []
    number = const(filled[0]) if len(filled) == 1 else None
    return (sign if number > 0 else -sign) if number in (1, -1, 1.0, -1.0) else 0


_MARGIN = re.compile(r"(?i)(self\.)?(\w*margin\w*|m|alpha)")


def _repelled(code):
    """`y * d ** 2 + (1 - y) * clamp(d - margin, min=0) ** 2`: the hinge has the wrong sign."""
    for call in code.calls if re.search(r"(?i)contrastive|siamese", code.source) else ():
        difference = _hinge_argument(code, call)
        if not isinstance(difference, ast.BinOp) or not isinstance(difference.op, ast.Sub):
            continue
        distance, margin = name_of(difference.left), name_of(difference.right) or ""
        total = call
        while isinstance(total.parent, ast.BinOp | ast.Call | ast.Attribute):
            total = total.parent
        parts = [part for part, _ in _sum_in(total)]
        bare = [
            part for part in parts if distance in names_in(part) and call not in descendants(part)
        ]
        if distance and _MARGIN.fullmatch(margin) and len(parts) == 2 and bare:
            calls = [
                other_call
                for other_call in descendants(bare[0])
                if isinstance(other_call, ast.Call)
            ]
            if not any(_hinge_argument(code, other_call) for other_call in calls):
                yield call


def _sum_in(node):
    """Return the terms of the first sum of two products in an expression."""
    for operation in descendants(node):
        if isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Add):
            return [*terms(operation)]
    return []


# ---------------------------------------------------------------- critics


@rule("gan-critic-sign", "wrong", "mean")
def critic_with_generator(code):
    """`D(real).mean() - D(fake).mean()` next to `-D(fake).mean()`: both networks agree."""
    critics, generators = {}, {}
    for node in code.nodes_of(ast.Assign):
        name = name_of(node.targets[0])
        if not name or name not in node.scope.backward or not _plain_backward(code, name):
            continue
        scored = [(score, sign) for score, sign in _critic_calls(code, node.value, 1, 0)]
        models = {name_of(call.func) for call, _ in scored}
        if len(models) != 1 or negated(code, node.value):
            continue
        fakes = [sign for call, sign in scored if of_sample(code, call)]
        reals = [sign for call, sign in scored if not of_sample(code, call)]
        key = models.pop(), node.owner
        if len(fakes) == len(reals) == 1 and fakes[0] == -reals[0]:
            critics.setdefault(key, []).append((node, fakes[0]))
        elif len(fakes) == 1 and not reals and "detach" not in ast.unparse(scored[0][0]):
            generators.setdefault(key, []).append((node, fakes[0]))
    for key, losses in critics.items():
        for node, sign in losses:
            others = [generator for generator, other in generators.get(key, ()) if other == sign]
            if others and len(losses) == len(generators[key]) == 1:
                yield node.value if sign < 0 else others[0].value


def _plain_backward(code, name):
    """Return whether `backward` of the name has no gradient argument, as `backward(mone)` has."""
    calls = [call for call in code.calls_named("backward") if name_of(receiver(call)) == name]
    return bool(calls) and not any(call.args for call in calls) and "maximize=" not in code.source


def _critic_calls(code, node, sign, depth):
    """Yield the calls of a critic in a sum of means, with their signs."""
    for term, inner in terms(node, sign):
        if isinstance(term, ast.Name) and depth < 3:
            value = code.value(term)
            if isinstance(value, ast.AST):
                yield from _critic_calls(code, value, inner, depth + 1)
        elif method(term) in ("mean", "view", "squeeze", "reshape"):
            arguments = term.args[:1] if code.called(term) else [receiver(term)]
            for arg in arguments:
                if arg is not None:
                    yield from _critic_calls(code, arg, inner, depth)
        elif isinstance(term, ast.Call) and not code.called(term) and len(term.args) in (1, 2):
            if re.fullmatch(
                r"(?i)(self\.)?(net_?)?(d|c|critic|dis\w*|f)\w{0,2}", name_of(term.func) or ""
            ):
                yield term, inner


CRITIC = re.compile(r"(?i)(self\.)?(net_?)?(d|c|critic|dis\w*|f)\w{0,2}")


def of_sample(code, call):
    """Return whether the argument of a critic is generated, by its name or its value."""
    operand = call.args[0]
    if re.search(r"(?i)fake|\bgen|_gen|\bg\(|net_?g\(|generator\(", ast.unparse(operand)):
        return True
    value = code.resolved(operand)
    return isinstance(value, ast.Call) and bool(
        re.search(r"(?i)(^|[._])(net_?)?g(en\w*)?$", name_of(getattr(value, "func", None)) or "")
    )
