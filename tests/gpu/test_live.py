"""Test `book live` with a GPU: the kernel uses it, and the page names the device.

The client acts as the page's script without a browser: it requests the cells, starts a
session, runs the cells and posts the outputs for comparison with the stored ones.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SERVER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from bookbuild.site.live_server import live
live(SimpleNamespace(root=Path(sys.argv[1])), browser=False)
"""


class Client:
    """Send the requests of a page of the book to `book live`."""

    def __init__(self, root: str, token: str, name: str) -> None:
        self.root, self.token, self.name = root, token, name
        path = {"path": f"{name}.ipynb", "name": name, "type": "notebook"}
        session = self.ask("/api/sessions", path | {"kernel": {"name": "python3"}})
        self.kernel, self.session = session["kernel"]["id"], session["id"]

    def ask(self, path: str, body: dict | None = None, method: str | None = None) -> dict:
        """Return the JSON of a response, or an empty dictionary."""
        request = urllib.request.Request(
            self.root + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "{}")

    def run(self, sources: list[str]) -> list[list[dict]]:
        """Return the outputs of each source, run one after the other in the kernel."""
        import websocket

        address = self.root.replace("http", "ws", 1) + f"/api/kernels/{self.kernel}/channels"
        header = [f"Authorization: token {self.token}"]
        socket = websocket.create_connection(address, timeout=300, header=header)
        try:
            return [self._outputs(socket, source) for source in sources]
        finally:
            socket.close()

    def _outputs(self, socket, source: str) -> list[dict]:
        name, outputs = uuid.uuid4().hex, []
        header = {"msg_id": name, "msg_type": "execute_request", "version": "5.3"}
        header |= {"session": self.session, "username": "", "date": "2020-01-01T00:00:00Z"}
        content = {"code": source, "silent": False, "store_history": True, "allow_stdin": False}
        content |= {"user_expressions": {}, "stop_on_error": True}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        socket.send(json.dumps(message | {"channel": "shell", "buffers": []}))
        while True:
            message = json.loads(socket.recv())
            kind, content = message["header"]["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != name:
                continue
            if kind in ("stream", "error"):
                outputs.append({"output_type": kind, **content})
            elif kind in ("display_data", "execute_result"):
                content.pop("transient", None)
                outputs.append({"output_type": kind, **content})
            elif kind == "status" and content["execution_state"] == "idle":
                return outputs

    def equal(self, cell: str, outputs: list[dict]) -> bool:
        """Return whether the outputs of a run equal those that the notebook stores."""
        return self.ask(f"/book/_live/{self.name}", {"cell": cell, "outputs": outputs})["same"]

    def close(self) -> None:
        """End the session and its kernel."""
        self.ask(f"/api/sessions/{self.session}", method="DELETE")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> tuple[str, str]:
    """Start `book live` on the committed notebooks, with an empty site; return root and token."""
    root = tmp_path_factory.mktemp("live")
    (root / "_build/site").mkdir(parents=True)
    (root / "_build/site/index.html").write_text("")
    (root / "book").symlink_to(ROOT / "book")
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(root)}
    with (root / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(root)],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        end = time.monotonic() + 60
        while not (
            found := re.search(r"(http://\S+?)/book/\S+token=(\w+)", (root / "log").read_text())
        ):
            assert process.poll() is None and time.monotonic() < end, (root / "log").read_text()
            time.sleep(0.1)
        yield found.groups()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def known_differences(name: str) -> set[str]:
    """Return the cells of a chapter that differ under this PyTorch, on CPU or GPU."""
    versions = json.loads((ROOT / "book/versions.json").read_text())
    torch_version = torch.__version__.partition("+")[0]
    entries = [versions.get(torch_version + device, {}) for device in ("", "+gpu")]
    chapter = name.partition("/")[2]
    return {cell for entry in entries for cell in entry.get("differs", {}).get(chapter, ())}


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("name", ["en/cuda_semantics", "zh/mixed_precision"])
def test_page_cells_reproduce_stored_outputs_on_the_gpu(server, name):
    client = Client(*server, name)
    try:
        page = client.ask(f"/book/_live/{name}")
        outputs = client.run([cell["source"] for cell in page["cells"]])
        differ = [
            cell["id"]
            for cell, output in zip(page["cells"], outputs, strict=True)
            if not client.equal(cell["id"], output)
        ]
        (shown,) = client.run(["import torch\ntorch.zeros(1, device='cuda').device.type"])
    finally:
        client.close()
    assert page["gpu"] is True  # the page shows the device
    assert shown[0]["data"]["text/plain"] == "'cuda'"
    assert len(outputs) > 10 and set(differ) <= known_differences(name)
