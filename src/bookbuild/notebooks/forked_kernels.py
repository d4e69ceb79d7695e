"""Fork kernels from a process that has imported PyTorch.

Importing PyTorch, torchvision and `torch._dynamo`, which each optimizer imports, takes half of the
CPU time of a short notebook. A server imports them once; each kernel is a fork of it, with its own
environment variables, working directory and random states.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from bookbuild.notebooks.execution import use_cuda

NAME = "forked"
MODULES = ("ipykernel.kernelapp", "matplotlib.pyplot", "torchvision", "torch._dynamo")
SUPPORTED = hasattr(os, "fork") and hasattr(os, "pidfd_open")  # Linux


class Kernel:
    """A forked kernel, with the methods of `subprocess.Popen` that a provisioner calls."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int):
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return None while the process runs, else 0: only its parent can read the exit status."""
        return 0 if select.select([self._pidfd], [], [], 0)[0] else None

    def wait(self) -> int:
        """Return 0 when the process has exited; call it once."""
        select.select([self._pidfd], [], [])
        os.close(self._pidfd)
        return 0

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, but not to its children."""
        signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class ForkedProvisioner(LocalProvisioner):
    """Provision kernels as forks of a server process, which starts with the first kernel."""

    server: subprocess.Popen | None = None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Fork a kernel; return its connection information."""
        request = {"argv": cmd, "cwd": kwargs.get("cwd") or os.getcwd(), "env": kwargs["env"]}
        self.process = Kernel(self.fork(request))
        self.pid = self.pgid = self.process.pid  # the kernel starts a session
        self.cwd = request["cwd"]
        return self.connection_info

    @classmethod
    def fork(cls, request: dict[str, Any]) -> int:
        """Return the process id of a new kernel."""
        if ForkedProvisioner.server is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            command = [sys.executable, "-m", __name__, *MODULES]
            ForkedProvisioner.server = subprocess.Popen(command, env=request["env"], **pipes)
        server = ForkedProvisioner.server
        print(json.dumps(request), file=server.stdin, flush=True)
        return int(server.stdout.readline())


def fork_kernels() -> None:
    """Select forked kernels as the default of this process, where they equal separate kernels.

    With a GPU or with `BOOK_WARNINGS=error`, each kernel imports PyTorch itself: its warnings must
    raise. Only Linux reports the exit of a process that is not a child.
    """
    if not SUPPORTED or use_cuda() or os.environ.get("BOOK_WARNINGS") == "error":
        return
    factory = KernelProvisionerFactory.instance()
    place = f"{__name__}:{ForkedProvisioner.__name__}"
    factory.provisioners[NAME] = EntryPoint(NAME, place, KernelProvisionerFactory.GROUP_NAME)
    factory.default_provisioner_name = NAME


def run_kernel(request: dict[str, Any]) -> None:
    """Become a kernel: take environment, working directory and arguments of the request."""
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if random := sys.modules.get("numpy.random"):
        random.seed()  # Python reseeds only its own generator
    for name in [name for name in sys.modules if name.partition(".")[0] == "tqdm"]:
        del sys.modules[name]  # its import reads environment variables, which a cell may set
    # The command is `python -m ipykernel_launcher …`. A kernel ends with its parent, the server.
    sys.argv = [*request["argv"][2:], f"--IPKernelApp.parent_handle={os.getppid()}"]
    launch_new_instance()


def serve() -> None:
    """Import the modules, then fork a kernel for each line of the standard input."""
    del sys.path[0]  # the working directory, which a kernel does not search
    for module in sys.argv[1:]:
        with suppress(ImportError):  # not every PyTorch has a torchvision
            importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # exited kernels are not kept as zombies
    while line := sys.stdin.readline():  # a for loop would read ahead
        if (pid := os.fork()) == 0:
            try:
                run_kernel(json.loads(line))
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    serve()
