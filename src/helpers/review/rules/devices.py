"""Tensors that are not on the model's device."""

import ast
import re

from helpers.review.code import Part
from helpers.review.history import history
from helpers.review.kinds import is_loader, is_model, is_module_class, iterated, kind
from helpers.review.registry import rule
from helpers.review.syntax import above, argument, method, receiver, text
from helpers.review.tracing import construction

_ELSEWHERE = re.compile(  # libraries and wrappers that move the batches
    r"DataParallel|[Aa]ccelerat|[Ll]ightning|fabric|deepspeed|set_default_(device|tensor)|"
    r"ignite|fastai|with torch\.device|horovod|xla"
)
_FETCHES = ("__getitem__", "collate", "collate_fn", "__iter__")
_MOVES = re.compile(r"\.(to|cuda)\(|device")
_CREATED = re.compile(r"torch\.(zeros|ones|randn|rand|empty|arange|eye|full|tensor)$")


def _moved_to(code, call):
    """Return the model of `Net().to(device)`, `net.cuda()`; None if the device is the CPU."""
    what, own = method(call), receiver(call)
    if what not in ("to", "cuda") or own is None or code.called(call):
        return None
    if what == "cuda":
        return own
    given = call.args[0] if call.args else argument(call, "device")
    if (
        given is None
        or "dtype" in ast.unparse(given)
        or re.search(r"float|half", text(given) or "")
    ):
        return None
    value = code.resolved(given)
    target = ast.unparse(value) if isinstance(value, ast.AST) else ""
    if re.search(r"cpu", target) and "cuda" not in target:
        return None
    return own if "cuda" in target or value is None and text(given) else None


def _moved_models(code):
    """Return the values of models that the file moves to a GPU, and their local classes."""
    values, classes = set(), set()
    for call in code.calls:
        own = _moved_to(code, call)
        up = call.parent
        target = up.targets[0] if isinstance(up, ast.Assign) else own
        if own is None or not (is_model(code, own) or is_model(code, target)):
            continue
        classes.add((kind(code, own) or "").removeprefix("module:"))
        if isinstance(up, ast.Assign):
            values.add(up.value)
        elif isinstance(up, ast.Expr):
            values.add(code.value(own) if text(own) else None)
    return values - {None}, classes


@rule("types-device-batch", "raises", ".cuda|.to(")
def batch_on_cpu(code):
    """`model.to(device)` and `model(x)` of a batch that was not moved, or the reverse."""
    if _ELSEWHERE.search(code.source):
        return
    yield from _model_on_cpu(code)
    models, _ = _moved_models(code)
    for loop in code.loops if models else ():
        loads = isinstance(loop, ast.For) and is_loader(code, iterated(loop.iter))
        if not loads or re.search(r"\.(to|cuda)\b", code.part(loop.iter)):
            continue
        for call in code.calls_under(loop):
            if call.args and text(call.func) and code.value(call.func) in models:
                if _of_loop(code, call.args[0], loop) and not _moves_itself(code, call, loop):
                    yield call


def _model_on_cpu(code):
    """Yield the first call of a model that is nowhere moved with a batch that is on the GPU."""
    seen = set()
    for loop in code.loops:
        for call in code.calls_under(loop) if isinstance(loop, ast.For) else ():
            given = call.args[0] if call.args and isinstance(call.func, ast.Name) else None
            value = code.value(given) if isinstance(given, ast.Name) else given
            if not isinstance(value, ast.Call) or not _on_gpu(code, value):
                continue
            name = call.func.id
            if name not in seen and not _placed(code, call.func):
                seen.add(name)
                yield call


def _on_gpu(code, call):
    """Return whether a call is `x.cuda()`, or `x.to(device)` with a device that names cuda."""
    if _moved_to(code, call) is None:
        return False
    given = call.args[0] if call.args else argument(call, "device")
    value = code.resolved(given) if given is not None else None
    return method(call) == "cuda" or isinstance(value, ast.AST) and "cuda" in ast.unparse(value)


def _fresh(code, built):
    """Return whether a constructor creates all its layers, so none is on a device already."""
    given = [*built.args, *(one.value for one in built.keywords)]
    layers = code.called(built) == "nn.Sequential"
    return not any(
        isinstance(one, ast.Starred)
        or (kind(code, one) or "").startswith("module:")
        and not isinstance(one, ast.Call)
        or layers
        and not isinstance(one, ast.Call)
        for one in given
    )


def _placed(code, model):
    """Return True unless this file builds the model, and no line moves it to a device."""
    value, built = code.value(model), construction(code, model)
    own = isinstance(value, ast.Call) and value is built and _fresh(code, built)
    if not own or not (kind(code, model) or "").startswith("module:"):
        return True
    name = text(built.func)
    inner = code.part(code.classes[name]) if name in code.classes else ast.unparse(built)
    if _MOVES.search(inner) or "device" in ast.unparse(built):
        return True
    other = rf"\b{model.id}\b(?!\()[^\n]*(\.to\(|cuda|device)|(to|cuda|device)\w*\({model.id}\b"
    together = any(
        model.id in map(text, one.elts)
        for loop in code.of(ast.For)
        for one in ast.walk(loop.iter)
        if isinstance(one, ast.List | ast.Tuple)
    )
    return together or re.search(other, code.source) is not None


def _of_loop(code, node, loop):
    """Return whether a name has its value from the loop itself, including `x, y = batch`."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    if isinstance(value, Part) and value.index is not None and isinstance(value.value, ast.Name):
        value = code.value(value.value)
    if not isinstance(value, Part) or value.index is not None:
        return False
    changed = [
        one
        for one in code.walk(loop)
        if isinstance(one, ast.Call) and method(one) in ("to", "cuda")
        if text(receiver(one)) == node.id or node.id in ast.unparse(one.func)
    ]
    return not changed


def _moves_itself(code, call, loop):
    """Return whether the dataset, `collate_fn` or `forward` moves the batch."""
    name = (kind(code, call.func) or "").removeprefix("module:")
    places = [*code.functions]
    own = [one for one in places if one == (name, "forward") or one[1] in _FETCHES]
    if any(_MOVES.search(code.part(code.functions[one])) for one in own):
        return True
    loader = iterated(loop.iter)
    built = construction(code, loader)
    if built is None:  # a loader of another file, but not an object of this one
        return text(loader) is None or kind(code, loader) == "tensor"
    given = getattr(construction(code, argument(built, "dataset", 0)), "args", ())
    steps = [one for node in given for one in history(code, node)]
    return argument(built, "collate_fn") is not None or any(
        _MOVES.search(ast.unparse(one)) for one in steps
    )


@rule("types-device-created", "raises", ".cuda|.to(")
def created_on_cpu(code):
    """`h0 = torch.zeros(…)` in the `forward` of a model on the GPU, passed to a layer."""
    if _ELSEWHERE.search(code.source):
        return
    _, classes = _moved_models(code)
    for (owner, name), function in code.functions.items():
        if name != "forward" or owner not in classes or not is_module_class(code, owner):
            continue
        for call in code.calls_under(function):
            if (text(call.func) or "").startswith("self.") and not code.called(call):
                for given in call.args:
                    yield from _created(code, given, function)


def _created(code, node, function):
    """Yield the calls that create an argument on the CPU, including `(h0, c0)`."""
    for one in getattr(node, "elts", [node]):
        value = code.value(one) if isinstance(one, ast.Name) else one
        if not isinstance(value, ast.Call) or not _CREATED.match(code.called(value)):
            continue
        moved = isinstance(one, ast.Name) and re.search(
            rf"\b{one.id}\b.*(\.to\(|cuda|type_as|device)", code.part(function)
        )
        if argument(value, "device") is None and value.scope is function and not moved:
            yield value


@rule("types-device-weight", "raises", "eight")
def weight_on_cpu(code):
    """`CrossEntropyLoss(weight=torch.tensor(…))` and a model on the GPU."""
    own = not _ELSEWHERE.search(code.source) and bool(_moved_models(code)[0])
    for call in code.calls:
        if not re.match(r"nn\.(CrossEntropy|NLL|BCEWithLogits|BCE)Loss$", code.called(call)):
            continue
        if not own and not _moved_by_trainer(code, call):
            continue
        given = argument(call, "weight", 0) or argument(call, "pos_weight")
        steps = history(code, given) if given is not None else []
        made = [one for one in steps if code.called(one).startswith("torch.")]
        statement = next(above(call, ast.Assign), call)
        written = " ".join(ast.unparse(one) for one in (*steps, statement))
        if (
            made
            and not re.search(r"\.to\(|cuda|device", written)
            and not _criterion_moved(code, call)
        ):
            yield call


def _moved_by_trainer(code, call):
    """Return whether a `Trainer` of transformers calls the function, and moves the model."""
    bases = code.bases(call.owner.name) if call.owner is not None else []
    written = {code.dotted(base) or "" for one in bases for base in one.bases}
    trainer = any(one.startswith("transformers.") and one.endswith("Trainer") for one in written)
    return trainer and getattr(call.scope, "name", "") == "compute_loss"


def _criterion_moved(code, call):
    """Return whether the loss module is moved later, as in `criterion.to(device)`."""
    statement = next(above(call, ast.Assign), None)
    name = text(statement.targets[0]) if statement is not None else None
    moved = rf"{re.escape(name or '')}\.(to|cuda)\(|\({re.escape(name or '')}\b(?!\()"
    return name is None or bool(re.search(moved, code.source))
