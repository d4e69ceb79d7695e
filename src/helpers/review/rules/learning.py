"""Reinforcement learning, GANs, averages of models."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import above, inside, method, receiver, text

_TARGET = re.compile(
    r"(?i)(^|[._])(target|tgt|ema|momentum|old|ref|teacher|shadow)(_?(net|network|model|q|dqn|policy|critic|actor|\w+))?$|_(target|ema|old)$"
)


@rule("views-assign-target", "wrong")
def same_object(code):
    """`target_net = policy_net`: both names are one model."""
    for node in code.of(ast.Assign):
        if len(node.targets) != 1:
            continue
        name = text(node.targets[0])
        if (
            not name
            or not _TARGET.search(name)
            or not isinstance(node.value, ast.Name | ast.Attribute)
        ):
            continue
        value = kind(code, node.value) or ""
        if (
            value.startswith("module:")
            and text(node.value) != name
            and not _TARGET.search(text(node.value))
        ):
            yield node


@rule("rl-target-graph", "wrong")
def target_with_gradient(code):
    """`reward + gamma * net(next_state).max()` without `detach`: the target has a gradient."""
    for node in code.nodes:
        if (
            not isinstance(node, ast.BinOp)
            or not isinstance(node.op, ast.Add)
            or no_graph(code, node)
        ):
            continue
        if not re.search(r"(?i)gamma|discount", ast.unparse(node)) or isinstance(
            node.parent, ast.BinOp
        ):
            continue
        calls = list(_network_calls(code, node, 0))
        if not calls or not isinstance(node.parent, ast.Assign):
            continue
        target = text(node.parent.targets[0])
        if target and _in_loss(code, node, target) and not _cut(code, node, target):
            yield node


def _network_calls(code, node, depth):
    """Calls of a network with the next state, found through names."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and re.search(
            r"(?i)next|new_state|s_?prime|state_?_$", " ".join(ast.unparse(a) for a in one.args)
        ):
            if is_model(code, one.func):
                yield one
        elif isinstance(one, ast.Name) and depth < 3 and isinstance(one.ctx, ast.Load):
            value = code.value(one)
            value = value.value if isinstance(value, Part) else value
            if (
                isinstance(value, ast.AST)
                and value is not node
                and not no_graph(code, value)
                and not inside(node, value)
            ) and "detach" not in ast.unparse(value):
                yield from _network_calls(code, value, depth + 1)


def _in_loss(code, node, target):
    source = code.part(code.function(node)) if code.function(node) is not code.tree else code.source
    return "backward(" in source and len(re.findall(rf"\b{re.escape(target)}\b", source)) > 1


def _cut(code, node, target):
    source = code.part(code.function(node)) if code.function(node) is not code.tree else code.source
    name = re.escape(target)
    return re.search(
        rf"{name}\.(detach|data|item)|{name} = .*(detach|\.data\b)|requires_grad", source
    ) or re.search(r"detach|no_grad|\.data\b", ast.unparse(node))


@rule("rl-done-mask", "wrong")
def mask_added(code):
    """`r + gamma * mask + next_value`: the mask is added, not multiplied."""
    for node in code.nodes:
        if (
            not isinstance(node, ast.BinOp)
            or not isinstance(node.op, ast.Add)
            or isinstance(node.parent, ast.BinOp)
        ):
            continue
        terms = list(_terms(node))
        if len(terms) != 3 or not any(
            re.search(r"(?i)reward|^r$", ast.unparse(t)) for t in terms[:1]
        ):
            continue
        middle = ast.unparse(terms[1])
        if (
            isinstance(terms[1], ast.BinOp)
            and isinstance(terms[1].op, ast.Mult)
            and (
                re.search(r"(?i)gamma", middle)
                and re.search(r"(?i)mask|done", middle)
                and not re.search(r"(?i)value|q_|next|\bv\b", middle)
            )
        ):
            yield node


def _terms(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


@rule("gan-generator-detached", "wrong")
def generator_detached(code):
    """The generator's loss from `D(G(z).detach())`: the generator has no gradient."""
    for call in code.calls:
        if method(call) != "backward" or code.called(call):
            continue
        name = text(receiver(call)) or ""
        if not re.search(
            r"(?i)(^|_)(g|gen|generator)_?loss$|loss_?(g|gen|generator)$|^err_?g$", name
        ):
            continue
        value = code.value(receiver(call))
        if isinstance(value, ast.AST) and _through_detached(code, value, 0):
            yield call


def _through_detached(code, value, depth):
    if not isinstance(value, ast.Call) or depth > 2:
        return False
    for given in value.args[:1]:
        inner = code.value(given) if isinstance(given, ast.Name) else given
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name | ast.Attribute):
            if any(method(a) == "detach" for a in inner.args):
                return True
            if method(inner) in ("view", "squeeze", "reshape", "flatten") and receiver(inner):
                return _through_detached(
                    code, ast.Call(inner.func, [receiver(inner)], []), depth + 1
                )
    return False


@rule("detach-gan", "wasted")
def fake_not_detached(code):
    """The discriminator's loss goes through the generator: `D(fake)` without `detach`."""
    for call in code.calls:
        if (
            method(call) != "backward"
            or code.called(call)
            or any(above(call, ast.With))
            and no_graph(code, call)
        ):
            continue
        name = text(receiver(call)) or ""
        if not re.search(
            r"(?i)^(d|dis|disc|discriminator)_?loss(_fake)?$|^loss_?(d|disc)$|^err_?d(_fake)?$",
            name,
        ):
            continue
        function = (
            code.part(code.function(call)) if code.function(call) is not code.tree else code.source
        )
        if "detach" in function or "no_grad" in function or "retain_graph" in function:
            continue
        again = re.search(r"(?i)\bg\w*_?loss|loss_?g", function)
        value = code.value(receiver(call))
        if again and isinstance(value, ast.AST) and _uses_fake(code, value, 0):
            yield call


def _uses_fake(code, value, depth):
    if depth > 3:
        return False
    for one in ast.walk(value):
        if isinstance(one, ast.Call) and (kind(code, one.func) or "").startswith("module:"):
            for given in one.args[:1]:
                inner = code.value(given) if isinstance(given, ast.Name) else given
                if isinstance(inner, ast.Call) and (kind(code, inner.func) or "").startswith(
                    "module:"
                ):
                    if re.search(r"(?i)(^|[._])(g|gen|generator|net_?g)$", text(inner.func) or ""):
                        return True
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
            found = code.value(one)
            if (
                isinstance(found, ast.AST)
                and not inside(value, found)
                and _uses_fake(code, found, depth + 1)
            ):
                return True
    return False
