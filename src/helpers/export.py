"""Helpers of the chapter "Export and serve a model".

Sources: "torch.export", https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export.html,
and ONNX Runtime's Python API, https://onnxruntime.ai/docs/api/python/api_summary.html
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import platform
import shutil
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from helpers.evaluation import preserve_modes

_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
    "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8,
    "tensor(uint8)": torch.uint8,
    "tensor(bool)": torch.bool,
}


class ReleaseError(RuntimeError):
    """A release that is incomplete or answers otherwise than it did; the message says how."""


# ---------------------------------------------------------------- what the exporter says


_quiet_lock = threading.Lock()
_quiet_depth = 0
_quiet_stack = contextlib.ExitStack()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, the exporter's reports to the terminal are dropped; errors are raised as ever.

    Output, logging and warnings belong to the process, so other threads are silent meanwhile, too.
    """
    global _quiet_depth
    with _quiet_lock:
        if _quiet_depth == 0:
            _quiet_stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.WARNING)
            _quiet_stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            _quiet_stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            _quiet_stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        _quiet_depth += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_depth -= 1
            if _quiet_depth == 0:  # the last thread out puts back what the first one found
                _quiet_stack.close()


def why_not(model: nn.Module, *example: Any, dynamic_shapes: Any = None) -> str | None:
    """Why `torch.export.export` refuses a model with this example: None if it does not.

    Args:
        model: in the mode in which it would be exported.
        example: its inputs by position: tensors, numbers, and tuples, lists and dicts of them.
        dynamic_shapes: as in `torch.export.export`.

    Returns:
        The type of the error and the sentence that says what is wrong.
    """
    copies = _cloned(example)  # a refused export leaves marks on its example
    try:
        with quiet():
            torch.export.export(model, copies, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        return said(error)
    return None


def _cloned(value: Any) -> Any:
    """The same containers with copies of the tensors."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(_cloned, value))
    if type(value) is dict:
        return {key: _cloned(one) for key, one in value.items()}
    return value


def said(error: Exception) -> str:
    """The type of an error, and of its message what was wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    line = lines[-1] if "TorchScript" in lines[0] else lines[0]
    if line.endswith(":") and len(lines) > 1:
        line = f"{line} {lines[1].removeprefix('- ')}"
    line = line.removeprefix("RuntimeError: ").split(" (unhinted")[0]
    line = line.split("! For more")[0].split(". For more information about this error")[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


# ---------------------------------------------------------------- ONNX


class OnnxModel:
    """An ONNX file that is called with tensors like the model that it was made from.

    It runs in ONNX Runtime on the CPU.

    Args:
        path: the `.onnx` file; a file of weights has to lie beside it, under the name that it was
            written with.

    Attributes:
        inputs: for each input its shape, where a name stands for any size, and its dtype.
        outputs: the names of the outputs.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import onnxruntime

        self.session = onnxruntime.InferenceSession(
            os.fspath(path), providers=["CPUExecutionProvider"]
        )
        self.inputs = {
            one.name: (tuple(one.shape), _DTYPES.get(one.type, one.type))
            for one in self.session.get_inputs()
        }
        self.outputs = [one.name for one in self.session.get_outputs()]

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Run it: inputs by position or by name; one output, or several as a tuple, on the CPU.

        Raises:
            TypeError: inputs are missing or unknown, no dense tensors, or of another dtype.
            ValueError: an input has a shape that the file does not allow, or two inputs differ in a
                size that has one name.
        """
        if len(args) > len(self.inputs):
            raise TypeError(f"{len(args)} inputs for {len(self.inputs)}: {', '.join(self.inputs)}")
        named = dict(zip(self.inputs, args, strict=False))
        if twice := sorted(named.keys() & kwargs.keys()):
            raise TypeError(f"given twice: {', '.join(twice)}")
        named |= kwargs
        if named.keys() != self.inputs.keys():
            got = ", ".join(named) or "none"
            raise TypeError(f"the inputs are {', '.join(self.inputs)}, got {got}")
        sizes: dict[str, tuple[str, int]] = {}
        for name, (shape, dtype) in self.inputs.items():
            self._check(name, named[name], shape, dtype)
            for want, size in zip(shape, named[name].shape, strict=True):
                if isinstance(want, str):
                    first, known = sizes.setdefault(want, (name, size))
                    if known != size:  # the runtime would broadcast, or name an inner operator
                        raise ValueError(f"{want} is {known} in {first} and {size} in {name}")
        feed = {name: tensor.numpy(force=True) for name, tensor in named.items()}
        results = tuple(map(torch.from_numpy, self.session.run(None, feed)))
        return results[0] if len(results) == 1 else results

    @staticmethod
    def _check(name: str, tensor: Any, shape: tuple[int | str, ...], dtype: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_meta:
            kind = "a meta tensor" if tensor.is_meta else tensor.layout
            raise TypeError(f"{name} must be a dense tensor with values, got {kind}")
        if tensor.dtype != dtype:
            raise TypeError(f"{name} must be {dtype}, got {tensor.dtype}")
        fits = len(shape) == tensor.ndim and all(
            not isinstance(want, int) or want == got
            for want, got in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            raise ValueError(f"{name} must have the shape {shape}, got {tuple(tensor.shape)}")


def onnx_files(path: str | os.PathLike[str]) -> list[Path]:
    """All files that an ONNX model consists of: `path`, and the files of weights beside it."""
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    path = Path(path)
    model = onnx.load(os.fspath(path), load_external_data=False)
    outside = {
        ExternalDataInfo(tensor).location
        for tensor in model.graph.initializer
        if uses_external_data(tensor)
    }
    return [path, *(path.parent / name for name in sorted(outside))]


@torch.no_grad()
def largest_difference(
    model: Callable[..., Tensor], other: Callable[..., Tensor], batches: Iterable[Tensor]
) -> float:
    """The largest absolute difference between what two models say of the same batches.

    A `nn.Module` among the two has to be in evaluation mode already, with all that it holds; an
    exported program, which has no mode to switch, is taken as it is.

    Args:
        model, other: from a batch to a tensor of scores; each gets a copy of its own.
        batches: of at least two different sizes in their first dimension, or a size that was fixed
            by accident stays hidden.

    Raises:
        TypeError: a batch or an answer is no tensor.
        ValueError: a model is in training mode, all batches have one size, the answers differ in
            shape, or an answer is not finite.
    """
    for one in (model, other):
        _refuse_training(one)
    worst, sizes = 0.0, set()
    for batch in batches:
        if not isinstance(batch, Tensor) or batch.ndim == 0:
            got = "a single number" if isinstance(batch, Tensor) else type(batch).__name__
            raise TypeError(f"a batch must be a tensor of shape (N, …), got {got}")
        sizes.add(len(batch))
        a, b = (_scores(one(batch.clone())) for one in (model, other))
        if a.shape != b.shape:
            raise ValueError(f"the shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
        worst = max(worst, (a - b).abs().max().item() if a.numel() else 0.0)
    if len(sizes) < 2:
        raise ValueError("compare on batches of at least two sizes")
    return worst


def _scores(answer: Any) -> Tensor:
    """A copy of an answer in double precision on the CPU."""
    if not isinstance(answer, Tensor):
        raise TypeError(f"a model must answer with one tensor, got {type(answer).__name__}")
    if not answer.isfinite().all():
        raise ValueError("an answer is not finite")
    return answer.to("cpu", torch.complex128 if answer.is_complex() else torch.float64, copy=True)


def _refuse_training(model: Any) -> None:
    if isinstance(model, nn.Module) and any(m.training for m in _with_a_mode(model)):
        raise ValueError("a model is in training mode: call eval() first")


def _with_a_mode(module: nn.Module) -> Iterator[nn.Module]:
    """The modules whose mode can be switched: an exported program says True, whatever it is."""
    if not isinstance(module, torch.fx.GraphModule):
        yield module
        for child in module.children():
            yield from _with_a_mode(child)


# ---------------------------------------------------------------- quantization


def accuracy(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """The share of right answers, from scores of shape (N, classes); labels of shape (N,).

    Raises:
        TypeError: the scores are no tensor, or the labels no tensor of integers.
        ValueError: the model is in training mode, the shapes do not fit, there is nothing to count,
            or a score is nan.
    """
    _refuse_training(model)
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        got = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, got {got}")
    with torch.no_grad():
        scores = model(inputs)
    if not isinstance(scores, Tensor):
        raise TypeError(f"a model must answer with one tensor, got {type(scores).__name__}")
    if scores.ndim != 2 or scores.shape[1] < 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            "scores of shape (N, classes) and labels of shape (N,) are wanted, got "
            f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if len(labels) == 0:
        raise ValueError("there is no sample to count")
    if scores.isnan().any():
        raise ValueError("a score is nan")
    return (scores.argmax(1).cpu() == labels.cpu()).float().mean().item()


# ---------------------------------------------------------------- a release


class Release(NamedTuple):
    """What `load_release` found: the model in evaluation mode, and all that belongs to it."""

    model: nn.Module
    preprocessing: dict[str, Any]
    classes: list[str]
    versions: dict[str, str]


def save_release(
    folder: str | os.PathLike[str],
    model: nn.Module,
    example: Tensor,
    *,
    config: Mapping[str, Any],
    preprocessing: Mapping[str, Any],
    classes: Sequence[str],
) -> None:
    """Write all that it takes to run a model elsewhere, and a proof that it is the same one there.

    `weights.safetensors`, `example.safetensors` (an input and the output for it, in evaluation
    mode) and `release.json` (the rest, and the versions). The folder appears when all is written.

    Args:
        folder: which must not exist.
        model: from a batch to scores of shape (N, classes); its mode stays as it is.
        example: a preprocessed batch, not empty.
        config: the arguments with which the model's class or function builds it again.
        preprocessing: how a raw input becomes an element of the batch.
        classes: their names, in the order of the scores.

    `config` and `preprocessing` are written as JSON, so a tuple comes back as a list.

    Raises:
        FileExistsError: the folder exists.
        TypeError: `example` or the output is no tensor, a class is no text, or `config` or
            `preprocessing` holds what JSON cannot write, or a key that is no text.
        ValueError: there are more or fewer classes than scores, the example is empty, an output is
            not finite, or a second run gives another one.
    """
    from safetensors.torch import save_file, save_model

    folder, classes = Path(folder), list(classes)
    if folder.exists():
        raise FileExistsError(f"{folder} exists: a release is never overwritten")
    for name, value in (("config", config), ("preprocessing", preprocessing)):
        _check_json(name, value)
    if wrong := [one for one in classes if not isinstance(one, str)]:
        raise TypeError(f"the names of classes must be text, got {wrong[0]!r}")
    if not isinstance(example, Tensor):
        raise TypeError(f"the example must be one tensor, got {type(example).__name__}")
    if example.ndim == 0 or len(example) == 0:
        raise ValueError(f"the example must be a batch of one or more, got {tuple(example.shape)}")
    with preserve_modes(model), torch.inference_mode():
        model.eval()
        output, again = model(example.clone()), model(example.clone())
    if not isinstance(output, Tensor):
        raise TypeError(f"the model must answer with one tensor, got {type(output).__name__}")
    if output.shape != (len(example), len(classes)):
        raise ValueError(f"{len(classes)} classes for scores of shape {tuple(output.shape)}")
    if not output.isfinite().all():
        raise ValueError("a score of the example is not finite")
    if not torch.allclose(output, again, rtol=1e-3, atol=1e-4):
        raise ValueError("a second run of the example gives other scores")
    text = json.dumps(
        {
            "config": dict(config),
            "preprocessing": dict(preprocessing),
            "classes": classes,
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
        },
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        save_model(model, os.fspath(temporary / "weights.safetensors"))
        pair = {"input": example, "output": output}
        pair = {name: tensor.detach().clone().contiguous() for name, tensor in pair.items()}
        save_file(pair, temporary / "example.safetensors")
        (temporary / "release.json").write_text(text, "utf8")
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _check_json(name: str, value: Any) -> None:
    """Refuse what JSON would not write, or would write as something else."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {type(value).__name__}")

    def visit(one: Any) -> None:
        if isinstance(one, Mapping):
            for key, inner in one.items():
                if not isinstance(key, str):
                    raise TypeError(f"the keys of {name} must be text, got {key!r}")
                visit(inner)
        elif isinstance(one, (list, tuple)):
            for inner in one:
                visit(inner)

    visit(value)
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} holds what JSON cannot write: {error}") from error


def load_release(
    folder: str | os.PathLike[str],
    build: Callable[..., nn.Module],
    rtol: float = 1e-3,
    atol: float = 1e-4,
) -> Release:
    """Read what `save_release` wrote, on the CPU, and run its example before anybody else does.

    Args:
        folder: the release.
        build: the model's class or function; it is called with the saved `config`.
        rtol, atol: how far a score may be from the saved one, as in `torch.allclose`; other
            processors round otherwise.

    Raises:
        ReleaseError: a file is missing or damaged, `build` does not take the saved `config`, the
            weights do not fit, or the example cannot be run or gives other scores.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    folder = Path(folder)
    names = ("release.json", "weights.safetensors", "example.safetensors")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ReleaseError(f"{folder.name} lacks {', '.join(missing)}")
    card, pair = _card(folder / names[0]), _pair(folder / names[2])
    with torch.inference_mode(False), torch.device("cpu"):
        try:
            model = build(**card["config"])
        except Exception as error:
            raise ReleaseError(
                f"the config {card['config']} does not build the model: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(model, nn.Module):
            raise ReleaseError(f"build returned no module, but {type(model).__name__}")
        try:
            load_model(model, os.fspath(folder / names[1]))
        except SafetensorError as error:
            raise ReleaseError(f"{names[1]} is damaged: {error}") from error
        except RuntimeError as error:
            raise ReleaseError(f"the weights do not fit {type(model).__name__}: {error}") from error
    want = pair["output"]
    try:
        with torch.inference_mode():
            output = model.eval().requires_grad_(False)(pair["input"].clone())
    except Exception as error:
        raise ReleaseError(f"the example cannot be run: {type(error).__name__}: {error}") from error
    if not isinstance(output, Tensor):
        raise ReleaseError(f"the example gave a tensor, now {type(output).__name__}")
    if (output.shape, output.dtype) != (want.shape, want.dtype):
        kinds = [f"{tuple(one.shape)} of {one.dtype}" for one in (want, output)]
        if output.dtype == want.dtype:
            kinds = [str(tuple(one.shape)) for one in (want, output)]
        raise ReleaseError(f"the example gave {kinds[0]}, now {kinds[1]}")
    if output.shape[-1] != len(card["classes"]):
        raise ReleaseError(f"{len(card['classes'])} classes for {output.shape[-1]} scores")
    if not torch.allclose(output, want, rtol=rtol, atol=atol):
        far = (output - want).abs().max().item()
        raise ReleaseError(
            f"the example gives other scores than when it was saved, by up to {far:.2g}: has the "
            f"code changed since? (torch {card['versions'].get('torch')} then, "
            f"{torch.__version__} now)"
        )
    return Release(model, card["preprocessing"], card["classes"], card["versions"])


def _card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text("utf8"))
    except ValueError as error:
        raise ReleaseError(f"{path.name} is damaged: {error}") from error
    kinds = {"config": dict, "preprocessing": dict, "classes": list, "versions": dict}
    if not isinstance(card, dict):
        raise ReleaseError(f"{path.name} holds no object, but {type(card).__name__}")
    for name, kind in kinds.items():
        if not isinstance(card.get(name), kind):
            raise ReleaseError(f"{path.name} lacks {name}")
    return card


def _pair(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        pair = load_file(path)
    except SafetensorError as error:
        raise ReleaseError(f"{path.name} is damaged: {error}") from error
    if missing := {"input", "output"} - pair.keys():
        raise ReleaseError(f"{path.name} lacks {', '.join(sorted(missing))}")
    return pair
