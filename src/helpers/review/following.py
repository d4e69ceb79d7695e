"""Follow the shape of a tensor through the layers of a model, and find layers of another size."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace
from typing import Any

from helpers.review.batches import image_batch
from helpers.review.code import Assigned, Code, Part, parameter
from helpers.review.constants import Frame, constructed, number
from helpers.review.kinds import is_module_class, iterated
from helpers.review.sizes import (
    ANY,
    Shape,
    broadcast,
    concatenated,
    flattened,
    reordered,
    transposed,
    unequal,
    viewed,
    windowed,
    without,
)
from helpers.review.syntax import (
    LOOPS,
    above,
    argument,
    const,
    inside,
    is_open,
    method,
    receiver,
    text,
)
from helpers.review.tracing import layers

_DEEPEST = 40
_NESTED = 6  # modules in modules
_MOST = 3  # instances of a class
_SAME = re.compile(
    r"(relu6?|leaky_relu|elu|gelu|selu|silu|mish|prelu|sigmoid|tanh|softmax|log_softmax|softplus|"
    r"hardswish|hardtanh|dropout[123]?d?|feature_dropout|alpha_dropout|normalize|contiguous|clone|"
    r"detach|to|cuda|cpu|float|double|half|bfloat16|type|abs|exp|sqrt|clamp|requires_grad_|"
    r"layer_norm|batch_norm|instance_norm|group_norm|relu_|square|type_as|\w+_like|Variable)$"
)
_KEEPS = re.compile(
    r"nn\.(ReLU6?|LeakyReLU|ELU|GELU|SELU|SiLU|Mish|Tanh|Sigmoid|Hard\w+|PReLU|Softmax(2d)?|"
    r"LogSoftmax|Softplus|Dropout[123]?d?|AlphaDropout|Identity|GroupNorm|LocalResponseNorm|"
    r"LayerNorm|RMSNorm|InstanceNorm[123]d|SyncBatchNorm|TransformerEncoder(Layer)?)$"
)
_FILLED = re.compile(r"torch\.(randn|rand|zeros|ones|empty)$")


def mismatches(code: Code) -> dict[str, list[ast.AST]]:
    """Return by kind the layers that receive a size that they do not accept.

    The kinds are `sizes`, `flatten` (an image reaches a linear layer) and `joined` (`view` with
    a wrong number of features changes the number of samples).
    """
    if code.mismatches is None:
        code.mismatches = {"sizes": [], "flatten": [], "joined": []}
        _search(code, code.mismatches)
    return code.mismatches


def output_shape(code: Code, node: ast.AST) -> Shape | None:
    """Return the shape of an expression outside of the models of a file."""
    return ForwardPass(code, None, None, {}).shape(node)


def _search(code: Code, found: dict[str, list[ast.AST]]) -> None:
    modules = [name for name in code.classes if is_module_class(code, name)]
    for name in modules:
        if (forward := code.functions.get((name, "forward"))) is not None:
            calls = [one for one in code.calls if getattr(one.func, "id", "") == name][:_MOST]
            for call in calls or [None]:
                ForwardPass(code, found, Frame(name, call), {}).run(forward)
    outside = ForwardPass(code, found, None, {})
    for call in code.calls:
        name = code.called(call)
        if name == "nn.Sequential":
            outside.layer(call, None, None, call)
        elif name.endswith("summary"):
            _summary(code, found, call, name)
        elif not name and (call.owner is None or call.owner.name not in modules):
            built = constructed(code, call.func, None)
            if built is not None and not any(above(call, ast.Try)):  # `try` may show the error
                outside.shape(call)


def _summary(code: Code, found: dict[str, list[ast.AST]], call: ast.Call, name: str) -> None:
    """Follow the input of `summary(model, (1, 28, 28))` of torchsummary or torchinfo."""
    built = constructed(code, argument(call, "model", 0), None)
    size = argument(call, "input_size", 1)
    sizes = [number(code, one, None) for one in getattr(size, "elts", ())]
    if built is not None and sizes and all(sizes):
        sizes = sizes if name.startswith("torchinfo") else [ANY, *sizes]
        given = Shape(tuple(sizes), True, len(sizes) == 4)
        ForwardPass(code, found, None, {}).layer(built, None, given, built)


class ForwardPass:
    """Shapes of the tensors in one call of `forward` of one module."""

    def __init__(self, code, found, frame: Frame | None, given: dict[str, Shape], nested=0) -> None:
        self.code, self.found, self.frame, self.given = code, found, frame, given
        self.nested, self.depth = nested, 0
        self.shapes: dict[ast.AST, Shape | None] = {}

    def run(self, function: ast.AST) -> Shape | None:
        """Compute the shape of each call of a function; return that of its only result."""
        for call in self.code.calls_under(function):
            self.shape(call)
        results = [one for one in self.code.walk(function) if isinstance(one, ast.Return)]
        return self.shape(results[0].value) if len(results) == 1 else None

    def report(self, kind: str, node: ast.AST) -> None:
        """Record a mismatch at a layer, or at the module of the outermost class that has it."""
        site = self.frame.site() if self.frame is not None else None
        if self.found is not None and (site or node) not in self.found[kind]:
            self.found[kind].append(site or node)

    # ------------------------------------------------------------ expressions

    def shape(self, node: Any) -> Shape | None:
        """Return the shape of an expression, None if nothing is known."""
        if not isinstance(node, ast.AST) or self.depth > _DEEPEST:
            return None
        if node not in self.shapes:
            self.shapes[node] = None
            self.depth += 1
            self.shapes[node] = self._infer(node)
            self.depth -= 1
        return self.shapes[node]

    def _infer(self, node: ast.AST) -> Shape | None:
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            sides = node.left, node.right
            numbers = [const(one) is not None for one in sides]
            if any(numbers):
                return self.shape(sides[numbers.index(False)]) if not all(numbers) else None
            return broadcast(self.shape(node.left), self.shape(node.right))
        if isinstance(node, ast.Subscript):
            return self._indexed(node)
        return self.shape(node.value) if isinstance(node, ast.NamedExpr) else None

    def _name(self, node: ast.Name) -> Shape | None:
        given = self._assigned(node)
        if given is None:
            here = parameter(node.scope, node.id) and node.id not in node.scope.assigned
            first = parameter(node.scope, node.id) and self._untouched(node)
            return self.given.get(node.id) if here or first else None
        value = given.value
        if isinstance(value, ast.AST):
            return self.shape(value)
        if value.index is None:
            return _of_batch(self, value)
        targets = getattr(given.statement, "targets", [None])
        first = getattr(targets[0], "elts", [None])[0]
        if value.index == 0 and text(first) == node.id and isinstance(value.value, ast.Call):
            return self._first_output(value.value)
        return None

    def _untouched(self, node: ast.Name) -> bool:
        """Return True if no assignment of a parameter can run before a node."""
        values = node.scope.assigned.get(node.id, ())
        before = any(one.end <= (node.lineno, node.col_offset) for one in values)
        return not before and not any(above(node, *LOOPS))

    def _assigned(self, node: ast.Name) -> Assigned | None:
        """Return the assignment that certainly gives a name its value at a node."""
        values = node.scope.assigned.get(node.id)
        found = self.code.assignment_before(node.scope, node.id, node) if values else None
        if found is None:
            return None
        for up in above(found.statement, ast.For, ast.While, ast.If, ast.Try):
            if not inside(node, up):
                return None
        for loop in above(node, *LOOPS):
            changed = any(inside(one.statement, loop) for one in values)
            if changed and not inside(found.statement, loop):
                return None
        return found

    def _first_output(self, call: ast.Call) -> Shape | None:
        built = constructed(self.code, call.func, self.frame)
        return (
            self.shape(call) if re.match(r"nn\.(LSTM|GRU|RNN)$", self.code.called(built)) else None
        )

    def _indexed(self, node: ast.Subscript) -> Shape | None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        whole = self.shape(node.value)
        if whole is None or not whole.whole or isinstance(node.value, ast.Call):
            return None
        dropped = []
        for n, one in enumerate(parts):
            if isinstance(const(one), int):
                dropped.append(n)
            elif not isinstance(one, ast.Slice) or one.lower or one.upper or one.step:
                return None
        return without(whole, dropped)

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call) -> Shape | None:
        name, what = self.code.called(node), method(node)
        if name.startswith(("F.", "torch.")):
            return _function(self, node, name, what)
        if name:
            return None
        built = constructed(self.code, node.func, self.frame)
        if built is not None:
            given = self.shape(node.args[0]) if len(node.args) >= 1 else None
            return self.layer(built, self.frame, given, node, node)
        own = receiver(node)
        if own is None or text(own) == "self":
            return self._local(node)
        return _method(self, node, own, what)

    def _local(self, node: ast.Call) -> Shape | None:
        """Return the shape of the result of a local function or method."""
        targets = self.code.targets(node)
        if len(targets) != 1 or is_open(node) or self.nested >= _NESTED:
            return None
        function = targets[0]
        names = [one.arg for one in function.args.args]
        names = names[1:] if names[:1] == ["self"] else names
        shapes = zip(names, (self.shape(one) for one in node.args), strict=False)
        given = {name: one for name, one in shapes if one is not None}
        frame = self.frame if receiver(node) is not None else None
        return ForwardPass(self.code, self.found, frame, given, self.nested + 1).run(function)

    def layer(self, built: ast.Call, frame, given: Shape | None, site, call=None) -> Shape | None:
        """Return the shape that a layer returns for an input, and record a mismatch."""
        name = self.code.called(built)
        if name == "nn.Sequential":
            parts = layers(self.code, built)
            if is_open(built) or not parts:
                return None
            for part in parts:
                inner = constructed(self.code, part, frame)
                given = self.layer(inner, frame, given, inner) if inner is not None else None
            return given
        if name.startswith("nn."):
            return _apply(self, built, name, given, call or built)
        owner = getattr(built.func, "id", "")
        forward = self.code.functions.get((owner, "forward"))
        if forward is None or self.nested >= _NESTED or not is_module_class(self.code, owner):
            return None
        names = [one.arg for one in forward.args.args][1:]
        inputs = {names[0]: given} if names and given is not None else {}
        for parameter_name, one in zip(names[1:], call.args[1:] if call else (), strict=False):
            if (other := self.shape(one)) is not None:
                inputs[parameter_name] = other
        inner = Frame(owner, built, frame)
        return ForwardPass(self.code, self.found, inner, inputs, self.nested + 1).run(forward)

    def number(self, node: ast.AST | None) -> int | None:
        """Return the number that an expression is in this pass."""
        return number(self.code, node, self.frame)

    def numbers(self, node: ast.AST | None, count: int, default: int | None = None) -> list:
        """Return `count` numbers of an argument: a tuple, or one number for all axes."""
        if node is None:
            return [default] * count
        if isinstance(node, ast.Tuple | ast.List):
            given = [self.number(one) for one in node.elts]
            return given if len(given) == count else [None] * count
        return [self.number(node)] * count


def _of_batch(run: ForwardPass, part: Part) -> Shape | None:
    """Return the shape of the images in a batch of a loader of `torchvision.datasets`."""
    return image_batch(run.code, iterated(part.value)) if part.element in (0, None) else None


# ---------------------------------------------------------------- layers


def _apply(run: ForwardPass, built: ast.Call, name: str, given: Shape | None, call) -> Shape | None:
    if _KEEPS.match(name):
        return given
    window = re.match(r"nn\.(Conv|ConvTranspose|MaxPool|AvgPool)([123])d$", name)
    if window:
        return _window(run, built, window[1], int(window[2]), given)
    adaptive = re.match(r"nn\.Adaptive(?:Avg|Max)Pool([123])d$", name)
    if adaptive:
        return _adapted(run, argument(built, "output_size", 0), int(adaptive[1]), given)
    kind = name[3:]
    if kind == "Linear":
        return _linear(run, built, given, call)
    if kind == "Flatten":
        start, end = argument(built, "start_dim", 0), argument(built, "end_dim", 1)
        return flattened(given, 1 if start is None else const(start), const(end) or -1)
    if kind == "Embedding":
        width = run.number(argument(built, "embedding_dim", 1))
        return Shape((*given.sizes, width or ANY), given.whole) if given else Shape((width or ANY,))
    if kind in ("LSTM", "GRU", "RNN"):
        return _recurrent(run, built, given)
    if norm := re.match(r"BatchNorm([123])d$", kind):
        return _normalized(run, built, int(norm[1]), given)
    if kind == "Upsample" or kind.startswith("UpsamplingN"):
        return given and given.with_last(*[ANY] * 2) if given and given.image else None
    return None


def _linear(run: ForwardPass, built: ast.Call, given: Shape | None, call: ast.AST) -> Shape | None:
    required = run.number(argument(built, "in_features", 0))
    width = run.number(argument(built, "out_features", 1)) or ANY
    if given is None:
        return Shape((width,))
    size = given.size(-1)
    if given.image and given.whole and len(given.sizes) == 4:
        channels = given.size(-3)
        if required and (unequal(size, required) if size > 0 else _is_area(required, channels)):
            run.report("flatten", call)
    elif given.joined and required == size:
        run.report("joined", given.joined)
    elif unequal(size, required):
        run.report("sizes", built)
    return replace(given.with_last(width), image=False) if given.sizes else Shape((width,))


def _is_area(required: int, channels: int) -> bool:
    """Return True if a number of features is the area of a square image in each channel."""
    area = required // channels if channels > 1 and required % channels == 0 else 0
    return area > 1 and math.isqrt(area) ** 2 == area


def _window(
    run: ForwardPass, built: ast.Call, kind: str, n: int, given: Shape | None
) -> Shape | None:
    pool = kind.endswith("Pool")
    if given is not None and (given.whole and len(given.sizes) not in (n + 1, n + 2)):
        return None
    channels = given.size(-n - 1) if given is not None else ANY
    if not pool:
        if unequal(channels, run.number(argument(built, "in_channels", 0))):
            run.report("sizes", built)
        channels = run.number(argument(built, "out_channels", 1)) or ANY
    sizes = [given.size(m) if given is not None else ANY for m in range(-n, 0)]
    sizes = _spatial(run, built, kind, sizes)
    if given is None or not given.whole:
        return Shape((ANY, channels, *sizes), True, n == 2)
    return Shape((*given.sizes[: -n - 1], channels, *sizes), True, n == 2)


def _spatial(run: ForwardPass, built: ast.Call, kind: str, sizes: list[int]) -> list[int]:
    n, first = len(sizes), 0 if kind.endswith("Pool") else 2
    kernel = run.numbers(argument(built, "kernel_size", first), n)
    stride = argument(built, "stride", first + 1)
    strides = run.numbers(stride, n, 1) if stride is not None or first else kernel
    given = argument(built, "padding", first + 2)
    if const(given) == "same":
        return sizes
    padding = [0] * n if const(given) == "valid" else run.numbers(given, n, 0)
    if kind == "ConvTranspose":
        extra = run.numbers(argument(built, "output_padding", 5), n, 0)
        dilation = run.numbers(argument(built, "dilation", 8), n, 1)
        several = zip(sizes, kernel, strides, padding, extra, dilation, strict=True)
        return [transposed(*one) for one in several]
    if const(argument(built, "ceil_mode", 5)):
        return [ANY] * n
    place = {"Conv": 5, "MaxPool": 3}.get(kind)
    dilation = run.numbers(argument(built, "dilation", place), n, 1) if place else [1] * n
    return [windowed(*one) for one in zip(sizes, kernel, strides, padding, dilation, strict=True)]


def _adapted(run: ForwardPass, size: ast.AST | None, n: int, given: Shape | None) -> Shape | None:
    sizes = [one or ANY for one in run.numbers(size, n)]
    if given is None or not given.whole:
        channels = given.size(-n - 1) if given is not None else ANY
        return Shape((ANY, channels, *sizes), True, n == 2)
    if len(given.sizes) <= n:
        return None
    return Shape((*given.sizes[:-n], *sizes), True, n == 2)


def _recurrent(run: ForwardPass, built: ast.Call, given: Shape | None) -> Shape | None:
    if given is not None and unequal(given.size(-1), run.number(argument(built, "input_size", 0))):
        run.report("sizes", built)
    width = run.number(argument(built, "hidden_size", 1))
    twice = argument(built, "bidirectional")
    if width is None or twice is not None and const(twice) is None or argument(built, "proj_size"):
        return None
    whole = given is None or not given.whole or len(given.sizes) == 3
    return Shape((ANY, ANY, width * (2 if const(twice) else 1)), True) if whole else None


def _normalized(run: ForwardPass, built: ast.Call, n: int, given: Shape | None) -> Shape | None:
    required = run.number(argument(built, "num_features", 0))
    if given is not None:
        flat = n == 1 and given.whole and len(given.sizes) == 2
        axis = -1 if flat else -n - 1
        known = flat or given.whole and len(given.sizes) == n + 2
        if known and unequal(given.size(axis), required):
            run.report("sizes", built)
    return given


# ---------------------------------------------------------------- functions and methods


def _function(run: ForwardPass, node: ast.Call, name: str, what: str) -> Shape | None:
    if _FILLED.match(name):
        given = node.args[0] if len(node.args) == 1 else None
        several = given.elts if isinstance(given, ast.Tuple | ast.List) else node.args
        if any(isinstance(one, ast.Starred) for one in several) or not several:
            return None
        sizes = [run.number(one) for one in several]
        return Shape(tuple(one if one and one > 0 else ANY for one in sizes), True)
    given = argument(node, "input", 0)
    if what in ("cat", "concat") and isinstance(given, ast.Tuple | ast.List):
        dim = argument(node, "dim", 1)
        shapes = [run.shape(one) for one in given.elts]
        return concatenated(shapes, 0 if dim is None else const(dim) or 0)
    if given is None:
        return None
    if _SAME.match(what):
        return run.shape(given)
    if pool := re.match(r"F\.(max|avg)_pool([12])d$", name):
        return _pooled(run, node, int(pool[2]), run.shape(given))
    if adaptive := re.match(r"F\.adaptive_(?:avg|max)_pool([12])d$", name):
        return _adapted(run, argument(node, "output_size", 1), int(adaptive[1]), run.shape(given))
    return _reshaped(run, node, what, run.shape(given), node.args[1:]) if name[:2] != "F." else None


def _pooled(run: ForwardPass, node: ast.Call, n: int, given: Shape | None) -> Shape | None:
    if given is not None and (not given.whole or len(given.sizes) not in (n + 1, n + 2)):
        return None
    kernel = run.numbers(argument(node, "kernel_size", 1), n)
    stride = argument(node, "stride", 2)
    strides = run.numbers(stride, n) if stride is not None else kernel
    padding = run.numbers(argument(node, "padding", 3), n, 0)
    before = [given.size(m) if given is not None else ANY for m in range(-n, 0)]
    unusual = const(argument(node, "ceil_mode")) or argument(node, "dilation")
    several = zip(before, kernel, strides, padding, strict=True)
    sizes = [ANY if unusual else windowed(*one) for one in several]
    if given is None:
        return Shape((ANY, ANY, *sizes), True, n == 2)
    return Shape((*given.sizes[:-n], *sizes), True, n == 2)


def _method(run: ForwardPass, node: ast.Call, own: ast.AST, what: str) -> Shape | None:
    if _SAME.match(what):
        return run.shape(own)
    return _reshaped(run, node, what, run.shape(own), node.args)


def _reshaped(
    run: ForwardPass, node: ast.Call, what: str, given: Shape | None, args: list
) -> Shape | None:
    """Return the shape of a method or function that changes the axes."""
    if any(isinstance(one, ast.Starred) for one in args):
        return None
    if len(args) == 1 and isinstance(args[0], ast.Tuple | ast.List):
        args = args[0].elts
    if what == "flatten":
        start, end = argument(node, "start_dim"), argument(node, "end_dim")
        first = args[0] if args else start
        last = args[1] if len(args) > 1 else end
        return flattened(given, const(first) or 0, -1 if last is None else const(last) or 0)
    if what in ("view", "reshape"):
        result = viewed(given, [run.number(one) for one in args]) if len(args) > 1 else None
        return replace(result, joined=node) if result is not None and result.joined else result
    dims = [const(one) for one in args]
    if what == "permute":
        return reordered(given, dims)
    if what == "unsqueeze" and given is not None and given.whole and dims == [1]:
        return Shape((*given.sizes[:1], 1, *given.sizes[1:]), True, len(given.sizes) == 3)
    if what == "transpose" and given is not None and given.whole and len(dims) == 2:
        order = [*range(len(given.sizes))]
        if not all(isinstance(one, int) and -len(order) <= one < len(order) for one in dims):
            return None
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
        return reordered(given, order)
    kept = argument(node, "keepdim")
    if what in ("mean", "sum") and given is not None and given.whole and kept is None:
        dim = argument(node, "dim")
        dims = dims or [const(one) for one in getattr(dim, "elts", [dim])]
        return without(given, dims) if dims and all(isinstance(d, int) for d in dims) else None
    return None
