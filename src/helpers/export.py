"""Helpers of the chapter on export: exporter errors, ONNX models, comparison, releases.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.evaluation import preserve_modes

_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
    "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8,
    "tensor(uint64)": torch.uint64,
    "tensor(uint32)": torch.uint32,
    "tensor(uint16)": torch.uint16,
    "tensor(uint8)": torch.uint8,
    "tensor(bool)": torch.bool,
}


class ReleaseError(RuntimeError):
    """Raised if a release is incomplete or gives other outputs than when it was saved."""


# ---------------------------------------------------------------- the exporter's messages


_quiet_lock = threading.Lock()
_quiet_depth = 0
_quiet_stack = contextlib.ExitStack()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress output, logging and warnings of the exporter in the block; errors are still raised.

    Output, logging and warnings belong to the process, so other threads are silenced meanwhile,
    too.
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
            if _quiet_depth == 0:  # the last thread restores the settings that the first one saved
                _quiet_stack.close()


def why_not(model: nn.Module, *example: Any, dynamic_shapes: Any = None) -> str | None:
    """Return why `torch.export.export` fails for a model with this example, or None if it succeeds.

    Args:
        model: in the mode in which it would be exported.
        example: its inputs by position: tensors, numbers, and tuples, lists and dicts of them.
        dynamic_shapes: as in `torch.export.export`.

    Returns:
        The type of the error and the sentence that states the reason.

    Raises:
        TypeError: `model` is not a module.
    """
    checks.module("model", model)
    copies = _cloned(example)  # a failed export marks its example
    try:
        with quiet():
            torch.export.export(model, copies, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        return error_reason(error)
    return None


def _cloned(value: Any) -> Any:
    """Return the same containers with copies of the tensors."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(_cloned, value))
    if type(value) is dict:
        return {key: _cloned(one) for key, one in value.items()}
    return value


def error_reason(error: Exception) -> str:
    """Return the type of an error and the sentence of its message that states the reason.

    Raises:
        TypeError: `error` is not an exception.
    """
    if not isinstance(error, BaseException):
        raise TypeError(f"error must be an exception, got {type(error).__name__}")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    line = lines[-1] if "TorchScript" in lines[0] else lines[0]
    if line.endswith(":") and len(lines) > 1:
        line = f"{line} {lines[1].removeprefix('- ')}"
    line = line.removeprefix("RuntimeError: ").split(" (unhinted")[0]
    line = line.split("! For more")[0].split(". For more information about this error")[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


# ---------------------------------------------------------------- ONNX


class OnnxModel:
    """ONNX file, called with tensors like the model that it was exported from.

    It runs in ONNX Runtime on the CPU.

    Args:
        path: the `.onnx` file; a file of weights must be beside it, under its original name.

    Attributes:
        inputs: for each input its shape, in which a name represents any size, and its dtype.
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
        """Run the model on inputs by position or by name; return one output or a tuple on the CPU.

        Raises:
            TypeError: inputs are missing or unknown, not dense tensors, or of another dtype.
            ValueError: an input has a shape that the file does not allow, or two inputs differ in a
                size that has one name.
        """
        if len(args) > len(self.inputs):
            names = ", ".join(self.inputs)
            raise TypeError(
                f"expected at most {len(self.inputs)} inputs ({names}), got {len(args)}"
            )
        named = dict(zip(self.inputs, args, strict=False))
        if twice := sorted(named.keys() & kwargs.keys()):
            raise TypeError(f"expected each input once, got {', '.join(twice)} twice")
        named |= kwargs
        if named.keys() != self.inputs.keys():
            got = ", ".join(named) or "none"
            raise TypeError(f"expected the inputs {', '.join(self.inputs)}, got {got}")
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
    """Return all files of an ONNX model: `path`, and the files of weights beside it.

    Raises:
        ValueError: the file contains no graph.
    """
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    path = Path(path)
    model = onnx.load(os.fspath(path), load_external_data=False)
    if not model.graph.node and not model.graph.output:
        raise ValueError(f"expected an ONNX model, got a file without a graph: {path.name}")
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
    """Return the largest absolute difference between the outputs of two models on the same batches.

    A `nn.Module` must be in evaluation mode with all its submodules; an exported program, whose
    mode cannot be switched, is accepted.

    Args:
        model, other: from a batch to a tensor of logits; each gets its own copy of the batch.
        batches: of at least two sizes in their first dimension; otherwise a size that was fixed by
            accident is not detected.

    Raises:
        TypeError: a model cannot be called, a batch is not a tensor, or an output is not a dense
            tensor with values.
        ValueError: a model is in training mode, all batches have one size, the outputs differ in
            shape, or an output is not finite.
    """
    for one in (model, other):
        _refuse_training(one)
    if not isinstance(batches, Iterable) or isinstance(batches, Tensor):
        raise TypeError(f"batches must be an iterable of tensors, got {type(batches).__name__}")
    worst, sizes = 0.0, set()
    for batch in batches:
        if not isinstance(batch, Tensor) or batch.ndim == 0:
            got = "a single number" if isinstance(batch, Tensor) else type(batch).__name__
            raise TypeError(f"a batch must be a tensor of shape (N, …), got {got}")
        sizes.add(len(batch))
        a, b = (_scores(one(batch.clone())) for one in (model, other))
        if a.shape != b.shape:
            shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
            raise ValueError(f"expected outputs of one shape, got {shapes}")
        worst = max(worst, (a - b).abs().max().item() if a.numel() else 0.0)
    if len(sizes) < 2:
        raise ValueError(f"expected batches of at least two sizes, got {sorted(sizes)}")
    return worst


def _scores(answer: Any) -> Tensor:
    """Return a copy of an output in double precision on the CPU."""
    if not isinstance(answer, Tensor):
        raise TypeError(f"expected one tensor as the model's output, got {type(answer).__name__}")
    if answer.layout != torch.strided or answer.is_meta or answer.is_quantized:
        kind = "a meta tensor" if answer.is_meta else f"{answer.layout}, {answer.dtype}"
        raise TypeError(f"expected a dense output with values, got {kind}")
    if not answer.isfinite().all():
        raise ValueError("expected finite outputs, got nan or inf")
    return answer.to("cpu", torch.complex128 if answer.is_complex() else torch.float64, copy=True)


def _refuse_training(model: Any) -> None:
    if not callable(model) or isinstance(model, type):
        got = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"expected a model that can be called with a batch, got {got}")
    if isinstance(model, nn.Module) and any(m.training for m in _with_a_mode(model)):
        raise ValueError("expected a model in evaluation mode: call eval() first")


def _with_a_mode(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules whose mode can be switched; an exported program always reports training."""
    if not isinstance(module, torch.fx.GraphModule):
        yield module
        for child in module.children():
            yield from _with_a_mode(child)


# ---------------------------------------------------------------- quantization


def accuracy(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """Return the fraction of correct predictions, from logits (N, classes) and labels (N,).

    Raises:
        TypeError: the model cannot be called, the logits are not a tensor of real numbers, or the
            labels not a tensor of integers.
        ValueError: the model is in training mode, the shapes do not match, there is no sample, a
            logit is nan, or a label is not a class index.
    """
    _refuse_training(model)
    number = isinstance(labels, Tensor) and labels.dtype != torch.bool
    if not number or labels.is_floating_point() or labels.is_complex():
        got = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of integers, got {got}")
    labels = labels.long()  # unsigned dtypes have no min
    with torch.no_grad():
        scores = model(inputs)
    if not isinstance(scores, Tensor):
        raise TypeError(f"expected one tensor as the model's output, got {type(scores).__name__}")
    if scores.is_complex() or scores.dtype == torch.bool:
        raise TypeError(f"expected real numbers as logits, got {scores.dtype}")
    if scores.ndim != 2 or scores.shape[1] < 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            "expected logits of shape (N, classes) and labels of shape (N,), got "
            f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if len(labels) == 0:
        raise ValueError("expected at least one sample, got none")
    if scores.isnan().any():
        raise ValueError("expected numbers as logits, got nan")
    low, high = labels.min().item(), labels.max().item()
    if low < 0 or high >= scores.shape[1]:
        strange = low if low < 0 else high
        raise ValueError(f"labels must be from 0 to {scores.shape[1] - 1}, got {strange}")
    return (scores.argmax(1).cpu() == labels.cpu()).float().mean().item()


# ---------------------------------------------------------------- a release


class Release(NamedTuple):
    """Result of `load_release`: the model in evaluation mode, and the data that belongs to it."""

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
    """Write a model with all that is needed to run it elsewhere, and an example that proves it.

    The folder contains `weights.safetensors`, `example.safetensors` (an input and its output in
    evaluation mode) and `release.json` (the rest, and the versions). It appears only when all files
    are complete. `config` and `preprocessing` are written as JSON, so a tuple becomes a list.

    Args:
        folder: must not exist.
        model: from a batch to logits of shape (N, classes); its mode is not changed.
        example: a preprocessed batch, not empty.
        config: arguments from which the model's class or function builds it again.
        preprocessing: how a raw input becomes an element of the batch.
        classes: their names, in the order of the logits.

    Raises:
        FileExistsError: the folder exists.
        TypeError: `model` is not a module, or is compiled, wrapped or exported; `example`, the
            output or an entry of the state dict is not a tensor, or `example` is not dense;
            `classes` is not a list of strings; JSON cannot represent `config` or `preprocessing`.
        ValueError: the numbers of classes and logits differ, the example is empty, an output is not
            finite, or a second run gives another output.
    """
    folder, classes = Path(folder), _class_names(classes)
    if folder.exists():
        raise FileExistsError(f"{folder} exists: a release is never overwritten")
    for name, value in (("config", config), ("preprocessing", preprocessing)):
        _check_json(name, value)
    _refuse_wrapped(model)
    output = _example_output(model, example, len(classes))
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
    _write_release(folder, model, {"input": example, "output": output}, text)


def _write_release(folder: Path, model: nn.Module, pair: dict[str, Tensor], card: str) -> None:
    """Write the three files of a release into a temporary folder, then rename it to `folder`."""
    from safetensors.torch import save_file, save_model

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        save_model(model, os.fspath(temporary / "weights.safetensors"))
        pair = {name: tensor.detach().clone().contiguous() for name, tensor in pair.items()}
        save_file(pair, temporary / "example.safetensors")
        (temporary / "release.json").write_text(card, "utf8")
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _class_names(classes: Any) -> list[str]:
    """Return the names as a list; a dict or a set may have another order than the logits."""
    if isinstance(classes, str | Mapping | Set) or not isinstance(classes, Iterable):
        raise TypeError(f"expected a list of strings as classes, got {type(classes).__name__}")
    classes = list(classes)
    if wrong := [one for one in classes if not isinstance(one, str)]:
        raise TypeError(f"expected strings as names of classes, got {wrong[0]!r}")
    return classes


def _refuse_wrapped(model: nn.Module) -> None:
    """Raise for a model whose weights have names that the model's class does not have."""
    if not isinstance(model, nn.Module):
        got = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"expected a module as model, got {got}")
    if isinstance(model, torch.fx.GraphModule):
        raise TypeError("expected the model itself, got an exported or traced program of it")
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise TypeError(f"safetensors stores tensors only, {name} is {type(value).__name__}")
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, wrappers) or kind == "OptimizedModule":
            inner = "_orig_mod" if kind == "OptimizedModule" else "module"
            where = f"model.{name}.{inner}" if name else f"model.{inner}"
            raise TypeError(f"expected the model itself, got {kind} around it: use {where}")


def _example_output(model: nn.Module, example: Any, classes: int) -> Tensor:
    """Return the logits of `example` in evaluation mode, checked."""
    if not isinstance(example, Tensor):
        raise TypeError(f"expected one tensor as the example, got {type(example).__name__}")
    if example.layout != torch.strided or example.is_meta:
        kind = "a meta tensor" if example.is_meta else example.layout
        raise TypeError(f"expected a dense example with values, got {kind}")
    if example.ndim == 0 or len(example) == 0:
        raise ValueError(f"expected a batch of one or more as example, got {tuple(example.shape)}")
    with preserve_modes(model), torch.inference_mode():
        model.eval()
        output, again = model(example.clone()), model(example.clone())
    if not isinstance(output, Tensor):
        raise TypeError(f"expected one tensor as the model's output, got {type(output).__name__}")
    if output.shape != (len(example), classes):
        raise ValueError(f"expected logits for {classes} classes, got {tuple(output.shape)}")
    if not output.isfinite().all():
        raise ValueError("expected finite logits for the example, got nan or inf")
    if not torch.allclose(output, again, rtol=1e-3, atol=1e-4):
        raise ValueError("expected the same logits in a second run of the example, got others")
    return output


def _check_json(name: str, value: Any) -> None:
    """Raise for a value that JSON cannot represent, or would read back as another value."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a dict as {name}, got {type(value).__name__}")

    def visit(one: Any) -> None:
        if isinstance(one, Mapping):
            for key, inner in one.items():
                if not isinstance(key, str):
                    raise TypeError(f"expected strings as keys of {name}, got {key!r}")
                visit(inner)
        elif isinstance(one, (list, tuple)):
            for inner in one:
                visit(inner)

    visit(value)
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} has a value that JSON cannot represent: {error}") from error


def load_release(
    folder: str | os.PathLike[str],
    build: Callable[..., nn.Module],
    rtol: float = 1e-3,
    atol: float = 1e-4,
) -> Release:
    """Load what `save_release` wrote, on the CPU, and check that its example gives the same output.

    The model gets the dtype of the saved weights if they all have one floating dtype.

    Args:
        folder: the release.
        build: the model's class or function; it is called with the saved `config`.
        rtol, atol: tolerances for the logits, as in `torch.allclose`, because processors differ in
            rounding.

    Raises:
        TypeError: `build` is a model and not its class, or cannot be called; a tolerance is not a
            number.
        ValueError: a tolerance is negative or nan.
        ReleaseError: a file is missing or damaged, `build` does not accept the saved `config`, the
            weights do not match, or the example fails or gives other logits.
    """
    if isinstance(build, nn.Module):
        raise TypeError("expected the model's class or a function as build, got a model")
    if not callable(build):
        raise TypeError(f"expected a class or a function as build, got {type(build).__name__}")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not checks.number(name, tolerance) >= 0:
            raise ValueError(f"{name} must be at least 0, got {tolerance}")
    folder = Path(folder)
    names = ("release.json", "weights.safetensors", "example.safetensors")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ReleaseError(f"{folder.name} lacks {', '.join(missing)}")
    card, pair = _card(folder / names[0]), _pair(folder / names[2])
    model = _built(build, card["config"], folder / names[1])
    _verify(model, pair, card, rtol, atol)
    return Release(model, card["preprocessing"], card["classes"], card["versions"])


def _built(build: Callable[..., nn.Module], config: dict[str, Any], weights: Path) -> nn.Module:
    """Return the model that `build(**config)` gives, with the weights of the file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file, load_model

    with torch.inference_mode(False), torch.device("cpu"):
        try:
            model = build(**config)
        except Exception as error:
            raise ReleaseError(
                f"the config {config} does not build the model: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(model, nn.Module):
            raise ReleaseError(f"expected a module from build, got {type(model).__name__}")
        try:
            dtypes = {t.dtype for t in load_file(weights).values() if t.is_floating_point()}
            if len(dtypes) == 1:
                model.to(dtypes.pop())
            load_model(model, os.fspath(weights))
        except SafetensorError as error:
            raise ReleaseError(f"{weights.name} is damaged: {error}") from error
        except RuntimeError as error:
            name = type(model).__name__
            raise ReleaseError(f"the weights do not match {name}: {error}") from error
    return model


def _verify(
    model: nn.Module, pair: dict[str, Tensor], card: dict[str, Any], rtol: float, atol: float
) -> None:
    """Raise unless `model` gives the saved output for the saved input."""
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
        raise ReleaseError(f"{len(card['classes'])} classes for {output.shape[-1]} logits")
    if not torch.allclose(output, want, rtol=rtol, atol=atol):
        far = (output - want).abs().max().item()
        raise ReleaseError(
            f"the example gives other logits than when it was saved, by up to {far:.2g}: has the "
            f"code changed since? (torch {card['versions'].get('torch')} then, "
            f"{torch.__version__} now)"
        )


def _card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_text("utf8"))
    except ValueError as error:
        raise ReleaseError(f"{path.name} is damaged: {error}") from error
    kinds = {"config": dict, "preprocessing": dict, "classes": list, "versions": dict}
    if not isinstance(card, dict):
        raise ReleaseError(f"{path.name} contains {type(card).__name__}, not an object")
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
