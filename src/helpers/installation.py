"""Which PyTorch is this, and does it fit this machine? `python -m helpers.installation` says.

Where that does not start, because the folder has a file such as `operator.py` that Python needs for
it, `python -P -m helpers.installation` does.

Sources: "CUDA compatibility", https://docs.nvidia.com/deploy/cuda-compatibility/, for drivers;
"CUDA C++ Programming Guide", https://docs.nvidia.com/cuda/cuda-c-programming-guide/, for binaries.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    _FOLDER = sys.path.pop(0)  # the files that it looks for must not hide its own imports

import importlib
import importlib.metadata
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
    """What decides whether PyTorch finds the GPU; `this_machine()` fills it in.

    Attributes:
        system: `"Linux"`, `"Windows"` or `"Darwin"`.
        python: its version.
        torch: version of PyTorch; None where it is not installed in this environment.
        cuda: the CUDA that this PyTorch is built for; None in a build for CPU, Mac or ROCm.
        hip: the ROCm that it is built for.
        archs: what it has kernels for, as `torch.cuda.get_arch_list()` says: `("sm_75", …)`.
        torchvision: its version; None where it is not installed.
        wants: what torchvision's package asks of torch, such as `">=2.14.0"`.
        driver: version of the NVIDIA driver; None where `nvidia-smi` does not answer.
        gpus: name and compute capability of each GPU that the driver sees.
        visible: the variable `CUDA_VISIBLE_DEVICES`; None where it is not set.
        shadows: files of the working folder that are imported in place of a package.
        said: what PyTorch said when it was asked for a GPU, the first line; empty if it has one,
            None if it was not asked.
    """

    system: str = "Linux"
    python: str = "3.11"
    torch: str | None = None
    cuda: str | None = None
    hip: str | None = None
    archs: tuple[str, ...] = ()
    torchvision: str | None = None
    wants: str = ""
    driver: str | None = None
    gpus: tuple[tuple[str, tuple[int, int] | None], ...] = ()
    visible: str | None = None
    shadows: tuple[str, ...] = ()
    said: str | None = None


@dataclass(frozen=True)
class Finding:
    """What is wrong with an installation, and what to do about it."""

    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}\n  → {self.do}"


def runs(capability: tuple[int, int], archs: Iterable[str]) -> str | None:
    """The kernels of a build that a GPU uses; None where the build has none for it.

    Binary code (`sm_86`) runs on cards of the same major version and the same or a later minor
    version, `sm_90a` on that capability alone. Intermediate code (`compute_90`) is the second
    choice: a driver that knows the CUDA of the build compiles it for cards as new or newer,
    `compute_100f` within the major version. The chips of Jetson boards (7.2, 8.7) want binaries of
    their own before CUDA 13.2, which is not looked at here.

    Args:
        capability: the GPU's, as `torch.cuda.get_device_capability()` gives it: `(8, 9)`.
        archs: the build's, as `torch.cuda.get_arch_list()` gives them.

    Raises:
        ValueError: an architecture is not written as `sm_` or `compute_` and a number.
    """
    serving = []
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
        if match is None:
            raise ValueError(f"expected something like 'sm_86' or 'compute_90', got {arch!r}")
        binary, built = match[1] == "sm", (int(match[2]), int(match[3]))
        if capability < built or (match[4] == "a" and capability != built):
            continue
        if capability[0] == built[0] or not (binary or match[4]):
            serving.append((binary, built, arch))
    return max(serving)[2] if serving else None


def driver_suffices(driver: str, cuda: str) -> bool:
    """Whether a driver is new enough for a build: its major version of CUDA decides.

    Args:
        driver: as `nvidia-smi` shows it: `"535.104.05"`.
        cuda: the CUDA that PyTorch is built for, `torch.version.cuda`: `"12.4"`.

    Raises:
        ValueError: a version is no number, or that CUDA is not in `OLDEST_DRIVER`.
    """
    try:
        have, major = int(driver.split(".")[0]), int(cuda.split(".")[0])
    except ValueError:
        text = f"expected versions such as '535.104' and '12.4', got {driver!r} and {cuda!r}"
        raise ValueError(text) from None
    if major not in OLDEST_DRIVER:
        raise ValueError(f"the driver is known for CUDA {sorted(OLDEST_DRIVER)}, got {cuda!r}")
    return have >= OLDEST_DRIVER[major]


def fits(version: str, wanted: str) -> bool:
    """Whether a version of torch is one that another package asks for.

    A local part, `+cu130`, does not count, and neither does the name: `">=2.14.0"`, `"==2.8.0"`.

    Raises:
        packaging.specifiers.InvalidSpecifier, packaging.version.InvalidVersion: not such a text.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(wanted).contains(Version(version).public, prereleases=True)


def find_shadows(folder: str | Path) -> tuple[str, ...]:
    """Files and packages of a folder that a script there imports in place of the real ones.

    A name counts if a module of Python, torch, torchvision, torchaudio or numpy has it. Modules
    that are part of the interpreter, such as `time`, cannot be hidden; a folder without
    `__init__.py` hides no installed package.
    """
    inside = (BuiltinImporter, FrozenImporter)
    hidden = {*sys.stdlib_module_names, *OURS}
    hidden = {name for name in hidden if not any(part.find_spec(name) for part in inside)}
    folder = Path(folder)
    found = [p.name for p in folder.glob("*.py") if p.stem in hidden]
    found += [f"{p.parent.name}/" for p in folder.glob("*/__init__.py") if p.parent.name in hidden]
    return tuple(sorted(found))


def this_machine() -> Machine:
    """Look at this machine; what is broken or missing is noted, and nothing is raised."""
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
            facts["said"] = _first_line(error)
    if facts.get("torch"):
        facts |= _package("torchvision")
    return Machine(**facts, **_nvidia_smi())


def _shadows() -> tuple[str, ...]:
    """Of the files beside the script, or in a notebook's folder, those that Python does import."""
    found = set()
    for folder in {sys.path[0], ""} & set(sys.path):
        there = Path(folder or ".").resolve()
        if str(there) in sysconfig.get_paths().values():
            continue
        for name in find_shadows(there):
            spec = PathFinder.find_spec(name.removesuffix(".py").removesuffix("/"))
            if spec and spec.origin and Path(spec.origin).resolve().is_relative_to(there / name):
                found.add(name)
    return tuple(sorted(found))


def _torch() -> dict:
    torch = importlib.import_module("torch")
    facts = {"torch": str(torch.__version__), "said": ""}
    facts |= {"cuda": torch.version.cuda, "hip": torch.version.hip}
    # the list is empty where CUDA does not start, so it is read from where it is compiled in
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")()
    facts["archs"] = tuple((flags or "").split())
    try:
        torch.zeros(1, device="mps" if torch.backends.mps.is_available() else "cuda")
    except Exception as error:
        facts["said"] = _first_line(error)
    return facts


def _package(name: str) -> dict:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return {}
    facts = {name: found.version}
    for line in (found.requires or ()) if name == "torchvision" else ():
        if match := re.match(r"torch\s*\(?([=<>!~][^;)]*)", line):
            facts["wants"] = match[1].strip()
    return facts


def _nvidia_smi() -> dict:
    for fields in ("driver_version,compute_cap,name", "driver_version,name"):  # 470 knows no cap
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
    """What keeps PyTorch from using the machine's GPU, or from working at all; the first first."""
    return [*_broken(machine), *_without_gpu(machine)]


def _broken(m: Machine) -> Iterable[Finding]:
    if m.shadows:
        yield Finding(
            f"{' and '.join(m.shadows)} in this folder hides what is installed",
            "rename it; if it belongs to a library's source, start Python in another folder",
        )
    if m.torch is None:
        yield Finding("this Python has no PyTorch", f"{_PIP} torch torchvision")
    elif m.torchvision and m.wants and not fits(m.torch, m.wants):
        yield Finding(
            f"torchvision {m.torchvision} wants torch{m.wants}, and torch is {m.torch}",
            f"install both in one command, so that pip chooses a pair: {_PIP} -U torch torchvision",
        )


_PIP = "python -m pip install"
_SELECTOR = "https://pytorch.org/get-started/locally/"


def _without_gpu(m: Machine) -> Iterable[Finding]:
    if m.torch is None or m.hip or m.system == "Darwin":
        return
    if m.said != "":
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
            "no NVIDIA driver answers",
            "run nvidia-smi and read what it says: a GPU wants a driver, an updated driver a "
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
    """The number of the first GPU; None for an identifier, -1 for none, as CUDA reads the variable.

    It reads up to the first that is no GPU, and one named twice leaves none.
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
    """The facts and what follows from them, a text to paste into an issue.

    It names no user or folder, except where PyTorch's own message has one.
    """
    gpus = [f"{n} (sm_{c[0]}{c[1]})" if c else n for n, c in machine.gpus]
    kinds = {"CUDA": machine.cuda, "ROCm": machine.hip}
    built = next((f"for {kind} {of}" for kind, of in kinds.items() if of), "without CUDA")
    wants = f" (wants torch{machine.wants})" if machine.wants else ""
    facts = {
        "system": f"{machine.system}, Python {machine.python}",
        "torch": f"{machine.torch}, built {built}" if machine.torch else "none",
        "torchvision": f"{machine.torchvision}{wants}" if machine.torchvision else "none",
        "kernels for": " ".join(machine.archs) or "none",
        "driver": machine.driver or "none",
        "GPUs": ", ".join(gpus) or "none",
        "visible": "not set" if machine.visible is None else repr(machine.visible),
        "asked for a GPU": "not asked" if machine.said is None else machine.said or "works",
    }
    wide = max(map(len, facts))
    lines = [f"{name:{wide}}  {value}" for name, value in facts.items()]
    return "\n".join([*lines, "", *map(str, diagnose(machine) or ["nothing found"])])


def smoke_test(device: str = "cpu") -> dict[str, bool]:
    """Whether a product, a convolution, a backward pass and a copy back are right on a device.

    Results are compared with float64 on the CPU; they may be off by a hundredth (TF32 is).

    Raises:
        RuntimeError, AssertionError: what PyTorch raises where the device does not work.
    """
    import torch
    import torch.nn.functional as F

    def near(found: torch.Tensor, expected: torch.Tensor) -> bool:
        return torch.allclose(found.cpu().double(), expected, rtol=1e-2, atol=1e-2)

    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(s, generator=generator) for s in ((4, 3, 8, 8), (5, 3, 3, 3)))
    there, weight = x.to(device), w.to(device, copy=True).requires_grad_()
    F.conv2d(there, weight).square().mean().backward()
    exact = w.double().requires_grad_()
    F.conv2d(x.double(), exact).square().mean().backward()
    flat = x.flatten(1)
    return {
        "copy": torch.equal(there.cpu(), x),
        "product": near(there.flatten(1) @ there.flatten(1).T, flat.double() @ flat.double().T),
        "convolution": near(F.conv2d(there, weight.detach()), F.conv2d(x.double(), w.double())),
        "gradient": near(weight.grad, exact.grad),
    }


if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path.insert(0, _FOLDER)
    elif not os.environ.get("PYTHONSAFEPATH"):  # only this command is safe, the scripts are not
        sys.path.insert(0, os.getcwd())
    sys.stdout.reconfigure(errors="replace")  # a file on Windows may have no arrow
    print(report(this_machine()))
