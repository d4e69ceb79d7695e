"""Parameters that the optimizer does not contain, and exhausted generators."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import is_model, kind, no_graph
from helpers.review.registry import rule
from helpers.review.rules.modules import LAYERS, learns
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    exclusive,
    is_inside,
    last_name,
    method,
    name_of,
    place,
    receiver,
)


def optimizers(code):
    """Yield scope, name and assignment of each optimizer, with the model whose parameters it has.

    The model is the text before `.parameters()`, or None.
    """
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            for assignment in values:
                if (
                    isinstance(assignment.value, ast.Call)
                    and kind(code, assignment.value) == "optimizer"
                ):
                    yield scope, name, assignment, _model(assignment.value)


def _model(call):
    params = argument(call, "params", 0)
    if isinstance(params, ast.List) and params.elts and isinstance(params.elts[0], ast.Dict):
        names = [ast.unparse(key) if key else "" for key in params.elts[0].keys]
        position = names.index("'params'") if "'params'" in names else None
        params = params.elts[0].values[position] if position is not None else None
    if method(params) == "parameters" and receiver(params):
        return name_of(receiver(params))
    return None


@rule("fine-tuning-head-late", "wrong")
def replaced_after(code):
    """`model.fc = nn.Linear(…)` after the optimizer was made from `model.parameters()`."""
    for scope, name, assignment, model in optimizers(code):
        if not model or model == "self" and getattr(scope, "name", "") != "__init__":
            continue
        stop = min(
            (v.end for v in scope.assigned[name] if v.end > assignment.end), default=(1 << 30, 0)
        )
        for other, values in scope.assigned.items():
            if not other.startswith((f"{model}.", f"{model}[")):
                continue
            for later in values:
                if assignment.end < later.end < stop and _new_layer(code, later, assignment):
                    if _used_later(code, scope, name, later, stop) and not _is_added_to_optimizer(
                        code, scope, other
                    ):
                        yield later.statement


def _new_layer(code, later, assignment):
    if isinstance(later.value, Part) or exclusive(assignment.statement, later.statement):
        return False
    return learns(code, later.value)


def _used_later(code, scope, name, assignment, stop):
    return (
        any(
            isinstance(node, ast.Attribute)
            and name_of(node.value) == name
            and assignment.end < place(node) < stop
            for node in code.walk(scope)
        )
        or name.startswith("self.")
        and any(
            name_of(receiver(call)) == name and call.scope is not scope
            for call in code.methods(code.tree, "step") + _of_class(code, scope)
        )
    )


def _of_class(code, scope):
    """Return the calls of `step` in the methods of a class."""
    owner = getattr(scope, "owner", None)
    return [call for call in code.calls_named("step") if call.owner is owner]


def _is_added_to_optimizer(code, scope, layer):
    return any(layer in ast.unparse(call) for call in code.methods(scope, "add_param_group"))


@rule("modules-spent", "wrong")
def spent(code):
    """`parameters = net.parameters()` used twice: the second time the generator is empty."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            if (
                len(values) != 1
                or "." in name
                or "[" in name
                or not _is_lazy(code, values[0].value)
            ):
                continue
            end = values[0].end
            uses = [
                node
                for node in code.walk(scope)
                if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
            ]
            first_line = values[0].statement.lineno
            looped = [
                n
                for n in uses
                if any(u.lineno > first_line for u in ancestors(n, *LOOPS))
                and not _iterates(n, first_line)
            ]
            apart = [n for n in uses if place(n) > end and not any(ancestors(n, ast.If))]
            if len(apart) > 1:
                yield apart[1]
            elif looped:
                yield looped[0]


def _iterates(node, first_line):
    """Return whether the only loop around a name iterates over it."""
    loops = [u for u in ancestors(node, *LOOPS) if u.lineno > first_line]
    return len(loops) == 1 and isinstance(loops[0], ast.For) and is_inside(node, loops[0].iter)


def _is_lazy(code, value):
    if isinstance(value, ast.GeneratorExp):
        return "parameters()" in ast.unparse(value)
    if not isinstance(value, ast.Call):
        return False
    if name_of(value.func) == "filter":
        return "parameters()" in ast.unparse(value)
    named = method(value) in ("parameters", "named_parameters")
    return named and not code.called(value) and is_model(code, receiver(value))


@rule("grad-modes-optimizer-error", "raises")
def scaled_leaf(code):
    """`w = torch.randn(3, requires_grad=True) * 0.01` given to an optimizer: not a leaf."""
    optimized = _in_optimizers(code)
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            if name not in optimized:
                continue
            for assignment in values:
                if _is_moved_leaf(code, assignment.value):
                    yield assignment.statement


def _in_optimizers(code):
    names = set()
    for _, _, optimizer, _ in optimizers(code):
        params = argument(optimizer.value, "params", 0)
        if isinstance(params, ast.List | ast.Tuple):
            names |= {name_of(item) for item in params.elts}
    return names


def _is_moved_leaf(code, value):
    if isinstance(value, ast.BinOp):
        return any(_is_leaf(code, side) for side in (value.left, value.right))
    if method(value) in ("to", "cuda", "double", "half"):
        return _is_leaf(code, receiver(value))
    return False


def _is_leaf(code, node):
    if not isinstance(node, ast.Call) or not code.called(node).startswith("torch."):
        return False
    return code.const(argument(node, "requires_grad")) is True


@rule("backward-leaf-error", "raises")
def leaf_in_place(code):
    """`w -= 0.1 * w.grad` without `torch.no_grad()`."""
    for node in code.nodes_of(ast.AugAssign):
        if isinstance(node.target, ast.Name):
            value = code.value(node.target)
            if not no_graph(code, node) and isinstance(value, ast.Call):
                if code.called(value) == "nn.Parameter" or _is_leaf(code, value):
                    yield node


@rule("training-rebound-weight", "wrong")
def rebound(code):
    """`w = w - lr * w.grad` in a loop: the new tensor is not a leaf, so its `.grad` is None."""
    for node in code.nodes_of(ast.Assign):
        if not isinstance(node.value, ast.BinOp):
            continue
        name = name_of(node.targets[0])
        if not name or name != name_of(node.value.left) or not any(ancestors(node, *LOOPS)):
            continue
        grads = [n for n in descendants(node.value) if name_of(n) == f"{name}.grad"]
        value = code.value(node.value.left)
        if grads and isinstance(value, ast.Call) and _is_leaf(code, value):
            if not re.search(
                rf"\b{re.escape(name)}\.(requires_grad|retain_grad)|{re.escape(name)}\.detach",
                code.source,
            ):
                yield node


@rule("fine-tuning-head-nothing", "wrong")
def out_features(code):
    """`model.fc.out_features = 10` changes no weight."""
    for node in code.nodes_of(ast.Assign):
        if not isinstance(node.targets[0], ast.Attribute):
            continue
        target = node.targets[0]
        if target.attr in ("out_features", "out_channels", "in_features", "in_channels"):
            base = name_of(target.value)
            if base and base != "self" and isinstance(target.value, ast.Attribute | ast.Subscript):
                if not any(f"{base}.weight" in names for names in _assigned(code)):
                    yield node


def _assigned(code):
    return [
        [name_of(target) or "" for target in node.targets] for node in code.nodes_of(ast.Assign)
    ]


@rule("training-frozen-name", "wrong")
def misspelt_flag(code):
    """`model.requires_grad = False` sets an attribute of the module and freezes nothing."""
    for node in code.nodes_of(ast.Assign):
        if isinstance(node.targets[0], ast.Attribute):
            target = node.targets[0]
            if target.attr == "requires_grad" and const(node.value) is False:
                module = (kind(code, target.value) or "").startswith("module:")
                if module or _is_child(code, target.value) or _is_part(code, target.value):
                    yield node
            elif target.attr in ("require_grad", "required_grad", "requires_grads"):
                if name_of(target.value):
                    yield node


_PARTS = re.compile(r"fc|out_?c|classifier|heads?|encoder|decoder|backbone|features|layer\d|bert")


def _is_part(code, node):
    """Return whether a node is `model.encoder`, a part of a model that the file does not define."""
    named = isinstance(node, ast.Attribute) and _PARTS.fullmatch(node.attr)
    return bool(named) and is_model(code, node.value)


def _is_child(code, node):
    """Return whether a name is a module from a loop over `model.children()` or `modules()`."""
    part = code.value(node) if isinstance(node, ast.Name) else None
    if not isinstance(part, Part) or part.index is not None:
        return False
    named = method(part.value) in ("named_children", "named_modules") and part.element == 1
    plain = method(part.value) in ("children", "modules") and part.element is None
    return (named or plain) and not code.called(part.value)


@rule("training-two-models", "wrong")
def second_model(code):
    """The loss goes through two models of this file, and the only optimizer has one."""
    reported = {*_other_model(code)}
    yield from reported
    all_optimizers = list(optimizers(code))
    if len(all_optimizers) != 1 or all_optimizers[0][3] is None:
        return
    scope, _, _, model = all_optimizers[0]
    for name, values in scope.assigned.items():
        if name == model or "." in name or "[" in name or not _trainable(code, values[-1].value):
            continue
        if not reported and not _left_alone(code, name) and _feeds_loss(code, scope, name, model):
            yield values[-1].statement


def _other_model(code):
    """Yield the only model that a loop calls, if its optimizer has the parameters of another."""
    for scope, name, _, model in optimizers(code):
        if not model or "." in model or "[" in model or len(scope.assigned[name]) > 1:
            continue
        for loop in code.loops:
            stepped = [
                call for call in code.methods(loop, "step") if name_of(receiver(call)) == name
            ]
            if loop.scope is scope and stepped and code.methods(loop, "backward"):
                called = {
                    name_of(call.func)
                    for call in code.calls_under(loop)
                    if (kind(code, call.func) or "").startswith("module:")
                }
                other = called.pop() if len(called) == 1 else None
                if other in scope.assigned and not _related(code, model, other, loop):
                    yield scope.assigned[other][-1].statement
                    break


def _related(code, model, other, loop):
    """Return whether one model contains the other, or the loop uses the model of the optimizer."""
    values = [
        assignment.value
        for name in (model, other)
        for assignment in loop.scope.assigned.get(name, ())
    ]
    if model == other or any(isinstance(value, Part) for value in values):
        return True
    known = [_trainable(code, value) or _imported_class(code, value) for value in values]
    if not all(known) or len(values) < 2:
        return True
    uses = code.uses(loop.scope, model)
    return any(is_inside(use, loop) for use in uses) or any(
        isinstance(use.parent, ast.Call)
        and use in use.parent.args
        and method(use.parent) != "print"
        for use in (*uses, *code.uses(loop.scope, other))
    )


def _left_alone(code, name):
    """Return whether the file freezes the model, passes it on, or uses its parameters."""
    quoted = re.escape(name)
    frozen = r"eval|requires_grad|parameters|state_dict|load_state|train\(False|apply"
    a_loss = re.search(r"(?i)loss|criterion", name)  # not what runs under `no_grad`
    return re.search(
        rf"\b{quoted}\.({frozen})|{'' if a_loss else 'no_grad|inference_mode|'}freeze|"
        rf"[(,=\[] *\*?{quoted}\b(?!\()(?! *=[^=])|\b{quoted}\b,",
        code.source,
    )


def _imported_class(code, value):
    """Return whether a value is `Net()` of a class that another file or cell defines."""
    name = value.func.id if isinstance(getattr(value, "func", None), ast.Name) else ""
    return name[:1].isupper() and name not in code.classes and not code.called(value)


def _trainable(code, value):
    if isinstance(value, Part):
        return False
    while method(value) in ("to", "cuda") and receiver(value):
        value = receiver(value)
    return isinstance(value, ast.Call) and (
        LAYERS.match(code.called(value)) is not None or learns(code, value)
    )


def _feeds_loss(code, scope, name, model):
    """Return whether both models are called in one loop with a backward pass."""
    for loop in code.loops:
        called = {name_of(call.func) for call in code.walk(loop) if isinstance(call, ast.Call)}
        if name in called and code.methods(loop, "backward"):
            unused = len(code.uses(scope, model)) == 1  # by the optimizer alone
            if model in called or unused and "." not in model:
                return True
    return False


@rule("training-swapped-optimizers", "wrong")
def swapped_optimizers(code):
    """`optimizer_E = Adam(decoder.parameters())` and `optimizer_D = Adam(encoder.parameters())`."""
    named = [
        (
            scope,
            name.rpartition("_")[2].lower(),
            _words_of_parameters(optimizer.value),
            optimizer.statement,
        )
        for scope, name, optimizer, _ in optimizers(code)
        if "_" in name.rpartition(".")[2]
    ]
    for scope, suffix, own_words, statement in named:
        fits = [
            words for other, _, words, _ in named if other is scope and _fits_suffix(suffix, words)
        ]
        if (
            fits
            and not _fits_suffix(suffix, own_words)
            and all(own_words != words for words in fits)
        ):
            if any(_fits_suffix(other, own_words) or words in fits for _, other, words, _ in named):
                yield statement
    yield from _of_one_network(
        [
            (scope, n, optimizer.value, optimizer.statement)
            for scope, n, optimizer, _ in optimizers(code)
        ]
    )


def _role(words):
    return next(
        (role for name in words[-1:] for role in _ROLES if _ROLES[role].fullmatch(name)), None
    )


_ROLES = {
    "g": re.compile(r"(net_?)?g(en(erator)?)?"),
    "d": re.compile(r"(net_?)?d(isc(riminator)?)?"),
}
_ROLE_OF_NAME = re.compile(r"(?:optim(?:izer)?|opt)_?([gd])(?:en|isc|enerator|iscriminator)?")


def _of_one_network(named):
    """Yield `optimizerG` if it has the parameters of the network of `optimizerD` too."""
    networks = [
        (scope, match[1].lower(), _role(_words_of_parameters(call)), statement)
        for scope, name, call, statement in named
        if (match := _ROLE_OF_NAME.fullmatch(name.rpartition(".")[2].lower()))
    ]
    for scope, role, own_role, statement in networks:
        other = {"g": "d", "d": "g"}[role]
        if own_role == other and (scope, other, other) in {network[:3] for network in networks}:
            yield statement


def _words_of_parameters(call):
    params = argument(call, "params", 0)
    names = re.split(
        r"\W|_", name_of(receiver(params) if isinstance(params, ast.Call) else params) or ""
    )
    return tuple(
        name.lower() for name in names[-3:] if name not in ("self", "model", "params", "net")
    )


def _fits_suffix(suffix, words):
    return any(word.startswith(suffix) for word in words)


@rule("training-swapped-options", "wrong")
def swapped_options(code):
    """`SGD(parameters, lr=args.weight_decay)`: the value of another option."""
    for call in code.calls:
        if not code.called(call).startswith("optim."):
            continue
        for option in call.keywords:
            name = last_name(option.value)
            if option.arg == "lr" and re.fullmatch(r"(?i)weight_?decay|wd|momentum", name):
                yield option.value
            elif option.arg in ("weight_decay", "momentum"):
                if re.fullmatch(r"(?i)lr|learning_?rate", name):
                    yield option.value


@rule("training-model-replaced", "wrong", "optim")
def rebuilt_model(code):
    """`model = Net()` again after the optimizer has got `model.parameters()`."""
    for scope, name, assignment, model in optimizers(code):
        if not model or "." in model:
            continue
        later = [
            assignment_after.end
            for assignment_after in scope.assigned[name]
            if assignment_after.end > assignment.end
        ]
        stop = min(later, default=(1 << 30, 0))
        models = scope.assigned.get(model, ())
        before = [earlier for earlier in models if earlier.end < assignment.end]
        first = [_constructed_class(code, earlier.value) for earlier in before][-1:]
        for earlier in models:
            again = assignment.end < earlier.end < stop and not exclusive(
                earlier.statement, assignment.statement
            )
            if not again or [_constructed_class(code, earlier.value)] != first or first == [None]:
                continue
            loops = set(ancestors(earlier.statement, *LOOPS))
            together = loops & set(ancestors(assignment.statement, *LOOPS))
            stepped = [
                use
                for use in code.uses(scope, name)
                if earlier.end < place(use) < stop
                and (
                    isinstance(use.parent, ast.Call | ast.keyword)
                    or getattr(use.parent, "attr", "") == "step"
                )
            ]
            inner = any(is_inside(use, loop) for use in stepped for loop in loops - together)
            if stepped and (loops == together or inner) and "add_param_group" not in code.source:
                yield earlier.statement


def _constructed_class(code, value):
    """Return the class that a call instantiates, even moved to a device."""
    while method(value) in ("to", "cuda") and receiver(value):
        value = receiver(value)
    name = name_of(value.func) if isinstance(value, ast.Call) else None
    known = name in code.classes or name and name[:1].isupper() and not code.dotted(value.func)
    return name if known else None


def _group_not_appended(code):
    """The last of several `group = {"params": []}`, if only the earlier ones are appended."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            groups = [assignment for assignment in values if isinstance(assignment.value, ast.Dict)]
            if len(groups) < 2 or groups[-1] is not values[-1]:
                continue
            added = [
                call
                for call in code.calls_named("append")
                if call.scope is scope and len(call.args) == 1
                if name_of(call.args[0]) == name
            ]
            last = groups[-1].end
            lists = {name_of(receiver(call)) for call in added}
            optimized = {
                name_of(call.args[0])
                for call in code.calls_under(scope)
                if kind(code, call) == "optimizer" and call.args and place(call) > last
            }
            if added and lists & optimized and all(place(call) < last for call in added):
                yield groups[-1].statement


@rule("training-groups-partial", "wrong", ".weight|append(")
def groups_of_weights(code):
    """Groups of only `m.weight` and `m.bias`: any other `nn.Parameter` is in no group."""
    yield from _group_not_appended(code)
    owned = _own_parameters(code) - {"weight", "bias"}
    for loop in code.nodes_of(ast.For) if owned else ():
        module = name_of(
            loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) else loop.target
        )
        if method(loop.iter) not in ("modules", "named_modules") or not module:
            continue
        collected = {
            name_of(receiver(call)): name_of(call.args[0])
            for call in code.methods(loop, "append")
            if len(call.args) == 1
            and name_of(call.args[0]) in (f"{module}.weight", f"{module}.bias")
        }
        source = "\n".join(
            code.source_of(statement)
            for statement in code.function_of(loop).body
            if not isinstance(statement, ast.ClassDef)
        )
        if len(collected) < 2 or re.search(
            r"named_parameters|\.parameters\(", code.source_of(loop)
        ):
            continue
        optimized = [
            ast.unparse(call)
            for call in code.calls_under(code.function_of(loop))
            if kind(code, call) == "optimizer" or method(call) == "add_param_group"
        ]
        every = all(any(re.search(rf"\b{n}\b", word) for word in optimized) for n in collected)
        all_parameters = any(re.search(r"parameters\(\)", word) for word in optimized)
        if (
            optimized
            and every
            and not all_parameters
            and not any(re.search(rf"\b{name}\b", source) for name in owned)
        ):
            yield loop


def _own_parameters(code):
    """Return the attributes to which local classes assign an `nn.Parameter` that is trained."""
    return {
        name.removeprefix("self.")
        for node in code.classes.values()
        for name, values in node.attributes.items()
        if any(
            code.called(assignment.value) == "nn.Parameter"
            and const(argument(assignment.value, "requires_grad", 1)) is not False
            for assignment in values
        )
    }
