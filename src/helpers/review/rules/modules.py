"""Modules: layers that are not registered, shared by mistake, or created in each call."""

import ast
import re

from helpers.review.code import Part, has_parameter
from helpers.review.kinds import is_module_class, kind
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    ancestors,
    argument,
    const,
    descendants,
    exclusive,
    is_open,
    last_name,
    method,
    name_of,
    place,
    receiver,
)

LAYERS = re.compile(
    r"nn\.((Lazy)?(Linear|Bilinear|Embedding|EmbeddingBag|LSTM|GRU|RNN|LSTMCell|GRUCell|"
    r"MultiheadAttention|(Conv|ConvTranspose|BatchNorm|InstanceNorm)[123]d|LayerNorm|GroupNorm|"
    r"PReLU|Transformer\w*))$"
)
_CONTAINERS = re.compile(r"nn\.(?!Parameter|ModuleList|ModuleDict|init|utils)[A-Z]\w*$")


def module_classes(code):
    """Yield the classes of the file that are modules."""
    for name, node in code.classes.items():
        if is_module_class(code, name):
            yield node


def makes_module(code, node):
    """Return whether a call creates a module with or without parameters, but no loss."""
    if not isinstance(node, ast.Call):
        return False
    name = code.called(node)
    if isinstance(node.func, ast.Name) and is_module_class(code, node.func.id):
        return True
    return bool(_CONTAINERS.match(name)) and not name.endswith("Loss")


def learns(code, node):
    """Return whether a call creates a layer with parameters, a local module or a parameter."""
    if not isinstance(node, ast.Call):
        return False
    name = code.called(node)
    if name == "nn.Sequential":
        return any(learns(code, arg) for arg in node.args)
    if name == "nn.Parameter" or LAYERS.match(name):
        return True
    return isinstance(node.func, ast.Name) and _class_learns(code, node.func.id)


_LEARNED = re.compile(r"\b(nn\.[A-Z]|Parameter|register_|Linear|Conv|Embedding|Norm|LSTM|GRU)")


def _class_learns(code, name):
    """Return True for a local module with parameters, buffers, or modules of unknown kind."""
    if not is_module_class(code, name):
        return False
    bodies = ("\n".join(code.source_of(s) for s in owner.body) for owner in code.bases(name))
    return any(_LEARNED.search(body) or re.search(r"= [A-Z]\w+\(", body) for body in bodies)


@rule("modules-list-error", "wrong")
def plain_list(code):
    """`self.layers = [nn.Linear(…)]`: not registered, so neither trained, moved nor saved."""
    for node in module_classes(code):
        source = code.source_of(node)
        for name, values in node.attributes.items():
            if name.count(".") != 1 or "[" in name:
                continue
            for assignment in values:
                items = _elements(assignment.value)
                if isinstance(assignment.value, ast.Name):
                    items = _of_local(code, assignment.value)
                called = _elements_called(code, node, name)
                if any(_is_layer(code, item, called) for item in items or ()) or (
                    items == [] and _is_filled(code, node, name, called)
                ):
                    if not _is_registered(name, source):
                        yield assignment.statement
                    break


def _elements(value):
    """Return the elements of a list, tuple or dictionary; None for other values."""
    if isinstance(value, ast.List | ast.Tuple):
        return list(value.elts)
    if isinstance(value, ast.Dict):
        return list(value.values)
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return [value.elt]
    if isinstance(value, ast.DictComp):
        return [value.value]
    if isinstance(value, ast.Call) and name_of(value.func) in ("list", "dict") and not value.args:
        return []
    return None


def _of_local(code, node):
    """Return the elements of a local list of the constructor, also of those that it appends."""
    value = code.value(node)
    items = _elements(value) if isinstance(value, ast.AST) else None
    if items is None or len(code.uses(node.scope, node.id)) > 4:
        return None
    added = [
        call for call in code.methods(node.scope, "append") if name_of(receiver(call)) == node.id
    ]
    return items + [call.args[0] for call in added if call.args]


_LAYER_NAME = re.compile(
    r"[A-Z]\w*(Block|Layer|Cell|Conv|Encoder|Decoder|Attention|Linear|Norm|Head|MLP|LSTM|GRU)\d?d?"
)


def _is_layer(code, node, called):
    """Return True for a layer; an imported class counts by its name, if elements are called."""
    if learns(code, node):
        return True
    name = name_of(node.func) or "" if called and isinstance(node, ast.Call) else ""
    known = name in code.classes or code.called(node).startswith(("torch", "nn.", "F."))
    name = name.rpartition(".")[2]
    return bool(not known and _LAYER_NAME.fullmatch(name) and not re.search("Avg|Pool|Drop", name))


def _elements_called(code, owner, name):
    """Return whether the class calls elements of the attribute, such as `self.rs[0](x)`."""
    for loop in code.nodes_of(ast.For, ast.comprehension):
        operand = loop.iter.args[-1] if method(loop.iter) == "zip" and loop.iter.args else loop.iter
        operand = operand.args[0] if method(operand) == "enumerate" and operand.args else operand
        if name_of(operand) == name and getattr(loop.target, "owner", None) is owner:
            names = {node.id for node in descendants(loop.target) if isinstance(node, ast.Name)}
            calls = descendants(loop if isinstance(loop, ast.For) else loop.target.parent.parent)
            if any(isinstance(n, ast.Call) and name_of(n.func) in names for n in calls):
                return True
    return any(
        isinstance(call.func, ast.Subscript) and name_of(call.func.value) == name
        for call in code.calls
        if call.owner is owner
    )


def _is_filled(code, owner, name, called):
    """Return whether layers are put into an empty list or dictionary."""
    for entry in owner.attributes:
        if entry.startswith(f"{name}["):
            if any(
                _is_layer(code, assignment.value, called) for assignment in owner.attributes[entry]
            ):
                return True
    for call in code.methods(owner, "append", "insert") + _in_methods(code, owner, "append"):
        if (
            name_of(call.func.value) == name
            and call.args
            and _constructs(code, call.args[-1], called)
        ):
            return True
    return False


def _in_methods(code, owner, name):
    bodies = [node for node in owner.body if isinstance(node, FUNCTIONS)]
    return [call for body in bodies for call in code.methods(body, name)]


def _constructs(code, node, called):
    value = code.resolved(node)
    if isinstance(value, ast.List | ast.Tuple):
        return any(_is_layer(code, element, called) for element in value.elts)
    return not isinstance(value, Part) and _is_layer(code, value, called)


def _is_registered(name, source):
    name = re.escape(name)
    container = r"(Sequential|ModuleList|ModuleDict|ParameterList|ParameterDict)"
    return re.search(
        rf"{container}\(\s*\*?\*?\s*(list\(|tuple\()?{name}\b|{name} = [\w.]*{container}|"
        rf"add_module|register_module|register_parameter|setattr\(self|{name}\.(cuda|to)\b",
        source,
    )


@rule("modules-local-layer", "raises")
def local_layer(code):
    """`conv = nn.Conv2d(…)` in `__init__`, and `conv(x)` in another method."""
    for (owner, name), node in code.functions.items():
        if name != "__init__" or not owner or not is_module_class(code, owner):
            continue
        for local, values in node.assigned.items():
            if local.isidentifier() and not code.uses(node, local):
                if learns(code, values[-1].value) and _called_elsewhere(code, node, local):
                    yield values[-1].statement


def _called_elsewhere(code, init, name):
    """Return whether a method calls the name without defining it."""
    return name not in code.tree.assigned and any(
        isinstance(call.func, ast.Name)
        and call.func.id == name
        and call.owner is init.owner
        and name not in call.scope.assigned
        and not has_parameter(call.scope, name)
        for call in code.calls
    )


_NAMES_OF_LAYERS = re.compile(
    r"(log_?)?softmax|sigmoid|tanh|(leaky_?)?relu|act(ivation)?|(conv|fc|linear|norm|bn|ln|pool|drop)"
    r"\w*|lstm|gru|rnn|embed\w*|encoder|decoder|head|classifier|attention|attn|proj\w*"
)


@rule("modules-missing-attribute", "raises")
def missing_attribute(code):
    """`self.softmax(x)` in `forward` of a module that never assigns this attribute."""
    for node in module_classes(code):
        source = code.source_of(node)
        bases = [code.dotted(base) for base in node.bases]
        if bases != ["nn.Module"] or re.search(r"attr\(|_module|register_|__dict__|@", source):
            continue
        if (node.name, "__init__") not in code.functions and not node.attributes:
            continue  # a part of a class
        defined = {
            attribute.removeprefix("self.").partition(".")[0] for attribute in node.attributes
        }
        defined |= {statement.name for statement in node.body if hasattr(statement, "name")}
        defined |= {n.id for s in node.body for n in descendants(s) if _is_class_name(n, s)}
        for call in code.calls:
            name = (name_of(call.func) or "").removeprefix("self.")
            inside_class = call.owner is node and (name_of(call.func) or "").startswith("self.")
            if inside_class and _NAMES_OF_LAYERS.fullmatch(name) and name not in defined:
                if f".{name} = " not in code.source:
                    yield call


def _is_class_name(node, statement):
    plain = isinstance(statement, ast.Assign | ast.AnnAssign)
    return plain and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@rule("modules-multiplied", "wrong")
def multiplied(code):
    """`[nn.Linear(4, 4)] * 3`: one layer three times, with one set of weights."""
    for node in code.nodes_of(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                if isinstance(side, ast.List) and any(
                    learns(code, element) for element in side.elts
                ):
                    yield node
    for call in code.calls:
        operand = call.args[0] if call.args and code.called(call) == "nn.ModuleList" else None
        if isinstance(operand, ast.ListComp) and isinstance(operand.elt, ast.Name):
            bound = {
                last_name(child) for g in operand.generators for child in descendants(g.target)
            }
            if operand.elt.id not in bound:
                yield operand


@rule("modules-made", "wrong")
def made_in_forward(code):
    """`nn.Linear(…)` in `forward`: new random weights in each call, never trained."""
    for call in code.calls:
        function = code.function_of(call)
        if not LAYERS.match(code.called(call)) or isinstance(function, ast.Module):
            continue
        if call.owner is None or not is_module_class(code, call.owner.name):
            continue
        if function.name != "forward" and not _runs_in_forward(code, call, function):
            continue
        if not re.search(r"if .* is None|hasattr\(self|if not self\.", code.source_of(function)):
            yield call


def _runs_in_forward(code, call, function):
    """Return whether a method that runs in the forward pass creates the layer and calls it."""
    callers = {
        getattr(code.function_of(other_call), "name", "")
        for other_call in code.callers.get(function, ())
    }
    parent = call.parent
    passed = callers and callers <= {"forward", "training_step", "validation_step", "test_step"}
    if passed and isinstance(parent, ast.Call) and parent.func is call:
        return True
    if callers != {"forward"} or function.owner is not call.owner:
        return False
    target = (
        method(parent) == "append"
        and receiver(parent)
        or isinstance(parent, ast.Assign)
        and parent.targets[0]
    )
    name = name_of(target)
    if not isinstance(target, ast.Name):
        return False
    names = {name} | {
        loop.target.id
        for loop in code.walk(function)
        if isinstance(loop, ast.For)
        and name_of(loop.iter) == name
        and isinstance(loop.target, ast.Name)
    }
    kept = any(name in ast.unparse(node) for node in code.walk(function) if _keeps_layer(node))
    return not kept and any(
        name_of(other_call.func) in names for other_call in code.calls_under(function)
    )


def _keeps_layer(node):
    """Return True for `return layer` and `self.layer = layer`."""
    if isinstance(node, ast.Assign):
        return (name_of(node.targets[0]) or "").startswith("self.")
    return isinstance(node, ast.Return) and isinstance(node.value, ast.Name | ast.Tuple)


@rule("modules-dropout-wrong", "wrong")
def dropout(code):
    """`F.dropout(x)` without `training=self.training`; `nn.Dropout(p)(x)` in `forward`."""
    for call in code.calls:
        if call.owner is None or not is_module_class(code, call.owner.name):
            continue
        name = code.called(call)
        if re.fullmatch(r"F\.(alpha_|feature_)?dropout[123]?d?", name):
            has_training = len(call.args) > 2 or argument(call, "training") or is_open(call)
            if not has_training and not _asks_training(call):
                yield call
        elif re.fullmatch(r"nn\.(Alpha)?Dropout[123]?d?", name) and _is_called(call):
            if getattr(code.function_of(call), "name", "") == "forward":
                yield call


def _asks_training(node):
    branches = (*ancestors(node, ast.If, ast.IfExp),)
    return any("training" in ast.unparse(branch.test) for branch in branches)


def _is_called(call):
    return isinstance(call.parent, ast.Call) and call.parent.func is call


@rule("attention-dropout-wrong", "wrong")
def attention_dropout(code):
    """`scaled_dot_product_attention(…, dropout_p=0.1)`: it also drops in evaluation."""
    for call in code.calls_to("F.scaled_dot_product_attention"):
        if is_open(call):
            continue
        if call.owner is None or not is_module_class(code, call.owner.name):
            continue
        p = argument(call, "dropout_p", 4)
        if (
            p is None
            or const(p) in (0, 0.0)
            or "training" in code.source_of(code.function_of(call))
        ):
            continue
        if not isinstance(p, ast.Name) or const(code.value(p)) not in (0, 0.0, None):
            yield call


@rule("modules-sequential-error", "raises")
def function_in_sequential(code):
    """`nn.Sequential(nn.Linear(2, 2), F.relu)`."""
    for call in code.calls_to("nn.Sequential"):
        for arg in call.args:
            if re.match(r"(F|torch)\.[a-z]|nn\.[A-Z]", code.dotted(arg) or ""):
                yield call
                break


@rule("modules-init-error", "raises")
def init_name(code):
    """`def _init_(self)`."""
    wrong = {"_init_", "__int__", "__init_", "_init__", "__inti__", "init__", "_int_", "__ini__"}
    for (owner, name), node in code.functions.items():
        if owner and name in wrong and is_module_class(code, owner):
            yield node


@rule("modules-super-error", "raises")
def no_super(code):
    """A layer is assigned before `super().__init__()`."""
    for (owner, name), node in code.functions.items():
        if name != "__init__" or not owner or not is_module_class(code, owner):
            continue
        inits = [call for call in code.methods(node, "__init__") if not _is_unbound_super(call)]
        assignments = [child for child in code.walk(node) if _assigns_layer(code, child)]
        late = assignments and (not inits or min(map(place, inits)) > place(assignments[0]))
        if late and _is_plain_module(code, owner):
            yield assignments[0]


def _is_plain_module(code, name):
    """Return True for a class whose bases are modules of PyTorch or Lightning, or local classes."""
    bases = [base for owner in code.bases(name) for base in owner.bases]
    known = ("nn.Module", "nn.Sequential", "LightningModule")
    return all(
        (code.dotted(base) or "").endswith(known) or name_of(base) in code.classes for base in bases
    )


def _is_unbound_super(call):
    """Return True for `super(Net).__init__()`, which calls the constructor of `super` itself."""
    base = receiver(call)
    return isinstance(base, ast.Call) and name_of(base.func) == "super" and len(base.args) == 1


def _assigns_layer(code, node):
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    name = code.called(node.value)
    registered = name == "nn.Parameter" or re.match(r"(nn\.[A-Z]\w*Loss|models\.[a-z]\w*)$", name)
    if not makes_module(code, node.value) and not registered:
        return False
    return (name_of(node.targets[0]) or "").startswith("self.")


@rule("modules-call-prune", "wasted")
def forward_called(code):
    """`net.forward(x)` skips the hooks."""
    for call in code.calls_named("forward"):
        if isinstance(call.func, ast.Attribute):
            base = call.func.value
            if name_of(base) == "self":
                continue  # a method of the module itself
            if (kind(code, base) or "").startswith("module:") and not code.dotted(base):
                if getattr(code.function_of(call), "name", "") != "forward":
                    yield call


@rule("modules-lost-parameter", "wrong")
def parameter_computed(code):
    """`self.w = nn.Parameter(…) * 0.01` or `.to(…)`: the result is not a parameter."""
    moved = {"to", "cuda", "float", "half", "double", "view", "reshape", "unsqueeze", "clone"}
    for call in code.calls_to("nn.Parameter"):
        parent = call.parent
        if (
            isinstance(parent, ast.Attribute)
            and isinstance(parent.parent, ast.Call)
            and parent.attr in moved
        ):
            top = parent.parent
        elif isinstance(parent, ast.BinOp) and isinstance(
            parent.op, ast.Mult | ast.Div | ast.Add | ast.Sub
        ):
            top = parent
        else:
            continue
        if isinstance(top.parent, ast.Assign):
            name = name_of(top.parent.targets[0]) or ""
            if name.startswith("self.") or _becomes_attribute(code, top, name):
                yield top


def _becomes_attribute(code, value, name):
    """Return whether a local variable of `__init__` is assigned to an attribute."""
    return getattr(value.scope, "name", "") == "__init__" and any(
        isinstance(use.parent, ast.Assign)
        and use is use.parent.value
        and (name_of(use.parent.targets[0]) or "").startswith("self.")
        for use in code.uses(value.scope, name)
    )


@rule("modules-call-error", "raises")
def list_called(code):
    """`self.layers(x)` of a `nn.ModuleList`."""
    for call in code.calls:
        name = name_of(call.func) or ""
        if call.owner is None or not name.startswith("self."):
            continue
        values = call.owner.attributes.get(name, ())
        names = [code.called(assignment.value) for assignment in values]
        if names and {*names} <= {"nn.ModuleList", "nn.ModuleDict"}:
            yield call


@rule("sequences-output-error", "raises")
def recurrent_in_sequential(code):
    """`nn.Sequential(nn.LSTM(8, 16), nn.Linear(16, 2))`: the LSTM returns a tuple."""
    recurrent = {"nn.LSTM", "nn.GRU", "nn.RNN"}
    for call in code.calls_to("nn.Sequential"):
        for arg, after in zip(call.args, call.args[1:], strict=False):
            if code.called(arg) in recurrent and code.called(after).startswith("nn."):
                yield call


@rule("sequences-dropout", "wasted")
def dropout_of_one_layer(code):
    """`nn.LSTM(8, 16, dropout=0.5)`: with one layer it has no effect."""
    for call in code.calls_to("nn.LSTM", "nn.GRU", "nn.RNN"):
        if not is_open(call):
            position = 6 if code.called(call) == "nn.RNN" else 5
            p, layers = argument(call, "dropout", position), argument(call, "num_layers", 2)
            if const(p) not in (None, 0, 0.0) and (layers is None or const(layers) == 1):
                yield call


@rule("convolution-same-error", "raises")
def same_with_stride(code):
    """`nn.Conv2d(1, 1, 3, stride=2, padding="same")`."""
    for call in code.calls:
        if re.fullmatch(r"nn\.Conv[123]d", code.called(call)):
            if code.const(argument(call, "padding", 4)) == "same":
                stride = code.const(argument(call, "stride", 3))
                if isinstance(stride, int) and stride > 1:
                    yield call


_LAYER = re.compile(
    r"(isinstance\(|type\(\w+\) (==|is|in) ).*\b(Linear|Conv\w+)\b|find\(['\"](Linear|Conv)"
)


@rule("modules-constant-init", "wrong", "constant_(|zeros_(|ones_(|fill_(|zero_(")
def constant_weights(code):
    """`nn.init.constant_(m.weight, 0.1)` for each linear layer: all its neurons stay equal."""
    fills = ("init.constant_", "init.zeros_", "init.ones_")
    yield from _all_parameters(code, fills)
    for node in code.nodes_of(ast.If):
        tested = ast.unparse(node.test)
        if not _LAYER.search(tested):
            continue
        if re.search(r"(?i)norm|transpose|==.*zero|not | and ", tested):
            continue
        if not _of_all_modules(code, node) or "Conv" not in tested and _is_classifier(code, node):
            continue
        drawn, fixed = [], []
        for call in descendants(ast.Module(node.body, [])):
            if not isinstance(call, ast.Call):
                continue
            initial = code.called(call).startswith("init.") and call.args
            name = name_of(call.args[0] if initial else receiver(call)) or ""
            if not re.fullmatch(r"\w+\.weight(\.data)?", name):
                continue
            if next(ancestors(call, ast.If)) is not node:
                drawn.append(call)  # only some of the layers
                continue
            in_place = method(call) in ("fill_", "zero_")
            value = argument(call, "val", 1 if initial else 0)
            if value is not None and const(value) is None:
                continue  # a computed value, such as the weights of a mean
            (fixed if code.called(call) in fills or in_place else drawn).append(call)
        if fixed and not drawn:
            yield fixed[0]


def _all_parameters(code, fills):
    """Yield `nn.init.zeros_(p)` for all `p in net.parameters()` of a net with several layers."""
    for loop in code.nodes_of(ast.For):
        all_parameters = method(loop.iter) == "parameters" and isinstance(loop.target, ast.Name)
        layer = code.called(code.value(receiver(loop.iter))) if all_parameters else ""
        one_layer = layer.startswith("nn.") and layer != "nn.Sequential"
        if one_layer or "zero" in getattr(code.function_of(loop), "name", ""):
            continue  # an output layer, whose gradients differ
        layers = [
            other_call
            for other_call in code.calls
            if re.match(r"nn\.(Linear|Conv\dd)$", code.called(other_call))
        ]
        for statement in (
            loop.body if all_parameters and len(layers) > 1 and len(loop.body) == 1 else ()
        ):
            call = statement.value if isinstance(statement, ast.Expr) else None
            tensor = argument(call, "tensor", 0) if code.called(call) in fills else None
            tensor = tensor.value if isinstance(tensor, ast.Attribute) else tensor
            value = argument(call, "val", 1) if tensor is not None else None
            if name_of(tensor) == loop.target.id and (value is None or const(value) is not None):
                yield call


def _is_classifier(code, node):
    """Return whether the only linear layer is the last one, whose gradients differ."""
    layers = list(code.calls_to("nn.Linear"))
    return len(layers) == 1 or "Conv" in code.source_of(code.function_of(node))


def _of_all_modules(code, node):
    """Return whether the layer is any layer of a model, and not its output layer."""
    loop = next(ancestors(node, ast.For), None)
    iterable = ast.unparse(loop.iter) if loop is not None else ""
    function = getattr(code.function_of(node), "name", "")
    applied = [
        ast.unparse(receiver(call))
        for call in code.calls_named("apply")
        if call.args and function in (name_of(call.args[0]) or "")
    ]
    some = r"(?i)head|out|last|final|gate|zero|adapter"
    return not re.search(some, " ".join([iterable, function, *applied]))


@rule("modules-empty-error", "raises", ".parameters()")
def optimizer_of_nothing(code):
    """`SGD(Net().parameters())` of a class without layers: its weights are plain tensors."""
    for call in code.calls:
        if kind(code, call) != "optimizer":
            continue
        params = argument(call, "params", 0)
        params = params.args[0] if method(params) == "list" and params.args else params
        name = kind(code, receiver(params)) if method(params) == "parameters" else None
        name = (name or "").removeprefix("module:")
        if name in code.classes and _weights_are_tensors(code, name):
            yield call


def _weights_are_tensors(code, name):
    """Return whether a class registers nothing, and passes its attributes as weights."""
    owners = code.bases(name)
    source = "\n".join(code.source_of(owner) for owner in owners)
    if re.search(
        r"Parameter\b|register_|add_module|setattr|nn\.[A-Z]\w*\((?!\))",
        _class_bodies(code, owners),
    ):
        return False
    if not all(code.dotted(base) for owner in owners for base in owner.bases):
        return False
    values = [item for owner in owners for item in owner.attributes.items() if "[" not in item[0]]
    weights = re.findall(r"F\.(?:linear|conv\dd)\(\w+, (self\.\w+)(?:, (self\.\w+))?", source)
    used = {attribute for pair in weights for attribute in pair if attribute}
    return bool(used) and all(n in used or _is_plain(code, v[0].value) for n, v in values)


def _class_bodies(code, owners):
    return "\n".join(code.source_of(statement) for owner in owners for statement in owner.body)


def _is_plain(code, value):
    """Return True for a number, a text, or a tensor."""
    if isinstance(value, ast.Name):
        return isinstance(const(code.value(value)), int | str) or value.id.endswith(("path", "dim"))
    return const(value) is not None or code.called(value).startswith("torch.")


@rule("modules-layer-twice", "wrong")
def layer_twice(code):
    """`self.fc2` is called twice and `self.fc3`, of the same sizes, never: probably a typo."""
    for owner in module_classes(code):
        forward = code.functions.get((owner.name, "forward"))
        if forward is None or _reads_by_name(code, owner):
            continue
        constructors = {
            name: values[0].value
            for name, values in owner.attributes.items()
            if len(values) == 1 and code.called(values[0].value).startswith("nn.")
        }
        for name, value in constructors.items():
            other = _numbered_successor(name)
            calls = [call for call in code.calls_under(forward) if name_of(call.func) == name]
            if (
                other not in constructors
                or len(calls) != 2
                or not learns(code, constructors[other])
            ):
                continue
            used = len(re.findall(rf"{re.escape(other[5:])}\b", code.source))
            if code.called(value) == code.called(constructors[other]) and used == 1:
                if not exclusive(*calls):
                    yield calls[1]


def _numbered_successor(name):
    """Return `self.fc3` for `self.fc2`."""
    number = re.search(r"\d+$", name)
    return name[: number.start()] + str(int(number[0]) + 1) if number else ""


def _reads_by_name(code, owner):
    return re.search(r"getattr|children\(|modules\(|__dict__", code.source_of(owner))
