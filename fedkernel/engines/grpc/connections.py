"""Limits on gRPC connections without a call, and reports of failed TLS handshakes from gRPC's own output."""

import ipaddress
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO
from urllib.parse import unquote

from fedkernel.ground import one_line

IDLE = ("grpc.max_connection_idle_ms", 20_000)  # gRPC option: longest time of a connection without a call, in ms
MOST_IDLE = 64  # most idle connections at a time; the oldest are closed first. A site calls as soon as it is connected
Peer = tuple[str, int]  # address and port of a connection's other end


class IdleConnections:
    """Idle connections to a port of this process. They are found among open files: gRPC reports none before a call."""

    def __init__(self, port: int):
        self._port = port
        self._known: dict[Peer, None] = {}  # in the order in which they were seen first

    def close_oldest(self, calling: Collection[str]) -> int:
        """Close and count the oldest connections without a call, beyond `MOST_IDLE`. `calling`: peers with a call."""
        busy = set(map(_peer_of, calling))
        here = {peer: file for file in _open_files() if (peer := self._peer(file)) is not None and peer not in busy}
        self._known = dict.fromkeys([*(peer for peer in self._known if peer in here), *here])
        beyond = list(self._known)[: max(0, len(here) - MOST_IDLE)]
        return sum(self._close(here[peer], peer) for peer in beyond)

    def _peer(self, file: int) -> Peer | None:
        """Return the peer of an open file if it is a connection to the port."""
        try:
            connection = socket.socket(fileno=file)
        except OSError:  # it is a file of another kind
            return None
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == self._port:
                return _peer(*connection.getpeername()[:2])
        except OSError:  # it listens, or has ended
            pass
        finally:
            connection.detach()  # gRPC closes it
        return None

    def _close(self, file: int, peer: Peer) -> bool:
        if self._peer(file) != peer:  # it was closed meanwhile
            return False
        connection = socket.socket(fileno=file)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # gRPC sees a disconnected peer
        connection.detach()
        return True


def _open_files() -> Iterable[int]:
    try:
        return map(int, os.listdir("/proc/self/fd"))
    except OSError:  # another system, or no file can be opened any more
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return range(2**16 if soft == resource.RLIM_INFINITY else min(soft, 2**16))


def _peer(address: str, port: int) -> Peer:
    with suppress(ValueError):
        known = ipaddress.ip_address(address)
        address = str(getattr(known, "ipv4_mapped", None) or known)
    return address, port


def _peer_of(name: str) -> Peer:
    """Return the peer that gRPC names ``ipv4:127.0.0.1:80`` or ``ipv6:%5B::1%5D:80``."""
    address, _, port = unquote(name.partition(":")[2]).rpartition(":")
    return _peer(address.strip("[]"), int(port) if port.isdecimal() else 0)


_CAUSES = {
    b"certificate has expired": "its certificate has expired",
    b"CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by this server's authority",
    b"PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate",
    b"WRONG_VERSION_NUMBER": "it speaks plaintext, where TLS is needed",
    b"HTTP_REQUEST": "it speaks plaintext, where TLS is needed",
    b"UNKNOWN_CA": "it does not trust this server's certificate",
}


@contextmanager
def report_failed_handshakes(report: Callable[[str], object], pass_on: Callable[[str], object]) -> Iterator[None]:
    """Pass each failed TLS handshake to `report`, and every other line on descriptor 2 (stderr) to `pass_on`.

    Lines may contain a stranger's text, such as the name by which it calls the server. Both functions may write to
    `sys.stderr` meanwhile, but not to descriptor 2, which is redirected. gRPC prints no failures with
    GRPC_VERBOSITY=error, which Flower sets unless another value was set before.
    """
    reading, writing = os.pipe()
    stderr, python = os.dup(2), sys.stderr
    if _is_at_descriptor_2(python):  # Python's own output is not redirected
        sys.stderr = os.fdopen(os.dup(stderr), "w", buffering=1, errors="backslashreplace")
    os.dup2(writing, 2)
    os.close(writing)

    def listen() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if b"Handshake failed" in line:
                    report(f"refused a connection: {_cause(line)}")
                else:
                    pass_on(_text(line))

    thread = threading.Thread(target=listen, name="handshakes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)  # the pipe's last writing end is closed
        thread.join(1)
        if sys.stderr is not python:
            sys.stderr.close()
            sys.stderr = python
        os.close(stderr)


def _is_at_descriptor_2(stream: TextIO) -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return stream.fileno() == 2
    return False


def _cause(line: bytes) -> str:
    known = (cause for sign, cause in _CAUSES.items() if sign in line)
    return next(known, _text(line))


def _text(line: bytes) -> str:
    return one_line(line.decode(errors="replace"))
