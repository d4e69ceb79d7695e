"""Formulas of attention, of the VAE and of diffusion."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.learning import negated
from helpers.review.syntax import (
    argument,
    const,
    last_name,
    method,
    name_of,
    names_in,
    operands,
    receiver,
)
from helpers.review.tracing import construction, is_activation


def number(code, node):
    """Return the value of a number, including `float("-inf")`, `-np.inf` and a name."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(code, node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Call) and name_of(node.func) == "float" and node.args:
        written = str(const(node.args[0])).lower()
        return float(written) if re.fullmatch(r"[+-]?inf(inity)?", written) else None
    if (code.dotted(node) or "") in ("numpy.inf", "math.inf", "torch.inf"):
        return float("inf")
    if isinstance(node, ast.Name) and code.value(node) is not None:
        value = code.value(node)
        return number(code, value) if isinstance(value, ast.AST) else None
    if isinstance(node, ast.Name):
        return _parameter_default(node)
    value = const(node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _parameter_default(node):
    """Return the default of a parameter."""
    signature = getattr(node.scope, "args", None)
    names = [arg.arg for arg in signature.args] if signature else []
    position = names.index(node.id) - len(names) if node.id in names else 0
    return (
        const(signature.defaults[position])
        if position and -position <= len(signature.defaults)
        else None
    )


def _goes_to_softmax(code, call):
    """Return whether a result, or the name assigned to it, is the input of a softmax."""
    parent = call.parent
    if isinstance(parent, ast.Attribute) and parent.attr == "softmax":
        return True
    if method(parent) == "softmax":
        return True
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    name = name_of(receiver(call)) if isinstance(parent, ast.Expr) else name
    return name is not None and any(
        code.value(softmax_input) is call
        or isinstance(parent, ast.Expr)
        and softmax_input.lineno > call.lineno
        for softmax_input in softmax_inputs(code, call.scope)
        if name_of(softmax_input) == name
    )


def softmax_inputs(code, scope):
    """Yield the names in a scope that are passed to a softmax."""
    for call in code.calls_named("softmax"):
        if call.scope is scope:
            operand = argument(call, "input", 0) if code.called(call) else receiver(call)
            if name_of(receiver(call)) == "self" or not isinstance(
                operand, ast.Name | ast.Attribute
            ):
                operand = call.args[0] if call.args else None
            if operand is not None:
                yield operand


@rule("attention-mask-value", "wrong")
def mask_value(code):
    """`scores.masked_fill(mask == 0, -1e-9)` before a softmax: about 0, so nothing is masked."""
    for call in code.calls_named("masked_fill", "masked_fill_"):
        if len(call.args) < 2:
            continue
        value = number(code, call.args[1])
        if value is not None and value > -50 and _goes_to_softmax(code, call):
            yield call


@rule("attention-mask-late", "wrong")
def mask_after_softmax(code):
    """`softmax(scores).masked_fill(mask, -inf)`: the mask belongs before the softmax."""
    for call in code.calls_named("masked_fill", "masked_fill_"):
        if len(call.args) < 2:
            continue
        value = number(code, call.args[1])
        if value is not None and value < -50 and is_activation(code, receiver(call), {"softmax"}):
            yield call


@rule("attention-padding-wrong", "wrong")
def mask_reversed(code):
    """`key_padding_mask=ids != pad`, `masked_fill(tril == 1, -inf)`: visible positions masked."""
    for call in code.calls:
        for name in ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask"):
            if keeps_true(code, argument(call, name)) is True and not _own_function(code, call):
                yield argument(call, name)
        if method(call) in ("masked_fill", "masked_fill_") and len(call.args) == 2:
            value = number(code, call.args[1])
            if value is not None and value < -50 and keeps_true(code, call.args[0]) is True:
                yield call
        if code.called(call) == "F.scaled_dot_product_attention":
            if keeps_true(code, argument(call, "attn_mask", 3)) is False:
                yield call


def _own_function(code, call):
    """Return True for a local function, whose mask may have another meaning."""
    name = name_of(call.func) or ""
    return name in code.classes or bool(code.targets(call))


def keeps_true(code, node, depth=0):
    """Return whether True in a mask means visible; None if the file does not determine it."""
    if node is None or depth > 5:
        return None
    if isinstance(node, ast.Name):
        value = code.value(node)
        if value is None and _of_tokenizer(code, node):
            return True
        return keeps_true(code, value, depth + 1) if isinstance(value, ast.AST) else None
    if isinstance(node, ast.Subscript) and const(node.slice) == "attention_mask":
        return True if "input_ids" in code.source else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        inner = keeps_true(code, node.operand, depth + 1)
        return None if inner is None else not inner
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared_mask(code, node, depth)
    if not isinstance(node, ast.Call):
        return None
    if code.called(node) in ("torch.tril", "torch.triu"):
        return _triangle(code, node)
    name = method(node)
    if name in ("logical_not",):
        inner = keeps_true(code, receiver(node) or node.args[0], depth + 1)
        return None if inner is None else not inner
    if name in _SHAPED and not code.called(node) and receiver(node) is not None:
        return keeps_true(code, receiver(node), depth + 1)
    return None


def _of_tokenizer(code, node):
    """Return whether a parameter is the `attention_mask` that belongs to `input_ids`."""
    scope = node.scope
    return (
        node.id == "attention_mask"
        and not isinstance(scope, ast.Module)
        and ("input_ids" in code.source_of(scope))
    )


def _triangle(code, call):
    """Return `keeps_true` of `torch.tril(ones)` (True) and of `torch.triu(ones, 1)` (False)."""
    ones = call.args[0] if call.args else None
    if code.called(ones) not in ("torch.ones", "torch.ones_like"):
        return None
    diagonal = argument(call, "diagonal", 1)
    shift = 0 if diagonal is None else const(diagonal)
    if code.called(call) == "torch.tril":
        return True if shift == 0 else None
    return False if shift == 1 else None


_SHAPED = ("bool", "to", "cuda", "unsqueeze", "expand", "repeat", "view", "reshape")


_TOKENS = re.compile(r"(?i)([\w.]*[._])?(input_ids|ids|tokens?|src|tgt|trg|seqs?|sentences?)")


def _compared_mask(code, node, depth):
    """Return the meaning of True in `ids != pad` and `mask == 0`, as `keeps_true` does."""
    other, equal = node.comparators[0], isinstance(node.ops[0], ast.Eq)
    if not equal and not isinstance(node.ops[0], ast.NotEq):
        return None
    if re.search(
        r"(?i)(^|[._])pad(ding)?(_?(idx|index|id|token|token_id|value))?$", name_of(other) or ""
    ):
        return not equal
    if const(other) == 0 and _TOKENS.fullmatch(name_of(node.left) or ""):
        return not equal
    inner = keeps_true(code, node.left, depth + 1)
    if inner is None and re.fullmatch(r"(\w+\.)?attention_masks?", name_of(node.left) or ""):
        inner = True  # `attention_mask` of a tokenizer
    constant = const(other)
    if inner is None or constant not in (0, 1, True, False):
        return None
    return inner if bool(constant) is equal else not inner


@rule("attention-mask-queries", "wrong")
def mask_of_queries(code):
    """`(ids != pad).unsqueeze(1).unsqueeze(3)`: it masks the rows of the queries, not the keys."""
    for call in code.calls_named("unsqueeze"):
        if not call.args or const(call.args[0]) not in (3, -1):
            continue
        inner = receiver(call)
        if method(inner) == "unsqueeze" and inner.args and const(inner.args[0]) == 1:
            if isinstance(receiver(inner), ast.Compare) and (
                keeps_true(code, receiver(inner)) is not None
            ):
                source = code.source_of(code.function_of(call))
                if not re.search(r"unsqueeze\((1|2|-2)\)\.unsqueeze\((1|2|-2)\)", source):
                    if not re.search(r"\.(repeat|expand)\(|\* ", source):
                        yield call


@rule("vae-std", "wrong")
def std_of_variance(code):
    """`mu + torch.exp(logvar) * eps`: the standard deviation is `exp(0.5 * logvar)`."""
    for node, left, right in _products(code):
        for std, noise in ((left, right), (right, left)):
            std = code.resolved(std)
            name = name_of(_exponent(code, std)) or ""
            if re.search(r"(?i)log_?(var|sigma_?sq)", name) and _is_noise(code, noise):
                if not any(_is_double(_exponent(code, call), name) for call in code.calls):
                    yield node


def _is_double(node, name):
    """Return True for `2 * name` and `-2 * name`."""
    product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return product and const(node.left) in (2, -2) and name_of(node.right) == name


def _products(code):
    """Yield `a * b`, `a.mul(b)` and `torch.mul(a, b)` with their factors."""
    for node in code.nodes_of(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            yield node, node.left, node.right
    for call in code.calls_named("mul", "mul_", "multiply"):
        if code.called(call) and len(call.args) == 2:
            yield call, *call.args
        elif not code.called(call) and len(call.args) == 1 and receiver(call) is not None:
            yield call, receiver(call), call.args[0]


def _exponent(code, node):
    """Return `x` of `torch.exp(x)` and `x.exp()`."""
    if method(node) not in ("exp", "exp_"):
        return None
    return node.args[0] if code.called(node) == "torch.exp" and node.args else receiver(node)


def _is_noise(code, node):
    value = code.resolved(node)
    drawn = ("randn", "randn_like", "normal", "normal_")
    value = receiver(value) if method(value) in ("to", "cuda", "type_as", "float") else value
    if method(value) in ("Variable", "type"):
        value = value.args[0] if value.args else None
    return method(value) in drawn or re.fullmatch(r"(?i)eps(ilon)?|noise", name_of(node) or "")


@rule("vae-kl-square", "wrong")
def kl_of_std(code):
    """`1 + 2 * logstd - mean**2 - logstd.exp()`: the last term must be squared."""
    for terms in _sums_with_one(code):
        doubled = {name_of(_half(term)) for term in terms} - {None}
        squares = any(
            isinstance(term, ast.BinOp) and isinstance(term.op, ast.Pow) for term in terms
        )
        squares = squares or any(method(term) in ("pow", "square") for term in terms)
        for term in terms:
            if squares and name_of(_exponent(code, term)) in doubled:
                yield term


@rule("vae-kl-log", "wrong")
def kl_of_log(code):
    """`mean**2 + logvar**2 - torch.log(logvar**2) - 1`: `logvar` is a logarithm already."""
    for terms in _sums_with_one(code):
        for term in terms:
            if _log_of_log(code, term):
                yield term


def _sums_with_one(code):
    """Yield the terms of each sum that contains the number 1, as the KL of a Gaussian does."""
    for node in code.nodes_of(ast.BinOp):
        if isinstance(node.parent, ast.BinOp) or not isinstance(node.op, ast.Sub | ast.Add):
            continue
        terms = operands(node, ast.Add, ast.Sub)
        if 1 in map(const, terms):
            named = [code.resolved(term) if name_of(term) else None for term in terms]
            yield [
                v if isinstance(v, ast.Call | ast.BinOp) else term
                for term, v in zip(terms, named, strict=True)
            ]


def _log_of_log(code, node):
    """Return True for `torch.log(logvar.pow(2))`, the logarithm of a logarithm."""
    if code.called(node) != "torch.log" or not node.args:
        return False
    inner = code.resolved(node.args[0])
    for term in operands(inner if isinstance(inner, ast.AST) else node.args[0], ast.Add, ast.Sub):
        term = code.resolved(term)
        base = receiver(term) if method(term) in ("pow", "square") else getattr(term, "left", None)
        base = term.args[0] if code.called(term) in ("torch.pow", "torch.square") else base
        squared = method(term) in ("pow", "square") or isinstance(
            getattr(term, "op", None), ast.Pow
        )
        if squared and re.search(r"(?i)(^|[._])log_?(var|sigma|std)", name_of(base) or ""):
            return True
    return False


def _half(node):
    """Return `x` of `2 * x`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and const(node.left) == 2:
        return node.right if names_in(node.right) else None
    return None


def _diffuses(code, *factors):
    """Return whether a factor of the noise is the square root of 1 minus the product of α."""
    written = " ".join(ast.unparse(factor) for factor in factors if isinstance(factor, ast.AST))
    root = re.search(
        r"(?i)one_?minus|(sqrt\(|sqrt_)1 ?- ?.*alpha|\(1(\.0*)? - .*alpha.*sqrt", written
    )
    return bool(root) and "cumprod" in code.source


@rule("vae-noise", "wrong", "rand(|rand_like(")
def uniform_noise(code):
    """`mu + std * torch.rand_like(std)`: the noise must be normal."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Mult) or not isinstance(node.parent, ast.BinOp):
            continue
        for std, noise in ((node.left, node.right), (node.right, node.left)):
            value = code.resolved(std)
            exponent = ast.unparse(_exponent(code, value) or ast.Constant(""))
            drawn = code.resolved(noise)
            uniform = code.called(drawn) in ("torch.rand_like", "torch.rand")
            named = "reparam" in getattr(code.function_of(node), "name", "")
            named = named and re.fullmatch(r"std|sigma", name_of(std) or "")
            if (
                uniform
                and (named or re.search(r"(?i)log_?(var|std|sigma)", exponent))
                or uniform
                and _diffuses(code, std, value)
            ):
                yield drawn


@rule("vae-kl-sign", "wrong", "exp(")
def kl_with_plus(code):
    """`loss = bce + 0.5 * torch.sum(1 + logvar - mu**2 - logvar.exp())`: minus the divergence."""
    if re.search(r"(?i)elbo|lower_bound", code.source):
        return
    for node in code.nodes_of(ast.BinOp):
        if isinstance(node.parent, ast.BinOp) or not isinstance(node.op, ast.Sub):
            continue
        signs = dict(_signed(node, 1))
        powers = [term for term in signs if _exponent(code, term) is not None and signs[term] < 0]
        named = {name_of(_exponent(code, power)) for power in powers} - {None}
        logs = [term for term in signs if signs[term] > 0 and _is_log(term, named)]
        if not logs or not powers or not any(const(term) == 1 for term in signs):
            continue
        end, sign = _whole_term(node)
        if (
            sign > 0
            and _added_to_loss(code, end, ast.Add)
            and not negated(code, end)
            or sign < 0
            and _added_to_loss(code, end, ast.Sub)
        ):
            yield node


def _is_log(node, named):
    """Return whether a term is a logarithm, by its name or because its exponential is a term."""
    return bool(re.search(r"(?i)log", name_of(node) or "")) or name_of(node) in named


def _signed(node, sign):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _signed(node.left, sign)
        yield from _signed(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
    else:
        yield node, sign


def _whole_term(node):
    """Climb over sums and factors; return the result and its sign."""
    sign = 1
    while True:
        parent = node.parent
        if method(parent) in ("sum", "mean") and node in parent.args:
            node = parent
        elif isinstance(parent, ast.Attribute) and parent.attr in ("sum", "mean"):
            node = parent.parent
        elif isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult | ast.Div):
            other = parent.right if node is parent.left else parent.left
            if not isinstance(const(other), int | float):
                return node, 0
            node, sign = parent, -sign if const(other) < 0 else sign
        elif isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub):
            node, sign = parent, -sign
        else:
            return node, sign


def _added_to_loss(code, node, how):
    """Return whether the value is added to a reconstruction loss, or subtracted, and no more."""
    parent = node.parent
    uses = [node]
    if isinstance(parent, ast.Assign):
        name = name_of(parent.targets[0])
        uses = [use for use in code.uses(node.scope, name or "") if use.lineno > node.lineno]
    weighted = [
        sum_node for sum_node in map(_weighted_term, uses) if isinstance(sum_node.parent, ast.BinOp)
    ]
    losses = re.compile(r"(?i)loss|recon|bce|mse|cross_entropy")
    return bool(weighted) and all(
        isinstance(sum_node.parent.op, how)
        and losses.search(ast.unparse(sum_node.parent))
        and (
            how is ast.Add
            or sum_node is sum_node.parent.right
            and _is_descended(code, sum_node.parent)
        )
        for sum_node in weighted
    )


def _is_descended(code, node):
    """Return whether a difference is not negated, and its name is one of a loss."""
    parent = node.parent
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    name = getattr(code.function_of(node), "name", "") if isinstance(parent, ast.Return) else name
    return bool(re.search(r"(?i)loss|objective|cost", name or "")) and not negated(code, node)


def _weighted_term(node):
    """Return the product `beta * kl` of a node, else the node."""
    parent = node.parent
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
        factor = parent.left if node is parent.right else parent.right
        positive = isinstance(const(factor), int | float) and const(factor) > 0
        named = re.search(r"(?i)beta|weight|lambda", name_of(factor) or "")
        return parent if positive or named else node
    return node


@rule("vae-reduction", "wrong", "mse|MSE|binary_cross|BCE")
def mean_and_sum(code):
    """`F.mse_loss(recon, x)` is a mean over the pixels, and the KL divergence is a sum."""
    if re.search(r"\.(size_average|reduction) *=", code.source):
        return
    scaled = {
        (statement.scope, name_of(statement.target)) for statement in code.nodes_of(ast.AugAssign)
    }
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or isinstance(node.parent, ast.BinOp):
            continue
        if any((node.scope, name_of(side)) in scaled for side in (node.left, node.right)):
            continue
        for first, second in ((node.left, node.right), (node.right, node.left)):
            first = code.resolved(first)
            second = code.resolved(second)
            if _is_mean_loss(code, first) and _is_summed_kl(code, second):
                yield first


def _is_mean_loss(code, node):
    names = ("F.mse_loss", "F.binary_cross_entropy", "F.binary_cross_entropy_with_logits")
    loss = node if code.called(node) in names else construction(code, getattr(node, "func", None))
    if loss is None or code.called(loss) not in (*names, "nn.MSELoss", "nn.BCELoss"):
        return False
    reduction = argument(loss, "reduction")
    old = argument(loss, "size_average") or argument(loss, "reduce")
    return old is None and (reduction is None or const(reduction) == "mean")


def _is_summed_kl(code, node):
    """Return whether a node is `-0.5 * torch.sum(1 + logvar - mu**2 - logvar.exp())`."""
    while isinstance(node, ast.BinOp | ast.UnaryOp):
        if isinstance(node, ast.UnaryOp):
            node = node.operand
        elif isinstance(node.op, ast.Mult) and const(node.left) in (0.5, -0.5):
            node = node.right
        else:
            return False
    if code.called(node) != "torch.sum" or len(node.args) != 1 or node.keywords:
        return False
    named = r"(?i)log_?(var|sigma).*exp|exp.*log_?var"
    same = r"1 \+ (\w+) - .*(\1\.exp|exp\(\1\))"
    written = ast.unparse(node)
    return bool(re.search(named, written) or re.search(same, written))


@rule("diffusion-sqrt", "wrong", "alpha|Alpha|sqrt")
def noise_without_root(code):
    """`alpha_bar * x0 + (1 - alpha_bar) * noise`: the factors are the square roots."""
    for node in code.nodes_of(ast.BinOp):
        sides = products(node)
        if not sides or isinstance(node.parent, ast.BinOp):
            continue
        names = [" ".join(names_in(side)) for side in sides]
        noisy = [
            name for name in names if re.search(r"(?i)(^|[ _.])(noise|eps(ilon)?)($|[ _])", name)
        ]
        alpha = r"(?i)alphas?_?(bar|hat|cumprod|prod)"
        if len(noisy) != 1 or not all(re.search(alpha, name) for name in names):
            continue
        factors = [
            name_of(child) or name_of(getattr(child, "value", None)) or ""
            for child in _operands(sides)
        ]
        values = [
            code.value(getattr(child, "value", child))
            for child in _operands(sides)
            if name_of(child)
        ]
        values += [code.value(child) for child in _operands(sides) if isinstance(child, ast.Name)]
        written = " ".join(ast.unparse(value) for value in values if isinstance(value, ast.AST))
        if not re.search(r"(?i)sqrt|\*\* *0?\.5|root|pow", " ".join([*factors, written, *names])):
            if not re.search(r"sqrt|\*\* 0\.5|pow", ast.unparse(node)):
                yield node
    yield from _one_root(code)


def products(node):
    """Return both products of `a * b + c * d`; none for another operation."""
    sides = [node.left, node.right] if isinstance(node.op, ast.Add) else []
    return sides if all(isinstance(getattr(side, "op", None), ast.Mult) for side in sides) else []


def _one_root(code):
    """`ab.sqrt()[t] * x + (1 - ab[t]) * noise`: the root of one factor, and not of the other."""
    for node in code.nodes_of(ast.BinOp):
        sides = products(node)
        noisy = [any(map(_is_drawn, (side.left, side.right))) for side in sides]
        if noisy.count(True) != 1:
            continue
        a, b = ([_factor(code, operand) for operand in (side.left, side.right)] for side in sides)
        pairs = [
            (first, second)
            for first in a
            for second in b
            if first and second and first[0] == second[0]
        ]
        if any(first[1] != second[1] and first[2] != second[2] for first, second in pairs):
            yield node
        elif any(
            first[1] != second[1] and not first[2] and _PRODUCT.search(first[0])
            for first, second in pairs
        ):
            if not all(_PRODUCT.search(" ".join(names_in(side))) for side in sides):
                yield node


_PRODUCT = re.compile(r"(?i)alphas?_?(bar|hat|cumprod|prod)")
_NOISE = re.compile(r"(?i)^(noise|eps(ilon)?|z)(_\w+)?$|_noise$")


def _is_drawn(node):
    """Return whether a factor is noise, by its name or as `torch.randn_like(x)`."""
    return bool(_NOISE.search(last_name(node))) or method(node) in ("randn_like", "randn")


def _factor(code, node, depth=0):
    """Return name, whether `1 - name`, and whether a root: `(ab, True, True)` of `sqrt(1 - ab)`."""
    if depth > 6 or node is None:
        return None
    if isinstance(node, ast.Subscript):
        return _factor(code, node.value, depth + 1)
    if isinstance(node, ast.Call):
        name, operand = method(node), node.args[0] if node.args else None
        if name == "sqrt":
            inner = _factor(code, operand if code.called(node) else receiver(node), depth + 1)
            return inner and (*inner[:2], True)
        if name in ("view", "reshape", "unsqueeze", "to", "gather", "expand", "index_select"):
            return _factor(code, receiver(node), depth + 1)
        if (
            isinstance(node.func, ast.Name)
            and name in ("extract", "_extract", "gather")
            and operand
        ):
            return _factor(code, operand, depth + 1)
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        inner = _factor(code, node.left, depth + 1) if const(node.right) == 0.5 else None
        return inner and (*inner[:2], True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        factor = const(node.left) in (1, 1.0) and _factor(code, node.right, depth + 1)
        return (factor[0], not factor[1], factor[2]) if factor and not factor[2] else None
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    value = code.value(node)
    composite = isinstance(value, ast.Call | ast.BinOp | ast.Subscript)
    inner = _factor(code, value, depth + 1) if composite else None
    return inner if inner is not None and depth < 4 else (name_of(node), False, False)


def _operands(sides):
    return [operand for side in sides for operand in (side.left, side.right)]
