"""Outputs of recurrent layers, and models of sequences that see the next token."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import is_module_class
from helpers.review.registry import rule
from helpers.review.syntax import argument, const, is_open, method, name_of, receiver
from helpers.review.tracing import construction

_RECURRENT = ("nn.LSTM", "nn.GRU", "nn.RNN")


@rule("sequences-tuple-error", "raises", "LSTM|GRU|RNN")
def tuple_as_tensor(code):
    """`x = self.lstm(x)`, then `self.fc(x)`: the layer returns a tuple."""
    for call in code.calls:
        if code.called(call) or code.called(construction(code, call.func)) not in _RECURRENT:
            continue
        parent = call.parent
        if isinstance(parent, ast.Call) and call in parent.args and _takes_tensor(code, parent):
            yield call
        name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
        if name is None or isinstance(parent.targets[0], ast.Tuple):
            continue
        for node in code.walk(call.scope):
            if isinstance(node, ast.Name) and node.id == name and code.value(node) is call:
                if _used_as_tensor(code, node):
                    yield call
                    break


def _used_as_tensor(code, node):
    parent = node.parent
    if isinstance(parent, ast.Call) and node in parent.args:
        return _takes_tensor(code, parent)
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "view",
        "reshape",
        "size",
        "shape",
        "squeeze",
        "contiguous",
        "permute",
        "transpose",
        "mean",
    )


def _takes_tensor(code, call):
    """Return True for a layer or a function of PyTorch whose first argument is a tensor."""
    name = code.called(call) or code.called(construction(code, call.func))
    return bool(re.match(r"F\.\w+$|nn\.(Linear|Dropout|ReLU|Tanh|LayerNorm|LSTM|GRU|RNN)$", name))


_SHIFTED = re.compile(r"\[:, *:-1\]|\[:, *1:\]|\[1:\]|\[:-1\]|\+ *1 *:|block_size *\+ *1")


@rule("language-causal-mask", "wrong", "TransformerEncoder")
def encoder_sees_next(code):
    """A language model of `nn.TransformerEncoder` without a causal mask."""
    if not _SHIFTED.search(code.source) or not re.search(
        r"cross_?entropy|CrossEntropy", code.source
    ):
        return
    if re.search(r"causal|subsequent|triu|tril|src_mask|attn_mask|MLM|mlm|masked_lm", code.source):
        return
    for call in code.calls:
        owner = call.owner.name if call.owner is not None else ""
        if code.called(construction(code, call.func)) != "nn.TransformerEncoder" or code.called(
            call
        ):
            continue
        named = {keyword.arg for keyword in call.keywords} & {None, "mask", "is_causal"}
        if len(call.args) != 1 or named or not is_module_class(code, owner):
            continue
        if _predicts_tokens(code, call.owner):
            yield call


def _predicts_tokens(code, owner):
    """Return whether a class has an embedding and a linear layer of the same vocabulary."""
    sizes = {"nn.Embedding": [], "nn.Linear": []}
    for values in owner.attributes.values():
        for assignment in values:
            name = code.called(assignment.value)
            if name in sizes:
                size = argument(
                    assignment.value,
                    *(("num_embeddings", 0), ("out_features", 1))[name == "nn.Linear"],
                )
                sizes[name].append(ast.unparse(size) if size is not None else "")
    return bool(set(sizes["nn.Embedding"]) & set(sizes["nn.Linear"]) - {""})


@rule("language-embedding-size", "raises", "Embedding")
def embedding_without_padding(code):
    """`nn.Embedding(len(index), d)` with `index = {w: i + 1 …}`: the largest index is too large."""
    for call in code.calls_to("nn.Embedding"):
        size = argument(call, "num_embeddings", 0)
        size = code.resolved(size) if size is not None else None
        if method(size) == "len" and len(size.args) == 1 and not is_open(call):
            index = code.resolved(size.args[0])
            if (
                isinstance(index, ast.DictComp)
                and from_one(index)
                and not _vocabulary_grows(code, size)
            ):
                yield call


def from_one(index):
    """Return True for the values `i + 1` of `enumerate(words)`, or `enumerate(words, 1)`."""
    iterable = index.generators[0].iter
    if method(iterable) != "enumerate" or not isinstance(index.generators[0].target, ast.Tuple):
        return False
    start = const(argument(iterable, "start", 1)) or 0
    counter = name_of(index.generators[0].target.elts[0])
    value = index.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        side, added = value.left, const(value.right)
        return name_of(side) == counter and isinstance(added, int) and start + added >= 1
    return name_of(value) == counter and start >= 1


def _vocabulary_grows(code, size):
    """Return whether the file adds entries to the dictionary, such as `index["<pad>"] = 0`."""
    name = re.escape(name_of(size.args[0]) or "")
    return re.search(rf"\b{name}\[[^\]]*\] *=|{name}\.(update|setdefault)\(", code.source)


@rule("images-detection-collate", "raises", "detection")
def detection_batches(code):
    """A model of `torchvision.models.detection` and a `DataLoader` without `collate_fn`."""
    if not re.search(
        r"models\.detection|fasterrcnn_|maskrcnn_|retinanet_|FasterRCNN\(", code.source
    ):
        return
    for node in code.nodes_of(ast.Assign):
        call = node.value
        if code.called(call) != "data.DataLoader" or is_open(call) or argument(call, "collate_fn"):
            continue
        size = argument(call, "batch_size", 1)
        if size is None or code.const(size) == 1:
            continue
        name = name_of(node.targets[0])
        for loop in code.loops:
            batch = isinstance(loop, ast.For) and name and name in ast.unparse(loop.iter)
            if batch and re.search(r"\b\w+\((\w*images?|imgs), *targets?\)", code.source_of(loop)):
                yield call
                break


@rule("language-output-object", "raises", "from_pretrained")
def output_as_logits(code):
    """`criterion(model(ids), y)` of a model of transformers, which returns an object."""
    for call in code.calls:
        loss = re.match(
            r"F\.(cross_entropy|binary_cross\w+)$|torch\.(argmax|softmax)$|F\.softmax$",
            code.called(call),
        )
        module = code.called(construction(code, call.func))
        if not loss and not re.match(r"nn\.(CrossEntropy|BCE\w*|NLL)Loss$", module or ""):
            continue
        value = code.value(call.args[0]) if call.args and name_of(call.args[0]) else None
        value = call.args[0] if call.args and isinstance(call.args[0], ast.Call) else value
        if isinstance(value, ast.Call) and _pretrained_output(code, value):
            yield call


def _pretrained_output(code, call):
    constructor = construction(code, call.func) if not code.called(call) else None
    while method(constructor) in ("to", "cuda") and receiver(constructor) is not None:
        constructor = construction(code, receiver(constructor))
    if method(constructor) != "from_pretrained" or is_open(constructor):
        return False
    if isinstance(code.value(call), Part) or re.search("return_dict", code.source):
        return False
    name = name_of(receiver(constructor)) or ""
    return bool(re.search(r"For(Sequence|Token)Classification$|ForMaskedLM$|ForCausalLM$", name))
