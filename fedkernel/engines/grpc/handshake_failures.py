"""Reports of failed TLS handshakes, parsed from gRPC's own output on file descriptor 2."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from fedkernel.ground import one_line

_SIGN = b"Handshake failed"
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
    """Report each failed TLS handshake to `report`, and other lines on descriptor 2 to `pass_on`.

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
                if _SIGN in line:
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
