"""Server metrics for Prometheus: sites, runs, rounds, seconds, bytes, refusals; nothing of the data."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedkernel.engines.grpc.address import check_address
from fedkernel.ground import EngineError, InputError
from fedkernel.run import Observer

ROUND_SECONDS_BOUNDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class Metrics(Observer):
    """Prometheus counters of a server's runs, in a `registry` of their own. InputError without prometheus-client."""

    def __init__(self, sites: Sequence[str]) -> None:
        super().__init__()
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram  # noqa: PLC0415 - an extra
        except ImportError:
            raise InputError("--metrics needs prometheus-client: pip install 'fedkernel[metrics]'") from None
        self.registry = registry = CollectorRegistry()
        self._connected = Gauge("fedkernel_site_connected", "1: the site is connected.", ["site"], registry=registry)
        for site in sites:
            self._connected.labels(site).set(0)
        Gauge("fedkernel_sites_expected", "Sites that the experiment names.", registry=registry).set(len(sites))
        runs = Counter("fedkernel_runs", "Runs that are over.", ["outcome"], registry=registry)
        self._runs = {failed: runs.labels("failed" if failed else "finished") for failed in (False, True)}
        self._current = Gauge("fedkernel_run_round", "Round of the run under way.", ["run"], registry=registry)
        rounds, seconds = "fedkernel_run_rounds_expected", "fedkernel_round_seconds"
        self._expected = Gauge(rounds, "Its rounds, by the forecast.", ["run"], registry=registry)
        self._rounds = Counter("fedkernel_rounds", "Rounds that are over.", registry=registry)
        self._seconds = Histogram(seconds, "Seconds of a round.", registry=registry, buckets=ROUND_SECONDS_BOUNDS)
        moved = Counter("fedkernel_bytes", "Bytes of requests and replies.", ["direction"], registry=registry)
        self._up, self._down = moved.labels("up"), moved.labels("down")
        self._refused = Counter("fedkernel_refusals", "Connections that were refused.", ["cause"], registry=registry)

    def site_here(self, record: logging.LogRecord) -> None:
        """Record that a site has connected."""
        self._connected.labels(vars(record)["site"]).set(1)

    def site_gone(self, record: logging.LogRecord) -> None:
        """Record that a site is no longer connected."""
        self._connected.labels(vars(record)["site"]).set(0)

    def refused(self, record: logging.LogRecord) -> None:
        """Count a refused connection, whatever its name."""
        self._refused.labels(vars(record)["cause"]).inc()

    def run_begun(self, record: logging.LogRecord) -> None:
        """Record that a run is under way."""
        fields = vars(record)
        self._current.labels(fields["run"]).set(0)
        if fields["rounds"] is not None:
            self._expected.labels(fields["run"]).set(fields["rounds"])

    def round_over(self, record: logging.LogRecord) -> None:
        """Count a round, unless it was replayed from a journal."""
        fields = vars(record)
        self._current.labels(fields["run"]).set(fields["round"])
        if not fields["replayed"]:
            self._rounds.inc()
            self._seconds.observe(fields["seconds"])
            self._up.inc(fields["bytes_up"])
            self._down.inc(fields["bytes_down"])

    def run_over(self, record: logging.LogRecord) -> None:
        """Count a finished or failed run."""
        self._current.clear()
        self._expected.clear()
        self._runs[vars(record)["failed"]].inc()


@contextmanager
def serving_metrics(address: str, sites: Sequence[str]) -> Iterator[str]:
    """Serve the counters by HTTP in a thread, at ``HOST:PORT`` or a port of loopback, and yield their URL.

    Raises InputError if the address is invalid, EngineError if the server cannot listen at it.
    """
    metrics, whole = Metrics(sites), address if ":" in address else f"127.0.0.1:{address}"
    host, _, port = check_address(whole, any_port=True).rpartition(":")
    from prometheus_client import start_http_server  # noqa: PLC0415 - an extra, which `Metrics` has found

    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry=metrics.registry)
    except (OSError, UnicodeError) as error:  # the latter for an impossible host name
        cause = error.strerror if isinstance(error, OSError) else "no name of a host"
        raise EngineError(f"metrics cannot be served at {whole}: {cause}") from None
    # a client that hangs up leaves no traceback in the log
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    try:
        with metrics:
            yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
