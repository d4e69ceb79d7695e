"""The workflows: thin, pinned, without rights; what they run is what README and Makefile have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf8"), re.M))


def steps(path):
    jobs = yaml.safe_load(path.read_text("utf8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def test_there_is_one_for_each_runner():
    assert [p.stem for p in WORKFLOWS] == ["cpu", "gpu", "nightly", "pages"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_by_commit_and_named(path):
    text = path.read_text("utf8")
    used = re.findall(r"uses: (.*)", text)
    assert used and len(used) == sum("uses" in step for step in steps(path))
    for use in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use), use


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_rights_are_minimal_and_no_secret_is_needed(path):
    workflow = yaml.safe_load(path.read_text("utf8"))
    assert workflow["permissions"] == {"contents": "read"}
    rights = {
        name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job
    }
    deploys = {
        "notebooks": {"contents": "write"},
        "deploy": {"pages": "write", "id-token": "write"},
    }
    assert rights == (deploys if path.stem == "pages" else {})
    assert "secrets" not in path.read_text("utf8")
    assert all("timeout-minutes" in job for job in workflow["jobs"].values() if job["steps"][1:])
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout"):
            pushes = step in workflow["jobs"].get("notebooks", {}).get("steps", [])
            assert step["with"]["persist-credentials"] is pushes


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_a_command_is_a_target_of_the_makefile(path):
    for command in (step["run"] for step in steps(path) if "run" in step):
        target = re.fullmatch(r"(?:[A-Z_]+=\w+ )*make ([\w-]+)( .*)?", command)
        assert command == ".ci/run" or (target and target[1] in TARGETS), command


def test_pull_requests_never_reach_the_gpu():
    workflow = yaml.safe_load((ROOT / ".github/workflows/gpu.yml").read_text("utf8"))
    assert list(workflow[True]) == ["workflow_dispatch"]  # YAML reads `on` as true
    assert workflow["jobs"]["gpu"]["runs-on"] == ["self-hosted", "gpu"]
