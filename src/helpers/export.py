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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, the exporter's reports to the terminal are dropped; errors are raised as ever."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def why_not(model: nn.Module, *example: Tensor, dynamic_shapes: Any = None) -> str | None:
    """Why `torch.export.export` refuses a model with this example: None if it does not.

    Args:
        model: in the mode in which it would be exported.
        example: its inputs.
        dynamic_shapes: as in `torch.export.export`.

    Returns:
        The type of the error and the sentence that says what is wrong.
    """
    copies = tuple(x.clone() for x in example)  # a refused export leaves marks on its example
    try:
        with quiet():
            torch.export.export(model, copies, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        return said(error)
    return None


def said(error: Exception) -> str:
    """The type of an error, and of its message what was wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    line = lines[-1] if "TorchScript" in lines[0] else lines[0]
    if line.endswith(":") and len(lines) > 1:
        line = f"{line} {lines[1].removeprefix('- ')}"
    line = line.removeprefix("RuntimeError: ").split("! For more")[0].split(" (unhinted")[0]
    return f"{type(error).__name__}: {line}"


# ---------------------------------------------------------------- ONNX


class OnnxModel:
    """An ONNX file that is called with tensors like the model that it was made from.

    It runs in ONNX Runtime on the CPU.

    Args:
        path: the `.onnx` file; the file of its weights has to lie where it was written.

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
            TypeError: inputs are missing or unknown, no tensors, or of another dtype.
            ValueError: an input has a shape that the file does not allow.
        """
        if len(args) > len(self.inputs):
            raise TypeError(f"{len(args)} inputs for {len(self.inputs)}: {', '.join(self.inputs)}")
        named = dict(zip(self.inputs, args, strict=False))
        if twice := sorted(named.keys() & kwargs.keys()):
            raise TypeError(f"given twice: {', '.join(twice)}")
        named |= kwargs
        if named.keys() != self.inputs.keys():
            raise TypeError(f"the inputs are {', '.join(self.inputs)}, got {', '.join(named)}")
        for name, (shape, dtype) in self.inputs.items():
            self._check(name, named[name], shape, dtype)
        feed = {name: tensor.detach().cpu().numpy() for name, tensor in named.items()}
        results = tuple(map(torch.from_numpy, self.session.run(None, feed)))
        return results[0] if len(results) == 1 else results

    @staticmethod
    def _check(name: str, tensor: Any, shape: tuple[int | str, ...], dtype: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
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

    A `nn.Module` among the two has to be in evaluation mode already.

    Args:
        model, other: from a batch to a tensor of scores.
        batches: of at least two different sizes, or a size that was fixed by accident stays hidden.

    Raises:
        ValueError: a model is in training mode, all batches have one size, the answers differ in
            shape, or an answer is not finite.
    """
    for one in (model, other):
        if getattr(one, "training", False) and isinstance(one, nn.Module) and _random(one):
            raise ValueError("a model is in training mode: call eval() first")
    worst, sizes = 0.0, set()
    for batch in batches:
        sizes.add(len(batch))
        a, b = model(batch), other(batch)
        if a.shape != b.shape:
            raise ValueError(f"the shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
        a, b = a.cpu().double(), b.cpu().double()
        if not (a.isfinite().all() and b.isfinite().all()):
            raise ValueError("an answer is not finite")
        worst = max(worst, (a - b).abs().max().item() if a.numel() else 0.0)
    if len(sizes) < 2:
        raise ValueError("compare on batches of at least two sizes")
    return worst


def _random(model: nn.Module) -> bool:
    """Is there a layer that works otherwise in training?"""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    return any(isinstance(m, kinds) and m.training for m in model.modules())


# ---------------------------------------------------------------- quantization


def accuracy(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """The share of right answers, from scores of shape (N, classes); labels of shape (N,)."""
    with torch.no_grad():
        return (model(inputs).argmax(-1).cpu() == labels.cpu()).float().mean().item()


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
        example: a preprocessed batch.
        config: the arguments with which the model's class or function builds it again.
        preprocessing: how a raw input becomes an element of the batch.
        classes: their names, in the order of the scores.

    Raises:
        FileExistsError: the folder exists.
        TypeError: `config` or `preprocessing` holds what JSON cannot write.
        ValueError: there are more or fewer classes than scores.
    """
    from safetensors.torch import save_file, save_model

    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} exists: a release is never overwritten")
    with preserve_modes(model), torch.inference_mode():
        output = model.eval()(example)
    if output.shape != (len(example), len(classes)):
        raise ValueError(f"{len(classes)} classes for scores of shape {tuple(output.shape)}")
    text = json.dumps(
        {
            "config": dict(config),
            "preprocessing": dict(preprocessing),
            "classes": list(classes),
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
        },
        indent=2,
        ensure_ascii=False,
    )
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_model(model, os.fspath(temporary / "weights.safetensors"))
    pair = {"input": example, "output": output}
    pair = {name: tensor.detach().clone().contiguous() for name, tensor in pair.items()}
    save_file(pair, temporary / "example.safetensors")
    (temporary / "release.json").write_text(text, "utf8")
    temporary.rename(folder)


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
        ReleaseError: a file is missing, the weights do not fit the model, or the answers differ.
    """
    from safetensors.torch import load_file, load_model

    folder = Path(folder)
    names = ("release.json", "weights.safetensors", "example.safetensors")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ReleaseError(f"{folder.name} lacks {', '.join(missing)}")
    card = json.loads((folder / "release.json").read_text("utf8"))
    pair = load_file(folder / "example.safetensors")
    model = build(**card["config"])
    try:
        load_model(model, os.fspath(folder / "weights.safetensors"))
    except RuntimeError as error:
        raise ReleaseError(f"the weights do not fit {type(model).__name__}: {error}") from error
    with torch.inference_mode():
        output = model.eval().requires_grad_(False)(pair["input"])
    if output.shape != pair["output"].shape:
        raise ReleaseError(
            f"the example gave {tuple(pair['output'].shape)}, now {tuple(output.shape)}"
        )
    if not torch.allclose(output, pair["output"], rtol=rtol, atol=atol):
        far = (output - pair["output"]).abs().max().item()
        raise ReleaseError(
            f"the example gives other scores than when it was saved, by up to {far:.2g}: has the "
            f"code changed since? (torch {card['versions']['torch']} then, {torch.__version__} now)"
        )
    return Release(model, card["preprocessing"], card["classes"], card["versions"])
