"""Relay from a Unix socket to a port in its network namespace, which only has a loopback interface.

Its source is passed to an interpreter as text (`python -I -S -c`), so it only uses the standard library. The arguments
are the socket's path, the port, and a command. The command replaces the first process. The relay is its child process
and ends with the sandbox.
"""

import os
import socket
import sys
import threading
from contextlib import suppress

_CHUNK = 1 << 18
_MAX_CONNECTIONS = 64


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends, and then shut down the target for writing."""
    try:
        while True:
            if source.family != socket.AF_UNIX:  # many servers send header and body apart, and wait for this
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            if not (block := source.recv(_CHUNK)):
                break
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)


def connect(client: socket.socket, port: int, slots: threading.Semaphore) -> None:
    """Forward bytes between a client and the server until both sides end. Close the client if the server is down."""
    try:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as server:
            server.settimeout(None)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=copy, args=(server, client), daemon=True)
            back.start()
            copy(client, server)
            back.join()
    finally:
        slots.release()


def main() -> None:
    """Start the relay and execute the command."""
    path, port, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)  # noqa: PTH101, S103
        listener.listen(_MAX_CONNECTIONS)
        if os.fork():
            os.execv(command[0], command)  # noqa: S606
        os.closerange(0, listener.fileno())
        slots = threading.Semaphore(_MAX_CONNECTIONS)
        while True:
            slots.acquire()
            client, _ = listener.accept()
            threading.Thread(target=connect, args=(client, port, slots), daemon=True).start()


if __name__ == "__main__":
    main()
