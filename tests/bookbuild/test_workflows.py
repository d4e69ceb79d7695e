"""Test the workflows: pinned actions, minimal permissions, commands of README and Makefile."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from bookbuild.source.checkout import ADDRESSES

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf8"), re.M))


def steps(path):
    jobs = yaml.safe_load(path.read_text("utf8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_by_commit(path):
    text = path.read_text("utf8")
    used = re.findall(r"uses: (.*)", text)
    assert used and len(used) == sum("uses" in step for step in steps(path))
    for use in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use), use


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_jobs_write_only_on_push_to_main_and_use_no_secret(path):
    workflow = yaml.safe_load(path.read_text("utf8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in path.read_text("utf8")
    for job in workflow["jobs"].values():
        writes = "write" in job.get("permissions", {}).values()
        assert not writes or workflow[True] == {"push": {"branches": ["main"]}}  # `on` is true
        assert "timeout-minutes" in job or not job["steps"][1:]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is writes


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_workflow_commands_are_make_targets(path):
    for command in (step["run"] for step in steps(path) if "run" in step):
        target = re.fullmatch(r"(?:[A-Z_]+=\w+ )*(?:make|\.ci/run) ([\w-]+)( .*)?", command)
        assert command == ".ci/run" or (target and target[1] in TARGETS), command


def test_workflows_on_our_own_machines_ignore_pull_requests():
    workflows = [yaml.safe_load(path.read_text("utf8")) for path in WORKFLOWS]
    own = [w for w in workflows if any("self-hosted" in j["runs-on"] for j in w["jobs"].values())]
    triggers = [trigger for workflow in own for trigger in workflow[True]]  # YAML: `on` is true
    assert triggers and not any(trigger.startswith("pull_request") for trigger in triggers)


def test_site_address_comes_from_the_workflow():
    """Read the address from the environment; no file of the repository contains one."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))
    assert config["repository"]["url"] == config["html"]["baseurl"] == ""
    pages = (ROOT / ".github/workflows/pages.yml").read_text("utf8")
    variables = set(re.findall(r"^ +(BOOK_\w+): ", pages, re.M))
    assert variables == set(ADDRESSES.values())


def test_binder_environment_matches_the_pins():
    """Compare the pins without conda; a nightly run of `make conda` creates the environment."""
    result = yaml.safe_load((ROOT / "environment.yml").read_text("utf8"))
    *of_conda, _ = result["dependencies"]
    lines = (ROOT / "requirements.txt").read_text("utf8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    for expected in of_conda:
        name, sign, version = re.fullmatch(r"(\w+)([=<]*)(.*)", expected).groups()
        if name == "python":
            needs = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
            assert SpecifierSet(needs["requires-python"]).contains(version)
        elif sign == "=":
            assert pinned[name] == version
        elif sign:
            assert SpecifierSet(sign + version).contains(pinned[name])


def test_notebooks_branch_contains_the_notebooks_of_the_site(tmp_path):
    """Create the branch in a clone; it contains the notebooks and the environment for Binder."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    git("init", "-q", "--bare", origin)
    git("clone", "-q", origin, clone)
    for name in ("Makefile", "environment.yml"):
        shutil.copy(ROOT / name, clone)
    for name, text in (("book", "of the clone"), ("_build/notebooks", "of the site")):
        (clone / name / "en").mkdir(parents=True)
        (clone / name / "en/detach.ipynb").write_text(text)
    (clone / ".gitignore").write_text("_build\n")
    git("-C", clone, "add", ".")
    git("-C", clone, "-c", "user.name=A", "-c", "user.email=a@localhost", "commit", "-qm", "first")
    subprocess.run(["make", "-s", "notebooks-branch"], cwd=clone, check=True)
    assert git("-C", origin, "show", "notebooks:book/en/detach.ipynb") == "of the site"
    assert "name: executable-pytorch-notes" in git(
        "-C", origin, "show", "notebooks:environment.yml"
    )


def git(*command):
    ran = subprocess.run(["git", *map(str, command)], capture_output=True, text=True, check=True)
    return ran.stdout
