"""Results that are read wrongly: tuples, precedence, first best values, stale variables."""

import ast
import re

from helpers.review.code import Part, has_parameter
from helpers.review.kinds import kind
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    method,
    name_of,
    names_in,
    receiver,
    stored_names,
)
from helpers.review.tracing import construction

_LOSS = re.compile(r"loss|error|mse|mae|rmse|perplexity")
_GAIN = re.compile(r"acc|f1|auc|iou|dice|score|map\b")


@rule("evaluation-max-tuple", "raises", "max(|min(|topk(|sort(")
def maximum_as_tensor(code):
    """`pred = out.max(1)`, then `pred == y` or `gamma * pred`: a pair of values and indices."""
    for call in code.calls:
        if not _gives_pair(code, call) or not isinstance(call.parent, ast.Assign):
            continue
        target = call.parent.targets[0]
        if not isinstance(target, ast.Name):
            continue
        for node in code.walk(call.scope):
            if isinstance(node, ast.Name) and node.id == target.id and code.value(node) is call:
                if _as_tensor(node):
                    yield call
                    break


def _gives_pair(code, call):
    """Return True for `x.max(1)`, `torch.max(x, dim=1)`, `x.topk(3)` of tensors."""
    name, method_name = code.called(call), method(call)
    if method_name not in ("max", "min", "topk", "sort", "median") or name and name[:6] != "torch.":
        return False
    dim = argument(call, "dim", 1 if name else 0)
    if method_name in ("topk", "sort"):
        return bool(name)
    number = isinstance(const(dim), int) and not isinstance(const(dim), bool)
    tensor = bool(name) or receiver(call) is not None and _is_tensor(code, receiver(call))
    return number and tensor


def _is_tensor(code, node):
    """Return True for a tensor, and for the output of a model, even by its name."""
    if kind(code, node) in ("tensor", "loss"):
        return True
    named = r"(?i)(^|[._])(net|model|policy|target|q_?\w*|critic|actor)(_net(work)?)?\d?$"
    return isinstance(node, ast.Call) and bool(re.search(named, name_of(node.func) or ""))


def _as_tensor(node):
    parent = node.parent
    if isinstance(parent, ast.Compare):
        return not any(isinstance(operator, ast.Is | ast.IsNot) for operator in parent.ops)
    return isinstance(parent, ast.BinOp) or (
        isinstance(parent, ast.Attribute)
        and parent.attr in ("eq", "detach", "view", "cpu", "item", "numpy", "squeeze", "sum", "to")
    )


@rule("training-precedence", "wrong", "%")
def modulo_first(code):
    """`if i + 1 % steps == 0`: `%` binds more tightly than `+`."""
    for node in code.nodes_of(ast.BinOp):
        right = node.right
        if not isinstance(node.op, ast.Add) or not isinstance(right, ast.BinOp):
            continue
        first = isinstance(right.op, ast.Mod) and const(right.left) == 1
        if (
            first
            and isinstance(node.left, ast.Name)
            and isinstance(node.parent, ast.Compare | ast.If)
        ):
            yield node


@rule("evaluation-best-start", "wrong", "best|min_|max_|Best")
def best_never_beaten(code):
    """`best_loss = 0` and `if val_loss < best_loss`: no loss is below 0."""
    for node, metric, best, op in _comparisons(code):
        if _assigns(node.parent, name_of(best)):
            if _hopeless(_first_value(code, best), op, metric, name_of(best)):
                yield node


@rule("evaluation-best-reset", "wrong", "best|min_|max_|Best")
def best_assigned_in_each_epoch(code):
    """`best = inf` or `best = loss` in the loop whose `if loss < best` compares it."""
    for node, metric, best, _ in _comparisons(code):
        if not _GAIN.search(metric.lower()) and not _LOSS.search(metric.lower()):
            continue
        loop, branch = next(ancestors(node, *LOOPS)), node.parent
        for assignment in best.scope.assigned.get(name_of(best), []):
            again = assignment.statement
            if again.parent is not loop or not isinstance(assignment.value, ast.AST):
                continue
            first = _assigns(branch, name_of(best)) and name_of(assignment.value) is None
            number = _constant_value(code, assignment.value) if first else None
            if number is not None or ast.unparse(assignment.value) == metric:
                yield again
    yield from _reset_by_function(code)


def _reset_by_function(code):
    """The same with a comparison in a function that each epoch calls."""
    for node in code.nodes_of(ast.Compare):
        function = code.function_of(node)
        branch = len(node.ops) == 1 and isinstance(node.parent, ast.If) and node.parent
        calls = [call for call in code.callers.get(function, ()) if any(ancestors(call, *LOOPS))]
        if not branch or not calls or any(ancestors(node, *LOOPS)):
            continue
        sides = (node.left, node.comparators[0])
        for best, metric in (sides, sides[::-1]):
            name = name_of(best) or ""
            if not _BEST.search(name) or not _assigns(branch, name) or best.scope is not function:
                continue
            if has_parameter(function, name):
                yield from (
                    finding for call in calls for finding in _lost_values(code, call, best, metric)
                )
            elif (
                name.startswith("self.")
                and function.name != "__init__"
                or _is_global(function, name)
            ):
                for assignment in function.body:
                    if (
                        isinstance(assignment, ast.Assign)
                        and name_of(assignment.targets[0]) == name
                    ):
                        if _constant_value(code, assignment.value) is not None:
                            yield assignment


_BEST = re.compile(r"(?i)(^|[._])(best|min|lowest|max|highest)")


def _is_global(function, name):
    return any(
        isinstance(statement, ast.Global) and name in statement.names for statement in function.body
    )


def _lost_values(code, call, best, metric):
    """Yield what loses a best value passed as an argument: the caller keeps the last or first."""
    function, name = code.function_of(best), name_of(best)
    names = [parameter.arg for parameter in function.args.args]
    position = names.index(name) - (names[0] == "self") if name in names else None
    passed_argument, results = argument(call, name, position), code.returns(call)
    outer, parent = name_of(passed_argument), call.parent
    if outer is None or len(results) > 1:
        return
    pairs = [(target, results[0]) for target in getattr(parent, "targets", ()) if results]
    if pairs and isinstance(pairs[0][0], ast.Tuple) and isinstance(results[0], ast.Tuple):
        pairs = [*zip(pairs[0][0].elts, results[0].elts, strict=False)]
    kept = [value for target, value in pairs if name_of(target) == outer]
    if kept and ast.unparse(kept[0]) == ast.unparse(metric):
        yield parent
    loop = next(ancestors(call, *LOOPS))
    renewed = [
        assignment
        for assignment in call.scope.assigned.get(outer, ())
        if is_inside(assignment.statement, loop)
    ]
    first = code.resolved(passed_argument) if isinstance(passed_argument, ast.Name) else None
    known = isinstance(first, ast.AST) and _constant_value(code, first) is not None
    returned = any(name in names_in(result) for result in results)
    if known and not renewed and not returned:
        if isinstance(parent, ast.Expr | ast.Assign) and parent.parent is loop:
            yield best.parent


def _comparisons(code):
    """Yield comparison, metric, best value and operator of each `if metric < best` in a loop."""
    for node in code.nodes_of(ast.Compare):
        if len(node.ops) != 1 or not isinstance(node.parent, ast.If):
            continue
        sides = (
            (node.left, node.comparators[0], node.ops[0]),
            (node.comparators[0], node.left, _swapped_operator(node.ops[0])),
        )
        for metric, best, op in sides:
            if _BEST.search(name_of(best) or "") and any(ancestors(node, *LOOPS)):
                yield node, name_of(metric) or ast.unparse(metric), best, op


def _swapped_operator(op):
    pairs = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
    return pairs[type(op)]() if type(op) in pairs else op


def _assigns(branch, name):
    return any(
        isinstance(statement, ast.Assign) and name_of(statement.targets[0]) == name
        for statement in branch.body
    )


def _first_value(code, best):
    """Return the number that a name or attribute has before all updates."""
    name, scope = name_of(best), best.scope
    assignments = scope.assigned.get(name, [])
    if name.startswith("self.") and best.owner is not None:
        assignments = best.owner.attributes.get(name, [])
    values = [
        assignment.value for assignment in assignments if isinstance(assignment.value, ast.AST)
    ]
    return _constant_value(code, values[0]) if values else None


def _constant_value(code, value):
    number = code.const(value)
    return _infinite(ast.unparse(value)) if number is None else number


def _infinite(written):
    if re.fullmatch(r"float\(['\"]\+?inf(inity)?['\"]\)|(np|numpy|math|torch)\.inf", written):
        return float("inf")
    return -float("inf") if re.fullmatch(r"-.*inf.*|float\(['\"]-inf['\"]\)", written) else None


def _hopeless(first, op, metric, best):
    """Return whether the first value cannot be beaten by a loss or by an accuracy."""
    names = f"{metric} {best}".lower()
    if not isinstance(first, int | float) or isinstance(first, bool):
        return False
    loss, gain = _LOSS.search(names), _GAIN.search(names)
    if isinstance(op, ast.Lt | ast.LtE) and loss and not gain:
        return first in (0, -float("inf")) and not re.search(
            "elbo|neg|log|likelihood|gan|adv", names
        )
    return bool(isinstance(op, ast.Gt | ast.GtE) and gain and not loss and first >= 100)


@rule("evaluation-train-value", "wrong", "val|test|Val|Test")
def training_value_kept(code):
    """`val_losses.append(loss.item())` after a loop that computes `val_loss`."""
    for call in code.methods(code.tree, "append") + [
        other_call
        for scope in code.scopes
        if scope is not code.tree
        for other_call in code.methods(scope, "append")
    ]:
        held = re.match(r"(?i)(self\.)?(val|valid|test|eval)\w*$", name_of(receiver(call)) or "")
        node = call.args[0] if held and len(call.args) == 1 else None
        while method(node) in ("item", "cpu", "detach"):
            node = receiver(node)
        if not isinstance(node, ast.Name) or re.search(r"(?i)val|test|eval", node.id):
            continue
        loop, body = _loop_before(call)
        if (
            loop is not None
            and node.id not in body
            and _has_unread_value(code, call, loop, node.id)
        ):
            yield call


def _loop_before(call):
    """Return the loop just above a statement, and the names that it assigns."""
    statement = call.parent
    body = getattr(statement.parent, "body", [])
    if statement not in body:
        return None, set()
    for earlier in reversed(body[: body.index(statement)]):
        inner = earlier.body[-1] if isinstance(earlier, ast.With) else earlier
        if isinstance(inner, ast.For):
            return inner, stored_names(inner)
        if not isinstance(earlier, ast.Expr | ast.Assign | ast.AugAssign | ast.With):
            break
    return None, set()


def _has_unread_value(code, call, loop, name):
    """Return whether the loop computes the value of the same name with a prefix, unread."""
    like = [
        word
        for word in stored_names(loop)
        if re.fullmatch(rf"(?i)(val|valid|test|eval)\w*_?{name}", word)
    ]
    return any(not code.uses(call.scope, word) for word in like)


@rule("images-channels-last", "wrong", "imread|Image.open|imageio")
def channels_viewed(code):
    """`torch.from_numpy(cv2.imread(f)).view(1, 3, 224, 224)`: the channels are on the last axis."""
    yield from _samples_channels_last(code)
    for call in code.methods(code.tree, "view", "reshape") + [
        other_call
        for scope in code.scopes
        if scope is not code.tree
        for other_call in code.methods(scope, "view", "reshape")
    ]:
        sizes = [code.const(arg) for arg in call.args]
        first = sizes[-3:-2] == [3] and len(sizes) in (3, 4)
        if first and not code.called(call) and _read_image(code, receiver(call), 0):
            yield call


def _samples_channels_last(code):
    """Yield `torch.tensor(image)` that a dataset returns, if the model has `Conv2d(3, …)`."""
    if re.search(r"permute|transpose|moveaxis|ToTensor|to_tensor|rollaxis|\.T\b", code.source):
        return
    if not re.search(r"Conv2d\((in_channels=)?3,|models\.\w+\(", code.source):
        return
    for (_, name), function in code.functions.items():
        for call in code.calls_under(function) if name == "__getitem__" else ():
            is_creation = code.called(call) in (
                "torch.tensor",
                "torch.from_numpy",
                "torch.as_tensor",
            )
            if is_creation and call.args and _read_image(code, call.args[0], 0):
                yield call


def _read_image(code, node, depth):
    """Return True for an image of OpenCV, or `np.array(Image.open(f))`, not yet permuted."""
    for _ in range(12):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call):
            method_name = method(node)
            if method_name in ("imread", "imdecode"):
                return True
            if method_name == "open" and "Image" in ast.unparse(node.func):
                return depth > 0
            if method_name in (
                "permute",
                "transpose",
                "moveaxis",
                "rollaxis",
                "ToTensor",
                "to_tensor",
            ):
                return False
            depth += method_name in ("array", "asarray")
            known = code.called(node) or re.match(r"(cv2|np|torch)\.", ast.unparse(node.func))
            node = node.args[0] if known and node.args else receiver(node)
        else:
            break
    return False


_ADVERSARIES = (
    re.compile(r"(net_?)?d(is(c(riminator)?)?)?\d?"),
    re.compile(r"(net_?)?g(en(erator)?)?\d?"),
)


@rule("gan-one-optimizer", "wrong", "detach")
def one_optimizer_for_both(code):
    """One optimizer for generator and discriminator: each step changes both against each other."""
    for call in code.calls:
        if kind(code, call) != "optimizer" or not isinstance(call.parent, ast.Assign):
            continue
        params = ast.unparse(argument(call, "params", 0)) if call.args or call.keywords else ""
        models = re.findall(r"([\w.]+)\.parameters\(\)", params)
        named = sorted(model.rpartition(".")[2].lower() for model in models)
        pair = [bool(p.fullmatch(n)) for p, n in zip(_ADVERSARIES, named, strict=False)]
        name = name_of(call.parent.targets[0])
        if len(models) != 2 or pair != [True, True] or not name:
            continue
        for loop in code.loops:
            stepped = [
                other_call
                for other_call in code.methods(loop, "step")
                if name_of(receiver(other_call)) == name
            ]
            if len(stepped) > 1 and len(code.methods(loop, "backward")) > 1:
                yield call
                break


@rule("backward-second-error", "raises", "backward()")
def second_backward(code):
    """`loss1.backward()` and `loss2.backward()` of one output: the graph is already freed."""
    for scope in code.scopes:
        calls = [
            call for call in code.methods(scope, "backward") if isinstance(call.parent, ast.Expr)
        ]
        for first, second in zip(calls, calls[1:], strict=False):
            same = first.parent.parent is second.parent.parent and not first.args
            if not same or first.keywords or name_of(receiver(first)) == name_of(receiver(second)):
                continue
            shared = _model_outputs(code, receiver(first), first) & _model_outputs(
                code, receiver(second), first
            )
            if shared and not _is_gan(code, first):
                yield second


def _is_gan(code, call):
    return any(
        method(other_call) == "detach" for other_call in code.calls_under(code.function_of(call))
    )


def _model_outputs(code, node, first, depth=0):
    """Return the outputs of models that a loss is computed from, made before a call."""
    value = code.value(node) if name_of(node) else node
    outputs = set()
    for child in descendants(value) if isinstance(value, ast.AST) and depth < 4 else ():
        if not isinstance(child, ast.Name) or not isinstance(child.ctx, ast.Load):
            continue
        inner = code.value(child)
        call = inner.value if isinstance(inner, Part) and inner.index is not None else inner
        if not isinstance(call, ast.Call) or call.lineno >= first.lineno:
            continue
        if _is_tensor(code, call) and _learns_from(code, call):
            outputs.add(call)
        elif kind(code, call) in ("loss", "tensor"):
            outputs |= _model_outputs(code, child, first, depth + 1)
    return outputs


def _learns_from(code, call):
    """Return True for a call of a model whose output has a graph."""
    constructor = construction(code, call.func)
    module = (kind(code, call.func) or "").startswith("module:") or constructor is None
    named = re.search(r"(?i)(^|[._])(net|model)\d?$", name_of(call.func) or "")
    return not code.called(call) and bool(module and (named or constructor is not None))


@rule("rl-gather-axis", "wrong", "gather(")
def gathered_over_batch(code):
    """`q(states).gather(0, actions)`: axis 0 is the batch and not the actions."""
    for call in code.methods(code.tree, "gather") + [
        other_call
        for scope in code.scopes
        if scope is not code.tree
        for other_call in code.methods(scope, "gather")
    ]:
        operand = receiver(call)
        value = code.value(operand) if isinstance(operand, ast.Name) else operand
        known = isinstance(value, ast.Call) and not code.called(value)
        index = argument(call, "index", 1)
        row = method(index) in ("view", "reshape", "flatten") and len(index.args) < 2
        if not known or const(argument(value, "dim", 0)) == 0 or row:
            continue  # `x.cumsum(0)` has no batch axis in front
        if _is_tensor(code, value) and const(argument(call, "dim", 0)) == 0:
            yield call
