"""Datasets, loaders and splits."""

import ast
import re

from helpers.review.code import has_parameter
from helpers.review.kinds import batch_loop, is_loader, is_model, iterated, kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
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
from helpers.review.tracing import construction

_RANDOM = {"numpy.random.default_rng", "numpy.random.RandomState", "random.Random"}


def datasets(code):
    """Yield the classes of the file that are map-style datasets."""
    for name, node in code.classes.items():
        if any(code.dotted(b) == "data.Dataset" for owner in code.bases(name) for b in owner.bases):
            yield name, node


@rule("loading-random-own", "wrong")
def own_generator(code):
    """`self.rng = np.random.default_rng(0)` in a dataset: each worker has the same copy."""
    for name, node in datasets(code):
        get = code.functions.get((name, "__getitem__"))
        for attribute, values in node.attributes.items():
            for assignment in values:
                if (
                    isinstance(assignment.value, ast.Call)
                    and code.dotted(assignment.value.func) in _RANDOM
                ):
                    if get is not None and attribute in code.source_of(get):
                        yield assignment.statement


@rule("data-parallel-set-epoch", "wrong")
def set_epoch(code):
    """A `DistributedSampler` without `set_epoch()`: every epoch has the same order."""
    if "set_epoch" in code.source:
        return
    for call in code.calls:
        if not _distributed(code, call) or code.const(argument(call, "shuffle")) is False:
            continue
        statement = next(ancestors(call, ast.Assign, stop=FUNCTIONS), None)
        written = code.source_of(statement) if statement is not None else ast.unparse(call)
        shuffle = argument(call, "shuffle")
        unknown = shuffle is not None and code.const(shuffle) is None
        if unknown or re.search(r"(?i)val|test|eval|dev", written):
            continue
        if any(_epochs(code, loop) for loop in code.loops):
            yield call


def _distributed(code, call):
    """Return True for `DistributedSampler(…)`, including `Sampler = RandomSampler if … else …`."""
    names = {code.called(call)}
    chosen = code.resolved(call.func) if isinstance(call.func, ast.Name) else None
    if isinstance(chosen, ast.IfExp):
        names |= {code.dotted(chosen.body), code.dotted(chosen.orelse)}
    return "data.DistributedSampler" in names


def _epochs(code, loop):
    inner = [n for n in code.walk(loop, 3) if isinstance(n, LOOPS) and n is not loop]
    counter = name_of(loop.target) if isinstance(loop, ast.For) else None
    named = bool(re.fullmatch(r"epoch\w*", counter or ""))
    loaded = named and any(n in loop.body and batch_loop(code, n) for n in inner)
    return bool(inner) and (loaded or bool(code.methods(loop, "backward", follow=3)))


@rule("distributed-shard", "wrong")
def metric_of_one_process(code):
    """`DistributedSampler(val_set)` in a file that never combines the metrics of the processes."""
    joined = r"(?i)reduce|gather|metric|accelerat|lightning|sync|evaluator|horovod|xm\."
    if "init_process_group" not in code.source or re.search(joined, code.source):
        return
    for call in code.calls_to("data.DistributedSampler"):
        if call.args:
            if re.search(r"(?i)(^|_)(val|valid|test|eval|dev)", name_of(call.args[0]) or ""):
                if re.search(r"(?i)correct|\bacc(uracy|\d)?\b|_acc\b", code.source):
                    yield call


@rule("loading-in-place", "wrong")
def sample_changed(code):
    """`image = self.images[n]` and `image[0] -= mean` in `__getitem__`: the dataset changes."""
    for name, _ in datasets(code):
        get = code.functions.get((name, "__getitem__"))
        for node in descendants(get) if get is not None else ():
            if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Subscript):
                continue
            base = node.target.value
            value = code.value(base) if isinstance(base, ast.Name) else None
            if isinstance(value, ast.Subscript) and re.fullmatch(
                r"self\.\w+", name_of(value.value) or ""
            ):
                yield node


@rule("loading-next-iter", "wasted")
def first_batch_again(code):
    """`next(iter(loader))` in a training loop: each call starts a new pass, at its first batch."""
    for call in code.calls:
        inner = call.args[0] if name_of(call.func) == "next" and len(call.args) == 1 else None
        if not isinstance(inner, ast.Call) or name_of(inner.func) != "iter" or len(inner.args) != 1:
            continue
        loop = next(ancestors(call, *LOOPS), None)
        if (
            loop is not None
            and is_loader(code, inner.args[0])
            and not any(ancestors(call, ast.Try))
        ):
            backward_calls = [
                c
                for c in code.methods(loop, "backward")
                if next(ancestors(c, *LOOPS), None) is loop
            ]
            if (
                backward_calls
                and call.lineno < backward_calls[-1].lineno
                or _once_per_batch(code, loop, inner.args[0])
            ):
                yield call


def _once_per_batch(code, loop, loader):
    """Return True for `for _ in range(len(loader))`, even with a name for the number."""
    count = iterated(loop.iter) if isinstance(loop, ast.For) else None
    count = code.resolved(count.args[0]) if method(count) == "range" and count.args else None
    length = isinstance(count, ast.Call) and name_of(count.func) == "len" and count.args
    return bool(length) and name_of(count.args[0]) == name_of(loader)


@rule("training-empty-error", "wrong")
def drop_last_in_test(code):
    """`DataLoader(test_set, drop_last=True)`: the metric leaves samples out."""
    for call in code.calls_to("data.DataLoader"):
        if _drops_last(code, call):
            dataset = argument(call, "dataset", 0)
            target = next(ancestors(call, ast.Assign), None)
            names = [name_of(dataset) or ""] + [
                name_of(t) or "" for t in getattr(target, "targets", ())
            ]
            if any(re.search(r"(?i)(^|[._])(test|val|valid|eval)", name) for name in names):
                if not any(re.search(r"(?i)train", name) for name in names):
                    yield call
    yield from _drops_last_of_test(code)


def _drops_last(code, call):
    """Return True for `drop_last=True`, even in `**options` of a dictionary of this file."""
    flags = [argument(call, "drop_last")]
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if any(f"{name_of(value)}['drop_last']" in call.scope.assigned for value in unpacked):
        return False  # changed later
    for options in map(code.resolved, unpacked):
        if isinstance(options, ast.Dict):
            pairs = zip(options.keys, options.values, strict=True)
            flags += [value for key, value in pairs if const(key) == "drop_last"]
        elif isinstance(options, ast.Call) and name_of(options.func) == "dict":
            flags.append(argument(options, "drop_last"))
    return any(const(arg) is True for arg in flags)


def _drops_last_of_test(code):
    """`if flag == "test": drop_last = True`, and `DataLoader(…, drop_last=drop_last)` below."""
    for call in code.calls:
        name = name_of(argument(call, "drop_last")) if "Loader" in method(call) else None
        for assignment in call.scope.assigned.get(name, ()) if name else ():
            parent = assignment.statement.parent
            if const(assignment.value) is not True or not isinstance(parent, ast.If):
                continue
            test, chosen = parent.test, assignment.statement in parent.body
            plain = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
            if chosen and plain and const(test.comparators[0]) in ("test", "val", "valid"):
                yield assignment.statement


@rule("loading-shuffle-train", "wrong")
def train_not_shuffled(code):
    """A training loader without `shuffle`, next to a test loader with it."""
    loaders = {}
    for call in code.calls_to("data.DataLoader"):
        if not is_open(call):
            target = next(ancestors(call, ast.Assign), None)
            name = name_of(target.targets[0]) if target is not None else None
            if (
                name
                and argument(call, "sampler") is None
                and argument(call, "batch_sampler") is None
            ):
                loaders[name] = (call, code.const(argument(call, "shuffle", 2)))
    tests = [n for n, (_, s) in loaders.items() if re.search(r"(?i)test|val", n) and s is True]
    for name, (call, shuffle) in loaders.items():
        if (
            re.search(r"(?i)train", name)
            and not re.search(r"(?i)val|test", name)
            and shuffle in (None, False)
            and tests
        ) and (argument(call, "shuffle", 2) is None or shuffle is False):
            yield call


@rule("loading-sampler-shuffle", "raises", "sampler=")
def shuffled_sampler(code):
    """`DataLoader(set, shuffle=True, sampler=sampler)`, which raises an error."""
    for call in code.calls:
        sampler = argument(call, "sampler") or argument(call, "batch_sampler")
        if code.called(call) == "data.DataLoader" and sampler is not None:
            if const(argument(call, "shuffle", 2)) is True and _is_object(code, sampler):
                if not any(
                    "raises" in ast.unparse(block.items[0]) for block in ancestors(call, ast.With)
                ):
                    yield call


def _is_object(code, node):
    """Return True for a sampler that the file creates, not None in some cases."""
    value = code.resolved(node)
    return isinstance(value, ast.Call) and "ampler" in method(value)


@rule("loading-split-shared", "wrong")
def shared_transform(code):
    """`val.dataset.transform = …` after `random_split`: both parts share one dataset."""
    for node in code.nodes_of(ast.Assign):
        if not isinstance(node.targets[0], ast.Attribute):
            continue
        target = node.targets[0]
        if (
            last_name(target) in ("transform", "transforms", "target_transform")
            and last_name(target.value) == "dataset"
        ):
            owner = getattr(target.value, "value", None)
            if owner is not None and kind(code, owner) == "dataset" and not _copied(code, owner):
                yield node


def _copied(code, owner):
    """Return True if a part was given its own dataset, or the owner was copied."""
    parts = (
        target.value
        for node in code.nodes_of(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "dataset"
    )
    if any(kind(code, part) == "dataset" and name_of(part) != "self" for part in parts):
        return True
    return re.search(rf"deepcopy\({re.escape(name_of(owner) or '?')}", code.source)


@rule("loading-rare-trap", "wrong")
def weights_per_class(code):
    """`WeightedRandomSampler(class_weights, …)`: it needs a weight for each sample."""
    for call in code.calls_to("data.WeightedRandomSampler"):
        weights = argument(call, "weights", 0)
        name = name_of(weights) or ""
        if re.fullmatch(
            r"(?i)(self\.)?(class_?weights?|weights?_per_class|per_class\w*|cls_weights?)", name
        ):
            yield call


@rule("loading-test-train", "wrong")
def same_split(code):
    """`test_set = MNIST(root, train=True)`."""
    for call in code.calls:
        if code.called(call).startswith("torchvision.datasets."):
            target = next(ancestors(call, ast.Assign), None)
            name = (
                name_of(target.targets[0])
                if target is not None and len(target.targets) == 1
                else ""
            )
            train = code.const(argument(call, "train", 1))
            if (
                name
                and train is True
                and re.search(r"(?i)^(test|val(id)?)_?(set|data|dataset)?$", name)
            ) and not re.search(r"(?i)split|Subset|indices|sampler", code.source):
                yield call
            if name and train is False and re.search(r"(?i)^train_?(set|data|dataset)?$", name):
                yield call


@rule("evaluation-val-is-test", "wrong")
def validated_on_test(code):
    """`val_loader = DataLoader(test_set)` next to `test_loader = DataLoader(test_set)`."""
    loaders = []
    for node in code.nodes_of(ast.Assign):
        if code.called(node.value) == "data.DataLoader":
            dataset_name = name_of(argument(node.value, "dataset", 0)) or ""
            loaders.append((name_of(node.targets[0]) or "", dataset_name, node))
    for name, dataset_name, node in loaders:
        if re.search(r"(?i)(^|[._])val", name) and re.search(r"(?i)(^|[._])test", dataset_name):
            if re.search(r"(?i)val|train", dataset_name) or "test" in name.lower():
                continue
            if any(
                re.search(r"(?i)(^|[._])test", other)
                and same == dataset_name
                and loader.scope is node.scope
                for other, same, loader in loaders
            ):
                yield node


@rule("evaluation-val-is-train", "wrong")
def validated_on_train(code):
    """`val_loader = DataLoader(train_set)`: the validation is on the training samples."""
    yield from _iterator_of_train(code)
    yield from _trainer_of_train(code)
    yield from _sampler_of_train(code)
    split = re.search(r"(?i)sampler|subset|split|indices|fold", code.source)
    trained = [
        name_of(argument(node.value, "dataset", 0))
        for node in code.nodes_of(ast.Assign)
        if split
        if code.called(node.value) == "data.DataLoader" and argument(node.value, "sampler") is None
        if re.search(r"(?i)train", name_of(node.targets[0]) or "")
    ]
    for node in code.nodes_of(ast.Assign):
        if code.called(node.value) != "data.DataLoader" or is_open(node.value):
            continue
        name = name_of(node.targets[0]) or ""
        dataset_name = name_of(argument(node.value, "dataset", 0)) or ""
        held_out = re.search(r"(?i)(^|[._'])(val|valid|validation|test)(_|$|'|loader)", name)
        plain = not split or dataset_name in trained and argument(node.value, "sampler") is None
        if not held_out or "train" in name.lower():
            continue
        if plain and _TRAIN_SET.search(dataset_name) or _also_trained(code, node):
            yield node


def _also_trained(code, node):
    """Return whether the loader of the training batches has the same dataset, without a sampler."""
    dataset = argument(node.value, "dataset", 0)
    if not isinstance(dataset, ast.Name) or "ampler" in ast.unparse(node.value):
        return False
    return any(
        code.called(assignment.value) == "data.DataLoader"
        and re.match(r"(?i)(self\.)?train", name_of(assignment.targets[0]) or "")
        and "ampler" not in ast.unparse(assignment.value)
        and name_of(other := argument(assignment.value, "dataset", 0)) == dataset.id
        and code.value(other) is code.value(dataset)
        for assignment in code.nodes_of(ast.Assign)
        if assignment.scope is node.scope
    )


def _trainer_of_train(code):
    """`Trainer(model, train_dataset=data, eval_dataset=data)`."""
    for call in code.calls:
        pair = argument(call, "train_dataset"), argument(call, "eval_dataset")
        if None not in pair and name_of(pair[0]) and name_of(pair[0]) == name_of(pair[1]):
            yield call


def _sampler_of_train(code):
    """`val_loader = DataLoader(data, sampler=SubsetRandomSampler(train_idx))`."""
    for node in code.nodes_of(ast.Assign):
        sampler = argument(node.value, "sampler") if isinstance(node.value, ast.Call) else None
        if sampler is None or code.called(node.value) != "data.DataLoader":
            continue
        held_out = re.match(
            r"(?i)(self\.)?(val|valid|validation|test)_?\w*$", name_of(node.targets[0]) or ""
        )
        inner = sampler.args[0] if isinstance(sampler, ast.Call) and sampler.args else sampler
        trained = re.fullmatch(_TRAIN_INDICES, name_of(inner) or "")
        if held_out and trained and re.search(_HELD_OUT_INDICES, code.source):
            yield node


_TRAIN_INDICES = r"(?i)(\w+\.)*train(ing)?_?(idx|ind|indices|index|ids|sampler)"
_HELD_OUT_INDICES = r"(?i)\b(val|valid|test)\w*_?(idx|ind|indices|index|ids|sampler)\b *[,=]"


def _iterator_of_train(code):
    """`test_iter = iter(train_loader)`, even with `__iter__()`."""
    for node in code.nodes_of(ast.Assign):
        operand = receiver(node.value) if method(node.value) == "__iter__" else None
        if (
            isinstance(node.value, ast.Call)
            and name_of(node.value.func) == "iter"
            and node.value.args
        ):
            operand = node.value.args[0]
        held_out = re.match(
            r"(?i)(self\.)?(val|valid|test)_\w*iter", name_of(node.targets[0]) or ""
        )
        if held_out and re.search(
            r"(?i)(^|[._])train_?(data_?)?(loader|dl)$", name_of(operand) or ""
        ):
            yield node


_TRAIN_SET = re.compile(r"(?i)(^|[._])train(ing)?_?(set|data|dataset|ds)?$|_train$")


@rule("loading-train-in-order", "wrong")
def train_in_order(code):
    """`DataLoader(ImageFolder("train"))` without `shuffle`, in a loop that trains."""
    if "make_private" in code.source:  # Opacus creates its own loader
        return
    for node in code.nodes_of(ast.Assign):
        call, name = node.value, name_of(node.targets[0]) or ""
        if code.called(call) != "data.DataLoader" or is_open(call) or "train" not in name.lower():
            continue
        sampled = argument(call, "sampler") or argument(call, "batch_sampler")
        shuffle = argument(call, "shuffle", 2)
        shuffled = sampled is not None or shuffle is not None and const(shuffle) is not False
        dataset = construction(code, argument(call, "dataset", 0))
        if shuffled or not code.called(dataset).startswith("torchvision.datasets."):
            continue
        for loop in code.loops:
            if isinstance(loop, ast.For) and name_of(iterated(loop.iter)) == name:
                if code.methods(loop, "backward", follow=2):
                    yield node
                    break


@rule("evaluation-folds-one", "wrong")
def folds_one_model(code):
    """One model for all folds of a cross-validation."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not _over_folds(loop.iter):
            continue
        if not code.methods(loop, "backward", follow=3):
            continue
        if re.search(
            r"load_state_dict|deepcopy|reset_parameters|reset_weights|\.apply\(",
            code.source_of(loop),
        ):
            continue
        for node in code.walk(loop):
            if isinstance(node, ast.Name) and _made_before(code, node, loop):
                if isinstance(node.parent, ast.Call):  # called, or given to a function
                    yield node.parent
                    break


def _made_before(code, node, loop):
    """Return True for a module that this function creates above the loop."""
    value = code.value(node)
    if (
        value is None
        and isinstance(node.ctx, ast.Load)
        and has_parameter(code.function_of(loop), node.id)
    ):
        nodes = [
            child
            for child in code.walk(loop)
            if isinstance(child, ast.Name) and child.id == node.id
        ]
        kept = not any(isinstance(child.ctx, ast.Store) for child in nodes)
        return kept and is_model(code, node) and getattr(node.parent, "func", None) is node
    module = isinstance(node.ctx, ast.Load) and isinstance(value, ast.Call)
    if not module or not (kind(code, node) or "").startswith("module:"):
        return module and _named_model(code, node, value) and _before_loop(code, value, loop)
    return _before_loop(code, value, loop)


def _named_model(code, node, value):
    """Return True for a model of an imported class."""
    call = construction(code, value)
    return is_model(code, node) and re.match(r"[A-Z]", name_of(getattr(call, "func", None)) or "")


def _before_loop(code, value, loop):
    return value.lineno < loop.lineno and code.function_of(loop) is code.function_of(value)


def _over_folds(node):
    for call in descendants(node):
        if method(call) == "split":
            return bool(re.search(r"(?i)fold|^kf|^skf|^cv", ast.unparse(call.func)))
    return False


@rule("evaluation-unused-loader", "wrong")
def unused_loader(code):
    """`def evaluate(model, val_loader):` that iterates over another loader."""
    for function in code.nodes_of(*FUNCTIONS):
        names = [parameter.arg for parameter in (*function.args.args, *function.args.kwonlyargs)]
        names = [n for n in names if _HELD_OUT.fullmatch(n)]
        if not names or len(function.body) < 2:
            continue
        if any(not _only_measured(node) for n in names for node in code.uses(function, n)):
            continue
        trained = [
            name_of(iterated(outer_loop.iter)) for outer_loop in _trained_over(code, function)
        ]
        for loop in code.walk(function):
            if isinstance(loop, ast.For) and no_graph(code, loop):
                evaluated = code.methods(function, "eval") and is_loader(code, iterated(loop.iter))
                if evaluated or name_of(iterated(loop.iter)) in trained:
                    yield loop


_HELD_OUT = re.compile(r"(?i)(val|valid|test|dev)_?(loader|dl|dataloader|dataset|set|data)")


def _only_measured(node):
    """Return True for `len(loader)` and `loader is not None`, which read no sample."""
    parent = node.parent
    length = isinstance(parent, ast.Call) and name_of(parent.func) == "len"
    return (
        length or isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Is | ast.IsNot)
    )


def _trained_over(code, function):
    """Yield the loops of a function that have a backward pass."""
    for loop in code.walk(function):
        if isinstance(loop, ast.For) and code.methods(loop, "backward"):
            yield loop


def _unmasked_nodes(code):
    """`cross_entropy(model(data.x, edges), data.y)` of a graph with a `test_mask`."""
    if (
        not re.search(r"\[\w*\.?test_mask\]|\[mask\]", code.source)
        or "test_mask" not in code.source
    ):
        return
    for call in code.calls_named("cross_entropy", "nll_loss", "criterion", "loss_fn"):
        prediction, target = (*call.args, None, None)[:2]
        value = code.value(prediction) if isinstance(prediction, ast.Name) else prediction
        all_labels = isinstance(target, ast.Attribute) and target.attr == "y"
        graph = isinstance(value, ast.Call) and "edge_index" in ast.unparse(value)
        name = name_of(call.parent.targets[0]) if isinstance(call.parent, ast.Assign) else None
        trained = name in call.scope.backward or getattr(call.parent, "attr", "") == "backward"
        if all_labels and graph and len(call.args) == 2 and trained:
            yield call


@rule("evaluation-whole-trained", "wrong", "random_split|test_mask")
def trained_on_whole(code):
    """`DataLoader(dataset, shuffle=True)` of the whole dataset after `random_split`."""
    yield from _unmasked_nodes(code)
    for node in code.nodes_of(ast.Assign):
        if code.called(node.value) != "data.random_split" or not node.value.args:
            continue
        dataset_name, parts = name_of(node.value.args[0]), getattr(node.targets[0], "elts", ())
        names = [name_of(part) or "" for part in parts]
        held = [name for name in names if re.search(r"(?i)val|test|dev", name)]
        kept = [name for name in names if re.search(r"(?i)train", name)]
        if (
            not dataset_name
            or not held
            or not kept
            or _whole_is_kept(code, node, dataset_name, kept)
        ):
            continue
        loaded = {}
        for call in code.calls:
            dataset = argument(call, "dataset", 0)
            if code.called(call) == "data.DataLoader" and dataset and call.owner is node.owner:
                loaded.setdefault(name_of(dataset), call)
        trains = (
            dataset_name in loaded
            and code.const(argument(loaded[dataset_name], "shuffle", 2)) is True
        )
        uses = [use for use in code.uses(node.scope, kept[0]) if isinstance(use.parent, ast.Call)]
        if trains and held[0] in loaded and all(method(use.parent) == "len" for use in uses):
            yield loaded[dataset_name]


def _whole_is_kept(code, node, dataset_name, kept):
    """Return whether the name of the whole is assigned again after the split."""
    names = {*kept, dataset_name}
    return any(
        name_of(assignment.targets[0]) == dataset_name and assignment.lineno > node.lineno
        for assignment in code.nodes_of(ast.Assign)
        if assignment.owner is node.owner and name_of(assignment.targets[0]) in names
    )


@rule("tensor-recipes-apart", "wrong", "shuffle|randperm|permutation")
def shuffled_apart(code):
    """`x[torch.randperm(n)]` and `y[torch.randperm(n)]`: inputs and labels do not match."""
    for node in code.nodes:
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(block, list):
                continue
            for first, second in zip(block, block[1:], strict=False):
                names = _shuffled(code, first), _shuffled(code, second)
                if all(names) and names[0] != names[1] and _LABELS.search(names[1]):
                    if not _LABELS.search(names[0]) and not _SOURCE.search(names[0]):
                        yield second
    yield from _one_shuffled(code)


def _one_shuffled(code):
    """Yield `random.shuffle(images)` in a dataset that reads images and labels at one index."""
    for (_, method_), get in code.functions.items():
        if method_ != "__getitem__" or len(get.args.args) != 2:
            continue
        index = get.args.args[1].arg
        read = {
            name_of(node.value)
            for node in code.walk(get)
            if isinstance(node, ast.Subscript) and name_of(node.slice) == index
        }
        lists = [name for name in read if name and name.startswith("self.")]
        owner = get.owner
        shuffled = [
            (statement, names)
            for statement in code.nodes_of(ast.Expr)
            if statement.owner is owner and (name := _shuffled(code, statement))
            if (names := {n for n in lists if name == n or _attribute_source(owner, n) == name})
        ]
        if len(lists) == 2 and len(shuffled) == 1 and len(shuffled[0][1]) == 1:
            if not re.search(r"seed\(|zip\(", code.source_of(owner)):
                yield shuffled[0][0]


def _attribute_source(owner, name):
    values = owner.attributes.get(name, ())
    return name_of(values[0].value) if len(values) == 1 else None


_LABELS = re.compile(r"(?i)(^|_)(y|labels?|targets?)(_|$)")
_SOURCE = re.compile(r"(?i)source|src")  # of another domain than the target


def _shuffled(code, statement):
    """Return the name that a statement shuffles, such as `y` of `np.random.shuffle(y)`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if code.called(call) in ("random.shuffle", "numpy.random.shuffle") and call.args:
            return name_of(call.args[0])
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
        drawn = code.called(statement.value.slice)
        if drawn in ("torch.randperm", "numpy.random.permutation"):
            return name_of(statement.value.value)
    return None


@rule("evaluation-split-order", "wrong", "train_test_split")
def parts_in_other_order(code):
    """`X_train, y_train, X_test, y_test = train_test_split(X, y)`: `X_test` comes second."""
    for node in code.nodes_of(ast.Assign):
        call, names = node.value, getattr(node.targets[0], "elts", ())
        known = code.called(call).endswith("train_test_split") or method(call) == "train_test_split"
        if known and len(names) == 4 and len(call.args) == 2:
            second, third = ((name_of(name) or "").rpartition(".")[2] for name in names[1:3])
            if _OF_LABELS.match(second) and not _OF_LABELS.match(third):
                if _OF_SECOND.search(third):
                    yield node


_OF_LABELS = re.compile(r"(?i)(y|labels?|targets?)(_|\d|$)|(train|test|val)_(y|labels?|targets?)$")
_OF_SECOND = re.compile(r"(?i)test|val|dev|eval")


@rule("evaluation-split-windows", "wrong", "train_test_split|random_split")
def overlapping_windows(code):
    """`random_split(Windows(series, 30), …)`: test windows overlap training windows."""
    for call in code.calls:
        name = code.called(call)
        if name == "data.random_split" and call.args:
            dataset = construction(code, call.args[0])
            get = code.functions.get((name_of(getattr(dataset, "func", None)), "__getitem__"))
            if get is not None and any(_is_window(node) for node in code.walk(get)):
                yield call
        elif name == "sklearn.model_selection.train_test_split" and call.args:
            ordered = code.const(argument(call, "shuffle")) is False
            if not ordered and _list_of_windows(code, call.args[0]):
                yield call


def _is_window(node):
    """Return whether a node is `data[i : i + n]` with the index of the sample or loop."""
    index = node.slice if isinstance(node, ast.Subscript) else None
    index = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if not isinstance(index, ast.Slice) or not isinstance(index.lower, ast.Name):
        return False
    upper = index.upper
    added = isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add)
    return added and name_of(index.lower) in (name_of(upper.left), name_of(upper.right))


def _list_of_windows(code, node):
    """Return whether a list, or the array of it, has windows that a loop with step 1 appends."""
    value = code.resolved(node) if name_of(node) else node
    operand = value.args[0] if isinstance(value, ast.Call) and value.args else node
    name = name_of(operand) or name_of(node)
    for call in code.calls_named("append"):
        if call.args and name_of(call.func.value) == name:
            loop = next(ancestors(call, ast.For), None)
            window = call.args[0]
            window = code.value(window) if isinstance(window, ast.Name) else window
            counted = loop is not None and method(loop.iter) == "range"
            if counted and len(loop.iter.args) < 3 and isinstance(window, ast.AST):
                if _is_window(window):
                    return True
    return False
