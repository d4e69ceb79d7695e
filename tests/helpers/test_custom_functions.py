"""Test the check of custom backward functions on planted faults, and the checkers."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from verdicts import expect

from helpers.custom_functions import check_function
from helpers.exercises import custom_functions as exercises


def make(forward, backward, name="Made", **more):
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), **more}
    return type(name, (torch.autograd.Function,), members)


def cube(ctx, x):
    ctx.save_for_backward(x)
    return x * x * x


def cube_backward(ctx, upstream):
    (x,) = ctx.saved_tensors
    return upstream * 3 * x * x


def product(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x @ w


def product_backward(ctx, upstream):
    x, w = ctx.saved_tensors
    for_x, for_w = ctx.needs_input_grad
    return upstream @ w.T if for_x else None, x.T @ upstream if for_w else None


def saved(ctx):
    return ctx.saved_tensors


Cube, Product = make(cube, cube_backward), make(product, product_backward)
X, W = torch.randn(3, 2), torch.randn(2, 4)
SIGNS = torch.tensor([[-1.0, 2.0], [1.0, -2.0], [3.0, -3.0]])


# ---------------------------------------------------------------- correct functions


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, upstream):
        return upstream * ctx.saved_tensors[0]


Double = make(lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2))[1], lambda ctx, g: g * 2)
AddTo = make(lambda ctx, x, w: (ctx.mark_dirty(x), x.add_(w))[1], lambda ctx, g: (g, g))
Both = make(
    lambda ctx, x: (ctx.save_for_backward(x), (x.sin(), x.cos()))[1],
    lambda ctx, a, b: a * saved(ctx)[0].cos() - b * saved(ctx)[0].sin(),
)
Rows = make(
    lambda ctx, x, rows: (setattr(ctx, "rows", rows[0]), x[rows[0]])[1],
    lambda ctx, g: (g.new_zeros(3, 2).index_add(0, ctx.rows, g), None),
)
Scale = make(lambda ctx, x, n: (setattr(ctx, "n", n), x * n)[1], lambda ctx, g: (g * ctx.n, None))


@pytest.mark.parametrize(
    "function, inputs",
    [
        (Cube, (X,)),
        (Cube.apply, (X,)),
        (Product, (X, W)),
        (WithSetup, (X,)),
        (Scale, (X, 2.0)),
        (lambda x: Double.apply(x.clone()), (X,)),
        (Double, (X,)),
        (AddTo, (X, torch.randn(3, 2))),
        (torch.Tensor.exp_, (X,)),
        (Both, (X,)),
        (lambda x, nothing: torch.cat([x, nothing]), (X, torch.ones(0, 2))),
        (Rows, (X, [torch.tensor([0, 2])])),
        (nn.Tanh(), (X,)),
        (nn.Flatten(0), (X,)),
        (torch.clamp, (X, 0.0)),
        (Cube, (torch.tensor(1.0),)),
        (Cube, (torch.randn(3).half(),)),
        (Cube, (torch.randn(4, 3)[:, ::2],)),
        (Cube, (torch.randn(1, 3).expand(2, 3),)),
        (Cube, (nn.Parameter(torch.randn(3)),)),
        (torch.abs, (torch.randn(3, dtype=torch.cfloat),)),
        (torch.topk, (X, 1)),
        (lambda x: (x * 2, x.argmax(), x.exp()), (X,)),
        (lambda x, i: x[i], (X, torch.tensor([0, 1]))),
        (lambda x, mask: x.masked_fill(mask, 0) * 2, (X, X > 0)),
        (lambda x, label: F.cross_entropy(x, label), (X, torch.tensor([0, 1, 1]))),
    ],
)
def test_check_function_accepts_correct_backwards(function, inputs):
    assert check_function(function, *inputs) == []


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_check_function_ignores_the_grad_mode_of_the_caller(mode):
    with mode():
        assert check_function(Cube, torch.randn(3, 2)) == []
        assert check_function(make(cube, lambda ctx, g: 3 * saved(ctx)[0] ** 2), X) != []


def test_check_function_keeps_inputs_and_random_state():
    x, state = X.clone().requires_grad_(), torch.get_rng_state()
    check_function(make(lambda ctx, x: x.mul_(2), lambda ctx, g: g * 2), x)
    check_function(Cube, x)
    assert torch.equal(x, X) and x.grad is None and x.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), state)


# ---------------------------------------------------------------- planted faults


def swapped(ctx, upstream):
    x, w = ctx.saved_tensors
    for_w, for_x = ctx.needs_input_grad
    return upstream @ w.T if for_x else None, x.T @ upstream if for_w else None


def wrong_together(ctx, upstream):
    by_x, by_w = product_backward(ctx, upstream)
    return by_x, by_w * 2 if all(ctx.needs_input_grad) else by_w


def in_numpy(ctx, upstream):
    x = saved(ctx)[0].detach().numpy()
    return upstream * torch.from_numpy(3 * x * x)


def clamped(ctx, x):
    ctx.save_for_backward(x)
    return x.clamp(min=0)


def clamped_in_place(ctx, upstream):
    upstream[saved(ctx)[0] < 0] = 0
    return upstream


@pytest.mark.parametrize(
    "function, inputs, says",
    [
        (
            make(cube, lambda ctx, g: 3 * saved(ctx)[0] ** 2),
            (X,),
            "first derivative with respect to input 0",
        ),
        (make(cube, lambda ctx, g: 3 * saved(ctx)[0] ** 2), (X,), "must multiply by the gradient"),
        (make(cube, lambda ctx, g: g * 2 * saved(ctx)[0]), (X,), "respect to input 0 is wrong"),
        (
            make(product, lambda ctx, g: (g @ saved(ctx)[1].T, g.T @ saved(ctx)[0])),
            (X, W),
            "input 1 failed: RuntimeError: Function MadeBackward returned an invalid gradient",
        ),
        (
            make(product, lambda ctx, g: (g @ saved(ctx)[1].T, g.T @ saved(ctx)[0])),
            (X, torch.randn(2, 2)),
            "first derivative with respect to input 1 is wrong",
        ),
        (make(product, swapped), (X, W), "check `ctx.needs_input_grad`"),
        (make(product, wrong_together), (X, W), "each alone is right"),
        (make(cube, in_numpy), (X,), "second derivative with respect to input 0 is wrong"),
        (make(cube, in_numpy), (X,), "torch operations on saved inputs and outputs"),
        (
            make(cube, once_differentiable(cube_backward)),
            (X,),
            "second derivative with respect to input 0",
        ),
        (
            make(lambda ctx, x, n: x * n, lambda ctx, g: g),
            (X, 2.0),
            "returned an incorrect number of gradients (expected 2, got 1)",
        ),
        (
            make(cube, lambda ctx, g: g.view(-1).view(3, 2) * 3 * saved(ctx)[0] ** 2),
            (X,),
            "gradient that is transposed",
        ),
        (
            make(cube, lambda ctx, g: cube_backward(ctx, g) @ torch.eye(2).double()),
            (X,),
            "backward failed in float32",
        ),
        (
            make(lambda ctx, x: cube(ctx, x).double(), cube_backward),
            (X,),
            "output 0 is torch.float64 though the inputs are float32",
        ),
        (
            lambda x: x @ torch.eye(2).to(x.dtype if x.dtype.itemsize > 4 else torch.double),
            (X,),
            "forward failed in float32",
        ),
        (make(lambda ctx, x: x.mul_(2), lambda ctx, g: g * 2), (X,), "changed input 0 in place"),
        (
            make(lambda ctx, x: (x.clamp_(min=0), x * 1)[1], lambda ctx, g: g),
            (SIGNS,),
            "mark the input with `ctx.mark_dirty` and return it",
        ),
        (make(cube, lambda ctx, g: g.mul_(3 * saved(ctx)[0] ** 2)), (X,), "in place"),
        (
            make(clamped, clamped_in_place),
            (SIGNS,),
            "changed the gradient that it receives in place",
        ),
        (make(cube, lambda ctx, g: cube_backward(ctx, g).float()), (X,), "precision of float32"),
        (make(cube, lambda ctx, g: cube_backward(ctx, g).half()), (X,), "precision of float32"),
        (make(lambda ctx, x: cube(ctx, x).float(), cube_backward), (X,), "output 0 is torch.fl"),
        (
            make(lambda ctx, x: cube(ctx, x).float().to(x.dtype), cube_backward),
            (X,),
            "forward computes with the precision of float32",
        ),
        (torch.sqrt, (-torch.ones(3),), "output 0 is not finite"),
        (nn.Dropout(), (torch.ones(50),), "switch off randomness"),
        (
            make(product, lambda ctx, g: (g @ saved(ctx)[1].T, None)),
            (X, W),
            "respect to input 1 is wrong",
        ),
        (lambda x: torch.dropout(x, 0.5, True), (torch.ones(50),), "switch off randomness"),
        (lambda x: x.detach() * 2, (X,), "no output requires a gradient"),
        (lambda x: x.argmax(), (X,), "no output requires a gradient"),
        (make(lambda ctx, x: x.round(), lambda ctx, g: g), (X,), "first derivative"),
        (torch.relu, (torch.zeros(3),), "first derivative with respect to input 0 is wrong"),
    ],
)
def test_check_function_reports_faults(function, inputs, says):
    faults = check_function(function, *inputs)
    assert any(says in fault for fault in faults), faults


def by_address(ctx, upstream):
    return upstream.as_strided(upstream.shape, torch.ones(upstream.shape).stride())


def by_address_unless_expanded(ctx, upstream):
    return by_address(ctx, upstream) if any(upstream.stride()) else upstream


@pytest.mark.parametrize(
    "backward, says",
    [
        (by_address, "backward failed for a gradient that is expanded"),
        (by_address_unless_expanded, "backward is wrong for a gradient that is transposed"),
    ],
)
def test_backward_that_depends_on_memory_layout_is_reported(backward, says):
    faults = check_function(make(lambda ctx, x: x * 1, backward), X, second=False)
    assert faults[0].startswith(says)


def test_second_derivative_is_checked_unless_second_is_false():
    assert check_function(make(cube, in_numpy), X)
    assert check_function(make(cube, in_numpy), X, second=False) == []


def test_backward_that_uses_values_of_a_later_forward_is_reported():
    kept = {}

    def forward(ctx, x):
        kept["x"] = x.detach()
        return x**3

    function = make(forward, lambda ctx, g: g * 3 * kept["x"] ** 2)
    faults = check_function(function, X, second=False)
    assert faults == [
        "backward uses a value that a later call of forward overwrote: store it in ctx"
    ]


def test_forward_error_notes_that_inputs_were_copied():
    layer = nn.Linear(2, 3)
    with pytest.raises(RuntimeError) as raised:
        check_function(lambda x: layer(x), X)
    assert "copied the inputs to float64" in raised.value.__notes__[0]


def test_inputs_without_requires_grad_are_constants():
    constant = make(product, lambda ctx, g: (g @ saved(ctx)[1].T, None))
    assert check_function(constant, X.clone().requires_grad_(), W) == []
    assert check_function(constant, X, W)[0].startswith(
        "the first derivative with respect to input 1 is wrong"
    )


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "function, inputs, error, says",
    [
        (nn.Linear(2, 3), (X,), TypeError, "expected a Function, got the module Linear"),
        (nn.Linear, (X,), TypeError, "got Linear"),
        (None, (X,), TypeError, "got NoneType"),
        ("relu", (X,), TypeError, "got str"),
        (Cube, (), ValueError, "among the inputs, got nothing"),
        (Cube, (2.0,), ValueError, "got float"),
        (Cube, (torch.arange(3),), ValueError, "got a tensor of torch.int64"),
        (Cube, (X.numpy(),), ValueError, "got ndarray"),
        (Cube, (torch.ones(0, 3),), ValueError, "input 0 is empty, of shape (0, 3)"),
        (Cube, (X.to("meta"),), ValueError, "on the meta device"),
        (Cube, (X.to_sparse(),), ValueError, "of layout torch.sparse_coo"),
        (sum, ([X, X],), TypeError, "input 0 is a list of tensors"),
        (sum, ([[X]],), TypeError, "input 0 is a list of tensors"),
        (sum, ({"x": X},), TypeError, "input 0 is a dict of tensors"),
        (lambda x: None, (X,), TypeError, "tensor or a tuple of tensors from forward"),
        (lambda x: x @ torch.ones(9, 9), (X,), RuntimeError, "mat1 and mat2"),
    ],
)
def test_check_function_rejects_invalid_input(function, inputs, error, says):
    with pytest.raises(error) as raised:
        check_function(function, *inputs)
    assert says in str(raised.value)


class Trap(torch.autograd.Function):
    """Compute x²; each subclass adds one fault."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return 2 * x * upstream


class FlatView(Trap):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.view(-1).square().view(x.shape)


class Attribute(Trap):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x**2

    @staticmethod
    def backward(ctx, upstream):
        return 2 * ctx.x * upstream


class Cycle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, upstream):
        return ctx.y * upstream


class Once(Trap):
    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        return 2 * ctx.saved_tensors[0] * upstream


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (FlatView, "forward failed on inputs that are not contiguous: RuntimeError: view size"),
        (Attribute, "an in-place edit of input 0 after forward changes the gradient without an er"),
        (Cycle, "an output is not freed when it is deleted"),
        (Once, "backward is marked with once_differentiable: pass second=False"),
    ],
)
def test_faults_without_wrong_numbers_are_reported(function, says):
    x = torch.randn(3, 2)
    assert check_function(function, x)[-1].startswith(says)
    assert check_function(Trap, x) == [] == check_function(Once, x, second=False)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 1, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_correct_functions_of_every_shape_pass(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    assert check_function(Trap if not dtype.is_complex else torch.square, x) == []


def test_check_function_rejects_a_function_instance():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = Cube()
    with pytest.raises(TypeError, match="remove the parentheses"):
        check_function(result, X)


# ---------------------------------------------------------------- exercises


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x, w, g: (g @ w, g.T @ x, g.sum(0)), None),
        (
            lambda x, w, g: [
                torch.einsum("no,oi->ni", g, w),
                torch.einsum("no,ni->oi", g, x),
                torch.einsum("no->o", g),
            ],
            None,
        ),
        (
            lambda x, w, g: ((g @ w).squeeze(), (g.T @ x).squeeze(), g.sum(0)),
            "the gradient of x has shape",
        ),
        (lambda x, w, g: (g @ w, g.T @ x, g.sum(0).double()), "is torch.float64, but bias is"),
        (lambda x, w, g: (g @ w, (x.T @ g).T, g.new_ones(len(g)) @ g), None),
        (lambda x, w, g: (g @ w, g.T @ x, torch.ones(len(g)) @ g), "with float64 inputs it fails"),
        (lambda x, w, g: ..., "return three gradients"),
        (lambda x, w, g: (g @ w, g.T @ x), "return three gradients"),
        (lambda x, w, g: (g @ w, g.T @ x, None), "gradient of bias is not a tensor but NoneType"),
        (lambda x, w, g: (g @ w, g.T @ x, g), "the gradient of bias has shape"),
        (lambda x, w, g: (g @ w, x.T @ g, g.sum(0)), "the gradient of weight has shape"),
        (lambda x, w, g: (g @ w.T, g.T @ x, g.sum(0)), "your code raised RuntimeError"),
        (lambda x, w, g: (g @ w, g.T @ x, g.mean(0)), "bias has the right shape, but wrong values"),
        (
            lambda x, w, g: (g @ w, g.T @ x / len(x), g.sum(0)),
            "weight has the right shape, but wrong values",
        ),
    ],
)
def test_check_linear_backward_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_linear_backward(answer), says)


def test_check_linear_backward_rejects_a_transpose_of_square_weights():
    def answer(x, w, g):
        dw = g.T @ x
        return g @ w, dw.T if dw.shape[0] == dw.shape[1] else dw, g.sum(0)

    expect(exercises.check_linear_backward(answer), "weight has the right shape, but wrong values")


def root(ctx, x, n):
    y = x ** (1 / n)
    ctx.n = n
    ctx.save_for_backward(y)
    return y


def root_backward(ctx, upstream):
    (y,) = ctx.saved_tensors
    return upstream * y ** (1 - ctx.n) / ctx.n, None


class RootWithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return (x.log() / n).exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.n = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, upstream):
        if not ctx.needs_input_grad[0]:
            return None, None
        (y,) = ctx.saved_tensors
        return upstream * y / (ctx.n * y**ctx.n), None


def keeps(*names):
    """Return a forward that saves the tensors with these names."""

    def forward(ctx, x, n):
        y = x ** (1 / n)
        ctx.n = n
        things = {"x": x, "y": y, "slope": y / (n * x), "copy": y.clone(), "detached": y.detach()}
        ctx.save_for_backward(*(things[name] for name in names))
        return y

    return forward


def attribute(wrap):
    def forward(ctx, x, n):
        y = x ** (1 / n)
        ctx.n, ctx.y = n, wrap(y)
        return y

    return forward


def through_numpy(ctx, upstream):
    y = saved(ctx)[0].detach().numpy()
    return upstream * torch.from_numpy(y ** (1 - ctx.n) / ctx.n), None


def on_class(ctx, x, n):
    make.y = x ** (1 / n)
    return make.y


def in_place(ctx, x, n):
    return root(ctx, x.pow_(1 / n), 1)


def by_memory(ctx, upstream):
    (y,) = ctx.saved_tensors
    flat = upstream.view(-1) * y.reshape(-1) ** (1 - ctx.n) / ctx.n
    return flat.view(upstream.shape), None


def on_type(ctx, x, n):
    y = root(ctx, x, n)
    make.n = n
    return y


def float32_exponent(ctx, x, n):
    y = x ** torch.tensor(1 / n)
    ctx.save_for_backward(y)
    ctx.n = n
    return y


def in_upstream(ctx, upstream):
    return upstream.mul_(saved(ctx)[0] ** (1 - ctx.n) / ctx.n), None


def only_matrices(ctx, upstream):
    _rows, _columns = upstream.shape
    return root_backward(ctx, upstream)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (make(root, root_backward), None),
        (RootWithSetup, None),
        (make(keeps("y"), lambda ctx, g: (g / (ctx.n * saved(ctx)[0] ** (ctx.n - 1)), None)), None),
        (make(root, root_backward).apply, "pass the class itself"),
        (nn.ReLU, "pass the class itself"),
        (..., "pass the class itself"),
        (make(lambda ctx, x, n: x**n, root_backward), "forward is not the n-th root"),
        (make(lambda ctx, x, n: root(ctx, x.double(), n), root_backward), "dtype of x"),
        (make(float32_exponent, root_backward), "forward is not the n-th root"),
        (make(lambda ctx, x, n: root(ctx, x, n).sum(), root_backward), "the shape"),
        (make(in_place, root_backward), "forward has changed x"),
        (make(attribute(lambda y: y), root_backward), "is an attribute of ctx"),
        (make(attribute(lambda y: [y]), root_backward), "is an attribute of ctx"),
        (make(attribute(lambda y: {"y": y}), root_backward), "is an attribute of ctx"),
        (make(on_class, root_backward), "0 tensors are saved"),
        (
            make(on_type, lambda ctx, g: (g * saved(ctx)[0] ** (1 - make.n) / make.n, None)),
            "store n in ctx",
        ),
        (make(root, in_upstream), "has changed the gradient"),
        (make(keeps("x", "y"), root_backward), "2 tensors are saved"),
        (make(keeps("x"), root_backward), "the saved tensor is not the output"),
        (make(keeps("slope"), lambda ctx, g: (g * saved(ctx)[0], None)), "not the output"),
        (make(keeps("copy"), root_backward), "the saved tensor is not the output"),
        (make(keeps("detached"), root_backward), "the second derivative is wrong"),
        (make(root, lambda ctx, g: root_backward(ctx, g)[0]), "incorrect number of gradients"),
        (make(root, lambda ctx, g: (g, None)), "the derivative is wrong"),
        (make(root, lambda ctx, g: (g * saved(ctx)[0] / ctx.n, None)), "the derivative is wrong"),
        (
            make(root, lambda ctx, g: (saved(ctx)[0] ** (1 - ctx.n) / ctx.n, None)),
            "multiply by upstream",
        ),
        (make(root, through_numpy), "the second derivative is wrong"),
        (make(root, once_differentiable(root_backward)), "the second derivative is wrong"),
        (
            make(root, lambda ctx, g: (g * saved(ctx)[0].data ** (1 - ctx.n) / ctx.n, None)),
            "the second derivative is wrong",
        ),
        (
            make(root, lambda ctx, g: (g.detach() * saved(ctx)[0] ** (1 - ctx.n) / ctx.n, None)),
            "the second derivative is wrong",
        ),
        (make(root, by_memory), "your code raised RuntimeError: view size"),
        (make(root, only_matrices), "your code raised ValueError"),
    ],
)
def test_check_root_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_root(answer), says)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_check_root_rejects_a_hard_coded_n(n):
    fixed = make(lambda ctx, x, _: root(ctx, x, n), root_backward)
    assert not exercises.check_root(fixed).passed
    backward = make(root, lambda ctx, g: (g * saved(ctx)[0] ** (1 - n) / n, None))
    assert not exercises.check_root(backward).passed


# ---------------------------------------------------------------- claims about Functions


class Transposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, first, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, upstream):
        x, w = ctx.saved_tensors
        return None, upstream @ w.T, upstream.T @ x


@pytest.mark.parametrize(
    "first, index",
    [(1.0, 1), (None, 1), ([1], 1), (torch.tensor(1), 2), (nn.Parameter(torch.ones(1)), 2)],
)
def test_index_of_an_invalid_gradient_counts_tensors_only(first, index):
    w = torch.randn(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match=f"invalid gradient at index {index} "):
        Transposed.apply(first, torch.randn(4, 3), w).sum().backward()


@pytest.mark.parametrize("rows", [3, 4])
def test_gradcheck_detects_a_transposed_square_matrix_with_requires_grad(rows):
    x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 3, dtype=torch.float64)
    found = []
    for requires_grad in (True, False):
        inputs = (1.0, x, w.clone().requires_grad_(requires_grad))
        found.append(not torch.autograd.gradcheck(Transposed.apply, inputs, raise_exception=False))
    assert found == [True, False]


def test_ctc_loss_has_no_second_derivative():
    def loss(x):
        return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1]]), (4,), (1,))

    x = torch.randn(4, 1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, x)
    with pytest.raises(RuntimeError, match="is not implemented"):
        torch.autograd.gradgradcheck(loss, x)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_transforms_reject_a_forward_with_ctx(transform):
    with pytest.raises(RuntimeError, match="setup_context"):
        transform(Cube.apply)(torch.ones(3) if transform is torch.func.vmap else torch.ones(()))


def test_needs_input_grad_follows_requires_grad():
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, n):
            return x * w * n

        @staticmethod
        def backward(ctx, upstream):
            seen.append(ctx.needs_input_grad)
            return upstream, upstream, None

    x, w = (torch.ones(2, requires_grad=True) for _ in range(2))
    torch.autograd.grad(Product.apply(x, w, 1).sum(), w)
    Product.apply(x.detach(), w, 1).sum().backward()
    assert seen == [(True, True, False), (False, True, False)]


@pytest.mark.parametrize("pack", [list, tuple, lambda pair: dict(enumerate(pair)), iter])
def test_tensors_in_a_container_get_no_gradient(pack):
    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, tensors):
            return x + sum(tensors.values() if isinstance(tensors, dict) else tensors)

        @staticmethod
        def backward(ctx, upstream):
            return upstream, None

    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    assert not Total.apply(torch.ones(2), pack((a, b))).requires_grad
    x = torch.ones(2, requires_grad=True)
    Total.apply(x, pack((a, b))).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    assert a.grad is None and b.grad is None


@pytest.mark.parametrize("mark", [True, False])
def test_mark_dirty_rejects_a_leaf_and_updates_the_base_of_a_view(mark):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            if mark:
                ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, upstream):
            return upstream * 2

    leaf = torch.ones(2, requires_grad=True)
    base = leaf * 1
    Double.apply(base[:1])
    base.sum().backward()
    assert leaf.grad.tolist() == [2.0 if mark else 1.0, 1.0]
    if mark:
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            Double.apply(leaf)
    else:
        assert Double.apply(leaf).requires_grad


def test_once_differentiable_raises_only_in_backward():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, upstream):
            (x,) = ctx.saved_tensors
            return upstream * 3 * x**2

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)

    def penalty():
        loss = Cube.apply(x).square().sum()
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + slope.square().sum()

    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        penalty().backward()
    (silent,) = torch.autograd.grad(penalty(), x)
    assert silent.tolist() == [6.0, 6.0]  # the gradient of the loss alone, without the penalty
    assert not torch.autograd.gradgradcheck(Cube.apply, x, raise_exception=False)
