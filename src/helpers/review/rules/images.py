"""Images: their transforms and masks."""

import ast
import re

from helpers.review.kinds import batch_loop, is_model, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    ancestors,
    argument,
    const,
    descendants,
    is_open,
    last_name,
    method,
    name_of,
    receiver,
)
from helpers.review.tracing import collected, construction


@rule("images-pair-random", "wrong")
def pair_transformed_apart(code):
    """`self.crop(image)` and `self.crop(mask)`: each call samples other random parameters."""
    kept = r"manual_seed|random\.seed|get_state|set_state|get_params|tv_tensors|ReplayCompose"
    for function in code.nodes_of(*FUNCTIONS):
        if function.name not in ("__getitem__", "__call__") or re.search(
            kept, code.source_of(function)
        ):
            continue
        calls = {}
        for call in code.calls_under(function):
            function_name, name = (
                name_of(call.func),
                name_of(call.args[0]) if len(call.args) == 1 else None,
            )
            if (
                function_name
                and name
                and not call.keywords
                and _is_random_transform(code, call.func)
            ):
                calls.setdefault(function_name, {})[name] = call
        for names in calls.values():
            masks = [name for name in names if _MASK.search(name)]
            if masks and len(names) == 2 and len(masks) == 1:
                yield names[masks[0]]
        yield from _flipped_apart(code, function)


def _flipped_apart(code, function):
    """`if random() > 0.5: image = flip(image)`, and the mask under another such condition."""
    flips = {}
    for node in code.walk(function):
        only = node.body[0] if isinstance(node, ast.If) and len(node.body) == 1 else None
        call = only.value if isinstance(only, ast.Assign) else None
        if not isinstance(call, ast.Call) or node.orelse or not _compares_random_number(node.test):
            continue
        same = [name_of(arg) for arg in (*call.args, receiver(call)) if name_of(arg)]
        target = name_of(only.targets[0])
        if target in same and re.search(r"flip|rot|transpose|affine", method(call)):
            flips.setdefault(name_of(call.func), {})[target] = node
    for names in flips.values():
        masks = [name for name in names if _MASK.search(name)]
        if len(names) == 2 and len(masks) == 1:
            yield names[masks[0]]


def _compares_random_number(test):
    """Return whether a condition compares a new random number."""
    return isinstance(test, ast.Compare) and any(
        method(node) in ("random", "rand", "uniform") for node in descendants(test)
    )


_MASK = re.compile(
    r"(?i)(^|[_.\['\"])(mask|label|seg(mentation)?|gt|weight(ing)?|depth|target)s?\b"
)


def _is_random_transform(code, func):
    """Return True for a random geometric transform of this file, alone or in a `Compose`."""
    constructor = construction(code, func)
    geometric = r"transforms\.Random(HorizontalFlip|VerticalFlip|Crop|ResizedCrop|Rotation|Affine)"
    parts = [constructor, *random_parts(code, constructor)] if constructor is not None else []
    return any(re.fullmatch(geometric, code.called(part)) for part in parts)


@rule("images-mask-color", "wrong")
def mask_recoloured(code):
    """`mask_transform` with `ColorJitter` or `Normalize`: it changes the classes."""
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            if not re.search(r"(?i)(^|_|\.)(mask|seg|label)_?(transforms?|tfms?|aug\w*|tf)$", name):
                continue
            for assignment in values:
                if code.called(assignment.value) == "transforms.Compose" and assignment.value.args:
                    for part in getattr(assignment.value.args[0], "elts", ()):
                        if re.fullmatch(
                            r"transforms\.(ColorJitter|Normalize|GaussianBlur|RandomGrayscale)",
                            code.called(part),
                        ):
                            yield part


@rule("images-mask-scaled", "wrong")
def mask_scaled(code):
    """`ToTensor()(mask).long()`: `ToTensor` divides by 255, so all classes become 0."""
    for call in code.calls_named("long", "int"):
        if call.args or code.called(call):
            continue
        value, names = receiver(call), set()
        for _ in range(6):
            names |= {name for name in (name_of(value),) if name}
            if isinstance(value, ast.Name):
                value = code.value(value)
            elif method(value) in ("squeeze", "unsqueeze", "contiguous") and receiver(value):
                value = receiver(value)
            elif isinstance(value, ast.Subscript):
                value = value.value
        if isinstance(value, ast.Call) and _scales_to_one(code, value):
            argument_source = " ".join(map(ast.unparse, value.args))
            if re.search(r"(?i)mask|label|seg|target|gt\b", f"{argument_source} {' '.join(names)}"):
                yield call


def _scales_to_one(code, call):
    """Return True for `ToTensor()(x)`, `to_tensor(x)`, or a `Compose` that ends in `ToTensor()`."""
    if code.called(call) == "torchvision.transforms.functional.to_tensor":
        return True
    if code.called(call) == "transforms.to_tensor":
        return True
    transform = construction(code, call.func) if not code.called(call) else None
    if code.called(transform) == "transforms.Compose" and transform.args:
        steps = transform.args[0].elts if isinstance(transform.args[0], ast.List) else [None]
        transform = steps[-1] if steps else None
    return code.called(transform) == "transforms.ToTensor"


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
        operand = call.args[0]
        while isinstance(operand, ast.Call) and receiver(operand) is not None:
            operand = receiver(operand)
        operand = operand.value if isinstance(operand, ast.Subscript) else operand
        statement = next(ancestors(call, ast.Assign), None)
        target = name_of(statement.targets[0]) if statement is not None else ""
        label = r"(?i)(^|[._])(mask|label|seg|seg_?map|gt|target)s?(_\w+)?$"
        if not re.search(label, name_of(operand) or "") or not target:
            continue
        body = code.source_of(code.function_of(call))
        label_pattern = rf"\b{re.escape(target)}\b[^\n]*(\.long\(\)|int64|LongTensor|torch\.long)"
        label_pattern += rf"|LongTensor\({re.escape(target)}|(long|int64)\({re.escape(target)}"
        if re.search(label_pattern, body) and not re.search(
            r"> ?0|>= ?0|> ?127|round|/ ?255", body
        ):
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
        other_call for f in code.nodes_of(*FUNCTIONS) for other_call in code.methods(f, "resize")
    ]:
        operand = receiver(call)
        how = argument(call, "resample", 1)
        nearest = how is not None and not re.search(
            r"BILINEAR|BICUBIC|LANCZOS|BOX", ast.unparse(how)
        )
        if (
            code.called(call)
            or operand is None
            or nearest
            or len(call.args) + len(call.keywords) < 1
        ):
            continue
        if len(call.args) == 1 and not isinstance(
            call.args[0], ast.Tuple | ast.Name | ast.Attribute
        ):
            continue
        names = {name_of(operand) or ""}
        function = code.function_of(call)
        if isinstance(operand, ast.Name) and isinstance(function, FUNCTIONS):
            names |= {name_of(arg) or "" for arg in code.arguments(function, operand.id)}
            if "NEAREST" in code.source_of(function):
                continue
        masks = [name for name in names if _LABELS.search(name)]
        if any(_becomes_classes(code, mask) for mask in masks):
            yield call


_LABELS = re.compile(r"(?i)(^|[._])(mask|label|seg|seg_?map|gt|annotation)(_(img|image|pil))?$")


def _becomes_classes(code, name):
    """Return whether the file converts a name to an integer tensor and opens it with Pillow."""
    last_part = re.escape(name.rpartition(".")[2])
    opened = re.search(rf"\b{last_part} = [^\n]*\b(Image|PIL\.Image)\.open\(", code.source)
    label_pattern = rf"\b{last_part}\b[^\n]*(\.long\(\)|int64|LongTensor|torch\.long)"
    return bool(
        opened and re.search(rf"{label_pattern}|(LongTensor|long|int64)\({last_part}", code.source)
    )


@rule("images-normalize-error", "raises")
def normalize_before_tensor(code):
    """`Compose([Normalize(…), ToTensor()])`: `Normalize` requires a tensor."""
    for call in code.calls_to("transforms.Compose", "torchvision.transforms.v2.Compose"):
        operand = call.args[0] if call.args else None
        if isinstance(operand, ast.List):
            names = [
                last_name(element.func) if isinstance(element, ast.Call) else ""
                for element in operand.elts
            ]
            if "Normalize" in names and "ToTensor" in names:
                if names.index("Normalize") < names.index("ToTensor"):
                    yield operand.elts[names.index("Normalize")]


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
    return [step for step in steps if _AUGMENTS.fullmatch(code.called(step))]


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
            for assignment in values:
                if named.search(name):
                    yield from random_parts(code, assignment.value)
                elif isinstance(assignment.value, ast.Call) and (
                    held_out.search(name) or _is_test_set(code, assignment.value)
                ):
                    transform = argument(assignment.value, "transform")
                    if not named.search(name_of(transform) or "") and random_parts(code, transform):
                        yield assignment.statement


@rule("images-augmented-split", "wrong")
def augmented_split(code):
    """`random_split` or `Subset` of a dataset with a random transform: it affects the test part."""
    if re.search(r"\.transforms? = |deepcopy|copy\.copy", code.source):
        return
    for node in code.nodes_of(ast.Assign):
        name = code.called(node.value)
        target = name_of(node.targets[0]) or ast.unparse(node.targets[0])
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
    name = name_of(dataset.func)
    get = code.functions.get((name, "__getitem__"))
    if get is None or re.search(
        r"\.(train|training|augment\w*|is_train|mode|split|phase)\b", code.source_of(get)
    ):
        return False
    for node in descendants(get):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        drawn = [n for n in descendants(node.test) if isinstance(n, ast.Call)]
        changed = re.search(
            r"(?i)flip|rot90|rotate|bright|contrast|saturat|hue|crop|noise", code.source_of(node)
        )
        if any(_DRAWN.match(code.dotted(n.func) or "") for n in drawn) and changed:
            probability = node.test.comparators[0]
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
    argument_node = argument(dataset, attribute.attr)
    return bool(set_later) or argument_node is not None and const(argument_node) in (0, 0.0)


def _sampled_split(code):
    """Loaders of one dataset with a random transform, one with the sampler of a held-out part."""
    loaders = [
        (other_call, name_of(argument(other_call, "dataset", 0)), ast.unparse(sampler))
        for other_call in code.calls_to("data.DataLoader")
        if (sampler := argument(other_call, "sampler", 3)) is not None
    ]
    for call, dataset_name, name in loaders:
        if not dataset_name or not re.search(r"(?i)val|test|dev", name):
            continue
        others = [
            other
            for other_call, same, other in loaders
            if other_call is not call and same == dataset_name
        ]
        dataset = construction(code, argument(call, "dataset", 0))
        if dataset is not None and any("train" in other.lower() for other in others):
            if random_parts(code, argument(dataset, "transform")):
                yield call


def _trained_too(code, node, target):
    """Return whether a part of the same dataset is for training."""
    if "train" in target.lower():
        return True
    name = name_of(node.value.args[0])
    return any(
        code.called(assignment.value) == "data.Subset"
        and name_of(assignment.value.args[0] if assignment.value.args else None) == name
        and "train" in (name_of(assignment.targets[0]) or "").lower()
        for assignment in code.nodes_of(ast.Assign)
        if assignment.scope is node.scope
    )


@rule("images-tensor-twice", "raises")
def tensor_twice(code):
    """`Compose([ToTensor(), …, ToTensor()])`: the second receives a tensor."""
    for call in code.calls_to("transforms.Compose"):
        if call.args:
            parts = [code.called(element) for element in getattr(call.args[0], "elts", ())]
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
        for name, part in parts.items():
            names = _composed(code, part.value)
            tensor = "transforms.ToTensor" in names
            if other.match(name) and tensor and not any("Normalize" in n for n in names):
                if not re.search(rf"\b{re.escape(name)}\.transforms|normalize\(", code.source):
                    yield part.statement
    yield from _normalize_in_dict(code)
    yield from _inference_without_normalize(code)
    yield from _composed_for_inference(code)


def _normalize_in_dict(code):
    """`{"train": Compose([…, Normalize(…)]), "val": Compose([…, ToTensor()])}`."""
    for node in code.nodes_of(ast.Dict):
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
    chains = [(call, _composed(code, call)) for call in code.calls_named("Compose")]
    if any(names is None for _, names in chains) or re.search(r"normalize\(", code.source):
        return
    apart = [chain for chain, names in chains if "transforms.Normalize" not in names]
    if len(chains) < 2 or len(apart) != 1 or "transforms.ToTensor" not in _composed(code, apart[0]):
        return
    function = code.function_of(apart[0])
    source = "" if isinstance(function, ast.Module) else code.source_of(function)
    if re.search(r"\bimread\(|Image\.open\(", source):
        if any(
            no_graph(code, call) and is_model(code, call.func)
            for call in code.calls_under(function)
        ):
            yield apart[0]


def _composed(code, node):
    """Return the names of the transforms of a `Compose`; None for others and for unknown ones."""
    if code.called(node) != "transforms.Compose" or not node.args:
        return None
    names = [code.called(element) for element in getattr(node.args[0], "elts", ())]
    return names if names and all(name.startswith("transforms.") for name in names) else None


def _inference_without_normalize(code):
    """An image is read, divided by 255 and passed to the model; the dataset also normalizes."""
    normalizations = list(code.calls_to("transforms.Normalize"))
    if len(normalizations) == 0 or not any(name == "__getitem__" for _, name in code.functions):
        return
    dataset_classes = {owner for owner, name in code.functions if name == "__getitem__"}
    if not all(
        normalization.owner is not None and normalization.owner.name in dataset_classes
        for normalization in normalizations
    ):
        return
    for (owner, _), function in code.functions.items():
        source = code.source_of(function)
        reads = re.search(r"\bimread\(|Image\.open\(", source) and re.search(r"/ ?255", source)
        if (
            owner in dataset_classes
            or not reads
            or re.search(r"(?i)normal|mean|std|transform|prepro", source)
        ):
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
        numbers = [const(element) for element in getattr(mean, "elts", ())]
        scaled = any(code.called(element) == "transforms.ToTensor" for element in before)
        if scaled and numbers and all(isinstance(n, int | float) and n > 10 for n in numbers):
            if not any(code.called(element) == "transforms.Lambda" for element in before):
                yield call
    composed = {code.called(other_call) for other_call in code.nodes_of(ast.Call)}
    if "transforms.ToTensor" not in composed or re.search(
        r"PILToTensor|pil_to_tensor|ToImage|read_image|\* *255|imread|from_numpy|np\.load|astype",
        code.source,
    ):
        return
    for node in code.nodes_of(ast.BinOp, ast.AugAssign):
        left = node.left if isinstance(node, ast.BinOp) else node.target
        right = node.right if isinstance(node, ast.BinOp) else node.value
        if not isinstance(node.op, ast.Div) or const(right) not in (255, 256):
            continue
        while method(left) in ("float", "to", "cuda", "type") and receiver(left) is not None:
            left = receiver(left)
        loops = [loop for loop in ancestors(node, ast.For) if batch_loop(code, loop)]
        if isinstance(left, ast.Name) and loops:
            inputs = [input_name for loop in loops for input_name in _inputs(loop.target)]
            if left.id in map(name_of, inputs):
                yield node


def _inputs(target):
    """Return the first names of `images, labels` and of `i, (images, labels)`."""
    parts = getattr(target, "elts", [target])
    inner = next((part.elts for part in parts if isinstance(part, ast.Tuple)), parts)
    return inner[:1]


@rule("images-normalize-differs", "wrong", "Normalize")
def normalized_apart(code):
    """`Normalize` with one mean or deviation for training and another for the test images."""
    groups = {}
    for node in code.nodes_of(ast.Assign):
        name = name_of(node.targets[0]) or ""
        if code.called(node.value) != "transforms.Compose" or not node.value.args:
            continue
        part = re.search(r"(?i)train|val|test", name)
        rest = re.sub(r"(?i)train(ing)?|val(id(ation)?)?|test(ing)?", "", name)
        for element in getattr(node.value.args[0], "elts", ()):
            if code.called(element) == "transforms.Normalize" and part and not is_open(element):
                statistics = [argument(element, "mean", 0), argument(element, "std", 1)]
                numbers = [_numbers(code, value) for value in statistics]
                if None not in numbers:
                    groups.setdefault(part[0].lower() == "train", []).append(
                        (element, rest, numbers)
                    )
    if len(groups.get(True, ())) == 1:
        _, name, trained = groups[True][0]
        for normalization, rest, numbers in groups.get(False, ()):
            if rest == name and _broadcast(numbers) != _broadcast(trained):
                yield normalization


def _broadcast(numbers):
    """Return the numbers; equal numbers of all channels become one."""
    return [values[:1] if len(set(values)) == 1 else values for values in numbers]


def _numbers(code, node):
    """Return the numbers of a list or tuple, even through a name."""
    node = code.resolved(node)
    values = [const(element) for element in getattr(node, "elts", ())]
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
            value = values[-1].value
            if re.match(r"(?i)train(ing)?_?(set|data|dataset|ds)$", name) and isinstance(
                value, ast.Call
            ):
                passed = [*value.args, *(keyword.value for keyword in value.keywords)]
                if any(_OF_TEST.search(name_of(arg) or "") for arg in passed):
                    yield values[-1].statement
