"""Images: their transforms and masks."""

import ast
import re

from helpers.review.kinds import batch_loop, is_model, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    above,
    argument,
    const,
    is_open,
    last,
    method,
    receiver,
    text,
)
from helpers.review.tracing import collected, construction


@rule("images-pair-random", "wrong")
def pair_transformed_apart(code):
    """`self.crop(image)` and `self.crop(mask)`: each call samples other random parameters."""
    kept = r"manual_seed|random\.seed|get_state|set_state|get_params|tv_tensors|ReplayCompose"
    for function in code.of(*FUNCTIONS):
        if function.name not in ("__getitem__", "__call__") or re.search(kept, code.part(function)):
            continue
        calls = {}
        for call in code.calls_under(function):
            name, given = text(call.func), text(call.args[0]) if len(call.args) == 1 else None
            if name and given and not call.keywords and _draws(code, call.func):
                calls.setdefault(name, {})[given] = call
        for given in calls.values():
            masks = [one for one in given if _MASK.search(one)]
            if masks and len(given) == 2 and len(masks) == 1:
                yield given[masks[0]]
        yield from _flipped_apart(code, function)


def _flipped_apart(code, function):
    """`if random() > 0.5: image = flip(image)`, and the mask under another such condition."""
    flips = {}
    for node in code.walk(function):
        only = node.body[0] if isinstance(node, ast.If) and len(node.body) == 1 else None
        call = only.value if isinstance(only, ast.Assign) else None
        if not isinstance(call, ast.Call) or node.orelse or not _drawn(node.test):
            continue
        same = [text(one) for one in (*call.args, receiver(call)) if text(one)]
        target = text(only.targets[0])
        if target in same and re.search(r"flip|rot|transpose|affine", method(call)):
            flips.setdefault(text(call.func), {})[target] = node
    for given in flips.values():
        masks = [one for one in given if _MASK.search(one)]
        if len(given) == 2 and len(masks) == 1:
            yield given[masks[0]]


def _drawn(test):
    """Return whether a condition compares a new random number."""
    return isinstance(test, ast.Compare) and any(
        method(one) in ("random", "rand", "uniform") for one in ast.walk(test)
    )


_MASK = re.compile(
    r"(?i)(^|[_.\['\"])(mask|label|seg(mentation)?|gt|weight(ing)?|depth|target)s?\b"
)


def _draws(code, func):
    """Return True for a random geometric transform of this file, alone or in a `Compose`."""
    constructor = construction(code, func)
    geometric = r"transforms\.Random(HorizontalFlip|VerticalFlip|Crop|ResizedCrop|Rotation|Affine)"
    parts = [constructor, *random_parts(code, constructor)] if constructor is not None else []
    return any(re.fullmatch(geometric, code.called(one)) for one in parts)


@rule("images-mask-color", "wrong")
def mask_recoloured(code):
    """`mask_transform` with `ColorJitter` or `Normalize`: it changes the classes."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            if not re.search(r"(?i)(^|_|\.)(mask|seg|label)_?(transforms?|tfms?|aug\w*|tf)$", name):
                continue
            for one in values:
                if code.called(one.value) == "transforms.Compose" and one.value.args:
                    for part in getattr(one.value.args[0], "elts", ()):
                        if re.fullmatch(
                            r"transforms\.(ColorJitter|Normalize|GaussianBlur|RandomGrayscale)",
                            code.called(part),
                        ):
                            yield part


@rule("images-mask-scaled", "wrong")
def mask_scaled(code):
    """`ToTensor()(mask).long()`: `ToTensor` divides by 255, so all classes become 0."""
    for call in code.calls:
        if method(call) not in ("long", "int") or call.args or code.called(call):
            continue
        value, names = receiver(call), set()
        for _ in range(6):
            names |= {one for one in (text(value),) if one}
            if isinstance(value, ast.Name):
                value = code.value(value)
            elif method(value) in ("squeeze", "unsqueeze", "contiguous") and receiver(value):
                value = receiver(value)
            elif isinstance(value, ast.Subscript):
                value = value.value
        if isinstance(value, ast.Call) and _scales(code, value):
            given = " ".join(map(ast.unparse, value.args))
            if re.search(r"(?i)mask|label|seg|target|gt\b", f"{given} {' '.join(names)}"):
                yield call


def _scales(code, call):
    """Return True for `ToTensor()(x)`, `to_tensor(x)`, or a `Compose` that ends in `ToTensor()`."""
    if code.called(call) == "torchvision.transforms.functional.to_tensor":
        return True
    if code.called(call) == "transforms.to_tensor":
        return True
    transform = construction(code, call.func) if not code.called(call) else None
    if code.called(transform) == "transforms.Compose" and transform.args:
        steps = transform.args[0].elts if isinstance(transform.args[0], ast.List) else [None]
        transform = steps[-1] if steps else None
    return isinstance(transform, ast.Call) and code.called(transform) == "transforms.ToTensor"


@rule("images-mask-resize", "wrong", "resize(|interpolate(")
def mask_interpolated(code):
    """`cv2.resize(mask, size)` and `mask.long()`: the interpolation creates wrong classes."""
    for call in code.calls:
        name = code.called(call)
        if name == "cv2.resize":
            how = ast.unparse(argument(call, "interpolation", 5) or ast.Constant("linear"))
        elif name == "F.interpolate":
            how = str(const(argument(call, "mode", 3)) or "nearest")
        else:
            continue
        if re.search(r"(?i)nearest|exact|^0$", how) or not call.args:
            continue
        given = call.args[0]
        while isinstance(given, ast.Call) and receiver(given) is not None:
            given = receiver(given)
        given = given.value if isinstance(given, ast.Subscript) else given
        statement = next(above(call, ast.Assign), None)
        target = text(statement.targets[0]) if statement is not None else ""
        label = r"(?i)(^|[._])(mask|label|seg|seg_?map|gt|target)s?(_\w+)?$"
        if not re.search(label, text(given) or "") or not target:
            continue
        body = code.part(code.function(call))
        whole = rf"\b{re.escape(target)}\b[^\n]*(\.long\(\)|int64|LongTensor|torch\.long)"
        whole += rf"|LongTensor\({re.escape(target)}|(long|int64)\({re.escape(target)}"
        if re.search(whole, body) and not re.search(r"> ?0|>= ?0|> ?127|round|/ ?255", body):
            yield call
    yield from _resized_by_pillow(code)


def _resized_by_pillow(code):
    """`mask.resize((w, h))` of `Image.open(…)`, and the array of it becomes class indices."""
    if not re.search(r"import PIL|from PIL|PIL\.Image", code.source):
        return
    if re.search(
        r"(?i)> ?0\b|> ?0\.|>= ?0\.5|> ?127|round\(|/ ?255(\.0?)?\s*\)?\s*#? *mask", code.source
    ):
        return
    for call in code.methods(code.tree, "resize") + [
        one for f in code.of(*FUNCTIONS) for one in code.methods(f, "resize")
    ]:
        given = receiver(call)
        how = argument(call, "resample", 1)
        nearest = how is not None and not re.search(
            r"BILINEAR|BICUBIC|LANCZOS|BOX", ast.unparse(how)
        )
        if code.called(call) or given is None or nearest or len(call.args) + len(call.keywords) < 1:
            continue
        if len(call.args) == 1 and not isinstance(
            call.args[0], ast.Tuple | ast.Name | ast.Attribute
        ):
            continue
        names = {text(given) or ""}
        function = code.function(call)
        if isinstance(given, ast.Name) and isinstance(function, FUNCTIONS):
            names |= {text(one) or "" for one in code.arguments(function, given.id)}
            if "NEAREST" in code.part(function):
                continue
        masks = [one for one in names if _LABELS.search(one)]
        if any(_becomes_classes(code, one) for one in masks):
            yield call


_LABELS = re.compile(r"(?i)(^|[._])(mask|label|seg|seg_?map|gt|annotation)(_(img|image|pil))?$")


def _becomes_classes(code, name):
    """Return whether the file converts a name to an integer tensor and opens it with Pillow."""
    last_part = re.escape(name.rpartition(".")[2])
    opened = re.search(rf"\b{last_part} = [^\n]*\b(Image|PIL\.Image)\.open\(", code.source)
    whole = rf"\b{last_part}\b[^\n]*(\.long\(\)|int64|LongTensor|torch\.long)"
    return bool(opened and re.search(rf"{whole}|(LongTensor|long|int64)\({last_part}", code.source))


@rule("images-normalize-error", "raises")
def normalize_before_tensor(code):
    """`Compose([Normalize(…), ToTensor()])`: `Normalize` requires a tensor."""
    for call in code.calls:
        if code.called(call) not in ("transforms.Compose", "torchvision.transforms.v2.Compose"):
            continue
        given = call.args[0] if call.args else None
        if isinstance(given, ast.List):
            names = [last(one.func) if isinstance(one, ast.Call) else "" for one in given.elts]
            if "Normalize" in names and "ToTensor" in names:
                if names.index("Normalize") < names.index("ToTensor"):
                    yield given.elts[names.index("Normalize")]


_AUGMENTS = re.compile(
    r"transforms\.(Random(HorizontalFlip|VerticalFlip|Crop|ResizedCrop|Rotation|Erasing|Affine)|"
    r"ColorJitter|AutoAugment|RandAugment|TrivialAugmentWide)"
)


def random_parts(code, node):
    """Return the random transforms of a `Compose`, even through a name."""
    node = code.value(node) if isinstance(node, ast.Name | ast.Attribute) else node
    if code.called(node) != "transforms.Compose" or not node.args:
        return []
    steps = collected(code, node.args[0])
    return [one for one in steps if _AUGMENTS.fullmatch(code.called(one))]


def _is_test_set(code, call):
    """Return True for `CIFAR10(root, train=False)`."""
    known = code.called(call).startswith("torchvision.datasets.")
    return known and code.const(argument(call, "train")) is False


@rule("images-augmented-test", "wrong")
def augmented_test(code):
    """Random augmentation in the transform of the test set."""
    named = re.compile(
        r"(?i)^(test|val(id)?|eval)_?(transforms?|tfms?|aug\w*|tf)$|"
        r"^transforms?_(test|val(id)?|eval)$"
    )
    held_out = re.compile(
        r"(?i)^(self\.)?(test|val(id)?|validation)_?(set|data|dataset|ds)$|^dataset_?(val|test)$"
    )
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            for one in values:
                if named.search(name):
                    yield from random_parts(code, one.value)
                elif isinstance(one.value, ast.Call) and (
                    held_out.search(name) or _is_test_set(code, one.value)
                ):
                    transform = argument(one.value, "transform")
                    if not named.search(text(transform) or "") and random_parts(code, transform):
                        yield one.statement


@rule("images-augmented-split", "wrong")
def augmented_split(code):
    """`random_split` or `Subset` of a dataset with a random transform: it affects the test part."""
    if re.search(r"\.transforms? = |deepcopy|copy\.copy", code.source):
        return
    for node in code.of(ast.Assign):
        name = code.called(node.value)
        target = text(node.targets[0]) or ast.unparse(node.targets[0])
        if name not in ("data.random_split", "data.Subset") or not node.value.args:
            continue
        dataset = construction(code, node.value.args[0])
        if dataset is None:
            continue
        if not random_parts(code, argument(dataset, "transform")) and not _draws_itself(
            code, dataset
        ):
            continue
        if re.search(r"(?i)val|test|dev", target) and _trained_too(code, node, target):
            yield node
    yield from _sampled_split(code)


_DRAWN = re.compile(r"(random|numpy\.random|torch)\.(random|rand|uniform|randint|choice)$")


def _draws_itself(code, dataset):
    """Return True for `if random.random() < p:` in `__getitem__`, if no option disables it."""
    name = text(dataset.func)
    get = code.functions.get((name, "__getitem__"))
    if get is None or re.search(
        r"\.(train|training|augment\w*|is_train|mode|split|phase)\b", code.part(get)
    ):
        return False
    for one in ast.walk(get):
        if not isinstance(one, ast.If) or not isinstance(one.test, ast.Compare):
            continue
        drawn = [n for n in ast.walk(one.test) if isinstance(n, ast.Call)]
        changed = re.search(
            r"(?i)flip|rot90|rotate|bright|contrast|saturat|hue|crop|noise", code.part(one)
        )
        if any(_DRAWN.match(code.dotted(n.func) or "") for n in drawn) and changed:
            probability = one.test.comparators[0]
            passed = isinstance(probability, ast.Attribute) and _switched_off(
                code, dataset, probability
            )
            if not passed:
                return True
    return False


def _switched_off(code, dataset, attribute):
    """Return whether `set.dataset.flip_prob = 0` follows, or the probability is passed as 0."""
    set_later = re.search(
        rf"\.{attribute.attr} = ", code.source.replace(f"self.{attribute.attr} = ", "")
    )
    given = argument(dataset, attribute.attr)
    return bool(set_later) or given is not None and const(given) in (0, 0.0)


def _sampled_split(code):
    """Loaders of one dataset with a random transform, one with the sampler of a held-out part."""
    loaders = [
        (one, text(argument(one, "dataset", 0)), ast.unparse(sampler))
        for one in code.calls
        if code.called(one) == "data.DataLoader"
        if (sampler := argument(one, "sampler", 3)) is not None
    ]
    for call, given, name in loaders:
        if not given or not re.search(r"(?i)val|test|dev", name):
            continue
        others = [other for one, same, other in loaders if one is not call and same == given]
        dataset = construction(code, argument(call, "dataset", 0))
        if dataset is not None and any("train" in one.lower() for one in others):
            if random_parts(code, argument(dataset, "transform")):
                yield call


def _trained_too(code, node, target):
    """Return whether a part of the same dataset is for training."""
    if "train" in target.lower():
        return True
    given = text(node.value.args[0])
    return any(
        code.called(one.value) == "data.Subset"
        and text(one.value.args[0] if one.value.args else None) == given
        and "train" in (text(one.targets[0]) or "").lower()
        for one in code.of(ast.Assign)
        if one.scope is node.scope
    )


@rule("images-tensor-twice", "raises")
def tensor_twice(code):
    """`Compose([ToTensor(), …, ToTensor()])`: the second receives a tensor."""
    for call in code.calls:
        if code.called(call) == "transforms.Compose" and call.args:
            parts = [code.called(one) for one in getattr(call.args[0], "elts", ())]
            if parts.count("transforms.ToTensor") == 2 and "transforms.ToPILImage" not in parts:
                n = len(parts) - 1 - parts[::-1].index("transforms.ToTensor")
                if all(parts):
                    yield call.args[0].elts[n]


@rule("images-normalize-missing", "wrong")
def normalize_missing(code):
    """`Normalize` in the transform of the training images, not in that of the test images."""
    training = re.compile(r"(?i)^(self\.)?(train(ing)?_?(transforms?|tfms?|tf)|transforms?_train)$")
    other = re.compile(
        r"(?i)^(self\.)?((test|val(id)?|eval|infer(ence)?|predict)_?(transforms?|tfms?|tf)|"
        r"transforms?_(test|val(id)?|eval))$"
    )
    for scope in code.scopes:
        parts = {n: v[-1] for n, v in scope.assigned.items() if _composed(code, v[-1].value)}
        normalized = [_composed(code, v.value) for n, v in parts.items() if training.match(n)]
        if len(normalized) != 1 or "transforms.Normalize" not in normalized[0]:
            continue
        for name, one in parts.items():
            names = _composed(code, one.value)
            tensor = "transforms.ToTensor" in names
            if other.match(name) and tensor and not any("Normalize" in n for n in names):
                if not re.search(rf"\b{re.escape(name)}\.transforms|normalize\(", code.source):
                    yield one.statement
    yield from _normalize_in_dict(code)
    yield from _inference_without_normalize(code)
    yield from _composed_for_inference(code)


def _normalize_in_dict(code):
    """`{"train": Compose([…, Normalize(…)]), "val": Compose([…, ToTensor()])}`."""
    for node in code.of(ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        parts = {const(key): (_composed(code, value), value) for key, value in pairs}
        if "transforms.Normalize" not in (parts.get("train", ((), None))[0] or ()):
            continue
        for key in ("val", "valid", "validation", "test"):
            names, value = parts.get(key, (None, None))
            if names and "transforms.ToTensor" in names and "transforms.Normalize" not in names:
                if not re.search(r"normalize\(", code.source):
                    yield value


def _composed_for_inference(code):
    """A function predicts for an image file with the only transform that has no `Normalize`."""
    chains = [(one, _composed(code, one)) for one in code.calls if method(one) == "Compose"]
    if any(names is None for _, names in chains) or re.search(r"normalize\(", code.source):
        return
    apart = [one for one, names in chains if "transforms.Normalize" not in names]
    if len(chains) < 2 or len(apart) != 1 or "transforms.ToTensor" not in _composed(code, apart[0]):
        return
    function = code.function(apart[0])
    source = "" if isinstance(function, ast.Module) else code.part(function)
    if re.search(r"\bimread\(|Image\.open\(", source):
        if any(
            no_graph(code, one) and is_model(code, one.func) for one in code.calls_under(function)
        ):
            yield apart[0]


def _composed(code, node):
    """Return the names of the transforms of a `Compose`; None for others and for unknown ones."""
    if code.called(node) != "transforms.Compose" or not node.args:
        return None
    names = [code.called(one) for one in getattr(node.args[0], "elts", ())]
    return names if names and all(one.startswith("transforms.") for one in names) else None


def _inference_without_normalize(code):
    """An image is read, divided by 255 and passed to the model; the dataset also normalizes."""
    normalizations = [one for one in code.calls if code.called(one) == "transforms.Normalize"]
    if len(normalizations) == 0 or not any(name == "__getitem__" for _, name in code.functions):
        return
    own = {owner for owner, name in code.functions if name == "__getitem__"}
    if not all(one.owner is not None and one.owner.name in own for one in normalizations):
        return
    for (owner, _), function in code.functions.items():
        source = code.part(function)
        reads = re.search(r"\bimread\(|Image\.open\(", source) and re.search(r"/ ?255", source)
        if owner in own or not reads or re.search(r"(?i)normal|mean|std|transform|prepro", source):
            continue
        for call in code.calls_under(function):
            if is_model(code, call.func) and no_graph(code, call):
                yield call


@rule("images-scaled-twice", "wrong", "ToTensor")
def scaled_twice(code):
    """`images / 255` of images that `ToTensor` has scaled to the range from 0 to 1."""
    for call in code.calls:  # `Normalize([123.7, …])` after `ToTensor`
        steps_ = getattr(call.parent, "elts", [])
        before = steps_[: steps_.index(call)] if call in steps_ else []
        mean = argument(call, "mean", 0) if code.called(call) == "transforms.Normalize" else None
        numbers = [const(one) for one in getattr(mean, "elts", ())]
        scaled = any(code.called(one) == "transforms.ToTensor" for one in before)
        if scaled and numbers and all(isinstance(n, int | float) and n > 10 for n in numbers):
            if not any(code.called(one) == "transforms.Lambda" for one in before):
                yield call
    composed = {code.called(one) for one in code.of(ast.Call)}
    if "transforms.ToTensor" not in composed or re.search(
        r"PILToTensor|pil_to_tensor|ToImage|read_image|\* *255|imread|from_numpy|np\.load|astype",
        code.source,
    ):
        return
    for node in code.of(ast.BinOp, ast.AugAssign):
        left = node.left if isinstance(node, ast.BinOp) else node.target
        right = node.right if isinstance(node, ast.BinOp) else node.value
        if not isinstance(node.op, ast.Div) or const(right) not in (255, 256):
            continue
        while method(left) in ("float", "to", "cuda", "type") and receiver(left) is not None:
            left = receiver(left)
        loops = [one for one in above(node, ast.For) if batch_loop(code, one)]
        if isinstance(left, ast.Name) and loops:
            given = [one for loop in loops for one in _inputs(loop.target)]
            if left.id in map(text, given):
                yield node


def _inputs(target):
    """Return the first names of `images, labels` and of `i, (images, labels)`."""
    parts = getattr(target, "elts", [target])
    inner = next((one.elts for one in parts if isinstance(one, ast.Tuple)), parts)
    return inner[:1]


@rule("images-normalize-differs", "wrong", "Normalize")
def normalized_apart(code):
    """`Normalize` with one mean or deviation for training and another for the test images."""
    groups = {}
    for node in code.of(ast.Assign):
        name = text(node.targets[0]) or ""
        if code.called(node.value) != "transforms.Compose" or not node.value.args:
            continue
        part = re.search(r"(?i)train|val|test", name)
        rest = re.sub(r"(?i)train(ing)?|val(id(ation)?)?|test(ing)?", "", name)
        for one in getattr(node.value.args[0], "elts", ()):
            if code.called(one) == "transforms.Normalize" and part and not is_open(one):
                given = [argument(one, "mean", 0), argument(one, "std", 1)]
                numbers = [_numbers(code, value) for value in given]
                if None not in numbers:
                    groups.setdefault(part[0].lower() == "train", []).append((one, rest, numbers))
    if len(groups.get(True, ())) == 1:
        _, name, trained = groups[True][0]
        for one, rest, numbers in groups.get(False, ()):
            if rest == name and _broadcast(numbers) != _broadcast(trained):
                yield one


def _broadcast(numbers):
    """Return the numbers; equal numbers of all channels become one."""
    return [one[:1] if len(set(one)) == 1 else one for one in numbers]


def _numbers(code, node):
    """Return the numbers of a list or tuple, even through a name."""
    node = code.resolved(node)
    values = [const(one) for one in getattr(node, "elts", ())]
    return values if values and all(isinstance(v, int | float) for v in values) else None


_TRANSFORM = r"(?i)^(tf|tfms?|transforms?|aug\w*)_{0}$|^{0}(ing)?_?(tf|tfms?|transforms?|aug\w*)$"
_OF_TRAINING = re.compile(_TRANSFORM.format("train"))
_OF_TEST = re.compile(_TRANSFORM.format("(val(id)?|test|eval)"))


@rule("images-train-plain", "wrong", "train")
def train_without_augmentation(code):
    """`train_set = Images(root, val_transform)`, and `train_transform` is never used."""
    for scope in code.scopes:
        unused = [
            name
            for name, values in scope.assigned.items()
            if _OF_TRAINING.search(name) and isinstance(values[-1].value, ast.Call)
            if not code.uses(scope, name)
        ]
        for name, values in scope.assigned.items() if unused else ():
            given = values[-1].value
            if re.match(r"(?i)train(ing)?_?(set|data|dataset|ds)$", name) and isinstance(
                given, ast.Call
            ):
                passed = [*given.args, *(one.value for one in given.keywords)]
                if any(_OF_TEST.search(text(one) or "") for one in passed):
                    yield values[-1].statement
