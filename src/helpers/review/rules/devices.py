"""Tensors that are not on the model's device."""

import ast
import re

from helpers.review.code import Part
from helpers.review.history import history
from helpers.review.kinds import is_loader, is_model, is_module_class, iterated, kind
from helpers.review.registry import rule
from helpers.review.syntax import ancestors, argument, descendants, method, name_of, receiver
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
    method_name, base = method(call), receiver(call)
    if method_name not in ("to", "cuda") or base is None or code.called(call):
        return None
    if method_name == "cuda":
        return base
    device = call.args[0] if call.args else argument(call, "device")
    if (
        device is None
        or "dtype" in ast.unparse(device)
        or re.search(r"float|half", name_of(device) or "")
    ):
        return None
    value = code.resolved(device)
    target = ast.unparse(value) if isinstance(value, ast.AST) else ""
    if re.search(r"cpu", target) and "cuda" not in target:
        return None
    return base if "cuda" in target or value is None and name_of(device) else None


def _moved_models(code):
    """Return the values of models that the file moves to a GPU, and their local classes."""
    values, classes = set(), set()
    for call in code.calls:
        moved = _moved_to(code, call)
        parent = call.parent
        target = parent.targets[0] if isinstance(parent, ast.Assign) else moved
        if moved is None or not (is_model(code, moved) or is_model(code, target)):
            continue
        classes.add((kind(code, moved) or "").removeprefix("module:"))
        if isinstance(parent, ast.Assign):
            values.add(parent.value)
        elif isinstance(parent, ast.Expr):
            values.add(code.value(moved) if name_of(moved) else None)
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
        if not loads or re.search(r"\.(to|cuda)\b", code.source_of(loop.iter)):
            continue
        for call in code.calls_under(loop):
            if call.args and name_of(call.func) and code.value(call.func) in models:
                if _is_set_by_loop(code, call.args[0], loop) and not _moves_itself(
                    code, call, loop
                ):
                    yield call


def _model_on_cpu(code):
    """Yield the first call of a model that is nowhere moved with a batch that is on the GPU."""
    seen = set()
    for loop in code.loops:
        for call in code.calls_under(loop) if isinstance(loop, ast.For) else ():
            operand = call.args[0] if call.args and isinstance(call.func, ast.Name) else None
            value = code.value(operand) if isinstance(operand, ast.Name) else operand
            if not isinstance(value, ast.Call) or not _on_gpu(code, value):
                continue
            name = call.func.id
            if name not in seen and not _may_be_on_gpu(code, call.func):
                seen.add(name)
                yield call


def _on_gpu(code, call):
    """Return whether a call is `x.cuda()`, or `x.to(device)` with a device that names cuda."""
    if _moved_to(code, call) is None:
        return False
    device = call.args[0] if call.args else argument(call, "device")
    value = code.resolved(device) if device is not None else None
    return method(call) == "cuda" or isinstance(value, ast.AST) and "cuda" in ast.unparse(value)


def _fresh(code, constructor):
    """Return whether a constructor creates all its layers, so none is on a device already."""
    arguments = [*constructor.args, *(keyword.value for keyword in constructor.keywords)]
    layers = code.called(constructor) == "nn.Sequential"
    return not any(
        isinstance(arg, ast.Starred)
        or (kind(code, arg) or "").startswith("module:")
        and not isinstance(arg, ast.Call)
        or layers
        and not isinstance(arg, ast.Call)
        for arg in arguments
    )


def _may_be_on_gpu(code, model):
    """Return True unless this file builds the model, and no line moves it to a device."""
    value, constructor = code.value(model), construction(code, model)
    is_fresh = isinstance(value, ast.Call) and value is constructor and _fresh(code, constructor)
    if not is_fresh or not (kind(code, model) or "").startswith("module:"):
        return True
    name = name_of(constructor.func)
    inner = code.source_of(code.classes[name]) if name in code.classes else ast.unparse(constructor)
    if _MOVES.search(inner) or "device" in ast.unparse(constructor):
        return True
    other = rf"\b{model.id}\b(?!\()[^\n]*(\.to\(|cuda|device)|(to|cuda|device)\w*\({model.id}\b"
    together = any(
        model.id in map(name_of, node.elts)
        for loop in code.nodes_of(ast.For)
        for node in descendants(loop.iter)
        if isinstance(node, ast.List | ast.Tuple)
    )
    return together or re.search(other, code.source) is not None


def _is_set_by_loop(code, node, loop):
    """Return whether a name has its value from the loop itself, including `x, y = batch`."""
    value = code.value(node) if isinstance(node, ast.Name) else None
    if isinstance(value, Part) and value.index is not None and isinstance(value.value, ast.Name):
        value = code.value(value.value)
    if not isinstance(value, Part) or value.index is not None:
        return False
    changed = [
        call
        for call in code.walk(loop)
        if method(call) in ("to", "cuda")
        if name_of(receiver(call)) == node.id or node.id in ast.unparse(call.func)
    ]
    return not changed


def _moves_itself(code, call, loop):
    """Return whether the dataset, `collate_fn` or `forward` moves the batch."""
    name = (kind(code, call.func) or "").removeprefix("module:")
    places = [*code.functions]
    fetching = [place for place in places if place == (name, "forward") or place[1] in _FETCHES]
    if any(_MOVES.search(code.source_of(code.functions[place])) for place in fetching):
        return True
    loader = iterated(loop.iter)
    constructor = construction(code, loader)
    if constructor is None:  # a loader of another file, but not an object of this one
        return name_of(loader) is None or kind(code, loader) == "tensor"
    stored = getattr(construction(code, argument(constructor, "dataset", 0)), "args", ())
    steps = [expression for node in stored for expression in history(code, node)]
    return argument(constructor, "collate_fn") is not None or any(
        _MOVES.search(ast.unparse(step)) for step in steps
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
            if (name_of(call.func) or "").startswith("self.") and not code.called(call):
                for arg in call.args:
                    yield from _created_on_cpu(code, arg, function)


def _created_on_cpu(code, node, function):
    """Yield the calls that create an argument on the CPU, including `(h0, c0)`."""
    for element in getattr(node, "elts", [node]):
        value = code.value(element) if isinstance(element, ast.Name) else element
        if not isinstance(value, ast.Call) or not _CREATED.match(code.called(value)):
            continue
        moved = isinstance(element, ast.Name) and re.search(
            rf"\b{element.id}\b.*(\.to\(|cuda|type_as|device)", code.source_of(function)
        )
        if argument(value, "device") is None and value.scope is function and not moved:
            yield value


@rule("types-device-weight", "raises", "eight")
def weight_on_cpu(code):
    """`CrossEntropyLoss(weight=torch.tensor(…))` and a model on the GPU."""
    moves_model = not _ELSEWHERE.search(code.source) and bool(_moved_models(code)[0])
    for call in code.calls:
        if not re.match(r"nn\.(CrossEntropy|NLL|BCEWithLogits|BCE)Loss$", code.called(call)):
            continue
        if not moves_model and not _moved_by_trainer(code, call):
            continue
        weight = argument(call, "weight", 0) or argument(call, "pos_weight")
        steps = history(code, weight) if weight is not None else []
        created = [step for step in steps if code.called(step).startswith("torch.")]
        statement = next(ancestors(call, ast.Assign), call)
        written = " ".join(ast.unparse(step) for step in (*steps, statement))
        if (
            created
            and not re.search(r"\.to\(|cuda|device", written)
            and not _criterion_moved(code, call)
        ):
            yield call


def _moved_by_trainer(code, call):
    """Return whether a `Trainer` of transformers calls the function, and moves the model."""
    bases = code.bases(call.owner.name) if call.owner is not None else []
    written = {code.dotted(base) or "" for owner in bases for base in owner.bases}
    trainer = any(base.startswith("transformers.") and base.endswith("Trainer") for base in written)
    return trainer and getattr(call.scope, "name", "") == "compute_loss"


def _criterion_moved(code, call):
    """Return whether the loss module is moved later, as in `criterion.to(device)`."""
    statement = next(ancestors(call, ast.Assign), None)
    name = name_of(statement.targets[0]) if statement is not None else None
    moved = rf"{re.escape(name or '')}\.(to|cuda)\(|\({re.escape(name or '')}\b(?!\()"
    return name is None or bool(re.search(moved, code.source))
