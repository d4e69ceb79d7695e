"""Test the helpers of `installation` on described, real and broken machines, and the checkers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from helpers import child, installation
from helpers.demos import installation as demos
from helpers.exercises import installation as exercises
from helpers.installation import (
    Machine,
    diagnose,
    driver_suffices,
    find_shadows,
    fits,
    report,
    runs,
    smoke_test,
    this_machine,
)

# A correctly configured machine.
SOUND = Machine(
    torch="2.9.0+cu128",
    cuda="12.8",
    archs=("sm_75", "sm_80", "sm_86", "sm_90"),
    torchvision="0.24.0",
    torch_required="==2.9.0",
    driver="535.104.05",
    gpus=(("NVIDIA A100", (8, 0)), ("NVIDIA GeForce RTX 4090", (8, 9))),
)
CAPABILITIES = st.tuples(st.integers(1, 12), st.integers(0, 9))


# ---------------------------------------------------------------- kernels


def as_arch(capability, kind="sm", suffix="") -> str:
    return f"{kind}_{capability[0]}{capability[1]}{suffix}"


@given(CAPABILITIES, st.lists(CAPABILITIES, max_size=6))
def test_runs_matches_torch_for_later_minor_versions(gpu, built):
    archs = [as_arch(b) for b in built]
    found = runs(gpu, archs)
    serving = [b for b in built if 10 * gpu[0] + gpu[1] in torch.cuda._CompatInterval(
        10 * b[0] + b[1])]  # fmt: skip
    assert found == (as_arch(max(serving)) if serving else None)


@given(CAPABILITIES, st.lists(CAPABILITIES, max_size=4), st.lists(CAPABILITIES, max_size=4))
def test_runs_prefers_binaries_to_ptx(gpu, binary, built):
    archs = [as_arch(b, "compute") for b in built] + [as_arch(b) for b in binary]
    first, older = runs(gpu, map(as_arch, binary)), [b for b in built if b <= gpu]
    assert runs(gpu, archs) == (first or (as_arch(max(older), "compute") if older else None))


def test_runs_supports_arch_and_family_specific_code():
    assert runs((9, 0), ["sm_90a"]) == "sm_90a" and runs((9, 1), ["sm_90a"]) is None
    assert runs((10, 3), ["sm_100f"]) == "sm_100f" and runs((12, 0), ["sm_100f"]) is None
    assert runs((10, 3), ["compute_100f"]) and not runs((12, 0), ["compute_100f", "compute_90a"])
    assert runs((8, 0), []) is None


@pytest.mark.parametrize(
    "capability", [None, 8.6, "8.6", (8,), (8, 6, 1), ("8", "6"), (8.0, 6), torch.tensor([8, 6])]
)
def test_runs_rejects_an_invalid_capability(capability):
    with pytest.raises(ValueError, match=r"capability must be a pair such as \(8, 9\), got"):
        runs(capability, ["sm_86"])
    assert runs([8, 6], ["sm_86"]) == "sm_86"  # a list, as in JSON


@pytest.mark.parametrize("archs", ["sm_86", None, 86])
def test_runs_rejects_archs_that_are_not_a_list(archs):
    with pytest.raises(TypeError, match=r"archs must be a list such as \['sm_86'\], got"):
        runs((8, 6), archs)


@pytest.mark.parametrize("arch", [86, "sm86", "8.6", "sm_8", "gfx90a", "", "sm_86x"])
def test_runs_rejects_an_invalid_architecture(arch):
    with pytest.raises(ValueError, match=f"expected something like .* got {arch!r}"):
        runs((8, 6), [arch])


# ---------------------------------------------------------------- drivers and versions


@pytest.mark.parametrize(
    ("driver", "served"),
    [("450.80", "11"), ("524.9", "11"), ("525.60.13", "11 12"), ("579", "11 12"),
     ("580.65.06", "11 12 13"), ("999", "11 12 13")],
)  # fmt: skip
def test_driver_suffices_depends_on_the_cuda_major_version(driver, served):
    found = [m for m in ("11", "12", "13") if driver_suffices(driver, f"{m}.4")]
    assert " ".join(found) == served
    assert found == [m for m in ("11", "12", "13") if driver_suffices(driver, f"{m}.0")]


@pytest.mark.parametrize(
    "driver, cuda",
    [
        ("new", "12.4"),
        ("535", "twelve"),
        ("", "12"),
        (None, "12.4"),
        (535, 12.4),
        ("535", None),
        (b"535", "12"),
    ],
)
def test_driver_suffices_rejects_invalid_versions(driver, cuda):
    with pytest.raises(ValueError, match="expected versions such as '535.104' and '12.4'"):
        driver_suffices(driver, cuda)


@pytest.mark.parametrize("cuda", ["10.2", "14.0"])
def test_driver_suffices_rejects_an_unknown_cuda_version(cuda):
    with pytest.raises(ValueError, match=f"known for CUDA .*, got '{cuda}'"):
        driver_suffices("580", cuda)


def test_fits_accepts_local_and_prerelease_versions():
    assert fits("2.9.0+cu128", "==2.9.0") and fits("2.14.1", ">=2.14.0")
    assert not fits("2.8.0", "==2.9.0") and fits("2.15.0a0+git1", ">=2.14.0")


@pytest.mark.parametrize(("version", "required"), [(2.9, ">=2"), (None, ">=2"), ("2.9", None)])
def test_fits_rejects_values_that_are_not_text(version, required):
    with pytest.raises(TypeError, match="must be a text such as '2.9.0' or '>=2.9', got"):
        fits(version, required)


# ---------------------------------------------------------------- diagnosis


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"torch": 2.9}, "torch must be a text or None, got 2.9"),
        ({"cuda": 12.8}, "cuda must be a text or None, got 12.8"),
        ({"driver": 535}, "driver must be a text or None, got 535"),
        ({"archs": "sm_80"}, "archs must be a tuple such as"),
        ({"gpus": ("RTX 4090",)}, "a GPU must be a pair such as .* got 'RTX 4090'"),
        ({"gpus": ((8, 9),)}, "a GPU must be a pair such as"),
    ],
)
def test_machine_rejects_wrong_facts(facts, message):
    with pytest.raises(TypeError, match=message):
        Machine(**facts)


@pytest.mark.parametrize("function", [installation.diagnose, installation.report])
def test_report_requires_a_machine(function):
    for wrong in (None, {"torch": "2.9"}, Machine):
        with pytest.raises(TypeError, match="expected a Machine, as from this_machine"):
            function(wrong)


BROKEN = {
    "hides what is installed": {"shadows": ("torch.py",)},
    "has no PyTorch": {"torch": None, "cuda": None},
    "requires torch==2.8.0, and torch is 2.9.0": {"torch_required": "==2.8.0"},
    "is built without CUDA": {"cuda": None, "archs": ()},
    "no NVIDIA driver responds": {"driver": None, "gpus": ()},
    "hides every GPU": {"visible": ""},
    "too old for CUDA 12.8": {"driver": "470.256.02"},
    "RTX 5090 is sm_120": {"gpus": (("RTX 5090", (12, 0)),)},
}


def test_diagnose_returns_no_findings_for_a_working_machine():
    assert diagnose(SOUND) == []
    assert report(SOUND).endswith("nothing found")
    for visible in ("0", "1,0", "GPU-8932f937", "MIG-1/2", " 0"):
        assert diagnose(replace(SOUND, visible=visible)) == []
    for other in ({"hip": "6.2", "cuda": None}, {"system": "Darwin", "cuda": None}):
        assert diagnose(replace(SOUND, **other, driver=None, gpus=())) == []
    assert diagnose(replace(SOUND, cuda=None, driver=None, gpus=())) == []  # a laptop


@pytest.mark.parametrize("what", BROKEN)
def test_diagnose_reports_each_fault_with_a_fix(what):
    (found,) = diagnose(replace(SOUND, **BROKEN[what]))
    assert what in found.what and found.do
    assert str(found) in report(replace(SOUND, **BROKEN[what]))


def test_diagnose_lists_import_errors_first():
    all_wrong = replace(SOUND, **BROKEN["hides what is installed"], visible="-1", driver="470")
    found = [f.what for f in diagnose(all_wrong)]
    assert "hides what is installed" in found[0] and len(found) == 3


def test_successful_gpu_computation_overrides_the_tables():
    """Examples are NVIDIA's forward compatibility package and a Jetson without `nvidia-smi`."""
    for odd in ({"driver": "470.1"}, {"driver": None, "gpus": ()}, {"cuda": None}):
        assert diagnose(replace(SOUND, **odd)) and not diagnose(replace(SOUND, **odd, gpu_error=""))
    second = replace(SOUND, gpu_error="", gpus=(*SOUND.gpus, ("GTX 1080", (6, 1))))
    assert [f.what.split(" is ")[0] for f in diagnose(second)] == ["GTX 1080"]
    asked = [report(replace(SOUND, gpu_error=error)) for error in (None, "", "RuntimeError: no")]
    ends = [text.split("asked for a GPU  ")[1].splitlines()[0] for text in asked]
    assert ends == ["not asked", "works", "RuntimeError: no"]


ORDINALS = st.lists(st.sampled_from([" 0", "1", "-1", "+2", "0x", "", "a", "GPU-a", "GPU-b",
                                     "MIG-1", " GPU-a", "-0"]), min_size=1, max_size=4)  # fmt: skip


@given(ORDINALS.map(",".join))
@example("GPU-a,GPU-b,GPU-b")  # a GPU named twice after another one leaves none
def test_cuda_visible_devices_is_parsed_as_in_torch(variable):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", variable)
        read = torch.cuda._parse_visible_devices()
    hides = not read or (isinstance(read[0], int) and read[0] >= len(SOUND.gpus))
    assert hides == bool(diagnose(replace(SOUND, visible=variable)))


@given(st.builds(
    Machine, system=st.sampled_from(["Linux", "Windows", "Darwin", ""]),
    torch=st.sampled_from([None, "2.9.0", "1.13.1+cu117"]), torchvision=st.none() | st.just("0.1"),
    torch_required=st.sampled_from(["", "==2.9.0"]),
    cuda=st.sampled_from([None, "9.2", "12.4", "13.0"]),
    driver=st.sampled_from([None, "418.1", "580"]), visible=st.none() | st.text(max_size=4),
    gpus=st.lists(st.tuples(st.text(max_size=5), st.none() | CAPABILITIES), max_size=2).map(tuple),
    archs=st.lists(CAPABILITIES.map(as_arch), max_size=3).map(tuple),
))  # fmt: skip
def test_report_contains_every_finding_of_any_machine(machine):
    assert all(str(f) in report(machine) for f in diagnose(machine))


# ---------------------------------------------------------------- this machine


def test_this_machine_matches_torch():
    mine = this_machine()
    assert (mine.torch, mine.cuda) == (torch.__version__.split("+")[0], torch.version.cuda) or (
        mine.torch == torch.__version__
    )
    if mine.cuda and not torch.cuda.is_available():
        assert mine.archs and mine.gpu_error
    assert fits(mine.torch, mine.torch_required)


NVIDIA_SMI = """#!/bin/sh
echo "535.104.05, 8.0, NVIDIA A100-SXM4-40GB"
echo "535.104.05, [N/A], Quadro, RTX"
"""
# https://github.com/huggingface/candle/issues/733
NVIDIA_SMI_470 = """#!/bin/sh
case "$*" in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2;; esac
echo "470.256.02, A100"
"""


def test_nvidia_smi_output_is_parsed(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = installation._nvidia_smi()
    assert found["driver"] == "535.104.05"
    assert found["gpus"] == (("NVIDIA A100-SXM4-40GB", (8, 0)), ("Quadro, RTX", None))
    program.write_text(NVIDIA_SMI_470)
    assert installation._nvidia_smi() == {"driver": "470.256.02", "gpus": (("A100", None),)}
    program.write_text("#!/bin/sh\nprintf '535.1, 8.9, \\351\\n'\n")  # not UTF-8
    assert installation._nvidia_smi()["gpus"][0][1] == (8, 9)
    for broken in ("exit 9", "echo No devices were found", "echo '[N/A], [N/A], Orin (nvgpu)'"):
        program.write_text(f"#!/bin/sh\n{broken}\n")
        assert installation._nvidia_smi() == {}


def test_report_contains_no_paths():
    text = subprocess.run(
        [sys.executable, "-m", "helpers.installation"],
        env=child.environment(), capture_output=True, text=True, check=True, cwd="/",
    ).stdout  # fmt: skip
    assert text.startswith("system") and "torch" in text
    assert sys.prefix not in text and "site-packages" not in text


def command(folder, **variables) -> str:
    return subprocess.run(
        [sys.executable, "-m", "helpers.installation"], cwd=folder,
        env=child.environment() | variables, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_failed_torch_import_is_reported(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise OSError('libcudnn.so.9: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(installation, "_shadows", tuple)
    assert this_machine().gpu_error == "OSError: libcudnn.so.9: cannot open"


def test_script_named_torch_is_reported_and_not_run(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('ran')")
    text = command(tmp_path)
    assert "torch.py in this folder hides what is installed" in text and "not asked" in text


def test_file_named_packaging_does_not_stop_the_command(tmp_path):
    (tmp_path / "packaging.py").touch()
    for options in ((), ("-P",)):
        assert started_with(tmp_path, *options).stdout.startswith("system")


@pytest.mark.parametrize("name", ["random", "struct"])
def test_command_runs_beside_files_that_shadow_modules(tmp_path, name):
    (tmp_path / f"{name}.py").touch()
    assert f"{name}.py in this folder hides what is installed" in command(tmp_path)


@pytest.mark.parametrize("name", ["operator", "keyword", "functools", "types"])
def test_safe_path_option_reports_files_that_stop_the_command(tmp_path, name):
    """Python imports these modules before the command can inspect the folder."""
    (tmp_path / f"{name}.py").touch()
    stopped, started = started_with(tmp_path), started_with(tmp_path, "-P")
    assert f"'{name}'" in stopped.stderr.splitlines()[-1] and not stopped.stdout
    assert f"{name}.py in this folder hides what is installed" in started.stdout


def test_safe_path_variable_ignores_files_of_the_folder(tmp_path):
    (tmp_path / "operator.py").touch()
    started = started_with(tmp_path, PYTHONSAFEPATH="1")
    assert "operator" not in started.stdout and started.returncode == 0


def started_with(folder, *options, **variables) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-m", "helpers.installation"], cwd=folder,
        env=child.environment() | variables, capture_output=True, text=True,
    )  # fmt: skip


def test_ascii_output_replaces_arrows(tmp_path):
    (tmp_path / "torch.py").touch()
    assert "? rename it" in command(tmp_path, PYTHONIOENCODING="ascii")


def test_find_shadows_returns_files_that_shadow_modules(tmp_path):
    for name in ("torch.py", "train.py", "random.py", "numpy/__init__.py", "torch/notes.txt",
                 "time.py", "os.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_shadows(tmp_path) == ("numpy/", "random.py", "torch.py")
    for no_folder in (tmp_path / "missing", tmp_path / "torch.py"):
        with pytest.raises(NotADirectoryError, match="expected a folder, got"):
            find_shadows(no_folder)


def test_shadows_include_only_files_that_python_imports(tmp_path, monkeypatch):
    """In a notebook the folder comes after Python's modules and before installed packages."""
    for name in ("torch.py", "random.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    path = [p for p in sys.path if p]
    packages = next(i for i, p in enumerate(path) if p.endswith("site-packages"))
    for searched, found in (
        (["", *path], ("random.py", "torch.py")),
        ([str(tmp_path), *path], ("random.py", "torch.py")),
        ([str(tmp_path / "a script in.zip"), *path], ()),
        ([*path[:packages], "", *path[packages:]], ("torch.py",)),
        ([*path, ""], ()),
        (path, ()),
        (path[packages:] + path[:packages], ()),  # the script's folder is site-packages
    ):
        monkeypatch.setattr(sys, "path", searched)
        assert installation._shadows() == found


def test_cpu_build_simulates_a_cpu_only_build_and_restores():
    before = torch.version.cuda, torch.cuda.is_available()
    with demos.cpu_build(), pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.zeros(1, device="cuda")
    assert (torch.version.cuda, torch.cuda.is_available()) == before


def test_smoke_test_reports_wrong_results(monkeypatch):
    right = dict.fromkeys(("copy", "product", "convolution", "gradient"), True)
    assert smoke_test() == right
    with torch.inference_mode():
        assert smoke_test() == right
    conv = torch.nn.functional.conv2d
    monkeypatch.setattr(
        "torch.nn.functional.conv2d",
        lambda x, w: conv(x, w) * (1.1 if x.dtype == torch.float32 else 1),
    )
    found = smoke_test()
    assert not found["convolution"] and not found["gradient"] and found["product"]


# ---------------------------------------------------------------- exercises


def same_major(capability, archs):
    for arch in archs:
        kind, number = arch.split("_")
        digits, letter = number.rstrip("af"), number.lstrip("0123456789")
        built = int(digits[:-1]), int(digits[-1])
        fits = capability == built if letter == "a" else capability >= built
        if fits and (capability[0] == built[0] or (kind == "compute" and not letter)):
            return True
    return False


WRONG_RUN = {
    "equal only": lambda c, a: f"sm_{c[0]}{c[1]}" in a,
    "any older": lambda c, a: any(10 * c[0] + c[1] >= int(x.split("_")[1]) for x in a),
    "same major": lambda c, a: any(str(c[0]) == x.split("_")[1][:-1] for x in a),
    "one digit": lambda c, a: same_major(c, [x for x in a if len(x.split("_")[1]) == 2]),
    "binaries only": lambda c, a: same_major(c, [x for x in a if x.startswith("sm")]),
    "the kernel": lambda c, a: runs(c, a),
    "takes away": lambda c, a: [same_major(c, a), a.clear()][0],
    "always": lambda c, a: True,
    "no f": lambda c, a: same_major(c, [x.rstrip("f") for x in a]),
    "sm a is f": lambda c, a: same_major(c, [x.replace("sm_100a", "sm_100f") for x in a]),
    "a family with earlier minors": lambda c, a: (
        same_major(c, a) or any(x[-1] == "f" and x.startswith(f"sm_{c[0]}") for x in a)
    ),
    "compute of a family with earlier minors": lambda c, a: (
        same_major(c, a) or any(x[-1] == "f" and x.startswith(f"compute_{c[0]}") for x in a)
    ),
    "a is f": lambda c, a: same_major(c, [x.replace("a", "f") for x in a]),
    "first digit": lambda c, a: any(
        c >= (int(n[:-1]), int(n[-1])) and (k == "compute" or str(c[0])[0] == n[0])
        for k, n in (x.split("_") for x in a)
    ),
}


@pytest.mark.parametrize("wrong", WRONG_RUN.values(), ids=list(WRONG_RUN))
def test_check_will_run_rejects_wrong_answers(wrong):
    assert not exercises.check_will_run(wrong).passed


@pytest.mark.parametrize("right", [same_major, lambda c, a: runs(c, a) is not None])
def test_check_will_run_accepts_right_answers(right):
    assert exercises.check_will_run(right).passed, exercises.check_will_run(right)


def serving(builds, driver, capability):
    return {
        name: [int(p) for p in cuda.split(".")]
        for name, (cuda, archs) in builds.items()
        if driver_suffices(driver, cuda) and runs(capability, archs)
    }


WRONG_CHOICE = {
    "by name": lambda b, d, c: max(serving(b, d, c), default=None),
    "as text": lambda b, d, c: max(serving(b, d, c), key=lambda n: b[n][0], default=None),
    "no driver": lambda b, d, c: max(serving(b, "999", c), key=serving(b, "999", c).get,
                                     default=None),
    "any card": lambda b, d, c: max((n for n in b if driver_suffices(d, b[n][0])), default=None),
    "an error": lambda b, d, c: max(serving(b, d, c), key=serving(b, d, c).get),
    "the last": lambda b, d, c: [*serving(b, d, c), None][-1],
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_CHOICE.values(), ids=list(WRONG_CHOICE))
def test_check_choose_rejects_wrong_answers(wrong):
    assert not exercises.check_choose(wrong).passed


def by_hand(builds, driver, capability):
    best, newest = None, (0, 0)
    for name, (cuda, archs) in builds.items():
        version = tuple(map(int, cuda.split(".")))
        if driver_suffices(driver, cuda) and runs(capability, archs) and version > newest:
            best, newest = name, version
    return best


def by_max(builds, driver, capability):
    found = serving(builds, driver, capability)
    return max(found, key=found.get) if found else None


@pytest.mark.parametrize("right", [by_hand, by_max])
def test_check_choose_accepts_right_answers(right):
    assert exercises.check_choose(right).passed, exercises.check_choose(right)


def test_failed_torch_import_is_the_only_finding(monkeypatch):
    error = ImportError("libcudnn.so.9: cannot open shared object file")
    gpus = {"driver": "580.65.06", "gpus": (("NVIDIA A100", (8, 0)),)}

    def fails():
        raise error

    monkeypatch.setattr(installation, "_torch", fails)
    monkeypatch.setattr(installation, "_nvidia_smi", lambda: gpus)
    machine = this_machine()
    assert machine.cuda == torch.version.cuda and not machine.imported
    text = installation.report(machine)
    assert f"torch cannot be imported: ImportError: {error}" in text
    assert "without CUDA" not in text
    assert len(installation.diagnose(machine)) == 1


@pytest.mark.parametrize("name", ["typing_extensions.py", "sympy/__init__.py"])
def test_find_shadows_reports_files_that_shadow_dependencies(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    (tmp_path / "of_mine.py").write_text("")
    assert installation.find_shadows(tmp_path) == (name.replace("__init__.py", ""),)


def test_smoke_test_ignores_a_default_device():
    with torch.device("meta"):
        assert all(installation.smoke_test("cpu").values())
