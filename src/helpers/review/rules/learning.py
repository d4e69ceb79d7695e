"""Reinforcement learning, GANs, averages of models."""

import ast
import re
from collections import defaultdict

from helpers.review.code import Part, has_parameter
from helpers.review.kinds import is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    const,
    descendants,
    is_inside,
    last_name,
    method,
    name_of,
    names_in,
    operands,
    receiver,
)
from helpers.review.tracing import is_loss_call

_TARGET = re.compile(
    r"(?i)(^|[._])(target|tgt|ema|momentum|old|ref|teacher|shadow)(_?(net|network|model|q|dqn|policy|critic|actor|\w+))?$|_(target|ema|old)$"
)


@rule("views-assign-target", "wrong")
def same_object(code):
    """`target_net = policy_net`: both names are one model."""
    for node in code.nodes_of(ast.Assign):
        if len(node.targets) != 1:
            continue
        name = name_of(node.targets[0])
        if (
            not name
            or not _TARGET.search(name)
            or not isinstance(node.value, ast.Name | ast.Attribute)
        ):
            continue
        loaded = f"{name}.load_state_dict({name_of(node.value)}.state_dict(" in code.source
        constructor = is_model(code, node.value) and isinstance(code.value(node.value), ast.Call)
        value = kind(code, node.value) or ("module:" if loaded or constructor else "")
        if (
            value.startswith("module:")
            and name_of(node.value) != name
            and not _TARGET.search(name_of(node.value))
        ):
            yield node
    yield from _moved_alike(code)


def _moved_alike(code):
    """`self.policy = model.to(d)` and `self.target = model.to(d)`: `to` returns the module."""
    moved = defaultdict(list)
    for node in code.nodes_of(ast.Assign):
        call, name = node.value, name_of(node.targets[0])
        if isinstance(call, ast.Name) and (name or "").startswith("self."):
            moved[code.function_of(node), call.id].append((name, node))
        if method(call) in ("to", "cuda", "float", "eval", "train") and name:
            if isinstance(receiver(call), ast.Name) and len(node.targets) == 1:
                moved[code.function_of(node), receiver(call).id].append((name, node))
    for (function, source), pairs in moved.items():
        names = {name for name, _ in pairs}
        updated = _unmoved_model(pairs[0][1].value)
        known = is_model(code, updated) or (kind(code, updated) or "").startswith("module:")
        if len(names) != len(pairs) or len(pairs) != 2 or not known or source in names:
            continue
        targets = [pair for name, pair in pairs if _TARGET.search(name)]
        first, second = (code.value(_unmoved_model(pair.value)) for _, pair in pairs)
        both = first is second
        if len(targets) == 1 and both and "deepcopy" not in code.source_of(function):
            yield targets[0]


def _unmoved_model(value):
    """Return `model` of `model` and `model.to(device)`."""
    return receiver(value) if isinstance(value, ast.Call) else value


@rule("rl-target-graph", "wrong")
def target_with_gradient(code):
    """`reward + gamma * net(next_state).max()` without `detach`: the target has a gradient."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or no_graph(code, node):
            continue
        if not re.search(r"(?i)gamma|discount|\b0\.9", ast.unparse(node)) or isinstance(
            node.parent, ast.BinOp
        ):
            continue
        calls = list(_network_calls(code, node, 0))
        if calls and isinstance(node.parent, ast.Call) and is_loss_call(code, node.parent):
            if not no_graph(code, calls[0]):
                yield node
            continue
        if not calls or not isinstance(node.parent, ast.Assign):
            continue
        target = name_of(node.parent.targets[0])
        if target and _in_loss(code, node, target) and not _is_cut(code, node, target):
            yield node
    yield from _bootstrapped(code)
    yield from _advantages_squared(code)


def _advantages_squared(code):
    """`critic_loss = advantages.pow(2).mean()` of `reward + gamma * values[t + 1] - values[t]`."""
    if "gamma" not in code.source and "discount" not in code.source:
        return
    for node in code.nodes_of(ast.Assign):
        loss = name_of(node.targets[0]) or ""
        if not re.search(r"(?i)(critic|value|^v)_?loss|loss_?(critic|value|v$)", loss):
            continue
        function = code.function_of(node)
        if (
            isinstance(function, ast.Module)
            or _CUTS.search(code.source_of(function))
            or no_graph(code, node)
        ):
            continue
        names = {name_of(_square_base(child)) for child in descendants(node.value)} - {None}
        if any(_next_value(code, function, name) for name in names):
            yield node


def _square_base(node):
    """Return `x` of `x ** 2`, `x.pow(2)` and `x.square()`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return node.left if const(node.right) == 2 else None
    if method(node) == "pow" and node.args and const(node.args[-1]) == 2:
        return receiver(node)
    return receiver(node) if method(node) == "square" else None


def _next_value(code, function, name, depth=0):
    """Return whether `gamma * values[t + 1] - values[t]` fills a name, even through names."""
    for node in code.walk(function):
        if not isinstance(node, ast.Assign) or depth > 3:
            continue
        target = node.targets[0]
        base = target.value if isinstance(target, ast.Subscript) else target
        if name_of(base) != name:
            continue
        written = ast.unparse(node.value)
        ahead = re.search(r"(?i)(gamma|discount)\b.*?(\w*val\w*)\[\w+ \+ 1\]", written)
        if ahead and re.search(rf"- (\w+\.)*{ahead[2]}\[\w+\]", written):
            return True
        inner = {n.id for n in descendants(node.value) if isinstance(n, ast.Name)} - {name}
        if any(_next_value(code, function, each, depth + 1) for each in inner):
            return True
    return False


_CUTS = re.compile(r"detach|no_grad|inference_mode|\.data\b|\.item\(|numpy|tensor\(")


def _bootstrapped(code):
    """`r = net(last_state)` and `r = reward + gamma * r` in a loop: each return has a gradient."""
    for node in code.nodes_of(ast.Assign):
        name, loop = name_of(node.targets[0]), next(ancestors(node, *LOOPS), None)
        function = code.function_of(node)
        if loop is None or name not in names_in(node.value) or no_graph(code, node):
            continue
        added = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add)
        if not added or not re.search(r"(?i)gamma|discount", ast.unparse(node.value)):
            continue
        before = code.assigned_before(node.scope, name, loop)
        first = before[-1].value if before else None
        first = code.resolved(first)
        if _of_network(code, first) and not _CUTS.search(code.source_of(function)):
            if any(_is_target_of_loss(code, call) for call in code.callers.get(function, ())):
                yield node


def _of_network(code, node):
    """Return True for an output of a network, with its graph."""
    node = node.value if isinstance(node, Part | ast.Subscript) else node
    return isinstance(node, ast.Call) and is_model(code, node.func) and not no_graph(code, node)


def _is_target_of_loss(code, call):
    """Return whether the result of the call is the target of a loss, without `detach`."""
    result = name_of(call.parent.targets[0]) if isinstance(call.parent, ast.Assign) else None
    if result is None or no_graph(code, call):
        return False
    source, quoted = code.source_of(code.function_of(call)), re.escape(result)
    cut = rf"\b{quoted}\)?\.(detach|data|item)|\b{quoted} = .*(detach|tensor\(|\.data\b)"
    losses = list(code.methods(code.function_of(call), "mse_loss", "smooth_l1_loss"))
    return (
        "backward(" in source
        and not re.search(cut, source)
        and any(result in map(name_of, loss.args) for loss in losses)
    )


@rule("rl-critic-graph", "wrong")
def advantage_with_gradient(code):
    """`(returns - values) * log_prob` next to `mse_loss(values, returns)`: no `detach`."""
    advantages = set()
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Mult) or no_graph(code, node):
            continue
        function = code.function_of(node)
        for weight, other in ((node.left, node.right), (node.right, node.left)):
            names = " ".join(names_in(other))
            if not re.search(r"(?i)(^|[ _.])(log_?p(i|robs?)?s?|ratios?)($|[ _])", names):
                continue
            value = _advantage(code, weight)
            if value in advantages or value is None or len(code.methods(function, "backward")) != 1:
                continue
            if _critic_learns(code, function, weight, value):
                advantages.add(value)
                yield value


def _advantage(code, node):
    """Return `returns - values` without `detach`, even through a name."""
    value = code.resolved(node)
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return None
    cut = _CUTS.search(ast.unparse(value)) or no_graph(code, value)
    names = all(isinstance(_unflattened(side), ast.Name) for side in (value.left, value.right))
    return value if names and not cut else None


def _unflattened(node):
    """Return `x` of `x.squeeze(-1)` and `x.view(-1)`."""
    shaped = method(node) in ("squeeze", "view", "flatten", "reshape")
    return receiver(node) if shaped and receiver(node) is not None else node


def _critic_learns(code, function, weight, value):
    """Return whether a loss of the two names, or the squared difference, trains the critic."""
    sides, name = {_unflattened(value.left).id, _unflattened(value.right).id}, name_of(weight)
    for node in code.walk(function):
        if isinstance(node, ast.Call) and is_loss_call(code, node):
            sides_of_loss = [
                receiver(arg) if method(arg) == "detach" else arg for arg in node.args[:2]
            ]
            if {name_of(_unflattened(side)) for side in sides_of_loss} == sides:
                return True
        squared = receiver(node) if method(node) in ("pow", "square") else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            squared = node.left
        difference = isinstance(squared, ast.BinOp) and isinstance(squared.op, ast.Sub)
        if difference and ast.unparse(squared) == ast.unparse(value):
            return True
        if name and name_of(squared) == name:
            return True
    return False


@rule("fine-tuning-average-buffers", "wrong")
def average_without_buffers(code):
    """`for e, p in zip(ema.parameters(), model.parameters())` of a model with BatchNorm."""
    norm = r"BatchNorm|models\.(resnet|resnext|wide_resnet|densenet|mobilenet|efficientnet|regnet)"
    copied = r"buffers|running_(mean|var)|update_bn|swa_utils|state_dict\(\)\."
    copied += r"|load_state_dict\((?!torch\.load)"
    norm += r"|\b(Mink|Res|Dense|Mobile|Efficient|HR|PSP|DeepLab)\w*(Net|UNet|V\d)\w*\("
    if not re.search(norm, code.source) or re.search(copied, code.source):
        return
    for loop in code.nodes_of(ast.For):
        names = [
            name_of(receiver(arg))
            for arg in getattr(loop.iter, "args", ())
            if method(loop.iter) == "zip" and method(arg) == "parameters"
        ]
        body = " ".join(map(ast.unparse, loop.body))
        if len(names) != 2 or not re.search(r"mul_|copy_|lerp_|\.data = ", body):
            continue
        for name in names if re.search(r"(?i)decay|alpha|beta|momentum|tau", body) else ():
            if name and _always_evaluates(code, loop, name):
                yield loop


def _always_evaluates(code, loop, name):
    """Return True for a deep copy that is set to evaluation mode, never to training mode."""
    owner, scope = loop.owner if name.startswith("self.") else None, loop.scope
    arguments = code.arguments(scope, name) if has_parameter(scope, name) else []
    if len(arguments) == 1 and isinstance(arguments[0], ast.Name):
        name, scope = arguments[0].id, arguments[0].scope
    elif len(arguments) == 1 and (name_of(arguments[0]) or "").startswith("self."):
        name, owner = name_of(arguments[0]), arguments[0].owner
    while owner is None and scope.scope is not None and name not in scope.assigned:
        scope = scope.scope  # a variable of the module
    values = owner.attributes.get(name, ()) if owner else scope.assigned.get(name, ())
    calls = [other_call for other_call in code.calls if name_of(receiver(other_call)) == name]
    modes = {
        method(other_call)
        for other_call in calls
        if other_call.owner is owner
        if owner or other_call.scope is scope
    }
    call = values[0].value if len(values) == 1 else None
    while method(call) in ("eval", "to", "cuda", "requires_grad_") and receiver(call) is not None:
        modes, call = modes | {method(call)}, receiver(call)
    return method(call) == "deepcopy" and "eval" in modes and "train" not in modes


def _with_gradient(node):
    """Yield the nodes of an expression, except in `argmax`, in an index and before `detach`."""
    stack = [node]
    while stack:
        inner = stack.pop()
        yield inner
        if method(inner) not in ("argmax", "detach", "item", "numpy"):
            index = inner.slice if isinstance(inner, ast.Subscript) else None
            stack += [child for child in ast.iter_child_nodes(inner) if child is not index]


_Q = re.compile(r"(?i)(self\.)?(q\d?|q_?(target|local|eval)\d?|target_?q\d?|critic\d?_?target\d?)")


def _network_calls(code, node, depth):
    """Yield calls of a network with the next state, even through names."""
    for child in _with_gradient(node):
        if isinstance(child, ast.Call) and re.search(
            r"(?i)next|new_state|s_?prime|(state|obs|observation)s?_+$|\b(ns|s2|obs2)\b",
            " ".join(ast.unparse(a) for a in child.args),
        ):
            func = child.func
            if (
                last_name(func) == "forward"
                or is_model(code, func)
                or _Q.fullmatch(name_of(func) or "")
            ):
                yield child
        elif isinstance(child, ast.Name) and depth < 3 and isinstance(child.ctx, ast.Load):
            value = code.value(child)
            value = value.value if isinstance(value, Part) else value
            if (
                isinstance(value, ast.AST)
                and value is not node
                and not no_graph(code, value)
                and not is_inside(node, value)
            ) and "detach" not in ast.unparse(value):
                yield from _network_calls(code, value, depth + 1)


def _in_loss(code, node, target):
    source = code.source_of(code.function_of(node))
    return "backward(" in source and len(re.findall(rf"\b{re.escape(target)}\b", source)) > 1


def _is_cut(code, node, target):
    source = code.source_of(code.function_of(node))
    name = re.escape(target)
    return re.search(
        rf"{name}\.(detach|data|item)|{name} = .*(detach|\.data\b)|requires_grad", source
    ) or re.search(r"detach|no_grad|\.data\b", ast.unparse(node))


@rule("rl-done-mask", "wrong")
def mask_added(code):
    """`r + gamma * mask + next_value`: the mask is added, not multiplied."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or isinstance(node.parent, ast.BinOp):
            continue
        terms = operands(node, ast.Add)
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


@rule("rl-target-frozen", "wrong")
def target_never_updated(code):
    """One of two target networks, copies of other networks, that is never updated."""
    for owner in code.nodes_of(ast.ClassDef):
        source = code.source_of(owner)
        copies = {
            name.removeprefix("self."): values[0].statement
            for name, values in owner.attributes.items()
            if len(values) == 1 and name.count(".") == 1
            if code.called(values[0].value) == "copy.deepcopy" and values[0].value.args
            if (name_of(values[0].value.args[0]) or "").startswith("self.")
        }
        idle = [name for name in copies if not _may_be_updated(code, owner, name)]
        if len(idle) == 1 and len(copies) == 2 and re.search(rf"self\.{idle[0]}\(", source):
            if not _SETS.search(code.source):
                yield copies[idle[0]]
    yield from _own_target(code)


_SETS = re.compile(r"setattr|getattr|__dict__|vars\(|\.children\(\)")


def _own_target(code):
    """Yield the only target network of an agent, if no line of the file updates it."""
    if _SETS.search(code.source) or re.search(r"(?i)predictor|\brnd|curios|byol", code.source):
        return
    if not re.search(r"(?i)reward|gamma", code.source):
        return
    for owner in code.nodes_of(ast.ClassDef):
        for name, values in owner.attributes.items():
            short, value = name.removeprefix("self."), values[0].value
            if (
                not _TARGET_NET.fullmatch(short)
                or len(values) != 1
                or not _makes_network(code, value)
            ):
                continue
            called = any(name_of(call.func) == name and call.owner is owner for call in code.calls)
            if (
                called
                and "backward" in code.source_of(owner)
                and not _read_outside(code, owner, short)
            ):
                if not _may_be_updated(code, owner, short):
                    yield values[0].statement


_TARGET_NET = re.compile(r"(?i)(q_?)?target(_?(q|net|network|model|q_?net\w*))*|\w+_target")


def _makes_network(code, node):
    """Return whether a constructor makes a network, local or imported."""
    if not isinstance(node, ast.Call) or code.called(node) == "copy.deepcopy" or node.keywords:
        return False
    type_name = kind(code, node) or ""
    unknown = isinstance(node.func, ast.Name) and node.func.id not in code.classes
    named = re.search(r"(?i)net|dqn|critic|actor|model", getattr(node.func, "id", ""))
    return type_name.startswith("module:") or bool(unknown and named)


def _read_outside(code, owner, name):
    """Return whether code outside the class reads the attribute, or the class has base classes."""
    outside = [
        attribute
        for attribute in code.nodes_of(ast.Attribute)
        if attribute.attr == name and attribute.owner is not owner
    ]
    return bool(outside or owner.bases and name_of(owner.bases[0]) != "object")


def _may_be_updated(code, owner, name):
    """Return whether a function, `zip` or an in-place change may update the attribute."""
    for node in code.nodes_of(ast.Attribute):
        if node.owner is not owner or node.attr != name or name_of(node.value) != "self":
            continue
        parent = node.parent
        if (
            isinstance(parent, ast.Call)
            and parent.func is not node
            and code.called(parent) != "copy.deepcopy"
        ):
            return True
        if isinstance(parent, ast.List | ast.Tuple | ast.Dict):
            return True
        changed = isinstance(parent, ast.Attribute) and parent.attr not in (
            *("parameters", "named_parameters", "to", "cuda", "eval", "train", "forward"),
            "requires_grad_",
        )
        if changed or any(method(call) == "zip" for call in ancestors(node, ast.Call)):
            return True
    return False


@rule("rl-reduced-early", "wrong")
def reduced_before_product(code):
    """`torch.sum(log_probs.mean() * returns)`: each return needs the probability of its action."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Mult) or not _is_summed(code, node):
            continue
        for side, other in ((node.left, node.right), (node.right, node.left)):
            side = side.operand if isinstance(side, ast.UnaryOp) else side
            value = code.resolved(side)
            if method(value) not in ("mean", "sum"):
                continue
            reduces_all = not value.keywords and len(value.args) == bool(code.called(value))
            operand = value.args[0] if code.called(value) and value.args else receiver(value)
            names = re.search(r"(?i)log_?p(rob|i)?s?(_|$)", name_of(operand) or "")
            weights = r"(?i)(^|_)(returns?|advantages?|adv|deltas?|rewards?|gs?|discounted\w*)$"
            if reduces_all and names and re.search(weights, name_of(other) or ""):
                yield node


def _is_summed(code, node):
    """Return whether the product is the argument of a sum or a mean."""
    parent = node.parent
    if code.called(parent) in ("torch.sum", "torch.mean"):
        return True
    return isinstance(parent, ast.Attribute) and parent.attr in ("sum", "mean")


@rule("rl-dueling-mean", "wrong")
def mean_over_batch(code):
    """`value + advantage - advantage.mean()` in `forward`: the mean is over the whole batch."""
    for node in code.nodes_of(ast.BinOp):
        function_name = getattr(code.function_of(node), "name", "")
        if not isinstance(node.op, ast.Sub) or function_name != "forward" or node.owner is None:
            continue
        name = name_of(node.left) or name_of(getattr(node.left, "right", None)) or ""
        call = code.resolved(node.right)
        reduces_all = method(call) == "mean" and not call.args[1:] and not call.keywords
        operand = (
            call.args[0]
            if reduces_all and code.called(call) == "torch.mean" and call.args
            else None
        )
        operand = (
            receiver(call) if reduces_all and not code.called(call) and not call.args else operand
        )
        added = isinstance(node.left, ast.BinOp) or isinstance(node.parent, ast.BinOp)
        if operand is not None and name_of(operand) == name and added:
            if re.search(r"(?i)(^|_)adv(antages?)?(_|$)", name) and "std" not in code.source_of(
                node
            ):
                yield node


@rule("gan-generator-detached", "wrong")
def generator_detached(code):
    """The generator's loss from `D(G(z).detach())`: the generator has no gradient."""
    for call in code.calls_named("backward"):
        if code.called(call):
            continue
        name = name_of(receiver(call)) or ""
        if not re.search(
            r"(?i)(^|_)(g|gen|generator)_?loss$|loss_?(g|gen|generator)$|^err_?g(_total)?$", name
        ):
            continue
        value = code.value(receiver(call))
        if isinstance(value, ast.AST) and _through_detached(code, value, 0):
            yield call
    yield from _output_detached(code)
    yield from _real_for_detached(code)
    yield from _judgement_detached(code)


def _judgement_detached(code):
    """`err_g = l2(D(real), D(fake).detach())`: the generator gets no gradient from it."""
    for call in code.calls:
        name = name_of(call.parent.targets[0]) if isinstance(call.parent, ast.Assign) else None
        named = re.match(
            r"(?i)^(err|loss)_?(g|gen)_?\w*$|^(g|gen|generator)_?(err|loss)\w*$", name or ""
        )
        if not named or len(call.args) < 2 or no_graph(code, call) or code.called(call)[:2] != "F.":
            if not named or not is_loss_call(code, call) or len(call.args) < 2:
                continue
        values = [code.resolved(arg) for arg in call.args[:2]]
        cut = [_detached_of_model(code, value) for value in values]
        fake = [word for word in cut if word and re.search(r"(?i)fake|gen", word)]
        others = " ".join(
            ast.unparse(getattr(value, "value", value))
            for value, judged in zip(values, cut, strict=True)
            if value is not None and not judged
        )
        if fake and not re.search(r"(?i)fake|gen", others) and differentiated(code, call, 0):
            yield call


def _detached_of_model(code, node):
    """Return the first argument of `D(fake).detach()` as it is written."""
    inner = receiver(node) if method(node) == "detach" and not code.called(node) else None
    if isinstance(inner, ast.Call) and is_model(code, inner.func) and inner.args:
        return ast.unparse(inner.args[0])
    return None


def _real_for_detached(code):
    """`g_loss1 = mse_loss(D(fake.detach(), c), ones)`: this term has no gradient."""
    for call in code.calls:
        name = name_of(call.parent.targets[0]) if isinstance(call.parent, ast.Assign) else None
        generator = (
            r"(?i)^(g|gen|generator)_?loss(_?(gan|adv|\d))?$|^(loss|err)_?(g|gen|generator)(_?\d)?$"
        )
        if not name or not re.match(generator, name) or not is_loss_call(code, call):
            continue
        if len(call.args) < 2 or no_graph(code, call):
            continue
        prediction, target = (code.resolved(a) for a in call.args[:2])
        detached = [arg for arg in getattr(prediction, "args", ()) if method(arg) == "detach"]
        fake = [
            other_call
            for other_call in detached
            if re.search(r"(?i)fake|gen", name_of(receiver(other_call)) or "")
        ]
        if fake and method(target) in ("ones", "ones_like"):
            yield call


def _output_detached(code):
    """`criterion(D(fake).detach(), ones)` in a differentiated loss: this term has no gradient."""
    for call in code.calls:
        if len(call.args) < 2 or not is_loss_call(code, call) or no_graph(code, call):
            continue
        value = code.resolved(call.args[0])
        model = receiver(value) if method(value) == "detach" and not code.called(value) else None
        if not isinstance(model, ast.Call) or not is_model(code, model.func):
            continue
        target = code.called(code.resolved(call.args[1]))
        constant = target in ("torch.ones", "torch.zeros", "torch.full")
        if (constant or target.endswith("_like")) and differentiated(code, call, 0):
            yield call


def differentiated(code, node, depth):
    """Return whether an expression is a term of a loss that is differentiated."""
    ancestor = node
    while isinstance(ancestor.parent, ast.BinOp):
        ancestor = ancestor.parent
    if method(ancestor.parent) in ("backward", "manual_backward"):
        return True
    name = name_of(ancestor.parent.targets[0]) if isinstance(ancestor.parent, ast.Assign) else None
    if isinstance(ancestor.parent, ast.AugAssign) and isinstance(ancestor.parent.op, ast.Add):
        name = name_of(ancestor.parent.target)
    if not name or depth > 3:
        return False
    return name in node.scope.backward or any(
        isinstance(use.parent, ast.BinOp) and differentiated(code, use, depth + 1)
        for use in code.uses(node.scope, name)
        if use.lineno > node.lineno
    )


def negated(code, node, depth=0):
    """Return whether a value, or a sum that contains it, is negated or subtracted later."""
    while isinstance(node.parent, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Call):
        if _changes_sign(node.parent, node):
            return True
        node = node.parent
    parent = node.parent
    if depth > 3:
        return False
    if isinstance(parent, ast.Return):
        name = getattr(code.function_of(node), "name", None)
        return any(negated(code, call, depth + 1) for call in code.calls if method(call) == name)
    if isinstance(parent, ast.AugAssign):
        return (
            isinstance(parent.op, ast.Sub)
            or isinstance(parent.op, ast.Mult)
            and _is_negative(parent.value)
        )
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    return name is not None and any(
        negated(code, child, depth + 1)
        for child in code.nodes_of(ast.Name)
        if child.id == name and child.scope is node.scope and child.lineno > node.lineno
    )


def _changes_sign(parent, node):
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.USub)
    if isinstance(parent, ast.BinOp):
        other = parent.left if node is parent.right else parent.right
        subtracted = isinstance(parent.op, ast.Sub) and node is parent.right
        return subtracted or isinstance(parent.op, ast.Mult | ast.Div) and _is_negative(other)
    return method(parent) in ("neg", "negative")


def _is_negative(node):
    value = const(node)
    return isinstance(value, int | float) and value < 0


def _through_detached(code, value, depth):
    if not isinstance(value, ast.Call) or depth > 2:
        return False
    for arg in value.args[:1]:
        inner = code.resolved(arg)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name | ast.Attribute):
            if any(method(code.resolved(a)) == "detach" for a in inner.args):
                return True
            if method(inner) in ("view", "squeeze", "reshape", "flatten") and receiver(inner):
                return _through_detached(
                    code, ast.Call(inner.func, [receiver(inner)], []), depth + 1
                )
    return False


@rule("detach-gan", "wasted")
def fake_not_detached(code):
    """The discriminator's loss goes through the generator: `D(fake)` without `detach`."""
    for call in code.calls_named("backward"):
        if code.called(call) or any(ancestors(call, ast.With)) and no_graph(code, call):
            continue
        name = name_of(receiver(call)) or ""
        if not re.search(
            r"(?i)^(d|dis|disc|discriminator)_?loss(_fake)?$|^loss_?(d|disc)$|^err_?d(_fake)?$",
            name,
        ):
            continue
        function = code.source_of(code.function_of(call))
        if "detach" in function or "no_grad" in function or "retain_graph" in function:
            continue
        again = re.search(r"(?i)\bg\w*_?loss|loss_?g", function)
        value = code.value(receiver(call))
        if again and isinstance(value, ast.AST) and _uses_fake(code, value, 0):
            yield call


def _uses_fake(code, value, depth):
    """Return whether a value is computed from `discriminator(generator(z))`."""
    for child in descendants(value) if depth <= 3 else ():
        if isinstance(child, ast.Call) and child.args and _is_network(code, child.func):
            inner = code.resolved(child.args[0])
            if isinstance(inner, ast.Call) and _is_network(code, inner.func):
                if re.search(r"(?i)(^|[._])(g|gen|generator|net_?g)$", name_of(inner.func) or ""):
                    return True
            if isinstance(inner, ast.Call) and _is_trained_generator(code, child, inner):
                return True
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            source = code.value(child)
            inner = isinstance(source, ast.AST) and not is_inside(value, source)
            if inner and _uses_fake(code, source, depth + 1):
                return True
    return False


def _is_trained_generator(code, judged, inner):
    """Return whether `D(model(x))` has a discriminator, and an optimizer has the parameters."""
    name, judge = name_of(inner.func) or "", name_of(judged.func) or ""
    if not re.search(r"(?i)(^|[._])(d|dis|disc\w*|net_?d)$", judge) or name == judge:
        return False
    trained = rf"optim\.\w+\(\s*{re.escape(name)}\.parameters\("
    return is_model(code, inner.func) and bool(re.search(trained, code.source))


def _is_network(code, func):
    """Return whether a callee is a module; one of another file counts by its name."""
    type_name = kind(code, func)
    names = r"G|D|gen|disc|netG|netD|net_g|net_d|generator|discriminator"
    named = isinstance(func, ast.Name) and re.fullmatch(names, func.id)
    return (type_name or "").startswith("module:") or bool(type_name is None and named)


@rule(
    "gan-generator-labels",
    "wrong",
    "g_loss|G_loss|gen_loss|generator_loss|loss_g|loss_G|lossG|err_g|err_G|errG",
)
def generator_against_itself(code):
    """`g_loss = criterion(D(fake), zeros)`: the generator learns to be recognized as fake."""
    if re.search(r"(?i)(real|valid)\w*(, *\w+)? *= *\(?(.*\bzeros|0(\.0*)?(?![.\d]))", code.source):
        return  # real images have label 0 here
    generator = r"(?i)^(g|gen|generator)_?loss(_?(gan|adv|fake))?$|^(loss|err)_?(g|gen|generator)$"
    for call in code.calls:
        parent = call.parent
        name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
        if not name or not re.match(generator, name) or len(call.args) < 2 or call.keywords:
            continue
        value = code.resolved(call.args[0])
        while method(value) in ("squeeze", "view", "reshape", "flatten") and receiver(value):
            value = receiver(value)
        judged = isinstance(value, ast.Call) and is_model(code, value.func)
        detached = judged and any(method(arg) == "detach" for arg in value.args)
        if judged and not detached and is_loss_call(code, call) and _is_fake(code, call.args[1]):
            if not negated(code, call):
                yield call


def _is_fake(code, node):
    """Return whether a node is a tensor of zeros, even by its name."""
    value = code.resolved(node)
    if isinstance(value, ast.Call):
        zeros = code.called(value) in ("torch.zeros", "torch.zeros_like")
        return zeros or bool(re.search(r"fill_\(0(\.0)?\)", ast.unparse(value)))
    named = r"(?i)(fake|zero)s?_?(labels?|targets?)?|labels?_?fake"
    return value is None and bool(re.fullmatch(named, name_of(node) or ""))
