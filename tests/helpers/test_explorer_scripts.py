"""Test the explorers' scripts: formatted, linted, and based on the common element."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import helpers
from helpers.explorers import Explorer

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(Path(helpers.__file__).parent.glob("explorers/*.js"))
NAMES = [path.stem for path in SCRIPTS if path.stem != "base"]


def biome(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Biome on the explorers of a checkout and return its result."""
    found = shutil.which("biome", path=f"{Path(sys.executable).parent}")
    assert found, "biome is not installed; `make test` installs it from requirements.txt"
    command = [found, "ci", "--colors=off", "--error-on-warnings"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_scripts_are_formatted_and_linted():
    verdict = biome(ROOT)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert f"Checked {len(SCRIPTS) + 6} files" in verdict.stdout  # biome.json and five of the site


@pytest.mark.parametrize("line", ["var x = 1\n", "{ const x = 1; }\n", "x =\n"])
def test_badly_written_script_is_rejected(tmp_path, line):
    shutil.copy(ROOT / "biome.json", tmp_path)
    folder = tmp_path / "src" / "helpers" / "explorers"
    folder.mkdir(parents=True)
    script = folder / "copy.js"
    shutil.copy(SCRIPTS[NAMES.index("copy") + 1], script)
    assert biome(tmp_path).returncode == 0
    script.write_text(script.read_text("utf8") + line, "utf8")
    assert biome(tmp_path).returncode == 1


@pytest.mark.parametrize("name", NAMES)
def test_scripts_are_small_and_load_nothing(name):
    script = Explorer(name, [], {"en": "", "zh": ""}).script
    own = script[script.index("(() => {") :]
    assert len(own.encode()) <= 9_000
    assert len(script.encode()) - len(own.encode()) <= 12_500  # the base
    assert "http" not in script


def test_scripts_loaded_twice_define_each_element_once():
    mini_racer = pytest.importorskip("py_mini_racer")
    context = mini_racer.MiniRacer()
    context.eval(
        "class HTMLElement {}; const defined = [];"
        "const customElements = { get: (n) => defined.includes(n) || undefined,"
        " define: (n) => { if (defined.includes(n)) throw Error(n); defined.push(n); } };"
    )
    for name in NAMES * 2:
        context.eval(Explorer(name, [], {"en": "", "zh": ""}).script)
    assert context.eval("defined.join()").split(",") == [f"{name}-explorer" for name in NAMES]
