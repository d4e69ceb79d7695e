"""Test forked kernels: state of each kernel, and the end of its process."""

from __future__ import annotations

import os
import time

import pytest
from jupyter_client.manager import start_new_kernel
from jupyter_client.provisioning import KernelProvisionerFactory
from nbformat.v4 import new_code_cell, new_notebook

from bookbuild.notebooks import execution, forked_kernels
from bookbuild.source.checkout import BookError

pytestmark = pytest.mark.skipif(
    not forked_kernels.SUPPORTED, reason="kernels are forked only on Linux"
)


@pytest.fixture(autouse=True)
def server(monkeypatch):
    """Select forked kernels, with few modules in the server; end the server after the test."""
    factory = KernelProvisionerFactory.instance()
    monkeypatch.setattr(factory, "default_provisioner_name", factory.default_provisioner_name)
    monkeypatch.setattr(
        forked_kernels, "MODULES", ("ipykernel.kernelapp", "numpy.random", "no_module")
    )
    forked_kernels.fork_kernels()
    yield lambda: forked_kernels.ForkedProvisioner.server
    if process := forked_kernels.ForkedProvisioner.server:
        with process:
            process.kill()
    forked_kernels.ForkedProvisioner.server = None


def printed(code: str, folder) -> list[str]:
    nb = new_notebook(cells=[new_code_cell(code)])
    return execution.execute(nb, folder, "test").cells[0].outputs[0]["text"].split("\n")


STATE = """
import os, random, sys
loaded = "numpy" in sys.modules
import numpy
print(os.getcwd(), os.environ["MARK"], loaded, __name__, sep="\\n")
print(os.getpgid(0) == os.getpid(), "numpy" in globals(), "left" in globals(), sep="\\n")
print(random.random(), numpy.random.rand(), sep="\\n")
left = 1
"""


def test_each_kernel_has_its_own_environment_folder_names_and_random_states(tmp_path, monkeypatch):
    states = []
    for name in ("first", "second"):
        monkeypatch.setenv("MARK", name)
        (tmp_path / name).mkdir()
        states.append(printed(STATE, tmp_path / name))
        expected = [str(tmp_path / name), name, "True", "__main__", "True", "True", "False"]
        assert states[-1][:7] == expected
    assert not {*states[0][7:9]} & {*states[1][7:9]}


def test_state_equals_that_of_a_kernel_of_its_own(tmp_path, monkeypatch):
    code = "import signal, sys; print(sys.path, signal.getsignal(signal.SIGCHLD), sys.stdin)"
    forked = printed(code, tmp_path)
    factory = KernelProvisionerFactory.instance()
    monkeypatch.setattr(factory, "default_provisioner_name", "local-provisioner")
    assert printed(code, tmp_path) == forked


@pytest.mark.parametrize(
    ("name", "value"), [("BOOK_WARNINGS", "error"), ("BOOK_CUDA", "1"), ("SUPPORTED", "")]
)
def test_kernels_are_not_forked_if_they_would_differ(monkeypatch, name, value):
    factory = KernelProvisionerFactory.instance()
    monkeypatch.setattr(factory, "default_provisioner_name", "local-provisioner")
    monkeypatch.setattr(execution, "driver_sees_gpu", lambda: True)
    monkeypatch.setattr(forked_kernels, "SUPPORTED", name != "SUPPORTED")
    monkeypatch.setenv("BOOK_CUDA", "0")
    monkeypatch.setenv(name, value)
    forked_kernels.fork_kernels()
    assert factory.default_provisioner_name == "local-provisioner"


def test_failed_and_killed_kernels_are_reported(tmp_path):
    for code, message in (("1 / 0", "ZeroDivisionError"), ("os._exit(1)", "the kernel died")):
        with pytest.raises(BookError, match=message):
            printed(f"import os\n{code}", tmp_path)


def test_kernel_can_be_interrupted_and_ends_with_its_server(server):
    manager, client = start_new_kernel(kernel_name="python3")
    client.execute("import time; print(1, flush=True); time.sleep(60)")
    while client.get_iopub_msg(timeout=30)["msg_type"] != "stream":
        pass
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=30)
    assert reply["content"]["ename"] == "KeyboardInterrupt" and manager.is_alive()
    server().kill()
    limit = time.monotonic() + 30
    while manager.is_alive() and time.monotonic() < limit:
        time.sleep(0.1)
    assert not manager.is_alive()
    client.stop_channels()


def test_shutdown_ends_the_process():
    manager, client = start_new_kernel(kernel_name="python3")
    pid = manager.provisioner.pid
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    limit = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < limit:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{pid}")
