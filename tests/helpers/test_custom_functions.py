"""Is a backward right? The helper on planted faults, and the exercises on planted answers."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

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


# ---------------------------------------------------------------- nothing is wrong


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
        (lambda x, label: nn.functional.cross_entropy(x, label), (X, torch.tensor([0, 1, 1]))),
    ],
)
def test_a_right_backward_has_no_fault(function, inputs):
    assert check_function(function, *inputs) == []


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_modes_of_the_caller_do_not_matter(mode):
    with mode():
        assert check_function(Cube, torch.randn(3, 2)) == []
        assert check_function(make(cube, lambda ctx, g: 3 * saved(ctx)[0] ** 2), X) != []


def test_the_inputs_and_the_random_state_stay_as_they_were():
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


@pytest.mark.parametrize(
    "function, inputs, says",
    [
        (make(cube, lambda ctx, g: 3 * saved(ctx)[0] ** 2), (X,), "first derivative by input 0"),
        (make(cube, lambda ctx, g: 3 * saved(ctx)[0] ** 2), (X,), "must multiply by the gradient"),
        (make(cube, lambda ctx, g: g * 2 * saved(ctx)[0]), (X,), "by input 0 is wrong"),
        (
            make(product, lambda ctx, g: (g @ saved(ctx)[1].T, g.T @ saved(ctx)[0])),
            (X, W),
            "by input 1 failed: RuntimeError: Function MadeBackward returned an invalid gradient",
        ),
        (
            make(product, lambda ctx, g: (g @ saved(ctx)[1].T, g.T @ saved(ctx)[0])),
            (X, torch.randn(2, 2)),
            "first derivative by input 1 is wrong",
        ),
        (make(product, swapped), (X, W), "look at `ctx.needs_input_grad`"),
        (make(product, wrong_together), (X, W), "each one alone is right"),
        (make(cube, in_numpy), (X,), "second derivative by input 0 is wrong"),
        (make(cube, in_numpy), (X,), "with torch, from saved inputs and outputs"),
        (make(cube, once_differentiable(cube_backward)), (X,), "second derivative by input 0"),
        (
            make(lambda ctx, x, n: x * n, lambda ctx, g: g),
            (X, 2.0),
            "returned an incorrect number of gradients (expected 2, got 1)",
        ),
        (
            make(cube, lambda ctx, g: g.view(-1).view(3, 2) * 3 * saved(ctx)[0] ** 2),
            (X,),
            "gradient that came transposed",
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
        (Double, (X,), "changed input 0 in place"),
        (lambda x: torch.dropout(x, 0.5, True), (torch.ones(50),), "switch off what is random"),
        (lambda x: x.detach() * 2, (X,), "no output requires a gradient"),
        (lambda x: x.argmax(), (X,), "no output requires a gradient"),
        (make(lambda ctx, x: x.round(), lambda ctx, g: g), (X,), "first derivative"),
        (torch.relu, (torch.zeros(3),), "first derivative by input 0 is wrong"),
    ],
)
def test_a_fault_is_named(function, inputs, says):
    faults = check_function(function, *inputs)
    assert any(says in fault for fault in faults), faults


def by_address(ctx, upstream):
    return upstream.as_strided(upstream.shape, torch.ones(upstream.shape).stride())


def by_address_unless_expanded(ctx, upstream):
    return by_address(ctx, upstream) if any(upstream.stride()) else upstream


@pytest.mark.parametrize(
    "backward, says",
    [
        (by_address, "backward failed on a gradient that came expanded"),
        (by_address_unless_expanded, "backward is wrong for a gradient that came transposed"),
    ],
)
def test_a_backward_that_takes_the_gradient_as_it_lies_in_memory(backward, says):
    faults = check_function(make(lambda ctx, x: x * 1, backward), X, second=False)
    assert faults[0].startswith(says)


def test_the_second_derivative_is_looked_at_unless_it_is_not_wanted():
    assert check_function(make(cube, in_numpy), X)
    assert check_function(make(cube, in_numpy), X, second=False) == []


def test_inputs_that_require_no_gradient_beside_one_that_does_are_held_fixed():
    constant = make(product, lambda ctx, g: (g @ saved(ctx)[1].T, None))
    assert check_function(constant, X.clone().requires_grad_(), W) == []
    assert check_function(constant, X, W)[0].startswith("the first derivative by input 1 is wrong")


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
        (sum, ({"x": X},), TypeError, "input 0 is a dict of tensors"),
        (lambda x: None, (X,), TypeError, "tensor or a tuple of tensors from forward"),
        (lambda x: x @ torch.ones(9, 9), (X,), RuntimeError, "mat1 and mat2"),
    ],
)
def test_bad_input_is_refused_in_words(function, inputs, error, says):
    with pytest.raises(error) as raised:
        check_function(function, *inputs)
    assert says in str(raised.value)


def test_an_object_of_a_function_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Cube()
    with pytest.raises(TypeError, match="leave the parentheses away"):
        check_function(made, X)


# ---------------------------------------------------------------- exercises


def expect(verdict, says):
    assert verdict.passed == (says is None), verdict
    assert says is None or says in verdict.message


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
    """A forward that saves the tensors of these names."""

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


def only_matrices(ctx, upstream):
    rows, columns = upstream.shape
    return root_backward(ctx, upstream)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (make(root, root_backward), None),
        (RootWithSetup, None),
        (make(keeps("y"), lambda ctx, g: (g / (ctx.n * saved(ctx)[0] ** (ctx.n - 1)), None)), None),
        (make(root, root_backward).apply, "give the class itself"),
        (nn.ReLU, "give the class itself"),
        (..., "give the class itself"),
        (make(lambda ctx, x, n: x**n, root_backward), "forward is not the n-th root"),
        (make(lambda ctx, x, n: root(ctx, x.double(), n), root_backward), "dtype of x"),
        (make(lambda ctx, x, n: root(ctx, x, n).sum(), root_backward), "the shape"),
        (make(in_place, root_backward), "forward has changed x"),
        (make(attribute(lambda y: y), root_backward), "is an attribute of ctx"),
        (make(attribute(lambda y: [y]), root_backward), "is an attribute of ctx"),
        (make(attribute(lambda y: {"y": y}), root_backward), "is an attribute of ctx"),
        (make(on_class, root_backward), "0 tensors are saved"),
        (make(keeps("x", "y"), root_backward), "2 tensors are saved"),
        (make(keeps("x"), root_backward), "what is saved is not the output"),
        (make(keeps("slope"), lambda ctx, g: (g * saved(ctx)[0], None)), "not the output"),
        (make(keeps("copy"), root_backward), "what is saved is not the output"),
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
def test_root(answer, says):
    expect(exercises.check_root(answer), says)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_root_with_a_number_of_its_own(n):
    fixed = make(lambda ctx, x, _: root(ctx, x, n), root_backward)
    assert not exercises.check_root(fixed).passed
    backward = make(root, lambda ctx, g: (g * saved(ctx)[0] ** (1 - n) / n, None))
    assert not exercises.check_root(backward).passed
