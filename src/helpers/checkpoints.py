"""Helpers of the chapter on checkpoints: save them atomically, load them with clear errors, resume.

Source: "Serialization semantics", https://pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import os
import pickle
import random
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from helpers import checks
from helpers.sparse import dense_parts

PREFIXES = ("module.", "_orig_mod.")
_STORE = "store tensors and plain Python values, such as float(x), vars(args) and str(path)"


class CheckpointError(RuntimeError):
    """Raised if a checkpoint cannot be written, read or loaded; the message gives the reason."""


# ---------------------------------------------------------------- writing and reading


def save_checkpoint(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `state` to `path` atomically: the file is the old checkpoint or the complete new one.

    The new file is written beside the old one as `<path>.tmp`, flushed to the disk with `fsync`,
    and renamed over it. If this fails, the temporary file is removed; after a kill it stays until
    the next save overwrites it. Only one process at a time may write to a path. A missing folder is
    created.

    Raises:
        TypeError: `state` is not a mapping.
        CheckpointError: `state` contains an object that `load_checkpoint` would not load, or that
            cannot be pickled, because it is neither a tensor nor a plain Python value. Nothing is
            written.
        OSError: the file could not be written, for example because the disk is full.

    Source: `man 2 rename`, `man 2 fsync`.
    """
    checks.mapping("state", state)
    path = Path(os.path.realpath(path))  # the rename must replace the target, not the symlink
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            try:
                torch.save(state, file)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise CheckpointError(f"not saved: {error}; {_STORE}") from error
            file.flush()
            os.fsync(file.fileno())
        if refused := _foreign(temporary):
            raise CheckpointError(
                f"not saved: torch.load would reject {', '.join(refused)}; {_STORE}"
            )
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError) and (cause := _os_error(error)):
            raise OSError(cause.errno, cause.strerror, str(path)) from error
        raise
    if hasattr(os, "O_DIRECTORY"):  # the new name must reach the disk too; not on Windows
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load_checkpoint(
    path: str | os.PathLike[str], map_location: Any = "cpu", verify: bool = True
) -> Any:
    """Load a checkpoint of tensors and plain Python values, with an error that states the problem.

    Args:
        path: the file.
        map_location: the device for its tensors, as in `torch.load`.
        verify: compare the file with the checksums stored in it, which `torch.load` does not do.
            Pass False for files written after `torch.serialization.set_crc32_options(False)`.

    Raises:
        TypeError, ValueError: `map_location` is neither a device, a mapping nor a function.
        FileNotFoundError: the file does not exist; the message lists the files of its folder.
        CheckpointError: the file is empty, truncated, damaged or not a checkpoint, it was written
            with another pickle protocol, or it contains objects that only running code can restore.
    """
    path = Path(path)
    _check_location(map_location)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint {path.name} in {path.parent}: {_neighbours(path)}")
    size = path.stat().st_size
    if not zipfile.is_zipfile(path):  # or older than PyTorch 1.6, which torch.load still reads
        try:
            return torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:
            if "Attempting to deserialize" in str(error):  # the file is intact, its device missing
                raise
            raise CheckpointError(f"{path.name} {_wrong_old(error, size)}") from error
    if what := _wrong(path, verify):
        raise CheckpointError(f"{path.name} {what}")
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        if "Attempting to deserialize" in str(error):  # the file is intact, its device is missing
            raise
        raise CheckpointError(f"{path.name} {_not_plain(path, error)}") from error


def _check_location(where: Any) -> None:
    if isinstance(where, str):
        try:
            torch.device(where)
        except RuntimeError as error:
            raise ValueError(f"map_location must be a device such as 'cpu': {error}") from None
    elif not (where is None or isinstance(where, torch.device | Mapping) or callable(where)):
        raise TypeError(f"map_location must be a device, got {type(where).__name__}")


def _not_plain(path: Path, error: Exception) -> str:
    """Return why `weights_only=True` does not load an intact zip archive."""
    if "TorchScript" in str(error):
        return "is a TorchScript archive: load it with torch.jit.load"
    try:
        names = ", ".join(_foreign(path))
    except pickle.UnpicklingError:
        return (
            "has a pickle that weights_only=True cannot read, as with pickle_protocol=4; "
            "torch.load without weights_only would run code from the file"
        )
    return f"imports {names or 'names that are not allowed'}; only running code can restore them"


def _foreign(path: Path) -> list[str]:
    """Return the imports of the file that `weights_only=True` does not allow."""
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))


def _os_error(error: BaseException) -> OSError | None:
    """Return the operating system's error in the chain of causes of `error`, if there is one."""
    before: BaseException | None = error
    while before is not None and not isinstance(before, OSError):
        before = before.__cause__ or before.__context__
    return before


def _neighbours(path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return "the folder does not exist"
    names = sorted(p.name for p in path.parent.iterdir() if p.is_file())
    return f"there is {', '.join(names[:5])}{', …' * (len(names) > 5)}" if names else "it is empty"


def _wrong(path: Path, verify: bool) -> str | None:
    """Return what is wrong with a zip archive as a checkpoint, or None."""
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(name.endswith("/data.pkl") for name in archive.namelist()):
                return "contains no checkpoint: torch.save did not finish it, or never wrote it"
            record = archive.testzip() if verify else None
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        return f"is damaged: {error}"
    return f"is damaged: the checksum of {record} does not match" if record else None


def _wrong_old(error: Exception, size: int) -> str:
    """Return what is wrong with a file that is no zip archive, from the error of `torch.load`."""
    if match := re.search(r"Unsupported global: GLOBAL (\S+)", str(error)):
        return f"imports {match[1]}; only running code can restore it"
    if "legacy .tar" in str(error):
        return "has the tar format of PyTorch 0.1, which needs weights_only=False"
    return f"is truncated or not a checkpoint ({size} bytes)" if size else "is empty"


def load_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Call `model.load_state_dict(weights)` if every entry fits; load everything or nothing.

    Dtypes may differ, but a complex entry fits only a complex one. A lazy parameter accepts any
    shape. Names must match as they are: modules that rename the keys
    of old files while loading are not supported.

    Raises:
        TypeError: `model` is not a module, or `weights` is not a mapping from names to tensors, but
            for example a path.
        CheckpointError: names or shapes do not match, or an entry cannot be copied without loss: it
            is on `meta`, sparse, quantized or complex and the model's is not, or the model's was
            made with `expand`. The message lists all of them, and the model is unchanged. (PyTorch
            copies what matches before it raises.)
    """
    checks.module("model", model)
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"load_weights expects a state_dict, got {type(weights).__name__}; read a file with "
            "load_checkpoint first"
        )
    if other := [name for name in weights if not isinstance(name, str)]:
        raise TypeError(f"names must be strings, got {other[0]!r} ({type(other[0]).__name__})")
    own = model.state_dict()
    missing = [name for name in own if name not in weights]
    unexpected = [name for name in weights if name not in own]
    shapes = [
        f"{name} is {_shape(weights[name])}, the model has {_shape(own[name])}"
        for name in own
        if name in weights and not _fits(weights[name], own[name], name)
    ]
    kinds = [
        f"{name} is {_kind(weights[name])}, the model has {_kind(own[name])}"
        for name in own
        if name in weights and not shapes and not _copies(weights[name], own[name])
    ]
    problems = [
        ("missing", missing),
        ("unexpected", unexpected),
        ("of another shape", shapes),
        ("of another kind", kinds),
    ]
    if not any(names for _, names in problems):
        model.load_state_dict(weights)
        return
    lines = [f"{kind}: {', '.join(names)}" for kind, names in problems if names]
    raise CheckpointError("; ".join(["nothing was loaded", *lines, *_advice(own, weights)]))


def _fits(value: Any, own: Any, name: str) -> bool:
    if name.endswith("_extra_state"):  # a module's own object, of any type
        return True
    if isinstance(own, Tensor) and isinstance(value, Tensor) and (is_lazy(own) or is_lazy(value)):
        return is_lazy(own)
    return _shape(value) == _shape(own)


def _copies(value: Any, own: Any) -> bool:
    """Return whether `copy_` writes all values of `value` into `own`, which has its shape."""
    if not isinstance(own, Tensor) or not isinstance(value, Tensor) or is_lazy(own):
        return True
    lost = (value.is_complex() > own.is_complex()) or (value.is_quantized > own.is_quantized)
    same = value.layout == own.layout and value.is_meta == own.is_meta
    return not lost and same and not _is_expanded(own)


def _is_expanded(x: Tensor) -> bool:
    """Return whether several elements share one place in memory, so that `copy_` raises."""
    sizes = zip(x.shape, x.stride(), strict=True) if x.layout == torch.strided else ()
    return any(size > 1 and stride == 0 for size, stride in sizes)


def _kind(x: Tensor) -> str:
    expanded = ", expanded" if _is_expanded(x) else ""
    return f"{x.dtype} ({x.layout}, {x.device.type}{expanded})"


def _shape(value: Any) -> Any:
    """Return a tensor's shape as a tuple, or the name of another value's type."""
    if is_lazy(value):
        return "uninitialized"
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _advice(own: Mapping[str, Any], weights: Mapping[str, Any]) -> list[str]:
    for prefix in PREFIXES:
        if weights and all(name.startswith(prefix) for name in weights):
            return [f"every name begins with {prefix!r}: strip it"]
    if "_orig_mod" in {part for name in weights for part in name.split(".")}:
        return ["a submodule was compiled: remove '_orig_mod.' from the names"]
    inside = [k for k, v in weights.items() if isinstance(v, Mapping) and set(v) & set(own)]
    return [f"this is a whole checkpoint: pass its entry {inside[0]!r}"] if inside else []


# ---------------------------------------------------------------- resuming


def rng_state() -> dict[str, Any]:
    """Return the states of all global random generators, in types that `weights_only=True` loads.

    They are Python's, NumPy's, PyTorch's on the CPU, and one for each CUDA GPU. Other accelerators
    and your own generator objects are not included.
    """
    name, keys, *rest = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(keys.astype("int64")), *rest],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Restore the states that `rng_state` returned; call it last, so that nothing draws after it.

    GPU states are restored for as many GPUs as there are.

    Raises:
        ValueError: a state is missing.
        TypeError: `state` is not a mapping, or a state is not on the CPU, as after
            `torch.load(map_location="cuda")`. After an error all states are as before.
    """
    missing = {"python", "numpy", "torch"} - checks.mapping("state", state).keys()
    if missing:
        raise ValueError(f"expected a result of rng_state, got one without {sorted(missing)}")
    before = rng_state()
    try:
        _restore(state)
    except BaseException:
        _restore(before)
        raise


def _restore(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype("uint32"), *rest))
    torch.set_rng_state(state["torch"])
    for index, one in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(one, index)


def differences(a: Any, b: Any) -> list[str]:
    """Return the keys under which two checkpoints differ, compared bit for bit at any depth.

    Tensors must agree in type, dtype, layout, shape and bits, those on `meta` in all but the bits;
    NumPy arrays in dtype, shape and bytes. Devices may differ. A key that only one of the
    checkpoints has is listed, too.

    Raises:
        TypeError: `a` or `b` is not a mapping.
    """
    checks.mapping("a", a), checks.mapping("b", b)
    return [key for key in {**a, **b} if key not in a or key not in b or not _same(a[key], b[key])]


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        if (a.dtype, a.shape, a.layout, a.is_meta) != (b.dtype, b.shape, b.layout, b.is_meta):
            return False
        if a.is_meta or a.is_quantized:  # no bits to compare; `view` of a quantized tensor crashes
            return a.is_meta or torch.equal(a.cpu(), b.cpu())
        return all(
            torch.equal(_bits(x), _bits(y))
            for x, y in zip(dense_parts(a), dense_parts(b), strict=True)
        )
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()  # 0.0 and -0.0 differ, nan equals nan
    return a == b or (a != a and b != b)


def _bits(x: Tensor) -> Tensor:
    x = x.detach().cpu().resolve_conj().resolve_neg()
    return x.contiguous().flatten().view(torch.uint8)
