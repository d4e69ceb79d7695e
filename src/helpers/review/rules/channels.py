"""Order of the color channels."""

import ast
import re

from helpers.review.code import Part
from helpers.review.registry import rule
from helpers.review.syntax import FUNCTIONS, const, last_name, method, name_of, receiver


@rule("images-bgr", "wrong", "cv2")
def channels_of_opencv(code):
    """`plt.imshow(cv2.imread(f))`: OpenCV reads BGR, the function expects RGB."""
    imagenet = "0.485" in code.source or "IMAGENET" in code.source
    for call in code.calls:
        image = _shown_image(code, call) or (_transformed(code, call) if imagenet else None)
        if image is not None and _is_bgr(code, image, 0):
            yield call


def _shown_image(code, call):
    """Return the image of `plt.imshow(image)` and `Image.fromarray(image)`."""
    if not call.args or any(keyword.arg == "cmap" for keyword in call.keywords):
        return None
    name, base = code.called(call) or "", name_of(receiver(call)) or ""
    if method(call) == "fromarray" and (base == "Image" or "PIL" in name):
        return call.args[0] if len(call.args) == 1 else None
    plotted = base.startswith(("plt", "ax")) or "matplotlib" in name
    return call.args[0] if method(call) == "imshow" and plotted else None


_TRANSFORM = re.compile(
    r"(?i)transforms?$|^(self\.)?(tf|tfms?|preprocess|augment\w*|aug|normalize)$"
)


def _transformed(code, call):
    """Return the image of `transform(image)` and of `transform(image=image)`."""
    name = name_of(call.func)
    if not name or not _TRANSFORM.search(name) or code.called(call):
        return None
    values = [keyword.value for keyword in call.keywords if keyword.arg == "image"] or call.args[:1]
    return values[0] if values else None


_ARRAYS = ("array", "asarray", "uint8", "float32", "ascontiguousarray")
_SAME = ("astype", "copy")
_OF_CV2 = re.compile(r"resize|\w*[bB]lur\w*|copyMakeBorder|flip|warpAffine|warpPerspective|rotate")


def _is_bgr(code, node, depth):
    """Return whether an image comes from `cv2.imread` with its channels in the order BGR."""
    if depth > 8:
        return False
    if isinstance(node, Part):
        return node.index == 1 and method(node.value) == "read" and _is_capture(code, node.value)
    if isinstance(node, ast.Name):
        value = code.value(node)
        return value is not None and not _swapped(code, node) and _is_bgr(code, value, depth + 1)
    if isinstance(node, ast.BinOp):
        return const(node.right) is not None and _is_bgr(code, node.left, depth + 1)
    if isinstance(node, ast.Subscript):  # a crop
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        crop = all(isinstance(part, ast.Slice) and part.step is None for part in parts)
        return crop and len(parts) < 3 and _is_bgr(code, node.value, depth + 1)
    if not isinstance(node, ast.Call):
        return False
    name = code.called(node) or name_of(node.func) or ""
    if name in ("cv2.imread", "cv2.imdecode"):
        flag = ast.unparse(node.args[1]) if len(node.args) > 1 else "1"
        return flag in ("1", "cv2.IMREAD_COLOR", "cv2.IMREAD_COLOR_BGR")
    kept = name.startswith("cv2.") and _OF_CV2.fullmatch(last_name(node.func))
    if node.args and (
        kept or name.startswith(("numpy.", "np.")) and last_name(node.func) in _ARRAYS
    ):
        return _is_bgr(code, node.args[0], depth + 1)
    same = method(node) in _SAME and receiver(node) is not None
    return same and _is_bgr(code, receiver(node), depth + 1)


def _is_capture(code, call):
    value = code.resolved(receiver(call)) if receiver(call) is not None else None
    return isinstance(value, ast.Call) and last_name(value.func) == "VideoCapture"


def _swapped(code, node):
    """Return whether a function swaps the channels of a name in some branch above a node."""
    function = code.function_of(node)
    if not isinstance(function, FUNCTIONS):
        return False
    return any(
        isinstance(child, ast.Assign)
        and child.lineno < node.lineno
        and name_of(child.targets[0]) == node.id
        and re.search(r"BGR2RGB|::\s*-1|\[2, 1, 0\]", ast.unparse(child.value))
        for child in code.walk(function)
    )
