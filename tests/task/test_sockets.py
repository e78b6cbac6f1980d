from __future__ import annotations

import socket

import pytest

from midstream.task import sockets


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux can be asked to acknowledge at once")
def test_connections_are_found_and_told_not_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_streams", None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as here, server.accept()[0] as there:
            sockets.hurry()
            for stream in (here, there):
                assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            there.sendall(b"x")
            assert here.recv(1) == b"x"
        sockets.hurry()  # connections that are gone are no error


def test_a_process_without_connections_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_streams", None)
    monkeypatch.setattr(sockets, "_descriptors", list)
    sockets.hurry()
