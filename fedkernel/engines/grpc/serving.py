"""gRPC server for the streams of a `StreamGrid` and for health checks, in one event-loop thread."""

import asyncio
import resource
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from fedkernel.engines.grpc.certificates import TLS
from fedkernel.engines.grpc.connections import IDLE, IdleConnections
from fedkernel.engines.grpc.frames import METHOD, OPTIONS
from fedkernel.engines.grpc.renewal import server_credentials
from fedkernel.engines.grpc.revocation import RevocationCheck
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.engines.grpc.streams import Caller, RefusedError, Stream
from fedkernel.ground import EngineError

HANDSHAKE = ("grpc.server_handshake_timeout_ms", 10_000)
"""gRPC option: longest time from a connection to its certificate, in ms."""

CONCURRENT = ("grpc.max_concurrent_streams", 128)  # gRPC option: most streams of one connection, health checks included
CHECK_SECONDS = 0.25  # seconds between two checks of slots and idle connections
STOP_SECONDS = 1.0  # seconds that open calls have to end when the server stops


@contextmanager
def listening(grid: StreamGrid, address: str, tls: TLS | None) -> Iterator[int]:
    """Serve a grid's nodes and gRPC's health checks at an address; yield the port.

    `address`: ``host:port``, with port 0 for any free one; or ``unix:`` and the path of a new socket, in a folder that
    only this user may enter. `tls`: None: plaintext, readable and changeable in transit. Raises EngineError if the
    server cannot listen at the address.
    """
    if tls is not None:
        grid.is_revoked = RevocationCheck(tls.folder)
    _allow_open_files()
    carrier, started = _Carrier(grid), Future[int]()
    thread = threading.Thread(target=lambda: asyncio.run(carrier.serve(address, tls, started)), name="hub", daemon=True)
    thread.start()
    port = started.result()
    failure = None  # after an interrupt the server may be started again
    try:
        yield port
        failure = ""
    except Exception as error:
        words = error.strerror if isinstance(error, OSError) else str(error)  # no path of the server's
        failure = words or type(error).__name__
        raise
    finally:
        grid.close(failure)
        carrier.stop()
        thread.join()


class _Carrier:
    """gRPC server of a grid's streams; all methods but `stop` run in its event loop's thread."""

    def __init__(self, grid: StreamGrid) -> None:
        self._grid = grid
        self._woken: dict[Stream, asyncio.Event] = {}
        self._calling = Counter[str]()

    async def serve(self, address: str, tls: TLS | None, started: "Future[int]") -> None:
        """Serve until `stop` is called."""
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=[*OPTIONS, HANDSHAKE, CONCURRENT, IDLE])
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        service, name = METHOD.strip("/").split("/")
        method = grpc.stream_stream_rpc_method_handler(self._connect)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {name: method})])
        try:
            port = _add_port(server, address, tls, self._grid.report_certificate)
            await checks.set("", health_pb2.HealthCheckResponse.SERVING)
            await server.start()
        except Exception as error:
            started.set_exception(error)
            await server.stop(None)
            return
        self._grid.on_ready = self._wake
        started.set_result(port)
        idle = IdleConnections(port)
        try:
            while not self._stopped.is_set():
                self._grid.replace_silent()
                if closed := idle.close_oldest(self._calling):
                    self._grid.report_closed(closed)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), CHECK_SECONDS)
        finally:
            self._grid.on_ready = lambda: None
            await checks.enter_graceful_shutdown()
            await server.stop(STOP_SECONDS)

    def stop(self) -> None:
        """End `serve`."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake_streams)

    def _wake_streams(self) -> None:
        for stream in self._grid.ready():
            if stream in self._woken:
                self._woken[stream].set()

    async def _connect(self, incoming: AsyncIterator[bytes], context: Any) -> None:
        """Count a peer's call, and serve its stream."""
        peer = context.peer()
        self._calling[peer] += 1
        try:
            await self._attend(incoming, context)
        finally:
            self._calling[peer] -= 1
            self._calling += Counter()  # drops peers with no call left

    async def _attend(self, incoming: AsyncIterator[bytes], context: Any) -> None:
        certificate = context.auth_context()
        caller = Caller(
            {key: str(value) for key, value in context.invocation_metadata()},
            context.peer(),
            [name.decode() for name in certificate.get("x509_common_name", [])],
            certificate.get("x509_pem_cert", []),
        )
        try:
            stream = self._grid.admit(caller)
        except RefusedError as refusal:
            await context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))
        woken = self._woken[stream] = asyncio.Event()
        listening = asyncio.create_task(self._listen(stream, incoming))
        try:
            while True:
                woken.clear()
                while (frame := self._grid.next_frame(stream)) is not None:
                    await context.write(frame)
                if stream.over and (listening.done() or not stream.finished):
                    break
                await woken.wait()
            if stream.refusal is not None:
                await context.abort(getattr(grpc.StatusCode, stream.refusal.code), str(stream.refusal))
        finally:
            listening.cancel()
            del self._woken[stream]
            self._grid.leave(stream)

    async def _listen(self, stream: Stream, incoming: AsyncIterator[bytes]) -> None:
        with suppress(grpc.RpcError):  # the stream has ended, which `_connect` notices
            async for frame in incoming:
                self._grid.receive_frame(stream, frame)
        self._woken[stream].set()


def _add_port(server: "grpc.aio.Server", address: str, tls: TLS | None, report: Callable[[str], object]) -> int:
    try:
        if tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, server_credentials(tls, report)))
    except RuntimeError:
        raise EngineError(f"cannot listen at {address}: the port is in use, or the host is not this machine") from None


def _allow_open_files() -> None:
    """Raise the process's limit on open files to the maximum, since every connection uses a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems report a higher limit than they allow
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
