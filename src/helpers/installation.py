"""Report whether the installed PyTorch fits this machine: run `python -m helpers.installation`.

If that does not start, because the folder has a file such as `operator.py` that hides a module of
Python, run `python -P -m helpers.installation`.

Sources: "CUDA compatibility", https://docs.nvidia.com/deploy/cuda-compatibility/, for drivers;
"CUDA C++ Programming Guide", https://docs.nvidia.com/cuda/cuda-c-programming-guide/, for binaries.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    _FOLDER = sys.path.pop(0)  # the files that it looks for must not hide its own imports

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path

# The oldest driver of each CUDA: NVIDIA's table "minor version compatibility".
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
OURS = ("torch", "torchvision", "torchaudio", "numpy")


@dataclass(frozen=True)
class Machine:
    """Facts that decide whether PyTorch can use the GPU; `this_machine()` collects them.

    Attributes:
        system: `"Linux"`, `"Windows"` or `"Darwin"`.
        python: its version.
        torch: version of PyTorch; None if it is not installed in this environment.
        cuda: CUDA version of this build of PyTorch; None in a build for CPU, Mac or ROCm.
        hip: ROCm version of this build.
        archs: architectures of its kernels, as in `torch.cuda.get_arch_list()`: `("sm_75", …)`.
        torchvision: its version; None if it is not installed.
        torch_required: version of torch that torchvision requires, such as `">=2.14.0"`.
        driver: version of the NVIDIA driver; None if `nvidia-smi` fails.
        gpus: name and compute capability of each GPU of the driver.
        visible: the variable `CUDA_VISIBLE_DEVICES`; None if it is not set.
        shadows: files of the working folder that are imported in place of a package.
        gpu_error: first line of PyTorch's error when a GPU was requested; empty if that worked,
            None if it was not tried.
        imported: False if `import torch` fails; `gpu_error` is its error.
    """

    system: str = "Linux"
    python: str = "3.11"
    torch: str | None = None
    cuda: str | None = None
    hip: str | None = None
    archs: tuple[str, ...] = ()
    torchvision: str | None = None
    torch_required: str = ""
    driver: str | None = None
    gpus: tuple[tuple[str, tuple[int, int] | None], ...] = ()
    visible: str | None = None
    shadows: tuple[str, ...] = ()
    gpu_error: str | None = None
    imported: bool = True

    def __post_init__(self) -> None:
        """Raise a TypeError if a version is not a text, or a GPU not a pair."""
        for name in ("torch", "cuda", "hip", "torchvision", "driver", "visible"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise TypeError(f"{name} must be a text or None, got {value!r}")
        if isinstance(self.archs, str):
            raise TypeError(f"archs must be a tuple such as ('sm_86',), got {self.archs!r}")
        for gpu in self.gpus:
            if not isinstance(gpu, tuple | list) or len(gpu) != 2 or not isinstance(gpu[0], str):
                raise TypeError(f"a GPU must be a pair such as ('A100', (8, 0)), got {gpu!r}")


@dataclass(frozen=True)
class Finding:
    """Problem of an installation, and the action that solves it."""

    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}\n  → {self.do}"


def runs(capability: tuple[int, int], archs: Iterable[str]) -> str | None:
    """Return the kernels of a build that a GPU uses; None if the build has none for it.

    Binary code (`sm_86`) runs on GPUs of the same major version and the same or a later minor
    version, `sm_90a` on that capability alone. Intermediate code (`compute_90`) is the second
    choice: a driver that supports the CUDA of the build compiles it for GPUs as new or newer,
    `compute_100f` within the major version. Jetson boards (7.2, 8.7), which need their own binaries
    before CUDA 13.2, are not covered.

    Args:
        capability: the GPU's, as from `torch.cuda.get_device_capability()`: `(8, 9)`.
        archs: the build's, as from `torch.cuda.get_arch_list()`.

    Raises:
        TypeError: `archs` is a string or no iterable.
        ValueError: an architecture is not written as `sm_` or `compute_` and a number, or
            `capability` is not a pair of `int`.
    """
    if isinstance(archs, str) or not isinstance(archs, Iterable):
        raise TypeError(f"archs must be a list such as ['sm_86'], got {archs!r}")
    if (
        not isinstance(capability, tuple | list)
        or len(capability) != 2
        or not all(isinstance(part, int) for part in capability)
    ):
        raise ValueError(f"capability must be a pair such as (8, 9), got {capability!r}")
    capability, serving = tuple(capability), []
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", str(arch))
        if match is None:
            raise ValueError(f"expected something like 'sm_86' or 'compute_90', got {arch!r}")
        binary, built = match[1] == "sm", (int(match[2]), int(match[3]))
        if capability < built or (match[4] == "a" and capability != built):
            continue
        if capability[0] == built[0] or not (binary or match[4]):
            serving.append((binary, built, arch))
    return max(serving)[2] if serving else None


def driver_suffices(driver: str, cuda: str) -> bool:
    """Return whether a driver is new enough for a build, by the build's major version of CUDA.

    Args:
        driver: as shown by `nvidia-smi`: `"535.104.05"`.
        cuda: the CUDA of PyTorch's build, `torch.version.cuda`: `"12.4"`.

    Raises:
        ValueError: a version is not such a text, or that CUDA is not in `OLDEST_DRIVER`.
    """
    try:
        have, major = int(driver.split(".")[0]), int(cuda.split(".")[0])
    except (AttributeError, ValueError, TypeError):
        text = f"expected versions such as '535.104' and '12.4', got {driver!r} and {cuda!r}"
        raise ValueError(text) from None
    if major not in OLDEST_DRIVER:
        raise ValueError(f"the driver is known for CUDA {sorted(OLDEST_DRIVER)}, got {cuda!r}")
    return have >= OLDEST_DRIVER[major]


def fits(version: str, required: str) -> bool:
    """Return whether a version of torch satisfies the requirement of another package.

    The local part, `+cu130`, is ignored. Requirements have no name: `">=2.14.0"`, `"==2.8.0"`.

    Raises:
        TypeError: `version` or `required` is not a text.
        packaging.specifiers.InvalidSpecifier, packaging.version.InvalidVersion: malformed text.
    """
    for name, text in (("version", version), ("required", required)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a text such as '2.9.0' or '>=2.9', got {text!r}")
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(required).contains(Version(version).public, prereleases=True)


def find_shadows(folder: str | Path) -> tuple[str, ...]:
    """Return the `.py` files and packages of a folder that hide a module from a script there.

    A name counts if a module of Python, torch, torchvision, torchaudio, numpy or a package that
    torch requires has it. Modules that are part of the interpreter, such as `time`, cannot be
    hidden; a folder without `__init__.py` hides no installed package.

    Raises:
        NotADirectoryError: `folder` does not exist, or is a file.
    """
    inside = (BuiltinImporter, FrozenImporter)
    hidden = {*sys.stdlib_module_names, *OURS, *_required_by_torch()}
    hidden = {name for name in hidden if not any(part.find_spec(name) for part in inside)}
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(f"expected a folder, got {str(folder)!r}")
    names = [p.name for p in folder.glob("*.py") if p.stem in hidden]
    names += [f"{p.parent.name}/" for p in folder.glob("*/__init__.py") if p.parent.name in hidden]
    return tuple(sorted(names))


def _required_by_torch() -> set[str]:
    """Return the modules of the packages that torch requires, such as `typing_extensions`."""
    try:
        lines = importlib.metadata.requires("torch") or ()
    except importlib.metadata.PackageNotFoundError:
        return set()
    names = (re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line)
    return {name[0].lower().replace("-", "_") for name in names if name}


def this_machine() -> Machine:
    """Return the facts of this machine; record whatever is broken or missing, and raise nothing."""
    facts: dict = {
        "system": platform.system(),
        "python": platform.python_version(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "shadows": _shadows(),
    }
    facts |= _package("torch")
    if "torch" in sys.modules or not {"torch.py", "torch/"} & set(facts["shadows"]):
        try:
            facts |= _torch()
        except Exception as error:
            facts |= _build() | {"gpu_error": _first_line(error), "imported": False}
    if facts.get("torch"):
        facts |= _package("torchvision")
    return Machine(**facts, **_nvidia_smi())


def _shadows() -> tuple[str, ...]:
    """Return the files beside the script, or in a notebook's folder, that Python does import."""
    names = set()
    for folder in {sys.path[0], ""} & set(sys.path):
        directory = Path(folder or ".").resolve()
        if directory in {Path(path).resolve() for path in sysconfig.get_paths().values()}:
            continue
        if not directory.is_dir():  # a zip file with the script
            continue
        for name in find_shadows(directory):
            spec = PathFinder.find_spec(name.removesuffix(".py").removesuffix("/"))
            if (
                spec
                and spec.origin
                and Path(spec.origin).resolve().is_relative_to(directory / name)
            ):
                names.add(name)
    return tuple(sorted(names))


def _torch() -> dict:
    torch = importlib.import_module("torch")
    facts = {"torch": str(torch.__version__), "gpu_error": ""}
    facts |= {"cuda": torch.version.cuda, "hip": torch.version.hip}
    # get_arch_list() is empty if CUDA does not start; the compiled flags are always there
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")()
    facts["archs"] = tuple((flags or "").split())
    try:
        torch.zeros(1, device="mps" if torch.backends.mps.is_available() else "cuda")
    except Exception as error:
        facts["gpu_error"] = _first_line(error)
    return facts


def _build() -> dict:
    """Return CUDA and ROCm of the installed wheel, read from its file without an import."""
    try:
        path = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        text = Path(path).read_text("utf8")
    except (OSError, importlib.metadata.PackageNotFoundError):
        return {}
    pattern = r"^(cuda|hip)\b[^=\n]*= *['\"]([\d.]+)"
    return {match[1]: match[2] for match in re.finditer(pattern, text, re.M)}


def _package(name: str) -> dict:
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return {}
    facts = {name: package.version}
    for line in (package.requires or ()) if name == "torchvision" else ():
        if match := re.match(r"torch\s*\(?([=<>!~][^;)]*)", line):
            facts["torch_required"] = match[1].strip()
    return facts


def _nvidia_smi() -> dict:
    # driver 470 does not support the field compute_cap
    for fields in ("driver_version,compute_cap,name", "driver_version,name"):
        try:
            out = subprocess.run(
                ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                capture_output=True, text=True, errors="replace", timeout=20, check=True,
            ).stdout  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue
        parts = fields.count(",")
        rows = [[part.strip() for part in line.split(",", parts)] for line in out.splitlines()]
        rows = [row for row in rows if len(row) > parts and re.match(r"\d+\.", row[0])]
        if rows:
            gpus = tuple((row[-1], _capability(row[1])) for row in rows)
            return {"driver": rows[0][0], "gpus": gpus}
    return {}


def _capability(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d)", text)
    return (int(match[1]), int(match[2])) if match else None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def diagnose(machine: Machine) -> list[Finding]:
    """Return what keeps PyTorch from using the GPU, or from working at all, first cause first.

    Raises:
        TypeError: `machine` is not a `Machine`.
    """
    _require_machine(machine)
    return [*_broken(machine), *_without_gpu(machine)]


def _require_machine(machine: object) -> None:
    if not isinstance(machine, Machine):
        raise TypeError(f"expected a Machine, as from this_machine(), got {machine!r}")


def _broken(m: Machine) -> Iterable[Finding]:
    if m.shadows:
        yield Finding(
            f"{' and '.join(m.shadows)} in this folder hides what is installed",
            "rename it; if it belongs to a library's source, start Python in another folder",
        )
    if m.torch is None:
        yield Finding("this Python has no PyTorch", f"{_PIP} torch torchvision")
    elif not m.imported:
        yield Finding(
            f"torch cannot be imported: {m.gpu_error}",
            f"install it again in a new environment: {_PIP} torch torchvision",
        )
    elif m.torchvision and m.torch_required and not fits(m.torch, m.torch_required):
        yield Finding(
            f"torchvision {m.torchvision} requires torch{m.torch_required}, and torch is {m.torch}",
            f"install both in one command, so that pip chooses a pair: {_PIP} -U torch torchvision",
        )


_PIP = "python -m pip install"
_SELECTOR = "https://pytorch.org/get-started/locally/"


def _without_gpu(m: Machine) -> Iterable[Finding]:
    if m.torch is None or not m.imported or m.hip or m.system == "Darwin":
        return
    if m.gpu_error != "":
        yield from _not_started(m)
    for name, capability in m.gpus if m.cuda else ():
        if capability and m.archs and runs(capability, m.archs) is None:
            yield Finding(
                f"{name} is sm_{capability[0]}{capability[1]}, "
                f"and this build has kernels for {' '.join(m.archs)}",
                f"install a build that has them: {_SELECTOR} and the older versions there",
            )


def _not_started(m: Machine) -> Iterable[Finding]:
    if m.cuda is None:
        if m.driver:
            yield Finding(
                "there is an NVIDIA GPU, and this PyTorch is built without CUDA",
                f"uninstall torch, and install the build for CUDA that {_SELECTOR} names",
            )
        return
    if m.driver is None:
        yield Finding(
            "no NVIDIA driver responds",
            "run nvidia-smi and read its message: a GPU requires a driver, an updated driver a "
            "reboot, a container --gpus all",
        )
        return
    first = _first_visible(m.visible) if m.visible is not None else None
    if first is not None and (first < 0 or m.gpus and first >= len(m.gpus)):
        yield Finding(
            f"CUDA_VISIBLE_DEVICES={m.visible!r} hides every GPU",
            "unset it, or name GPUs as nvidia-smi counts them: CUDA_VISIBLE_DEVICES=0",
        )
    if int(m.cuda.split(".")[0]) in OLDEST_DRIVER and not driver_suffices(m.driver, m.cuda):
        yield Finding(
            f"driver {m.driver} is too old for CUDA {m.cuda}",
            f"install driver {OLDEST_DRIVER[int(m.cuda.split('.')[0])]} or newer, "
            "or a PyTorch built for an older CUDA",
        )


def _first_visible(variable: str) -> int | None:
    """Return the number of the first visible GPU; None for an identifier, -1 for none.

    CUDA reads the variable up to the first entry that is no GPU; a GPU named twice leaves none.
    """
    kind = variable[:4] if variable[:4] in ("GPU-", "MIG-") else ""
    seen: list[int | str] = []
    for part in variable.split(","):
        number = re.match(r"\s*([+-]?[0-9]+)", part)
        if not part.startswith(kind) if kind else number is None or int(number[1]) < 0:
            break
        name = part if kind else int(number[1])
        if name in seen:
            return -1
        seen.append(name)
    if not seen:
        return -1
    return None if kind else seen[0]


def report(machine: Machine) -> str:
    """Return the facts of a machine and their diagnosis, as text to paste into an issue.

    It contains no user or folder, unless PyTorch's own message does.

    Raises:
        TypeError: `machine` is not a `Machine`.
    """
    _require_machine(machine)
    gpus = [f"{n} (sm_{c[0]}{c[1]})" if c else n for n, c in machine.gpus]
    kinds = {"CUDA": machine.cuda, "ROCm": machine.hip}
    unknown = "without CUDA" if machine.imported else "for CPU or unknown"
    built = next((f"for {kind} {of}" for kind, of in kinds.items() if of), unknown)
    required = f" (requires torch{machine.torch_required})" if machine.torch_required else ""
    error = machine.gpu_error
    facts = {
        "system": f"{machine.system}, Python {machine.python}",
        "torch": f"{machine.torch}, built {built}" if machine.torch else "none",
        "torchvision": f"{machine.torchvision}{required}" if machine.torchvision else "none",
        "kernels for": " ".join(machine.archs) or "none",
        "driver": machine.driver or "none",
        "GPUs": ", ".join(gpus) or "none",
        "visible": "not set" if machine.visible is None else repr(machine.visible),
        "asked for a GPU": "not asked" if error is None else error or "works",
    }
    wide = max(map(len, facts))
    lines = [f"{name:{wide}}  {value}" for name, value in facts.items()]
    return "\n".join([*lines, "", *map(str, diagnose(machine) or ["nothing found"])])


def smoke_test(device: str = "cpu") -> dict[str, bool]:
    """Return which of a product, a convolution, a gradient and a copy are right on a device.

    Results are compared with float64 on the CPU within 1 % (TF32 needs that).

    Raises:
        TypeError: `device` is neither a str nor a `torch.device`.
        RuntimeError, AssertionError: PyTorch's error if the device does not work.
    """
    import torch
    import torch.nn.functional as F

    if not isinstance(device, str | torch.device):
        raise TypeError(f"device must be a text such as 'cuda', got {device!r}")

    def near(got: torch.Tensor, expected: torch.Tensor) -> bool:
        return torch.allclose(got.cpu().double(), expected, rtol=1e-2, atol=1e-2)

    generator = torch.Generator("cpu").manual_seed(0)
    with torch.inference_mode(False), torch.enable_grad():
        shapes = (4, 3, 8, 8), (5, 3, 3, 3)
        x, w = (torch.randn(s, generator=generator, device="cpu") for s in shapes)
        moved, weight = x.to(device), w.to(device, copy=True).requires_grad_()
        F.conv2d(moved, weight).square().mean().backward()
        exact = w.double().requires_grad_()
        F.conv2d(x.double(), exact).square().mean().backward()
    flat = x.flatten(1)
    return {
        "copy": torch.equal(moved.cpu(), x),
        "product": near(moved.flatten(1) @ moved.flatten(1).T, flat.double() @ flat.double().T),
        "convolution": near(F.conv2d(moved, weight.detach()), F.conv2d(x.double(), w.double())),
        "gradient": near(weight.grad, exact.grad),
    }


if __name__ == "__main__":
    if importlib.util.find_spec("packaging"):  # `fits` uses it: a `packaging.py` must not hide it
        importlib.import_module("packaging.specifiers")
    if not sys.flags.safe_path:
        sys.path.insert(0, _FOLDER)
    elif not os.environ.get("PYTHONSAFEPATH"):  # only this command is safe, the scripts are not
        sys.path.insert(0, os.getcwd())
    sys.stdout.reconfigure(errors="replace")  # a file on Windows may have no arrow
    print(report(this_machine()))
