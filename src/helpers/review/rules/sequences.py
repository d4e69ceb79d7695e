"""Recurrent layers and transformers: the order of the axes, and padding."""

import ast
import re

from helpers.review.code import Part, has_parameter
from helpers.review.kinds import kind
from helpers.review.registry import rule
from helpers.review.rules.modules import module_classes
from helpers.review.syntax import (
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    method,
    name_of,
    names_in,
    receiver,
)
from helpers.review.tracing import construction, layers

_RECURRENT = {"nn.LSTM": 4, "nn.GRU": 4, "nn.RNN": 5}
_LAYERS = ("nn.TransformerEncoderLayer", "nn.TransformerDecoderLayer", "nn.MultiheadAttention")
_MOVED = re.compile(
    r"permute|transpose|\.t\(\)|\.T\b|swapaxes|movedim|rearrange|einops|\.mT|pack_padded|\.view\(len\("
)
_KEEPS = {"to", "cuda", "cpu", "float", "contiguous", "long", "type", "double"}


@rule("modules-batch-first", "wrong")
def batch_first(code):
    """`nn.LSTM` without `batch_first=True` of a batch that comes first, or with `out[:, -1]`."""
    for call in code.calls:
        name = code.called(call)
        if name not in (*_RECURRENT, *_LAYERS) or any(k.arg is None for k in call.keywords):
            continue
        batch_first_argument = argument(call, "batch_first", _RECURRENT.get(name))
        if (
            batch_first_argument is not None
            and const(batch_first_argument) is not False
            or call.owner is None
        ):
            continue
        layer = _attribute(code, call)
        forward = code.functions.get((call.owner.name, "forward"))
        if forward is None or layer is None or _MOVED.search(code.source_of(forward)):
            continue
        last = name in _RECURRENT and _takes_last(code, forward, layer)
        last = last or name in _LAYERS and _pools_second(code, forward, layer)
        if last or any(
            _batch_leads(code, input_node) for input_node in _inputs(code, forward, layer)
        ):
            yield call


def _attribute(code, call):
    """Return the attribute that stores the layer, or `nn.TransformerEncoder(layer, n)` of it."""
    ancestor = call.parent
    while isinstance(ancestor, ast.Call):
        ancestor = ancestor.parent
    name = name_of(ancestor.targets[0]) if isinstance(ancestor, ast.Assign) else None
    if name is None or name.startswith("self."):
        return name
    for other in code.calls:
        if code.called(other).startswith("nn.Transformer") and other.owner is call.owner:
            if any(name_of(arg) == name for arg in other.args) and isinstance(
                other.parent, ast.Assign
            ):
                return name_of(other.parent.targets[0])
    return None


def _inputs(code, forward, layer):
    """Yield the first arguments of the calls of a layer."""
    for call in code.walk(forward):
        if isinstance(call, ast.Call) and name_of(call.func) == layer and call.args:
            yield call.args[0]


_BATCH = re.compile(r"(?i)(n_?|num_)?(b|bs|bsz|batch(es)?(_?size)?)")


def _batch_leads(code, node, depth=0):
    """Return whether the first axis of a tensor is the batch: `x.view(batch * rows, …)`."""
    if depth > 8 or node is None or isinstance(node, Part):
        return False
    if isinstance(node, ast.Name | ast.Attribute):
        value = code.value(node)
        if isinstance(value, ast.AST):
            return value is not node and _batch_leads(code, value, depth + 1)
        is_parameter = isinstance(node, ast.Name) and has_parameter(node.scope, node.id)
        return is_parameter and value is None and _given_batch(code, node)
    if isinstance(node, ast.BinOp):
        return any(_batch_leads(code, side, depth + 1) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    if method(node) in ("view", "reshape") and node.args and not code.called(node):
        first = node.args[0]
        leads = isinstance(first, ast.Name) and _BATCH.fullmatch(first.id)
        product = isinstance(first, ast.BinOp) and isinstance(first.left, ast.Name)
        return bool(leads or product and _BATCH.fullmatch(first.left.id))
    if method(node) in _KEEPS and receiver(node) is not None:
        return _batch_leads(code, receiver(node), depth + 1)
    layer = code.called(construction(code, node.func)) if not code.called(node) else ""
    same = layer in ("nn.Embedding", "nn.Linear", "nn.Dropout", "nn.LayerNorm")
    same = same or re.search(r"(?i)^self\.(pos|pe$|drop)", name_of(node.func) or "")
    same = same or code.called(node) in ("F.relu", "F.dropout", "torch.relu", "torch.tanh")
    return bool(same and node.args) and _batch_leads(code, node.args[0], depth + 1)


def _given_batch(code, node):
    """Return whether each call of the model passes a tensor of a loader or of `pad_sequence`."""
    forward, owner = node.scope, node.owner
    if owner is None or getattr(forward, "name", "") != "forward":
        return False
    names = [parameter.arg for parameter in forward.args.args]
    position = names.index(node.id) - 1 if node.id in names else -1
    calls = [c for c in code.calls if kind(code, c.func) == f"module:{owner.name}"]
    args = [c.args[position] for c in calls if 0 <= position < len(c.args)]
    return bool(args) and all(_of_loader(code, arg, 0) for arg in args)


def _of_loader(code, node, depth):
    """Return True for a tensor of a loader with default collation, or padded with batch first."""
    value = code.resolved(node)
    if depth > 4 or value is None:
        return False
    if isinstance(value, Part):
        loader = value.value
        if value.index is not None or kind(code, loader) != "loader":
            return False
        constructor = construction(code, loader)
        return (
            code.called(constructor) == "data.DataLoader"
            and argument(constructor, "collate_fn") is None
            and argument(constructor, "batch_sampler") is None
            and argument(constructor, "batch_size", 1) is not None
            and code.const(argument(constructor, "batch_size", 1)) != 1
        )
    if not isinstance(value, ast.Call):
        return False
    if code.called(value) == "rnn.pad_sequence":
        return code.const(argument(value, "batch_first", 1)) is True
    return method(value) in _KEEPS and _of_loader(code, receiver(value), depth + 1)


def _takes_last(code, forward, name):
    outputs = set()
    for node in code.walk(forward):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if name_of(node.value.func) == name:
                target = node.targets[0]
                several = isinstance(target, ast.Tuple) and target.elts
                outputs.add(name_of(target.elts[0]) if several else name_of(target))
    return any(
        isinstance(node, ast.Subscript) and name_of(node.value) in outputs and last_step(node)
        for node in code.walk(forward)
    )


def _pools_second(code, forward, name):
    """Return whether `out.mean(dim=1)` or `out[:, 0]` of a transformer is one vector per sample."""
    for node in code.walk(forward):
        if method(node) == "mean" and not code.called(node):
            base, dim = receiver(node), const(argument(node, "dim", 0))
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            base, dim = node.value, 1 if last_step(node, (0, -1)) else None
        else:
            continue
        value = code.value(base) if isinstance(base, ast.Name) else base
        if dim == 1 and isinstance(value, ast.Call) and name_of(value.func) == name:
            return True
    return False


def last_step(node, places=(-1,)):
    """Return whether a subscript is `[:, -1]`."""
    if not isinstance(node.slice, ast.Tuple):
        return False
    first, second = (*node.slice.elts, None, None)[:2]
    all_rows = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    return all_rows and const(second) in places


@rule("sequences-padded-last", "wrong")
def last_of_padded(code):
    """`out, _ = pad_packed_sequence(…)` and `out[:, -1]`: the padding of the shorter sequences."""
    for call in code.calls_to("rnn.pad_packed_sequence"):
        if not isinstance(call.parent, ast.Assign):
            continue
        target = call.parent.targets[0]
        name = name_of(target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target)
        leads = code.const(argument(call, "batch_first", 1)) is True
        for node in code.nodes_of(ast.Subscript):
            if (
                node.scope is call.scope
                and name_of(node.value) == name
                and node.lineno > call.lineno
            ):
                value = code.value(node.value)
                same = isinstance(value, Part) and value.value is call or value is call
                if same and (last_step(node) if leads else const(node.slice) == -1):
                    yield node
    yield from _lengths_unused(code)


def _lengths_unused(code):
    """`forward(self, x, lengths)` with `out[:, -1]` of a recurrent layer, and unused lengths."""
    for (owner, name), function in code.functions.items():
        names = [
            parameter.arg for parameter in function.args.args if re.search(_LENGTHS, parameter.arg)
        ]
        if owner is None or name != "forward" or not names or "Embedding(" not in code.source:
            continue
        if any(code.uses(function, word) for word in names):
            continue
        for node in code.walk(function):
            value = code.value(node.value) if isinstance(node, ast.Subscript) else None
            if not isinstance(value, Part) or value.index != 0 or not last_step(node):
                continue
            constructor = construction(code, getattr(value.value, "func", None))
            if code.called(constructor) in ("nn.LSTM", "nn.GRU", "nn.RNN"):
                yield node


_LENGTHS = r"(^|_)(lengths?|lens?|seq_?lens?)$"


@rule("sequences-view", "wrong")
def hidden_viewed(code):
    """`h_n.view(batch, -1)` of several layers or directions: it mixes samples."""
    for node in module_classes(code):
        forward = code.functions.get((node.name, "forward"))
        for layer in _layers_with_several_states(code, node) if forward is not None else ():
            names = _state_names(code, forward, layer)
            for call in code.methods(forward, "view", "reshape"):
                known = name_of(receiver(call)) in names or _is_state(code, call, layer)
                if known and not code.called(call):
                    if _joins_states(call) or _joins_layers(call):
                        yield call


def _layers_with_several_states(code, owner):
    """Yield the attributes with recurrent layers that have several layers or directions."""
    for name, values in owner.attributes.items():
        layer = values[0].value
        if code.called(layer) in _RECURRENT:
            count = code.const(argument(layer, "num_layers", 2))
            both = code.const(argument(layer, "bidirectional")) is True
            passed = argument(layer, "num_layers", 2) is not None and count is None
            if both or passed or isinstance(count, int) and count > 1:
                yield name


def _is_state(code, call, layer):
    """Return whether `hidden` of `hidden.view(…)` comes from `_, hidden = self.rnn(x)`."""
    operand = receiver(call)
    state = code.value(operand) if isinstance(operand, ast.Name) else None
    return (
        isinstance(state, Part)
        and state.index == 1
        and name_of(getattr(state.value, "func", None)) == layer
    )


def _state_names(code, forward, layer):
    """Return the names of the last states, in `_, h` and `_, (h, c)`."""
    names = set()
    for node in code.walk(forward):
        if isinstance(node, ast.Assign) and name_of(getattr(node.value, "func", None)) == layer:
            target = node.targets[0]
            state = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else None
            for element in state.elts if isinstance(state, ast.Tuple) else [state]:
                changed = list(forward.assigned.get(name_of(element) or "", ()))
                again = len(changed) == 2 and _first_of(forward, name_of(element))
                if name_of(element) not in (None, "_") and (len(changed) == 1 or again):
                    names.add(name_of(element))
    return names


def _joins_states(call):
    """Return True for the sizes `(batch, -1)` and `(-1, 2 * hidden)` of several layers."""
    first, second = (*call.args, None, None)[:2]
    product = isinstance(second, ast.BinOp) and isinstance(second.op, ast.Mult)
    joined = const(second) == -1 and const(first) != -1 or const(first) == -1 and product
    return len(call.args) == 2 and joined


def _joins_layers(call):
    """Return True for the sizes `(batch, hidden * layers)`."""
    first, second = (*call.args, None, None)[:2]
    if len(call.args) != 2 or not isinstance(second, ast.BinOp) or const(first) is not None:
        return False
    batch = re.search(r"(?i)batch|\bbs\b|size\(0\)|shape\[0\]", ast.unparse(first))
    factors = re.search(r"(?i)layer|direction|factor", ast.unparse(second))
    return bool(isinstance(second.op, ast.Mult) and batch and factors)


@rule("losses-padding", "wrong")
def padding_counted(code):
    """`cross_entropy(out.view(-1, n), y.view(-1))` of `pad_sequence` without `ignore_index`."""
    padded = list(code.calls_to("rnn.pad_sequence"))
    kept = r"ignore_index|mask|-100|pack_padded|reduction|reduce=|IGNORE"
    if re.search(kept, code.source) or not padded and not _fills_up(code):
        return
    for call in code.calls:
        loss = code.called(call) == "F.cross_entropy" or kind(code, call.func) == (
            "lossfn:CrossEntropyLoss"
        )
        if (
            loss
            and len(call.args) == 2
            and all(_is_flattened(code.resolved(arg)) for arg in call.args)
        ):
            yield call


def _fills_up(code):
    """Return whether the file pads with `[pad] * (length - len(ids))` and shifts the targets."""
    filled = any(
        isinstance(operation.op, ast.Mult)
        and isinstance(operation.left, ast.List)
        and len(operation.left.elts) == 1
        and re.search(r"(?i)pad", ast.unparse(operation.left) + code.source_of(operation))
        and re.search(r" - len\(", ast.unparse(operation.right))
        for operation in code.nodes_of(ast.BinOp)
    )
    return filled and re.search(r"\[:, 1:\]|\[1:\]", code.source)


def _is_flattened(node):
    """Return True for `x.view(-1)` and `x.reshape(-1, n)`."""
    sizes = method(node) in ("view", "reshape") and node.args and const(node.args[0]) == -1
    flattens = method(node) == "flatten" and (not node.args or const(node.args[0]) == 0)
    return bool(sizes) or flattens


@rule("sequences-last-sample", "wrong", "batch_first")
def last_of_batch(code):
    """`out[-1]` of an LSTM with `batch_first=True`: the last sample, not the last step."""
    for call in code.calls:
        first = argument(call, "batch_first", _RECURRENT.get(code.called(call)))
        if (
            code.called(call) not in _RECURRENT
            or code.const(first) is not True
            or call.owner is None
        ):
            continue
        layer, forward = _attribute(code, call), code.functions.get((call.owner.name, "forward"))
        if layer is None or forward is None or _MOVED.search(code.source_of(forward)):
            continue
        if "unsqueeze(0)" in code.source_of(forward):
            continue  # a batch of one sequence
        for node in descendants(forward):
            index = getattr(node, "slice", None)
            index = (
                index.elts[0] if isinstance(index, ast.Tuple) and _rest_is_whole(index) else index
            )
            taken = isinstance(node, ast.Subscript) and const(index) == -1
            value = code.value(node.value) if taken and isinstance(node.value, ast.Name) else None
            source = value.value if isinstance(value, Part) and value.index == 0 else None
            if isinstance(source, ast.Call) and name_of(source.func) == layer:
                targets = getattr(source.parent, "targets", ())
                outputs = [getattr(target, "elts", [None])[0] for target in targets]
                if name_of(node.value) in map(name_of, outputs):  # not `_, (h, c)`
                    yield node


def _rest_is_whole(index):
    """Return whether an index is `-1, :, :`, and not `-1, :, 0`."""
    return all(
        isinstance(element, ast.Slice) and ast.unparse(element) == ":" for element in index.elts[1:]
    )


def _counted_positions(code):
    """`self.pos(torch.arange(x.size(0)).unsqueeze(1))`, added to `self.tok(x)`."""
    for call in code.calls_to("torch.arange"):
        if len(call.args) != 1:
            continue
        counted = re.fullmatch(
            r"(?:len\((\w+)\)|(\w+)\.(?:size\(0\)|shape\[0\]))", ast.unparse(call.args[0])
        )
        forward = code.function_of(call)
        if counted is None or getattr(forward, "name", "") != "forward":
            continue
        tokens, name = counted[1] or counted[2], _name_of(call)
        for other_call in code.calls_under(forward):
            if (
                code.called(construction(code, other_call.func)) != "nn.Embedding"
                or not other_call.args
            ):
                continue
            added = isinstance(other_call.parent, ast.BinOp) and isinstance(
                other_call.parent.op, ast.Add
            )
            if not added or not (
                name_of(other_call.args[0]) == name or is_inside(call, other_call)
            ):
                continue
            if any(
                isinstance(other, ast.Call)
                and name_of(other.args[0] if other.args else None) == tokens
                and code.called(construction(code, other.func)) == "nn.Embedding"
                for other in descendants(other_call.parent)
            ):
                yield call


def _name_of(call):
    """Return the name that an expression around a call is assigned to."""
    assignment = next(ancestors(call, ast.Assign), None)
    return (
        name_of(assignment.targets[0])
        if assignment is not None and len(assignment.targets) == 1
        else None
    )


@rule("attention-position-axis", "wrong", "batch_first")
def positions_of_batch(code):
    """`x + self.pe[:x.size(0)]` with `batch_first=True`: axis 0 is the batch."""
    layers = [call for call in code.calls if code.called(call) in (*_LAYERS, "nn.Transformer")]
    first = [code.const(argument(call, "batch_first")) is True for call in layers]
    if (
        not first
        or not all(first)
        or _MOVED.search(re.sub(r"pe\w*\.\w+\([^)]*\)(\.\w+\([^)]*\))*", "", code.source))
    ):
        return
    yield from _counted_positions(code)
    for node in code.nodes_of(ast.Subscript):
        table = re.fullmatch(r"self\.(pe|pos\w*|encoding)(\.data)?", name_of(node.value) or "")
        index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        upper = index.upper if table and isinstance(index, ast.Slice) else None
        counted = re.fullmatch(
            r"(\w+)\.(size\(0\)|shape\[0\])", ast.unparse(upper) if upper else ""
        )
        added = isinstance(node.parent, ast.BinOp) and isinstance(node.parent.op, ast.Add)
        if re.search(r"\.dim\(\)|\.ndim", code.source_of(code.function_of(node))):
            continue  # a sequence without a batch
        if counted and added and counted[1] in map(name_of, (node.parent.left, node.parent.right)):
            samples = [name for loop in ancestors(node, ast.For) for name in names_in(loop.target)]
            if counted[1] not in samples:
                yield node


@rule("attention-position-one", "wrong", "self.")
def one_position(code):
    """`x + self.pe[:, x.size(1)]`: an index where a slice belongs, so all get one position."""
    for node in code.nodes_of(ast.Subscript):
        table = re.fullmatch(
            r"self\.(pe|pos\w*|\w*enc(oding)?s?)(\.data)?", name_of(node.value) or ""
        )
        axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parent = node.parent
        added = table and isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add)
        for axis in axes if added else ():
            counted = re.fullmatch(r"(\w+)\.(size\(-?\d\)|shape\[-?\d\])", ast.unparse(axis))
            if counted and counted[1] in map(name_of, (parent.left, parent.right)):
                yield node


@rule("sequences-time-first", "wrong", "batch_first")
def time_first(code):
    """`x.permute(2, 0, 1)` of a convolution's output into an LSTM with `batch_first=True`."""
    for call in code.calls:
        name = code.called(call)
        if name not in (*_RECURRENT, *_LAYERS) or call.owner is None:
            continue
        first = argument(call, "batch_first", _RECURRENT.get(name))
        layer, forward = _attribute(code, call), code.functions.get((call.owner.name, "forward"))
        if code.const(first) is not True or layer is None or forward is None:
            continue
        if any(_batch_axis(code, input_node) == 1 for input_node in _inputs(code, forward, layer)):
            yield call


_IMAGES = re.compile(r"nn\.((Conv|ConvTranspose|BatchNorm|InstanceNorm|(Adaptive)?\w+Pool)[123]d)$")
_SAME_AXES = re.compile(
    r"(relu|leaky_relu|gelu|tanh|dropout|batch_norm|layer_norm|softmax|max_pool[123]d|"
    r"avg_pool[123]d|contiguous|to|cuda|float|clone|detach)$"
)


def _batch_axis(code, node, depth=0):
    """Return which axis of a tensor is the batch, if a convolution shows it; else None."""
    value = code.resolved(node) if isinstance(node, ast.AST) else None
    if not isinstance(value, ast.Call) or depth > 12:
        return None
    if not code.called(value) and _is_convolution(code, value.func):
        return 0
    operand = value.args[0] if code.called(value) and value.args else receiver(value)
    sizes = value.args[bool(code.called(value)) :]
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple):
        sizes = sizes[0].elts
    numbers = [const(size) for size in sizes]
    method_name = method(value)
    if method_name in ("permute", "transpose", "swapaxes", "squeeze", "unsqueeze"):
        axis = _batch_axis(code, operand, depth + 1)
        known = axis is not None and all(
            isinstance(number, int) and number >= 0 for number in numbers
        )
        return _moved_axis(method_name, axis, numbers) if known and numbers else None
    if _SAME_AXES.match(method_name) and operand is not None and name_of(operand) != "self":
        return _batch_axis(code, operand, depth + 1)
    layer = code.called(construction(code, value.func)) if not code.called(value) else ""
    if layer in ("nn.Linear", "nn.Dropout", "nn.LayerNorm", "nn.ReLU") and value.args:
        return _batch_axis(code, value.args[0], depth + 1)
    return None


def _moved_axis(method_name, axis, numbers):
    if method_name == "permute":
        return numbers.index(axis) if axis in numbers else None
    if method_name in ("transpose", "swapaxes"):
        return dict(zip(numbers, numbers[::-1], strict=True)).get(axis, axis)
    if method_name == "squeeze":
        return None if numbers[0] == axis else axis - (numbers[0] < axis)
    return axis + (numbers[0] <= axis)


def _is_convolution(code, layer):
    """Return True for a layer for images or signals, even last in `nn.Sequential`."""
    constructor = construction(code, layer)
    name = code.called(constructor)
    if name == "nn.Sequential":
        owner = layer.owner
        inner = layers(code, constructor)
        if not inner and owner is not None:  # filled by `add_module`
            body = code.source_of(owner)
            return "add_module" in body and "nn.Conv" in body
        names = [code.called(inner_layer) for inner_layer in inner]
        flat = any(word in ("nn.Flatten", "nn.Linear", "nn.Unflatten") for word in names)
        return not flat and any(_IMAGES.match(word) for word in names)
    return bool(_IMAGES.match(name))


@rule("sequences-state-unused", "wasted", "hidden|state|h0|h_0")
def state_not_passed(code):
    """`self.hidden = self.init_hidden()`, and `self.lstm(x)` without it."""
    if ".backward(" not in code.source:
        return
    read = {
        attribute.attr
        for attribute in code.nodes_of(ast.Attribute)
        if isinstance(attribute.ctx, ast.Load)
    }
    for node in code.nodes_of(ast.Assign):
        initial = method(node.value) in _INITIAL
        for target in node.targets if initial else ():
            kept = isinstance(target, ast.Attribute) and _STATE.fullmatch(target.attr)
            if kept and target.attr not in read and _recurrent_alone(code):
                yield node


_INITIAL = ("init_hidden", "initHidden", "init_state", "init_h", "zero_state", "_init_hidden")
_STATE = re.compile(r"_?(hidden(_state|_cell)?|h_?0|h|state|hc)")


def _recurrent_alone(code):
    """Return whether each call of a local recurrent layer passes only the input."""
    names = {
        name
        for owner in module_classes(code)
        for name, values in owner.attributes.items()
        if code.called(values[0].value) in _RECURRENT
    }
    calls = [call for call in code.calls if name_of(call.func) in names]
    return bool(calls) and all(len(call.args) == 1 and not call.keywords for call in calls)


@rule("sequences-first-layer", "wrong", "num_layers|LSTM|GRU|RNN")
def first_layer(code):
    """`h[0]` of a recurrent layer with `num_layers=2`: the state of the first layer."""
    for node in module_classes(code):
        forward = code.functions.get((node.name, "forward"))
        for layer in _layers_with_several_states(code, node) if forward is not None else ():
            constructor = node.attributes[layer][0].value
            if argument(constructor, "bidirectional") is not None:
                continue
            for name in _state_names(code, forward, layer):
                uses = code.uses(forward, name)
                taken = [use.parent for use in uses if isinstance(use.parent, ast.Subscript)]
                if renewed := _first_of(forward, name):
                    yield renewed
                elif len(uses) == 1 and taken and const(taken[0].slice) == 0:
                    yield taken[0]


def _first_of(forward, name):
    """Return `h[0, :, :]` of `h = h[0, :, :]`."""
    for assignment in forward.assigned.get(name, ()):
        value = assignment.value
        if isinstance(value, ast.Subscript) and name_of(value.value) == name:
            parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
            if const(parts[0]) == 0 and all(isinstance(part, ast.Slice) for part in parts[1:]):
                return value
    return None


@rule("language-mask-unshifted", "wrong", "mask")
def mask_of_other_positions(code):
    """Targets `ids[:, 1:]`, and the loss is multiplied by `mask[:, :-1]`."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Mult):
            continue
        for losses, mask in ((node.left, node.right), (node.right, node.left)):
            if (
                _slice_of_positions(code, mask, "mask") == ":-1"
                and _target_cut(code, losses) == "1:"
            ):
                yield node


def _slice_of_positions(code, node, word):
    """Return the slice `1:` or `:-1` of the positions of a name with a word in it."""
    node = _unreshaped(code, node)
    if not isinstance(node, ast.Subscript) or word not in (name_of(node.value) or "").lower():
        return None
    index = node.slice
    if isinstance(index, ast.Tuple) and len(index.elts) == 2 and ast.unparse(index.elts[0]) == ":":
        return ast.unparse(index.elts[1])
    return None


_RESHAPES = ("reshape", "view", "flatten", "contiguous", "float", "to", "long", "type_as", "bool")


def _unreshaped(code, node):
    """Return the tensor that is reshaped or converted, with names resolved."""
    for _ in range(8):
        if isinstance(node, ast.Name):
            node = code.resolved(node)
        elif method(node) in _RESHAPES and receiver(node) is not None and not code.called(node):
            node = receiver(node)
        else:
            break
    return node


def _target_cut(code, node):
    """Return the slice of the targets of a loss without a mean."""
    node = _unreshaped(code, node)
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return None
    name = code.called(node) or kind(code, node.func) or ""
    if name not in ("F.cross_entropy", "F.nll_loss", "lossfn:CrossEntropyLoss", "lossfn:NLLLoss"):
        return None
    return _slice_of_positions(code, node.args[1], "")
