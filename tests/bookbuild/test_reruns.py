"""Test that the plugin which reruns failed tests does not delay the others."""

from __future__ import annotations

import socket

import pytest


def test_messages_about_reruns_are_sent_at_once(pytestconfig):
    if not hasattr(pytestconfig, "workerinput"):
        pytest.skip("one process sends no messages")
    connection = pytestconfig.failures_db.sock
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
