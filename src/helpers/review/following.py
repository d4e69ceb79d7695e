"""Follow the shape of a tensor through the layers of a model, and find layers of another size."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace
from typing import Any

from helpers.review.batches import image_batch
from helpers.review.code import Assignment, Code, Part, has_parameter
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
    ancestors,
    argument,
    const,
    is_inside,
    is_open,
    method,
    name_of,
    receiver,
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


def _search(code: Code, reports: dict[str, list[ast.AST]]) -> None:
    modules = [name for name in code.classes if is_module_class(code, name)]
    for name in modules:
        if (forward := code.functions.get((name, "forward"))) is not None:
            calls = [
                other_call
                for other_call in code.calls
                if getattr(other_call.func, "id", "") == name
            ][:_MOST]
            for call in calls or [None]:
                ForwardPass(code, reports, Frame(name, call), {}).run(forward)
    outside = ForwardPass(code, reports, None, {})
    for call in code.calls:
        name = code.called(call)
        if name == "nn.Sequential":
            outside.layer(call, None, None)
        elif name.endswith("summary"):
            _summary(code, reports, call, name)
        elif not name and (call.owner is None or call.owner.name not in modules):
            constructor = constructed(code, call.func, None)
            if constructor is not None and not any(
                ancestors(call, ast.Try)
            ):  # `try` may show the error
                outside.shape(call)


def _summary(code: Code, reports: dict[str, list[ast.AST]], call: ast.Call, name: str) -> None:
    """Follow the input of `summary(model, (1, 28, 28))` of torchsummary or torchinfo."""
    constructor = constructed(code, argument(call, "model", 0), None)
    size = argument(call, "input_size", 1)
    sizes = [number(code, element, None) for element in getattr(size, "elts", ())]
    if constructor is not None and sizes and all(sizes):
        sizes = sizes if name.startswith("torchinfo") else [ANY, *sizes]
        input_shape = Shape(tuple(sizes), True, len(sizes) == 4)
        ForwardPass(code, reports, None, {}).layer(constructor, None, input_shape)


class ForwardPass:
    """Shapes of the tensors in one call of `forward` of one module."""

    def __init__(
        self, code, reports, frame: Frame | None, inputs: dict[str, Shape], nested=0
    ) -> None:
        self.code, self.reports, self.frame, self.inputs = code, reports, frame, inputs
        self.nested, self.depth = nested, 0
        self.shapes: dict[ast.AST, Shape | None] = {}

    def run(self, function: ast.AST) -> Shape | None:
        """Compute the shape of each call of a function; return that of its only result."""
        for call in self.code.calls_under(function):
            self.shape(call)
        values = self.code.return_values(function)
        return self.shape(values[0]) if len(values) == 1 else None

    def report(self, kind: str, node: ast.AST) -> None:
        """Record a mismatch at a layer, or at the module of the outermost class that has it."""
        site = self.frame.site() if self.frame is not None else None
        if self.reports is not None and (site or node) not in self.reports[kind]:
            self.reports[kind].append(site or node)

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
            numbers = [const(side) is not None for side in sides]
            if any(numbers):
                return self.shape(sides[numbers.index(False)]) if not all(numbers) else None
            return broadcast(self.shape(node.left), self.shape(node.right))
        if isinstance(node, ast.Subscript):
            return self._indexed(node)
        return self.shape(node.value) if isinstance(node, ast.NamedExpr) else None

    def _name(self, node: ast.Name) -> Shape | None:
        assignment = self._assigned(node)
        if assignment is None:
            only_parameter = (
                has_parameter(node.scope, node.id) and node.id not in node.scope.assigned
            )
            first = has_parameter(node.scope, node.id) and self._untouched(node)
            return self.inputs.get(node.id) if only_parameter or first else None
        value = assignment.value
        if isinstance(value, ast.AST):
            return self.shape(value)
        if value.index is None:
            return _of_batch(self, value)
        targets = getattr(assignment.statement, "targets", [None])
        first = getattr(targets[0], "elts", [None])[0]
        if value.index == 0 and name_of(first) == node.id and isinstance(value.value, ast.Call):
            return self._first_output(value.value)
        return None

    def _untouched(self, node: ast.Name) -> bool:
        """Return True if no assignment of a parameter can run before a node."""
        values = node.scope.assigned.get(node.id, ())
        before = any(assignment.end <= (node.lineno, node.col_offset) for assignment in values)
        return not before and not any(ancestors(node, *LOOPS))

    def _assigned(self, node: ast.Name) -> Assignment | None:
        """Return the assignment that certainly gives a name its value at a node."""
        values = node.scope.assigned.get(node.id)
        assignment = self.code.assignment_before(node.scope, node.id, node) if values else None
        if assignment is None:
            return None
        for ancestor in ancestors(assignment.statement, ast.For, ast.While, ast.If, ast.Try):
            if not is_inside(node, ancestor):
                return None
        for loop in ancestors(node, *LOOPS):
            changed = any(is_inside(earlier.statement, loop) for earlier in values)
            if changed and not is_inside(assignment.statement, loop):
                return None
        return assignment

    def _first_output(self, call: ast.Call) -> Shape | None:
        constructor = constructed(self.code, call.func, self.frame)
        return (
            self.shape(call)
            if re.match(r"nn\.(LSTM|GRU|RNN)$", self.code.called(constructor))
            else None
        )

    def _indexed(self, node: ast.Subscript) -> Shape | None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape = self.shape(node.value)
        if shape is None or not shape.whole or isinstance(node.value, ast.Call):
            return None
        dropped = []
        for n, part in enumerate(parts):
            if isinstance(const(part), int):
                dropped.append(n)
            elif not isinstance(part, ast.Slice) or part.lower or part.upper or part.step:
                return None
        return without(shape, dropped)

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call) -> Shape | None:
        name, method_name = self.code.called(node), method(node)
        if name.startswith(("F.", "torch.")):
            return _shape_of_function(self, node, name, method_name)
        if name:
            return None
        constructor = constructed(self.code, node.func, self.frame)
        if constructor is not None:
            input_shape = self.shape(node.args[0]) if len(node.args) >= 1 else None
            return self.layer(constructor, self.frame, input_shape, node)
        base = receiver(node)
        if base is None or name_of(base) == "self":
            return self._local(node)
        return _shape_of_method(self, node, base, method_name)

    def _local(self, node: ast.Call) -> Shape | None:
        """Return the shape of the result of a local function or method."""
        targets = self.code.targets(node)
        if len(targets) != 1 or is_open(node) or self.nested >= _NESTED:
            return None
        function = targets[0]
        names = [parameter.arg for parameter in function.args.args]
        names = names[1:] if names[:1] == ["self"] else names
        shapes = zip(names, (self.shape(arg) for arg in node.args), strict=False)
        inputs = {name: shape for name, shape in shapes if shape is not None}
        frame = self.frame if receiver(node) is not None else None
        return ForwardPass(self.code, self.reports, frame, inputs, self.nested + 1).run(function)

    def layer(
        self, constructor: ast.Call, frame, input_shape: Shape | None, call=None
    ) -> Shape | None:
        """Return the shape that a layer returns for an input, and record a mismatch."""
        name = self.code.called(constructor)
        if name == "nn.Sequential":
            parts = layers(self.code, constructor)
            if is_open(constructor) or not parts:
                return None
            for part in parts:
                inner = constructed(self.code, part, frame)
                input_shape = self.layer(inner, frame, input_shape) if inner is not None else None
            return input_shape
        if name.startswith("nn."):
            return _apply(self, constructor, name, input_shape, call or constructor)
        owner = getattr(constructor.func, "id", "")
        forward = self.code.functions.get((owner, "forward"))
        if forward is None or self.nested >= _NESTED or not is_module_class(self.code, owner):
            return None
        names = [parameter.arg for parameter in forward.args.args][1:]
        inputs = {names[0]: input_shape} if names and input_shape is not None else {}
        for parameter_name, arg in zip(names[1:], call.args[1:] if call else (), strict=False):
            if (other := self.shape(arg)) is not None:
                inputs[parameter_name] = other
        inner = Frame(owner, constructor, frame)
        return ForwardPass(self.code, self.reports, inner, inputs, self.nested + 1).run(forward)

    def number(self, node: ast.AST | None) -> int | None:
        """Return the number that an expression is in this pass."""
        return number(self.code, node, self.frame)

    def numbers(self, node: ast.AST | None, count: int, default: int | None = None) -> list:
        """Return `count` numbers of an argument: a tuple, or one number for all axes."""
        if node is None:
            return [default] * count
        if isinstance(node, ast.Tuple | ast.List):
            values = [self.number(element) for element in node.elts]
            return values if len(values) == count else [None] * count
        return [self.number(node)] * count


def _of_batch(run: ForwardPass, part: Part) -> Shape | None:
    """Return the shape of the images in a batch of a loader of `torchvision.datasets`."""
    return image_batch(run.code, iterated(part.value)) if part.element in (0, None) else None


# ---------------------------------------------------------------- layers


def _apply(
    run: ForwardPass, constructor: ast.Call, name: str, input_shape: Shape | None, call
) -> Shape | None:
    if _KEEPS.match(name):
        return input_shape
    window = re.match(r"nn\.(Conv|ConvTranspose|MaxPool|AvgPool)([123])d$", name)
    if window:
        return _window(run, constructor, window[1], int(window[2]), input_shape)
    adaptive = re.match(r"nn\.Adaptive(?:Avg|Max)Pool([123])d$", name)
    if adaptive:
        return _adapted(run, argument(constructor, "output_size", 0), int(adaptive[1]), input_shape)
    kind = name[3:]
    if kind == "Linear":
        return _linear(run, constructor, input_shape, call)
    if kind == "Flatten":
        start, end = argument(constructor, "start_dim", 0), argument(constructor, "end_dim", 1)
        return flattened(input_shape, 1 if start is None else const(start), const(end) or -1)
    if kind == "Embedding":
        width = run.number(argument(constructor, "embedding_dim", 1))
        return (
            Shape((*input_shape.sizes, width or ANY), input_shape.whole)
            if input_shape
            else Shape((width or ANY,))
        )
    if kind in ("LSTM", "GRU", "RNN"):
        return _recurrent(run, constructor, input_shape)
    if norm := re.match(r"BatchNorm([123])d$", kind):
        return _normalized(run, constructor, int(norm[1]), input_shape)
    if kind == "Upsample" or kind.startswith("UpsamplingN"):
        return (
            input_shape and input_shape.with_last(*[ANY] * 2)
            if input_shape and input_shape.image
            else None
        )
    return None


def _linear(
    run: ForwardPass, constructor: ast.Call, input_shape: Shape | None, call: ast.AST
) -> Shape | None:
    required = run.number(argument(constructor, "in_features", 0))
    width = run.number(argument(constructor, "out_features", 1)) or ANY
    if input_shape is None:
        return Shape((width,))
    size = input_shape.size(-1)
    if input_shape.image and input_shape.whole and len(input_shape.sizes) == 4:
        channels = input_shape.size(-3)
        if required and (unequal(size, required) if size > 0 else _is_area(required, channels)):
            run.report("flatten", call)
    elif input_shape.joined and required == size:
        run.report("joined", input_shape.joined)
    elif unequal(size, required):
        run.report("sizes", constructor)
    return (
        replace(input_shape.with_last(width), image=False) if input_shape.sizes else Shape((width,))
    )


def _is_area(required: int, channels: int) -> bool:
    """Return True if a number of features is the area of a square image in each channel."""
    area = required // channels if channels > 1 and required % channels == 0 else 0
    return area > 1 and math.isqrt(area) ** 2 == area


def _window(
    run: ForwardPass, constructor: ast.Call, kind: str, n: int, input_shape: Shape | None
) -> Shape | None:
    pool = kind.endswith("Pool")
    if input_shape is not None and (
        input_shape.whole and len(input_shape.sizes) not in (n + 1, n + 2)
    ):
        return None
    channels = input_shape.size(-n - 1) if input_shape is not None else ANY
    if not pool:
        if unequal(channels, run.number(argument(constructor, "in_channels", 0))):
            run.report("sizes", constructor)
        channels = run.number(argument(constructor, "out_channels", 1)) or ANY
    sizes = [input_shape.size(m) if input_shape is not None else ANY for m in range(-n, 0)]
    sizes = _spatial(run, constructor, kind, sizes)
    if input_shape is None or not input_shape.whole:
        return Shape((ANY, channels, *sizes), True, n == 2)
    return Shape((*input_shape.sizes[: -n - 1], channels, *sizes), True, n == 2)


def _spatial(run: ForwardPass, constructor: ast.Call, kind: str, sizes: list[int]) -> list[int]:
    n, first = len(sizes), 0 if kind.endswith("Pool") else 2
    kernel = run.numbers(argument(constructor, "kernel_size", first), n)
    stride = argument(constructor, "stride", first + 1)
    strides = run.numbers(stride, n, 1) if stride is not None or first else kernel
    padding_argument = argument(constructor, "padding", first + 2)
    if const(padding_argument) == "same":
        return sizes
    padding = [0] * n if const(padding_argument) == "valid" else run.numbers(padding_argument, n, 0)
    if kind == "ConvTranspose":
        extra = run.numbers(argument(constructor, "output_padding", 5), n, 0)
        dilation = run.numbers(argument(constructor, "dilation", 8), n, 1)
        several = zip(sizes, kernel, strides, padding, extra, dilation, strict=True)
        return [transposed(*axis_arguments) for axis_arguments in several]
    if const(argument(constructor, "ceil_mode", 5)):
        return [ANY] * n
    place = {"Conv": 5, "MaxPool": 3}.get(kind)
    dilation = run.numbers(argument(constructor, "dilation", place), n, 1) if place else [1] * n
    return [
        windowed(*axis_arguments)
        for axis_arguments in zip(sizes, kernel, strides, padding, dilation, strict=True)
    ]


def _adapted(
    run: ForwardPass, size: ast.AST | None, n: int, input_shape: Shape | None
) -> Shape | None:
    sizes = [length or ANY for length in run.numbers(size, n)]
    if input_shape is None or not input_shape.whole:
        channels = input_shape.size(-n - 1) if input_shape is not None else ANY
        return Shape((ANY, channels, *sizes), True, n == 2)
    if len(input_shape.sizes) <= n:
        return None
    return Shape((*input_shape.sizes[:-n], *sizes), True, n == 2)


def _recurrent(run: ForwardPass, constructor: ast.Call, input_shape: Shape | None) -> Shape | None:
    if input_shape is not None and unequal(
        input_shape.size(-1), run.number(argument(constructor, "input_size", 0))
    ):
        run.report("sizes", constructor)
    width = run.number(argument(constructor, "hidden_size", 1))
    twice = argument(constructor, "bidirectional")
    if (
        width is None
        or twice is not None
        and const(twice) is None
        or argument(constructor, "proj_size")
    ):
        return None
    is_sequence = input_shape is None or not input_shape.whole or len(input_shape.sizes) == 3
    return Shape((ANY, ANY, width * (2 if const(twice) else 1)), True) if is_sequence else None


def _normalized(
    run: ForwardPass, constructor: ast.Call, n: int, input_shape: Shape | None
) -> Shape | None:
    required = run.number(argument(constructor, "num_features", 0))
    if input_shape is not None:
        flat = n == 1 and input_shape.whole and len(input_shape.sizes) == 2
        axis = -1 if flat else -n - 1
        known = flat or input_shape.whole and len(input_shape.sizes) == n + 2
        if known and unequal(input_shape.size(axis), required):
            run.report("sizes", constructor)
    return input_shape


# ---------------------------------------------------------------- functions and methods


def _shape_of_function(
    run: ForwardPass, node: ast.Call, name: str, method_name: str
) -> Shape | None:
    if _FILLED.match(name):
        first_argument = node.args[0] if len(node.args) == 1 else None
        several = (
            first_argument.elts if isinstance(first_argument, ast.Tuple | ast.List) else node.args
        )
        if any(isinstance(element, ast.Starred) for element in several) or not several:
            return None
        sizes = [run.number(element) for element in several]
        return Shape(tuple(size if size and size > 0 else ANY for size in sizes), True)
    first_argument = argument(node, "input", 0)
    if method_name in ("cat", "concat") and isinstance(first_argument, ast.Tuple | ast.List):
        dim = argument(node, "dim", 1)
        shapes = [run.shape(element) for element in first_argument.elts]
        return concatenated(shapes, 0 if dim is None else const(dim) or 0)
    if first_argument is None:
        return None
    if _SAME.match(method_name):
        return run.shape(first_argument)
    if pool := re.match(r"F\.(max|avg)_pool([12])d$", name):
        return _pooled(run, node, int(pool[2]), run.shape(first_argument))
    if adaptive := re.match(r"F\.adaptive_(?:avg|max)_pool([12])d$", name):
        return _adapted(
            run, argument(node, "output_size", 1), int(adaptive[1]), run.shape(first_argument)
        )
    return (
        _reshaped(run, node, method_name, run.shape(first_argument), node.args[1:])
        if name[:2] != "F."
        else None
    )


def _pooled(run: ForwardPass, node: ast.Call, n: int, input_shape: Shape | None) -> Shape | None:
    if input_shape is not None and (
        not input_shape.whole or len(input_shape.sizes) not in (n + 1, n + 2)
    ):
        return None
    kernel = run.numbers(argument(node, "kernel_size", 1), n)
    stride = argument(node, "stride", 2)
    strides = run.numbers(stride, n) if stride is not None else kernel
    padding = run.numbers(argument(node, "padding", 3), n, 0)
    before = [input_shape.size(m) if input_shape is not None else ANY for m in range(-n, 0)]
    unusual = const(argument(node, "ceil_mode")) or argument(node, "dilation")
    several = zip(before, kernel, strides, padding, strict=True)
    sizes = [ANY if unusual else windowed(*axis_arguments) for axis_arguments in several]
    if input_shape is None:
        return Shape((ANY, ANY, *sizes), True, n == 2)
    return Shape((*input_shape.sizes[:-n], *sizes), True, n == 2)


def _shape_of_method(
    run: ForwardPass, node: ast.Call, base: ast.AST, method_name: str
) -> Shape | None:
    if _SAME.match(method_name):
        return run.shape(base)
    return _reshaped(run, node, method_name, run.shape(base), node.args)


def _reshaped(
    run: ForwardPass, node: ast.Call, method_name: str, input_shape: Shape | None, args: list
) -> Shape | None:
    """Return the shape of a method or function that changes the axes."""
    if any(isinstance(arg, ast.Starred) for arg in args):
        return None
    if len(args) == 1 and isinstance(args[0], ast.Tuple | ast.List):
        args = args[0].elts
    if method_name == "flatten":
        start, end = argument(node, "start_dim"), argument(node, "end_dim")
        first = args[0] if args else start
        last = args[1] if len(args) > 1 else end
        return flattened(input_shape, const(first) or 0, -1 if last is None else const(last) or 0)
    if method_name in ("view", "reshape"):
        result = viewed(input_shape, [run.number(arg) for arg in args]) if len(args) > 1 else None
        return replace(result, joined=node) if result is not None and result.joined else result
    dims = [const(arg) for arg in args]
    if method_name == "permute":
        return reordered(input_shape, dims)
    if input_shape is None or not input_shape.whole:
        return None
    sizes = input_shape.sizes
    if method_name == "unsqueeze" and dims == [1]:
        return Shape((*sizes[:1], 1, *sizes[1:]), True, len(sizes) == 3)
    if method_name == "transpose" and len(dims) == 2:
        order = [*range(len(sizes))]
        if not all(isinstance(axis, int) and -len(order) <= axis < len(order) for axis in dims):
            return None
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
        return reordered(input_shape, order)
    if method_name in ("mean", "sum") and argument(node, "keepdim") is None:
        dim = argument(node, "dim")
        dims = dims or [const(axis) for axis in getattr(dim, "elts", [dim])]
        return without(input_shape, dims) if dims else None
    return None
