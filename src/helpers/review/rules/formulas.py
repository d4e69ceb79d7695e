"""Formulas of attention, of the VAE and of diffusion."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.learning import negated
from helpers.review.syntax import argument, const, last, method, names_in, receiver, text
from helpers.review.tracing import construction, is_activation


def number(code, node):
    """Return the value of a number, including `float("-inf")`, `-np.inf` and a name."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(code, node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Call) and text(node.func) == "float" and node.args:
        written = str(const(node.args[0])).lower()
        return float(written) if re.fullmatch(r"[+-]?inf(inity)?", written) else None
    if (code.dotted(node) or "") in ("numpy.inf", "math.inf", "torch.inf"):
        return float("inf")
    if isinstance(node, ast.Name) and code.value(node) is not None:
        value = code.value(node)
        return number(code, value) if isinstance(value, ast.AST) else None
    if isinstance(node, ast.Name):
        return _default(node)
    value = const(node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _default(node):
    """Return the default of a parameter."""
    given = getattr(node.scope, "args", None)
    names = [one.arg for one in given.args] if given else []
    at = names.index(node.id) - len(names) if node.id in names else 0
    return const(given.defaults[at]) if at and -at <= len(given.defaults) else None


def _goes_to_softmax(code, call):
    """Return whether a result, or the name assigned to it, is the input of a softmax."""
    up = call.parent
    if isinstance(up, ast.Attribute) and up.attr == "softmax":
        return True
    if isinstance(up, ast.Call) and method(up) == "softmax":
        return True
    name = text(up.targets[0]) if isinstance(up, ast.Assign) else None
    name = text(receiver(call)) if isinstance(up, ast.Expr) else name
    return name is not None and any(
        code.value(one) is call or isinstance(up, ast.Expr) and one.lineno > call.lineno
        for one in softmax_inputs(code, call.scope)
        if text(one) == name
    )


def softmax_inputs(code, scope):
    """Yield the names in a scope that are passed to a softmax."""
    for call in code.calls:
        if call.scope is scope and method(call) == "softmax":
            given = argument(call, "input", 0) if code.called(call) else receiver(call)
            if text(receiver(call)) == "self" or not isinstance(given, ast.Name | ast.Attribute):
                given = call.args[0] if call.args else None
            if given is not None:
                yield given


@rule("attention-mask-value", "wrong")
def mask_value(code):
    """`scores.masked_fill(mask == 0, -1e-9)` before a softmax: about 0, so nothing is masked."""
    for call in code.calls:
        if method(call) not in ("masked_fill", "masked_fill_") or len(call.args) < 2:
            continue
        value = number(code, call.args[1])
        if value is not None and value > -50 and _goes_to_softmax(code, call):
            yield call


@rule("attention-mask-late", "wrong")
def mask_after_softmax(code):
    """`softmax(scores).masked_fill(mask, -inf)`: the mask belongs before the softmax."""
    for call in code.calls:
        if method(call) not in ("masked_fill", "masked_fill_") or len(call.args) < 2:
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
    name = text(call.func) or ""
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
        and ("input_ids" in code.part(scope))
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
        r"(?i)(^|[._])pad(ding)?(_?(idx|index|id|token|token_id|value))?$", text(other) or ""
    ):
        return not equal
    if const(other) == 0 and _TOKENS.fullmatch(text(node.left) or ""):
        return not equal
    inner = keeps_true(code, node.left, depth + 1)
    if inner is None and re.fullmatch(r"(\w+\.)?attention_masks?", text(node.left) or ""):
        inner = True  # `attention_mask` of a tokenizer
    one = const(other)
    if inner is None or one not in (0, 1, True, False):
        return None
    return inner if bool(one) is equal else not inner


@rule("attention-mask-queries", "wrong")
def mask_of_queries(code):
    """`(ids != pad).unsqueeze(1).unsqueeze(3)`: it masks the rows of the queries, not the keys."""
    for call in code.calls:
        if method(call) != "unsqueeze" or not call.args or const(call.args[0]) not in (3, -1):
            continue
        inner = receiver(call)
        if method(inner) == "unsqueeze" and inner.args and const(inner.args[0]) == 1:
            if isinstance(receiver(inner), ast.Compare) and (
                keeps_true(code, receiver(inner)) is not None
            ):
                source = code.part(code.function(call))
                if not re.search(r"unsqueeze\((1|2|-2)\)\.unsqueeze\((1|2|-2)\)", source):
                    if not re.search(r"\.(repeat|expand)\(|\* ", source):
                        yield call


@rule("vae-std", "wrong")
def std_of_variance(code):
    """`mu + torch.exp(logvar) * eps`: the standard deviation is `exp(0.5 * logvar)`."""
    for node, left, right in _products(code):
        for std, noise in ((left, right), (right, left)):
            std = code.resolved(std)
            name = text(_exponent(code, std)) or ""
            if re.search(r"(?i)log_?(var|sigma_?sq)", name) and _is_noise(code, noise):
                if not any(_twice(_exponent(code, one), name) for one in code.calls):
                    yield node


def _twice(node, name):
    """Return True for `2 * name` and `-2 * name`."""
    product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return product and const(node.left) in (2, -2) and text(node.right) == name


def _products(code):
    """Yield `a * b`, `a.mul(b)` and `torch.mul(a, b)` with their factors."""
    for node in code.of(ast.BinOp):
        if isinstance(node.op, ast.Mult):
            yield node, node.left, node.right
    for call in code.calls:
        if method(call) in ("mul", "mul_", "multiply"):
            if code.called(call) and len(call.args) == 2:
                yield call, *call.args
            elif not code.called(call) and len(call.args) == 1 and receiver(call) is not None:
                yield call, receiver(call), call.args[0]


def _exponent(code, node):
    """Return `x` of `torch.exp(x)` and `x.exp()`."""
    if not isinstance(node, ast.Call) or method(node) not in ("exp", "exp_"):
        return None
    return node.args[0] if code.called(node) == "torch.exp" and node.args else receiver(node)


def _is_noise(code, node):
    value = code.resolved(node)
    drawn = ("randn", "randn_like", "normal", "normal_")
    value = receiver(value) if method(value) in ("to", "cuda", "type_as", "float") else value
    if method(value) in ("Variable", "type"):
        value = value.args[0] if value.args else None
    return method(value) in drawn or re.fullmatch(r"(?i)eps(ilon)?|noise", text(node) or "")


@rule("vae-kl-square", "wrong")
def kl_of_std(code):
    """`1 + 2 * logstd - mean**2 - logstd.exp()`: the last term must be squared."""
    for terms in _sums_with_one(code):
        doubled = {text(_doubled(one)) for one in terms} - {None}
        squares = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Pow) for one in terms)
        squares = squares or any(method(one) in ("pow", "square") for one in terms)
        for one in terms:
            if squares and text(_exponent(code, one)) in doubled:
                yield one


@rule("vae-kl-log", "wrong")
def kl_of_log(code):
    """`mean**2 + logvar**2 - torch.log(logvar**2) - 1`: `logvar` is a logarithm already."""
    for terms in _sums_with_one(code):
        for one in terms:
            if _log_of_log(code, one):
                yield one


def _sums_with_one(code):
    """Yield the terms of each sum that contains the number 1, as the KL of a Gaussian does."""
    for node in code.of(ast.BinOp):
        if isinstance(node.parent, ast.BinOp) or not isinstance(node.op, ast.Sub | ast.Add):
            continue
        terms = list(_terms(node))
        if 1 in map(const, terms):
            named = [code.resolved(one) if text(one) else None for one in terms]
            yield [
                v if isinstance(v, ast.Call | ast.BinOp) else one
                for one, v in zip(terms, named, strict=True)
            ]


def _log_of_log(code, node):
    """Return True for `torch.log(logvar.pow(2))`, the logarithm of a logarithm."""
    if code.called(node) != "torch.log" or not node.args:
        return False
    inner = code.resolved(node.args[0])
    for one in _terms(inner if isinstance(inner, ast.AST) else node.args[0]):
        one = code.resolved(one)
        base = receiver(one) if method(one) in ("pow", "square") else getattr(one, "left", None)
        base = one.args[0] if code.called(one) in ("torch.pow", "torch.square") else base
        squared = method(one) in ("pow", "square") or isinstance(getattr(one, "op", None), ast.Pow)
        if squared and re.search(r"(?i)(^|[._])log_?(var|sigma|std)", text(base) or ""):
            return True
    return False


def _terms(node):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _doubled(node):
    """Return `x` of `2 * x`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and const(node.left) == 2:
        return node.right if names_in(node.right) else None
    return None


def _diffuses(code, *factors):
    """Return whether a factor of the noise is the square root of 1 minus the product of α."""
    written = " ".join(ast.unparse(one) for one in factors if isinstance(one, ast.AST))
    root = re.search(
        r"(?i)one_?minus|(sqrt\(|sqrt_)1 ?- ?.*alpha|\(1(\.0*)? - .*alpha.*sqrt", written
    )
    return bool(root) and "cumprod" in code.source


@rule("vae-noise", "wrong", "rand(|rand_like(")
def uniform_noise(code):
    """`mu + std * torch.rand_like(std)`: the noise must be normal."""
    for node in code.of(ast.BinOp):
        if not isinstance(node.op, ast.Mult) or not isinstance(node.parent, ast.BinOp):
            continue
        for std, noise in ((node.left, node.right), (node.right, node.left)):
            value = code.resolved(std)
            exponent = ast.unparse(_exponent(code, value) or ast.Constant(""))
            drawn = code.resolved(noise)
            uniform = code.called(drawn) in ("torch.rand_like", "torch.rand")
            named = "reparam" in getattr(code.function(node), "name", "")
            named = named and re.fullmatch(r"std|sigma", text(std) or "")
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
    for node in code.of(ast.BinOp):
        if isinstance(node.parent, ast.BinOp) or not isinstance(node.op, ast.Sub):
            continue
        signs = dict(_signed(node, 1))
        powers = [one for one in signs if _exponent(code, one) is not None and signs[one] < 0]
        named = {text(_exponent(code, one)) for one in powers} - {None}
        logs = [one for one in signs if signs[one] > 0 and _is_log(one, named)]
        if not logs or not powers or not any(const(one) == 1 for one in signs):
            continue
        end, sign = _scaled(node)
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
    return bool(re.search(r"(?i)log", text(node) or "")) or text(node) in named


def _signed(node, sign):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _signed(node.left, sign)
        yield from _signed(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
    else:
        yield node, sign


def _scaled(node):
    """Climb over sums and factors; return the result and its sign."""
    sign = 1
    while True:
        up = node.parent
        if isinstance(up, ast.Call) and method(up) in ("sum", "mean") and node in up.args:
            node = up
        elif isinstance(up, ast.Attribute) and up.attr in ("sum", "mean"):
            node = up.parent
        elif isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mult | ast.Div):
            other = up.right if node is up.left else up.left
            if not isinstance(const(other), int | float):
                return node, 0
            node, sign = up, -sign if const(other) < 0 else sign
        elif isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.USub):
            node, sign = up, -sign
        else:
            return node, sign


def _added_to_loss(code, node, how):
    """Return whether the value is added to a reconstruction loss, or subtracted, and no more."""
    up = node.parent
    uses = [node]
    if isinstance(up, ast.Assign):
        name = text(up.targets[0])
        uses = [one for one in code.uses(node.scope, name or "") if one.lineno > node.lineno]
    weighted = [one for one in map(_weighted, uses) if isinstance(one.parent, ast.BinOp)]
    losses = re.compile(r"(?i)loss|recon|bce|mse|cross_entropy")
    return bool(weighted) and all(
        isinstance(one.parent.op, how)
        and losses.search(ast.unparse(one.parent))
        and (how is ast.Add or one is one.parent.right and _is_descended(code, one.parent))
        for one in weighted
    )


def _is_descended(code, node):
    """Return whether a difference is not negated, and its name is one of a loss."""
    up = node.parent
    name = text(up.targets[0]) if isinstance(up, ast.Assign) else None
    name = getattr(code.function(node), "name", "") if isinstance(up, ast.Return) else name
    return bool(re.search(r"(?i)loss|objective|cost", name or "")) and not negated(code, node)


def _weighted(node):
    """Return the product `beta * kl` of a node, else the node."""
    up = node.parent
    if isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mult):
        factor = up.left if node is up.right else up.right
        positive = isinstance(const(factor), int | float) and const(factor) > 0
        named = re.search(r"(?i)beta|weight|lambda", text(factor) or "")
        return up if positive or named else node
    return node


@rule("vae-reduction", "wrong", "mse|MSE|binary_cross|BCE")
def mean_and_sum(code):
    """`F.mse_loss(recon, x)` is a mean over the pixels, and the KL divergence is a sum."""
    if re.search(r"\.(size_average|reduction) *=", code.source):
        return
    scaled = {(one.scope, text(one.target)) for one in code.of(ast.AugAssign)}
    for node in code.of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or isinstance(node.parent, ast.BinOp):
            continue
        if any((node.scope, text(one)) in scaled for one in (node.left, node.right)):
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
    whole = code.called(node) == "torch.sum" and len(node.args) == 1 and not node.keywords
    named = r"(?i)log_?(var|sigma).*exp|exp.*log_?var"
    same = r"1 \+ (\w+) - .*(\1\.exp|exp\(\1\))"
    written = ast.unparse(node)
    return whole and bool(re.search(named, written) or re.search(same, written))


@rule("diffusion-sqrt", "wrong", "alpha|Alpha|sqrt")
def noise_without_root(code):
    """`alpha_bar * x0 + (1 - alpha_bar) * noise`: the factors are the square roots."""
    for node in code.of(ast.BinOp):
        if not isinstance(node.op, ast.Add) or isinstance(node.parent, ast.BinOp):
            continue
        sides = [one for one in (node.left, node.right) if isinstance(one, ast.BinOp)]
        if len(sides) != 2 or not all(isinstance(one.op, ast.Mult) for one in sides):
            continue
        names = [" ".join(names_in(one)) for one in sides]
        noisy = [one for one in names if re.search(r"(?i)(^|[ _.])(noise|eps(ilon)?)($|[ _])", one)]
        alpha = r"(?i)alphas?_?(bar|hat|cumprod|prod)"
        if len(noisy) != 1 or not all(re.search(alpha, one) for one in names):
            continue
        factors = [text(one) or text(getattr(one, "value", None)) or "" for one in _own(sides)]
        values = [code.value(getattr(one, "value", one)) for one in _own(sides) if text(one)]
        values += [code.value(one) for one in _own(sides) if isinstance(one, ast.Name)]
        written = " ".join(ast.unparse(one) for one in values if isinstance(one, ast.AST))
        if not re.search(r"(?i)sqrt|\*\* *0?\.5|root|pow", " ".join([*factors, written, *names])):
            if not re.search(r"sqrt|\*\* 0\.5|pow", ast.unparse(node)):
                yield node
    yield from _one_root(code)


def _one_root(code):
    """`ab.sqrt()[t] * x + (1 - ab[t]) * noise`: the root of one factor, and not of the other."""
    for node in code.of(ast.BinOp):
        if not isinstance(node.op, ast.Add):
            continue
        sides = [one for one in (node.left, node.right) if isinstance(one, ast.BinOp)]
        if len(sides) != 2 or not all(isinstance(one.op, ast.Mult) for one in sides):
            continue
        noisy = [any(map(_is_drawn, (one.left, one.right))) for one in sides]
        if noisy.count(True) != 1:
            continue
        a, b = ([_factor(code, one) for one in (side.left, side.right)] for side in sides)
        pairs = [(one, two) for one in a for two in b if one and two and one[0] == two[0]]
        if any(one[1] != two[1] and one[2] != two[2] for one, two in pairs):
            yield node
        elif any(one[1] != two[1] and not one[2] and _PRODUCT.search(one[0]) for one, two in pairs):
            if not all(_PRODUCT.search(" ".join(names_in(side))) for side in sides):
                yield node


_PRODUCT = re.compile(r"(?i)alphas?_?(bar|hat|cumprod|prod)")
_NOISE = re.compile(r"(?i)^(noise|eps(ilon)?|z)(_\w+)?$|_noise$")


def _is_drawn(node):
    """Return whether a factor is noise, by its name or as `torch.randn_like(x)`."""
    return bool(_NOISE.search(last(node))) or method(node) in ("randn_like", "randn")


def _factor(code, node, depth=0):
    """Return name, whether `1 - name`, and whether a root: `(ab, True, True)` of `sqrt(1 - ab)`."""
    if depth > 6 or node is None:
        return None
    if isinstance(node, ast.Subscript):
        return _factor(code, node.value, depth + 1)
    if isinstance(node, ast.Call):
        name, given = method(node), node.args[0] if node.args else None
        if name == "sqrt":
            inner = _factor(code, given if code.called(node) else receiver(node), depth + 1)
            return inner and (*inner[:2], True)
        if name in ("view", "reshape", "unsqueeze", "to", "gather", "expand", "index_select"):
            return _factor(code, receiver(node), depth + 1)
        if isinstance(node.func, ast.Name) and name in ("extract", "_extract", "gather") and given:
            return _factor(code, given, depth + 1)
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        inner = _factor(code, node.left, depth + 1) if const(node.right) == 0.5 else None
        return inner and (*inner[:2], True)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        whole = const(node.left) in (1, 1.0) and _factor(code, node.right, depth + 1)
        return (whole[0], not whole[1], whole[2]) if whole and not whole[2] else None
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    value = code.value(node)
    composite = isinstance(value, ast.Call | ast.BinOp | ast.Subscript)
    inner = _factor(code, value, depth + 1) if composite else None
    return inner if inner is not None and depth < 4 else (text(node), False, False)


def _own(sides):
    return [one for side in sides for one in (side.left, side.right)]
