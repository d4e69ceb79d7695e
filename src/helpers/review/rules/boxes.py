"""Formats of boxes: corners, centre and size."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.syntax import argument, const, method, name_of, place, receiver

_CORNERS = re.compile(
    r"torchvision\.ops\.(\w+\.)?(box_iou|generalized_box_iou(_loss)?|distance_box_iou(_loss)?|"
    r"complete_box_iou(_loss)?|nms|batched_nms|box_area|clip_boxes_to_image|remove_small_boxes|"
    r"roi_align|roi_pool)$"
)
_CONVERTED = re.compile(
    r"(?i)xyxy|convert|corners?\b|x_?1, ?y_?1|xmin, ?ymin|\[:, 2:\] \+|2:4?\] ?\+=|cx ?[-+] |"
    r"\[\w*,? ?0\] ?[-+] ?\w+\[\w*,? ?2\]"
)


@rule("images-box-format", "wrong", "torchvision")
def centres_for_corners(code):
    """`generalized_box_iou(pred, gt)` of `[x + w / 2, y + h / 2, w, h]`: it expects corners."""
    for call in code.calls:
        name = code.dotted(call.func) or ""
        if not _CORNERS.match(name) or name.endswith(("roi_align", "roi_pool")):
            continue
        arguments = call.args[: 1 if "nms" in name or "area" in name else 2]
        if any(_format(code, arg) not in (None, "xyxy") for arg in arguments):
            yield call
    if not _CONVERTED.search(_without_strings(code)):
        yield from _centred_in_dataset(code)
        yield from _coco_to_detector(code)


def _without_strings(code):
    """Return the source without string literals and comments."""
    text = re.sub(r"(?s)\"\"\".*?\"\"\"|#[^\n]*", "", code.source)
    return re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", text)


def _format(code, node, depth=0):
    """Return `cxcywh`, `xywh` or `xyxy` of boxes; None if the file does not determine it."""
    if isinstance(node, ast.Name | ast.Attribute) and depth < 6:
        value = code.value(node)
        return _format(code, value, depth + 1) if isinstance(value, ast.AST) else None
    if not isinstance(node, ast.Call) or depth > 6:
        return None
    if method(node) == "box_convert":
        out = code.const(argument(node, "out_fmt", 2))
        return out if isinstance(out, str) else None
    if method(node) in ("to", "float", "cuda", "cpu", "reshape", "view", "clone", "detach"):
        inner = node.args[0] if code.called(node) and node.args else receiver(node)
        return _format(code, inner, depth + 1)
    if code.called(node) in ("torch.tensor", "torch.as_tensor", "torch.FloatTensor") and node.args:
        return _of_rows(code, node.args[0])
    if code.called(node) in ("torch.stack", "torch.cat") and node.args:
        return _of_row(node.args[0])
    return None


def _of_rows(code, node):
    """Return the format of `[[cx, cy, w, h], …]` or `[a["bbox"] for a in annotations]`."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.ListComp):
        return _of_row(value.elt)
    if isinstance(value, ast.List) and value.elts:
        return _of_row(value.elts[0])
    if isinstance(value, ast.List) and isinstance(node, ast.Name):
        function = code.function_of(node)
        added = [
            call.args[0]
            for call in code.methods(function, "append")
            if name_of(receiver(call)) == node.id and len(call.args) == 1
        ]
        rows = {_of_row(code.resolved(arg) if name_of(arg) else arg) for arg in added}
        return rows.pop() if len(rows) == 1 else None
    return None


def _of_row(node):
    """Return the format of `[x + w / 2, y + h / 2, w, h]`, `(cx, cy, w, h)` or COCO's `"bbox"`."""
    if isinstance(node, ast.Subscript) and const(node.slice) == "bbox":
        return "xywh"
    items = node.elts if isinstance(node, ast.List | ast.Tuple) else ()
    if len(items) != 4:
        return None
    words = [ast.unparse(item) for item in items]
    half = (
        r"/ 2|\* 0\.5|\b\w*(cx|xc|center_x|x_center)\b",
        r"/ 2|\* 0\.5|\b\w*(cy|yc|center_y|y_center)\b",
    )
    sizes = r"\b\w*(w|width)\b", r"\b\w*(h|height)\b"
    centred = all(re.search(p, w) for p, w in zip(half, words[:2], strict=True))
    sized = all(re.match(p, w) for p, w in zip(sizes, words[2:], strict=True))
    halves = any("+" in w for w in words[:2]) or not any("/ 2" in w for w in words[:2])
    return "cxcywh" if centred and sized and halves else None


def _centred_in_dataset(code):
    """`__getitem__` of a dataset returns boxes with a centre; `box_iou` expects corners."""
    models = [
        function
        for (owner, name), function in code.functions.items()
        if owner and name == "__getitem__" and "cxcywh" in _rows_in(code, function)
    ]
    for call in code.calls if models else ():
        name = code.dotted(call.func) or ""
        if re.search(r"(box_iou(_loss)?|nms)$", name) and _CORNERS.match(name):
            if not any(isinstance(arg, ast.Call) and method(arg) not in _KEPT for arg in call.args):
                yield call


_KEPT = ("to", "float", "cuda", "detach", "reshape", "view", "clone", "cpu", "unsqueeze")


def _rows_in(code, function):
    rows = [node for node in code.walk(function) if isinstance(node, ast.List | ast.Tuple)]
    return {_of_row(row) for row in rows}


def _coco_to_detector(code):
    """`target["boxes"]` of COCO's `[x, y, w, h]` for a detector of torchvision."""
    if not re.search(
        r"(fasterrcnn|maskrcnn|retinanet|fcos|ssd\w*|keypointrcnn)_\w+\(", code.source
    ):
        return
    for node in code.nodes_of(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if const(key) == "boxes" and _format(code, value) in ("xywh", "cxcywh"):
                yield value
    for node in code.nodes_of(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and const(target.slice) == "boxes":
            if _format(code, node.value) in ("xywh", "cxcywh"):
                yield node


@rule("images-detection-loss", "raises", "detection")
def losses_in_evaluation(code):
    """`model.eval()` and `sum(model(images, targets).values())`: it returns predictions."""
    if not any(word.startswith("torchvision.models.detection") for word in code.names.values()):
        return
    for call in code.calls:
        name = name_of(call.func)
        if (
            not name
            or len(call.args) != 2
            or not re.search(r"(?i)target|label", ast.unparse(call.args[1]))
        ):
            continue
        modes = [
            other_call
            for other_call in code.methods(call.scope, "eval", "train")
            if name_of(receiver(other_call)) == name and place(other_call) < place(call)
        ]
        if modes and method(modes[-1]) == "eval" and _reads_losses(code, call):
            yield call


def _reads_losses(code, call):
    """Return whether the result is used as a dictionary of losses."""
    parent = call.parent
    name = name_of(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    uses = code.uses(call.scope, name) if name else [call]
    return any(
        isinstance(use.parent, ast.Attribute)
        and use.parent.attr in ("values", "items")
        or isinstance(use.parent, ast.Subscript)
        and "loss" in ast.unparse(use.parent.slice)
        for use in uses
    )
