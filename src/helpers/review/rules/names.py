"""Names: misspelt names and methods, and classes that are called like functions."""

import ast
import builtins
import re
import warnings
from collections import Counter
from difflib import get_close_matches

from helpers.names import undefined_names
from helpers.review.code import has_parameter
from helpers.review.kinds import is_model, is_module_class, is_optimizer, kind
from helpers.review.registry import rule
from helpers.review.rules.modules import module_classes
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    exclusive,
    method,
    name_of,
    place,
    receiver,
)

_FORWARD = {"foward", "forwad", "foreward", "froward", "farward", "Forward", "__forward__"}
_ACTIVATIONS = re.compile(
    r"nn\.(ReLU|Sigmoid|Tanh|Softmax|LogSoftmax|LeakyReLU|GELU|SiLU|ELU|Flatten)"
)


@rule("modules-forward-name", "raises")
def misspelt_forward(code):
    """`def foward(self, x)`."""
    for node in module_classes(code):
        names = {
            function.name: function
            for function in node.body
            if isinstance(function, ast.FunctionDef)
        }
        if "forward" not in names:
            for name in _FORWARD & names.keys():
                yield names[name]


@rule("names-misspelt", "raises")
def misspelt_name(code):
    """`Variabel(x)` in a file that imports `Variable`: no line defines the name."""
    if code.stars or re.search(r"\b(exec|globals|locals|vars)\(|NameError", code.source):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            undefined = {name for name in undefined_names(code.source) if len(name) > 4}
        except (SyntaxError, RecursionError):  # valid for the parser, not for the compiler
            return
    excerpt = len(undefined - vars(builtins).keys()) > 3  # of a notebook, say
    known = {*code.names, *code.classes, *(name for _, name in code.functions)}
    known |= {child.id for child in code.nodes_of(ast.Name)} | {
        parameter.arg for parameter in code.nodes_of(ast.arg)
    }
    for node in code.nodes_of(ast.Name) if undefined else ():
        if excerpt and node.scope is code.tree:
            continue
        if node.id in undefined and not re.search(r"\d", node.id):
            near = get_close_matches(node.id, known - undefined - vars(builtins).keys(), 1, 0.85)
            if near and _other_suffix(near[0], node.id):
                continue
            if near and near[0][0] == node.id[0] and near[0].rstrip("s") != node.id.rstrip("s"):
                yield node


def _other_suffix(first, second):
    """Return True for `train_ds` and `train_dl`, two names that differ in their last word."""
    pairs = [name.rpartition("_") for name in (first, second)]
    return pairs[0][0] == pairs[1][0] != "" and max(len(pair[2]) for pair in pairs) <= 3


@rule("names-stale-index", "wrong")
def stale_index(code):
    """`for c in clients: use(parts[idx])`: `idx` is the variable of an earlier loop."""
    for loop in code.nodes_of(ast.For):
        if not isinstance(loop.target, ast.Name) or loop.target.id.startswith("_"):
            continue
        inner = [n for statement in loop.body for n in descendants(statement)]
        read = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if loop.target.id in read:
            continue
        for other in code.nodes_of(ast.For):
            name = getattr(other.target, "id", None)
            before = other.scope is loop.scope and other.end_lineno < loop.lineno
            if name in read - stored and before and name != loop.target.id:
                values = loop.scope.assigned.get(name, ())
                indexed = [n for n in inner if isinstance(n, ast.Subscript)]
                if len(values) == 1 and any(name_of(n.slice) == name for n in indexed):
                    yield loop
                    break


@rule("names-unused-optimizer", "wrong")
def optimizer_unused(code):
    """`def train_batch(x, y, model, opt):` that calls `step()` of another optimizer."""
    for function in code.nodes_of(*FUNCTIONS):
        names = [parameter.arg for parameter in function.args.args]
        names = [n for n in names if re.fullmatch(r"(?i)opt(im(izer)?)?", n)]
        if len(names) != 1 or code.uses(function, names[0]) or names[0] in function.assigned:
            continue
        stepped = [c for c in code.methods(function, "step") if isinstance(receiver(c), ast.Name)]
        others = [c for c in stepped if is_optimizer(code, receiver(c))]
        known = {
            parameter.arg
            for parameter in descendants(function.args)
            if isinstance(parameter, ast.arg)
        }
        if others and not {receiver(c).id for c in others} & (known | {*function.assigned}):
            yield others[0]


@rule("names-misspelt-target", "wrong")
def misspelt_target(code):
    """`exteneded_mask = 1 - extended_mask`, and the old value is returned."""
    for scope in code.nodes_of(*FUNCTIONS):
        counts = Counter(re.findall(r"\w+", code.source_of(scope)))
        for name, values in scope.assigned.items():
            if len(name) < 8 or not name.isidentifier() or name.startswith("_"):
                continue
            if counts[name] != len(values):
                continue  # the name also occurs outside its assignments
            known = {node.id for node in descendants(scope) if isinstance(node, ast.Name)} - {name}
            for assignment in values:
                is_expression = isinstance(assignment.statement, ast.Assign) and isinstance(
                    assignment.value, ast.AST
                )
                used = (
                    {n.id for n in descendants(assignment.value) if isinstance(n, ast.Name)}
                    if is_expression
                    else ()
                )
                near = get_close_matches(name, known & {*used}, 1, 0.92)
                if near and _letters(near[0], name) and code.uses(scope, near[0]):
                    yield assignment.statement


def _letters(name, other):
    """Return whether the names differ inside a word, and not by a number or a plural."""
    plain = name.rstrip("s_") != other.rstrip("s_") and name[0] == other[0]
    return (
        plain
        and not re.search(r"\d", name + other)
        and len(name.split("_")) == len(other.split("_"))
    )


_ROLE = re.compile(r"(?i)(optim(izer)?|scheduler|loader|dataset|criterion)s?$")


@rule("names-repeated-argument", "wrong")
def repeated_argument(code):
    """`train(a_optimizer=b_optimizer, b_optimizer=b_optimizer)`: two arguments, one value."""
    for call in code.calls:
        passed_names = {k.arg: k.value.id for k in call.keywords if isinstance(k.value, ast.Name)}
        for option in call.keywords:
            value = passed_names.get(option.arg)
            if value and value != option.arg and passed_names.get(value) == value:
                if option.arg in call.scope.assigned and _ROLE.search(option.arg):
                    yield option.value


_METHODS = {
    "backwards": "backward",
    "backword": "backward",
    "zero_grads": "zero_grad",
    "zerograd": "zero_grad",
    "zero_gard": "zero_grad",
    "state_dicts": "state_dict",
    "load_state_dicts": "load_state_dict",
    "unsqeeze": "unsqueeze",
    "unsqueze": "unsqueeze",
    "squeze": "squeeze",
    "argmx": "argmax",
    "detatch": "detach",
    "evel": "eval",
    "paramters": "parameters",
    "parameter": "parameters",
}


@rule("names-misspelt-method", "raises")
def misspelt_method(code):
    """`loss.backwards()`, `optimizer.zero_grads()`."""
    for call in code.calls:
        name = method(call)
        if name not in _METHODS or code.called(call) or not isinstance(call.func, ast.Attribute):
            continue
        if name in code.methods_by_name or re.search(rf"def {name}\b", code.source):
            continue
        base = receiver(call)
        if name == "parameter":
            known = is_model(code, base) and not call.args
        elif "back" in name:
            known = re.search(r"(?i)loss|cost|err", name_of(base) or "") and not call.args
        elif "zero" in name:
            known = is_optimizer(code, base) or (kind(code, base) or "").startswith("module:")
        else:
            known = bool(kind(code, base)) or is_model(code, base)
        if known:
            yield call


@rule("modules-activation-class", "raises")
def activation_class(code):
    """`x = nn.ReLU(self.fc(x))` makes a module instead of computing."""
    for call in code.calls:
        if not _ACTIVATIONS.fullmatch(code.called(call)) or len(call.args) != 1:
            continue
        function = code.function_of(call)
        if getattr(function, "name", "") != "forward" or call.owner is None:
            continue
        operand = call.args[0]
        layer = isinstance(operand, ast.Call) and (name_of(operand.func) or "").startswith("self.")
        tensor = isinstance(operand, ast.Name) and operand.id in (
            "x",
            "out",
            "output",
            "inputs",
            "h",
        )
        if (layer or tensor) and const(operand) is None and is_module_class(code, call.owner.name):
            if not (isinstance(call.parent, ast.Call) and call.parent.func is call):
                yield call


@rule("evaluation-argmax-dim", "wrong")
def argmax_over_batch(code):
    """`pred = model(x).argmax(0)` compared with labels: the maximum over the batch."""
    yield from _metric_argmax(code)
    for call in code.calls:
        base, dim = _argmax(code, call)
        if base is None or dim not in (0, "none"):
            continue
        base = base.value if isinstance(base, ast.Attribute) and base.attr == "data" else base
        value = code.resolved(base)
        if not isinstance(value, ast.Call) or not is_model(code, value.func):
            continue
        if dim == "none" and not (kind(code, value.func) or "").startswith("module:"):
            continue
        if _is_compared_with_labels(code, call) and not re.search(
            r"unsqueeze|\[None", ast.unparse(value)
        ):
            yield call


def _metric_argmax(code):
    """Yield `np.argmax(logits, axis=0)` in `compute_metrics` of a `Trainer` of transformers."""
    for call in code.calls if "compute_metrics" in code.source else ():
        axis = argument(call, "axis", 1)
        if code.called(call) == "numpy.argmax" and axis is not None and const(axis) == 0:
            if "compute_metrics" in getattr(code.function_of(call), "name", ""):
                yield call


def _dim_arguments(call):
    return [k.value for k in call.keywords if k.arg in ("dim", "axis")]


def _argmax(code, call):
    """Return the tensor and the dimension of an argmax, `"none"` without one."""
    name, func = code.called(call), call.func
    if name in ("torch.max", "torch.argmax") and call.args:
        dims = call.args[1:] + _dim_arguments(call)
        base = call.args[0]
    elif not name and isinstance(func, ast.Attribute) and func.attr in ("argmax", "max"):
        dims, base = call.args + _dim_arguments(call), func.value
    else:
        return None, None
    if not dims:
        is_argmax = (
            name == "torch.argmax" or isinstance(func, ast.Attribute) and func.attr == "argmax"
        )
        return (base, "none") if is_argmax else (None, None)
    return base, const(dims[0])


def _is_compared_with_labels(code, call):
    """Return whether the result is compared with labels."""
    names = set()
    ancestor = call.parent
    while isinstance(ancestor, ast.Attribute | ast.Subscript | ast.Call):
        ancestor = ancestor.parent
    if isinstance(ancestor, ast.Compare) and isinstance(ancestor.ops[0], ast.Eq):
        return any(
            re.search(r"(?i)label|target|^y$|^y_?\w?\d?$", name_of(side) or "")
            for side in (ancestor.left, ancestor.comparators[0])
        )
    if isinstance(ancestor, ast.Assign):
        target = ancestor.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names = {name_of(part) for part in parts}
    for node in code.walk(code.function_of(call)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            sides = {name_of(node.left), name_of(node.comparators[0])}
            if sides & names and any(
                re.search(r"(?i)label|target|^y$|^y_", side or "") for side in sides - names
            ):
                return True
    return False


@rule("modules-forward-returns", "raises")
def nothing_returned(code):
    """A `forward` that computes and ends without `return`."""
    for node in module_classes(code):
        forward = code.functions.get((node.name, "forward"))
        if forward is None or forward.decorator_list or forward not in node.body:
            continue
        last_one = forward.body[-1]
        if isinstance(last_one, ast.Assign) and isinstance(last_one.targets[0], ast.Name):
            if not any(
                isinstance(child, ast.Return | ast.Yield | ast.YieldFrom)
                for child in code.walk(forward)
            ):
                yield last_one


@rule("names-not-called", "wrong")
def not_called(code):
    """`if torch.cuda.is_available:`, `SGD(net.parameters)`, `total += loss.item`."""
    for node in code.nodes_of(ast.Attribute):
        if isinstance(node.parent, ast.Call) and node.parent.func is node:
            continue
        if (
            code.dotted(node) == "torch.cuda.is_available"
            and _is_test(node)
            or node.attr in ("parameters", "state_dict", "item")
            and _is_given(code, node)
        ):
            yield node


def _is_test(node):
    ancestor = node.parent
    while (
        isinstance(ancestor, ast.BoolOp)
        or isinstance(ancestor, ast.UnaryOp)
        and isinstance(ancestor.op, ast.Not)
    ):
        node, ancestor = ancestor, ancestor.parent
    return isinstance(ancestor, ast.If | ast.IfExp) and ancestor.test is node


def _is_given(code, node):
    """Return whether an optimizer, `torch.save` or a sum receives a method without parentheses."""
    parent = node.parent
    if node.attr == "item":
        return isinstance(parent, ast.AugAssign) and kind(code, node.value) in ("loss", "tensor")
    called = code.called(parent) if isinstance(parent, ast.Call) and node in parent.args[:1] else ""
    owner = is_model(code, node.value)
    return owner and (called == "torch.save" or re.match(r"optim\.[A-Z]", called) is not None)


@rule("names-before-assignment", "raises")
def read_before_assignment(code):
    """`probs = softmax(probs)` in a branch that is the first to assign the local name."""
    for function in code.nodes_of(*FUNCTIONS):
        for name, values in function.assigned.items():
            if not name.isidentifier() or has_parameter(function, name):
                continue
            first = values[0].end
            for assignment in values:
                if assignment.end > first and not any(ancestors(assignment.statement, ast.If)):
                    break
                read = _own_read(assignment, name)
                if read is None or name in _bound_otherwise(code, function):
                    continue
                if not _assigned_before(code, assignment, name):
                    yield read


def _bound_otherwise(code, function):
    """Return the names that a function binds by imports, definitions, `global` and the like."""
    names = set()
    for node in code.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            names |= {*node.names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif (
            isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar)
            or isinstance(node, (*FUNCTIONS, ast.ClassDef))
            and node is not function
        ):
            names.add(node.name)
    return names


def _own_read(assignment, name):
    """Return where the value of `x = f(x)` reads the name that the statement assigns."""
    statement = assignment.statement
    if not isinstance(statement, ast.Assign) or any(
        ancestors(statement, *LOOPS, ast.Try, ast.With)
    ):
        return None
    if not any(name_of(target) == name for target in statement.targets):
        return None
    nodes = [*descendants(statement.value)]
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    return reads[0] if reads and not any(isinstance(node, _OWN) for node in nodes) else None


_OWN = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)


def _assigned_before(code, assignment, name):
    """Return whether a statement above this one may have assigned the name."""
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and not isinstance(node.ctx, ast.Load)
        and place(node) < place(assignment.statement)
        and not exclusive(node, assignment.statement)
        for node in code.walk(assignment.statement.scope)
    )
