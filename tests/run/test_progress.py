"""What the operator of a server sees of its runs: lines for people, lines of JSON, counters."""

import io
import json
import logging
import os
import re
import socket
import struct
import sys
import threading
from urllib.request import urlopen

import pytest
from rich.console import Console
from sklearn.datasets import load_iris
from typer import Exit

from fedkernel import Member, VFedPCA
from fedkernel.engines.grpc.connections import report_failed_handshakes
from fedkernel.experiments.commands import console
from fedkernel.experiments.commands.console import PrintLog, print_status
from fedkernel.experiments.commands.logging_setup import server_log, site_log
from fedkernel.experiments.commands.prometheus import Metrics, serving_metrics
from fedkernel.ground import EngineError, InputError, format_duration
from fedkernel.run import ProgressReporter, events, log_event, progress, show_progress
from fedkernel.sklearn import FederatedPCA

IRIS = load_iris().data
SITES = ("a", "b", "c")
MEMBERS = [Member(number, number + 1, 5, 5, 0, site=name) for number, name in enumerate(SITES)]
ROUND = {"run": "r", "round": 3, "phase": "SumRows"}


def begin(rounds=41, meaning="at most"):
    log_event("run begun", "", run="r", rounds=rounds, meaning=meaning)
    log_event("round begun", "", **ROUND, asked=MEMBERS)


def finish(seconds, **more):
    log_event("round over", "", **(ROUND | more), seconds=seconds, bytes_up=30, bytes_down=50, replayed=False)


def test_each_phase_of_a_run_is_told_once_and_the_log_is_left_as_it_was():
    told, before = [], (events.log.level, list(events.log.handlers))
    with ProgressReporter(lambda text, **fields: told.append((text, fields))):
        VFedPCA(merge="eigenvalue", rounds=3).fit([IRIS[:, :2], IRIS[:, 2:]], evaluate=True)
    assert (events.log.level, events.log.handlers) == before
    (first, _), _, (last, fields) = told
    assert re.fullmatch(r"run run: phase IterateLocally, round 1 of 5, 2 of 2 sites answered, about \d+ s left", first)
    assert last == "run run: phase MeasureVariance, round 5 of 5, 2 of 2 sites answered"
    assert fields == {"run": "run", "round": 5, "phase": "MeasureVariance"}


def test_a_round_that_lasts_is_told_with_whom_it_waits_for(monkeypatch):
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.01)
    told, quiet = [], []
    watch = ProgressReporter(lambda text, **fields: quiet.append(text), phases=False)
    with ProgressReporter(lambda text, **fields: told.append(text)), watch:
        begin()
        finish(120.0, phase="Other", round=2)
        log_event("round begun", "", **ROUND, asked=MEMBERS)
        for node in (1, 3):
            log_event("reply came", "", node=node)
        while not any("waiting for b" in text for text in quiet):
            assert watch._exited.wait(0.005) is False
        finish(120.0)
    phase = "run r: phase SumRows, round 3 of at most 41"
    assert f"{phase}, 2 of 3 sites answered, waiting for b, about 78 min left at most" in quiet
    assert f"{phase}, 3 of 3 sites answered, about 76 min left at most" in told
    assert not any("3 of 3" in text for text in quiet), "a phase that is over within the time is not told"


def test_in_python_the_state_is_a_line_on_standard_error_or_a_function_s_argument(capsys):
    told, pair = [], VFedPCA(merge="eigenvalue", rounds=3)
    with show_progress(told.append):
        FederatedPCA(1, method=pair, sites=2).fit(IRIS)
    assert [text.split(", ")[1] for text in told] == [f"round {number} of 4" for number in (1, 2, 3, 4)]
    with show_progress():
        pair.fit([IRIS[:, :2], IRIS[:, 2:]])
    assert capsys.readouterr().out == ""


def test_times_as_people_say_them():
    for seconds, text in ((0.2, "0 s"), (89, "89 s"), (91, "2 min"), (5000, "83 min"), (7260, "2 h 1 min")):
        assert format_duration(seconds) == text


def test_lines_of_json(tmp_path, capsys):
    """Of a server on standard error; of a site in its file, too, with its name, codes and the details of failures."""
    with server_log(True), ProgressReporter(print_status):
        begin(rounds=None)
        log_event("site here", "%s", "a is here", level=logging.INFO, site="a")
        finish(1.0)
        print_status("two\nlines", logging.ERROR)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    command = {"level": "info", "logger": "fedkernel.command"}
    assert lines == [
        {"level": "info", "logger": "fedkernel.run.events", "event": "a is here", "site": "a"},
        command | {"event": "run r: phase SumRows, round 3, 3 of 3 sites answered"} | ROUND,
        command | {"level": "error", "event": "two lines"},
    ]
    with site_log(tmp_path / "log", "north", True) as tell:
        tell("joined")
        try:
            raise ZeroDivisionError("by nothing")
        except ZeroDivisionError:
            logging.getLogger("fedkernel.site").exception("the client failed", extra={"code": "E42", "run": "r"})
    joined, failed = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert {joined["site"], failed["site"]} == {"north"}
    assert (failed["code"], failed["run"], failed["level"]) == ("E42", "r", "error")
    assert "ZeroDivisionError: by nothing" in failed["traceback"]
    assert capsys.readouterr().err.count("\n") == 2
    assert not logging.getLogger("fedkernel").handlers


@pytest.mark.parametrize("as_json", [True, False])
def test_what_strangers_make_grpc_write_is_told_once_and_steers_no_terminal(as_json, capfd, monkeypatch):
    """A log that wrote to descriptor 2, where it is looked for, told of its own lines, and more of each, for ever."""
    sentences, both = [], threading.Semaphore(0)

    def refuse(text):
        log_event("refused", "%s", text, level=logging.INFO, cause="handshake")
        sentences.append(text)
        both.release()

    def pass_on(text):
        print_status(text)
        both.release()

    with open(2, "w", encoding="utf-8", closefd=False) as stderr:  # pytest's own leads elsewhere
        monkeypatch.setattr(sys, "stderr", stderr)
        with server_log(as_json), report_failed_handshakes(refuse, pass_on):
            os.write(2, b"E0 ssl.cc:3238] No match found for server name: \x1b[2J\xff\n")
            os.write(2, b"I0 ssl.cc:2563] Handshake failed with error SSL_ERROR_SSL: NO_SHARED_CIPHER\n")
            assert both.acquire(timeout=10)
            assert both.acquire(timeout=10)
    assert len(sentences) == 1
    written = capfd.readouterr().err.splitlines()
    events = [json.loads(line)["event"] for line in written] if as_json else written
    assert events == [
        "E0 ssl.cc:3238] No match found for server name: \ufffd[2J\ufffd",
        "refused a connection: I0 ssl.cc:2563] Handshake failed with error SSL_ERROR_SSL: NO_SHARED_CIPHER",
    ]


class Gone(io.StringIO):
    """What a process writes to whose reader has gone, or which it has closed, so that not even that can be told."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")], ids=repr)
def test_a_terminal_that_is_gone_ends_nothing(error, monkeypatch, tmp_path):
    """Of whoever tells something, such as the thread that answers sites, or a site's."""
    monkeypatch.setattr(sys, "stderr", Gone(error))
    # rich silences a console for good whose terminal is gone
    monkeypatch.setattr(console, "messages", Console(stderr=True))
    for as_json in (True, False):
        with server_log(as_json):
            log_event("refused", "%s", "a connection", level=logging.INFO, cause="handshake")
        with site_log(tmp_path / "log", "north", as_json) as tell:
            tell("joined")
    with PrintLog(print_status, "fedkernel.run.journal", tracebacks=True):
        try:
            raise InputError("x")
        except InputError:
            logging.getLogger("fedkernel.run.journal").warning("run %s", "r", exc_info=True)
    assert (tmp_path / "log").read_text(encoding="utf-8").count("joined") == 2


def test_what_ends_a_site_is_an_error_in_its_log(tmp_path):
    with site_log(tmp_path / "log", "north", False), pytest.raises(Exit), console.report_errors(False):
        raise InputError("x")
    assert (tmp_path / "log").read_text(encoding="utf-8").endswith(" ERROR error: x\n")


def test_a_server_s_log_has_sentences_and_no_tracebacks(capsys):
    with server_log(False):
        try:
            raise InputError("x")
        except InputError as error:
            logging.getLogger("fedkernel.experiments").info("run %s has failed: x", "r", exc_info=error)
    assert capsys.readouterr().err == "run r has failed: x\n"


def scraped(url):
    with urlopen(url) as page:  # noqa: S310 - our own
        return dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines() if not line.startswith("#"))


def test_counters_are_those_of_what_happened(capsys):
    with serving_metrics("0", SITES) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
        with socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)/", url)[1]))) as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hangs up, impolitely
            stranger.send(b"G")
        assert scraped(url)['fedkernel_site_connected{site="c"}'] == "0.0"
        for site in SITES:
            log_event("site here", "", site=site)
        log_event("site gone", "", site="b")
        log_event("refused", "", cause="handshake")
        begin()
        finish(0.5)
        finish(20.0, round=4)
        log_event("round over", "", **ROUND, seconds=1.0, bytes_up=1, bytes_down=1, replayed=True)
        counters = scraped(url)
        assert [counters[f'fedkernel_site_connected{{site="{site}"}}'] for site in SITES] == ["1.0", "0.0", "1.0"]
        assert counters["fedkernel_sites_expected"] == "3.0"
        assert counters['fedkernel_run_rounds_expected{run="r"}'] == "41.0"
        assert counters['fedkernel_run_round{run="r"}'] == "3.0"
        assert counters["fedkernel_rounds_total"] == counters["fedkernel_round_seconds_count"] == "2.0"
        assert counters["fedkernel_round_seconds_sum"] == "20.5"
        assert counters['fedkernel_round_seconds_bucket{le="1.0"}'] == "1.0"
        assert counters['fedkernel_bytes_total{direction="up"}'] == "60.0"
        assert counters['fedkernel_bytes_total{direction="down"}'] == "100.0"
        assert counters['fedkernel_refusals_total{cause="handshake"}'] == "1.0"
        for failed in (True, False, False):
            log_event("run over", "", run="r", failed=failed)
        counters = scraped(url)
        assert counters['fedkernel_runs_total{outcome="failed"}'] == "1.0"
        assert counters['fedkernel_runs_total{outcome="finished"}'] == "2.0"
        assert not any("fedkernel_run_round{" in name for name in counters)
    with pytest.raises(OSError, match="refused"):
        scraped(url)
    assert capsys.readouterr().err == ""


def test_counters_that_cannot_be_served(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EngineError, match=r"metrics cannot be served at 127\.0\.0\.1:\d+: "):
            serving_metrics(str(taken.getsockname()[1]), SITES).__enter__()
    with pytest.raises(InputError, match="must be HOST:PORT"):
        serving_metrics("here", SITES).__enter__()
    with pytest.raises(EngineError, match=r"\.x:1: no name of a host"):
        serving_metrics(f"{64 * 'a'}.x:1", SITES).__enter__()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"--metrics needs prometheus-client: pip install 'fedkernel\[metrics\]'"):
        Metrics(SITES)
