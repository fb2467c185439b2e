"""Faults, one by one, in real processes with mutual TLS: what happens, how long that takes, who is told what.

`python benchmarks/drills.py --write` plays all and writes docs/results/faults.md; with words of their names those only.
It takes some minutes. Each drill looks whether what it says has happened: else it ends this program. Seconds are from
the fault until the run is finished, has failed, or its cause is refused.
"""

import argparse
import re
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_wine
from stage import SITES, Command, Stage

from fedkernel.engines.grpc.certificates import make_certificates
from fedkernel.engines.grpc.revocation import revoke
from fedkernel.ground import load_parts

PAGE = Path(__file__).parent.parent / "docs" / "results" / "faults.md"
HEAD = """# Faults, one by one

`python benchmarks/drills.py --write` plays each fault with real processes, mutual TLS and three sites, in 251 rounds of
`VFedPCA`, and writes this page. Seconds count from the fault to the end of the run or to the refusal, on two busy
cores. *Same bits* means those of an undisturbed run. Where a run fails, the same command tries it again. N, HOST:PORT
and E-CODE differ each time; `error:`, run and round are left out.

| fault | what happened | seconds | what the user saw |
|---|---|---|---|
"""
FRAME = re.compile(
    r"^run \S+ has failed: |; --debug shows the traceback$|VFedPCA, round N \(\w+\), "
    r"|refused '\w' from HOST:PORT: |HOST:PORT cannot be joined: "
)
"""Words around a sentence that the table leaves out."""
FAILS = "the run fails"
UNDISTURBED = dict[str, bytes]()
"""The model of a run without a fault, once it is known."""


@dataclass(frozen=True)
class Seen:
    """What a drill has seen: what `happened`, in how many seconds, the `sentences` of each."""

    happened: str
    seconds: float
    sentences: dict[str, str]

    def row(self, fault: str) -> str:
        """Return the line of the table."""
        speakers: dict[str, list[str]] = {}
        for who, sentence in self.sentences.items():
            told = re.sub(r'^the server ended the work: "(.*)"$', r"\1", sentence.removeprefix("error: "))
            speakers.setdefault(FRAME.sub("", told), []).append(who)
        sentences = "; ".join(f"{', '.join(names)}: “{sentence}”" for sentence, names in speakers.items())
        cells = (fault, self.happened, f"{self.seconds:.1f}", sentences)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


Drill = Callable[[Stage], Seen]
DRILLS: dict[str, tuple[Drill, float]] = {}
"""By fault; with the deadline of a round."""


def drill(fault: str, deadline: float = 3600.0) -> Callable[[Drill], Drill]:
    def note(play: Drill) -> Drill:
        DRILLS[fault] = play, deadline
        return play

    return note


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How many these are."""
        return time.monotonic() - self._began


def same_bits(stage: Stage) -> str:
    """Return what is said of a result that has the bits of an undisturbed run's; it is an error if it has not."""
    if not UNDISTURBED:
        with TemporaryDirectory(prefix="fedkernel-drill-") as folder, Stage(Path(folder)) as quiet:
            ended(0, quiet.serve(), *map(quiet.join, SITES))
            UNDISTURBED.update(arrays_of(quiet))
    if arrays_of(stage) != UNDISTURBED:
        raise SystemExit("the result is another than that of an undisturbed run")
    return "same bits"


def arrays_of(stage: Stage) -> dict[str, bytes]:
    parts = load_parts(stage.result / "model.npz")
    return {name: np.ascontiguousarray(array).tobytes() for name, array in parts.arrays.items()}


def ended(code: int, *commands: Command) -> None:
    """Wait for commands, which are to end with a code."""
    for command in commands:
        if command.end() != code:
            raise SystemExit(
                f"{command.log.name} has ended with {command.process.exitcode}, not {code}:\n{command.text}"
            )


def failed(server: Command) -> None:
    """Wait for a server whose run has failed."""
    if server.end() not in (1, 2):
        raise SystemExit(f"the run has not failed:\n{server.text}")


@drill("the server is killed, and started again")
def server_killed(stage: Stage) -> Seen:
    server, sites = stage.under_way()
    watch = Watch()
    server.kill()
    again = stage.serve()
    ended(0, again, *sites.values())
    seconds = watch.seconds
    sentences = {"server": again.says("resumed at"), "site": sites["a"].says("is lost")}
    return Seen(f"resumed; {same_bits(stage)}", seconds, numberless(sentences))


@drill("the server is stopped by Ctrl-C, and started again")
def server_stopped(stage: Stage) -> Seen:
    server, sites = stage.under_way()
    watch = Watch()
    server.signal(signal.SIGINT)
    ended(130, server)
    ended(0, stage.serve(), *sites.values())
    seconds = watch.seconds
    sentences = {"server": server.says("interrupted"), "site": sites["a"].says("is lost")}
    return Seen(f"resumed; {same_bits(stage)}", seconds, sentences)


@drill("the server is killed, and its journal damaged")
def journal_damaged(stage: Stage) -> Seen:
    server, sites = stage.under_way()
    time.sleep(0.5)
    watch = Watch()
    server.kill()
    journal = stage.result / "journal"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    again = stage.serve()
    ended(0, again, *sites.values())
    seconds = watch.seconds
    sentences = {"server": again.says("damaged")}
    anew = "begins anew" in again.text
    happened = "begun anew" if anew else "resumed after the journal's last whole record"
    return Seen(f"{happened}; {same_bits(stage)}", seconds, numberless(sentences))


@drill("a site is killed, and started again")
def site_restarted(stage: Stage) -> Seen:
    server, sites = stage.under_way()
    watch = Watch()
    sites["b"].kill()
    server.until("b is gone")
    again = stage.join("b")
    ended(0, server, again, sites["a"], sites["c"])
    seconds = watch.seconds
    sentences = {"server": server.says("b is back, restarted"), "site": again.says("joined")}
    return Seen(f"asked again for all of the run; {same_bits(stage)}", seconds, sentences)


@drill("a site is killed, and stays away (--patience 3)")
def site_killed(stage: Stage) -> Seen:
    server, sites = stage.under_way("--patience", "3")
    watch = Watch()
    sites["b"].kill()
    failed(server)
    seconds = watch.seconds
    sites["a"].end()
    sentences = {"server": server.says("error: "), "another site": sites["a"].says()}
    again = stage.serve()
    ended(0, again, *(stage.join(name) for name in SITES))
    again.says("resumed at round")
    return Seen(f"{FAILS}; the same commands resume it; {same_bits(stage)}", seconds, numberless(sentences))


@drill("a site hangs (SIGSTOP), and stays so (--patience 3)")
def site_hangs(stage: Stage) -> Seen:
    server, sites = stage.under_way("--patience", "3")
    watch = Watch()
    sites["b"].signal(signal.SIGSTOP)
    failed(server)
    seconds = watch.seconds
    sites["a"].end()
    sentences = {"server": server.says("error: "), "another site": sites["a"].says()}
    return Seen(f"no answer to pings: {FAILS}", seconds, numberless(sentences))


@drill("a site is slower than the deadline of a round (deadline = 3)", deadline=3.0)
def site_slow(stage: Stage) -> Seen:
    server, sites = stage.under_way()
    watch = Watch()
    sites["b"].signal(signal.SIGSTOP)
    failed(server)
    seconds = watch.seconds
    sites["b"].signal(signal.SIGCONT)
    sites["b"].end()
    sentences = {"server": server.says("error: "), "the site": sites["b"].says()}
    return Seen(FAILS, seconds, numberless(sentences))


@drill("a site has other columns than the others")
def wrong_columns(stage: Stage) -> Seen:
    rows = np.array_split(load_wine().data, 3)
    for name, part in zip(SITES, rows, strict=True):
        stage.write(f"{name}.csv", part, [f"c{column + (name == 'c')}" for column in range(part.shape[1])])
    server = stage.serve(config="rows.toml")
    others = [stage.join(name) for name in SITES[:2]]
    for name in SITES[:2]:
        server.until(f"{name} is here")
    watch = Watch()
    wrong = stage.join("c")
    while server.process.exitcode is None and wrong.process.exitcode is None:
        time.sleep(0.05)
    seconds = watch.seconds
    wrong.end()
    sentences = {"server": server.says("'c1'"), "site": wrong.says()}
    if server.process.exitcode is None:
        return Seen("refused at the door; the others wait", seconds, sentences)
    failed(server)
    for site in others:
        site.end()
    return Seen(FAILS, seconds, sentences)


def turned_away(stage: Stage, name: str, words: str, *, tls: Path | None = None, at: str = "refused") -> Seen:
    """Have somebody join a server that waits, who is turned away."""
    server = stage.serve()
    server.until("listening")
    watch = Watch()
    other = stage.join(name, "--data", "a.csv", "--id", "patient", "--patience", "5", tls=tls)
    code = other.end()
    seconds, sentences = watch.seconds, {"site": other.says(words)}
    if code not in (1, 2) or server.process.exitcode is not None:
        raise SystemExit(f"it was not turned away, but ended with {code}:\n{server.text}")
    if at in server.text:
        sentences = {"server": server.says(at), **sentences}
    return Seen("refused; the server waits on", seconds, sentences)


@drill("a site's certificate is revoked")
def certificate_revoked(stage: Stage) -> Seen:
    revoke(stage.tls, ["b"])
    return turned_away(stage, "b", "revoked")


@drill("a site's certificate has expired")
def certificate_expired(stage: Stage) -> Seen:
    make_certificates(stage.tls, [], ["b"], days=1e-9, renew=True)
    return turned_away(stage, "b", "expired")


@drill("a site's certificate is of another authority")
def certificate_of_another(stage: Stage) -> Seen:
    make_certificates(stage.place / "other", [], ["b"])
    return turned_away(stage, "b", "error: ", tls=stage.place / "other" / "b")


@drill("somebody with a certificate is no site of the experiment")
def stranger(stage: Stage) -> Seen:
    make_certificates(stage.tls, [], ["d"])
    return turned_away(stage, "d", "error: ")


@drill("a site joins under another's name")
def other_name(stage: Stage) -> Seen:
    return turned_away(stage, "b", "error: ", tls=stage.tls / "a")


@drill("two processes of one site")
def two_of_one_name(stage: Stage) -> Seen:
    server, first = stage.serve(), stage.join("a")
    server.until("a is here")
    watch = Watch()
    second = stage.join("a")
    ended(1, second)
    if first.process.exitcode is not None:
        raise SystemExit(f"the first one has ended:\n{first.text}")
    sentences = {"server": server.says("refused"), "site": second.says("error: ")}
    return Seen("the second is refused, the first stays", watch.seconds, sentences)


@drill("a message is larger than the server allows (--max-message 1500)")
def message_too_large(stage: Stage) -> Seen:
    return fails_as_it_begins(stage, "allowed are", "--max-message", "1500")


@drill("a site's disk is full")
def site_disk_full(stage: Stage) -> Seen:
    return fails_as_it_begins(stage, "E-", largest_of_b=60_000)


def fails_as_it_begins(stage: Stage, words: str, *more: str, largest_of_b: int | None = None) -> Seen:
    server = stage.serve(*more)
    sites = {name: stage.join(name, largest=largest_of_b if name == "b" else None) for name in SITES}
    server.until("(3 of 3)")
    watch = Watch()
    failed(server)
    seconds = watch.seconds
    for site in sites.values():
        site.end()
    sentences = {"server": server.says("error: "), "the site": sites["b"].says(words)}
    return Seen(FAILS, seconds, numberless(sentences))


@drill("the server's disk is full")
def server_disk_full(stage: Stage) -> Seen:
    server = stage.serve(largest=100_000)
    sites = [stage.join(name) for name in SITES]
    server.until("(3 of 3)")
    watch = Watch()
    code = server.end()
    seconds = watch.seconds
    for site in sites:
        site.end()
    sentences = {"server": server.says("error: " if code else "journal"), "site": sites[0].says("ended the work")}
    return Seen(FAILS, seconds, numberless(sentences))


@drill("the server's port is taken")
def port_taken(stage: Stage) -> Seen:
    first = stage.serve()
    first.until("listening")
    watch = Watch()
    second = stage.start("serve", "run.toml", "--listen", stage.address, "--tls", str(stage.tls / "server"))
    ended(1, second)
    return Seen("the second server ends", watch.seconds, {"server": second.says("error: ")})


@drill("there is no server (--patience 3)")
def no_server(stage: Stage) -> Seen:
    watch = Watch()
    site = stage.join("a", "--patience", "3")
    ended(1, site)
    sentences = {"site, at once": site.says("not reached yet"), "then": site.says("error: ")}
    return Seen("the site gives up", watch.seconds, sentences)


@drill("a model that is handed out unpacks to 1 GiB (1 MB)")
def zip_bomb(stage: Stage) -> Seen:
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    shape = "{'descr': '|u1', 'fortran_order': False, 'shape': (1073741824,), }"
    bomb = zipfile.ZipFile(stage.place / "model.npz", "w", zipfile.ZIP_DEFLATED)
    with bomb, bomb.open("vectors.npy", "w") as entry:
        entry.write(header + shape.ljust(117).encode() + b"\n")
        for _ in range(1024):
            entry.write(bytes(1 << 20))
    watch = Watch()
    reader = stage.start("predict", "model.npz", "a.csv", "--id", "patient")
    ended(2, reader)
    return Seen("refused unread", watch.seconds, {"who applies it": reader.says("error: ")})


def numberless(sentences: dict[str, str]) -> dict[str, str]:
    """Return sentences without numbers of rounds, records and bytes, which are others each time."""
    return {who: re.sub(r"\b(round|after|of its|at) \d[\d,]*", r"\1 N", text) for who, text in sentences.items()}


def play(fault: str) -> Seen:
    run, deadline = DRILLS[fault]
    with TemporaryDirectory(prefix="fedkernel-drill-") as folder, Stage(Path(folder), deadline) as stage:
        return run(stage)


def known_rows() -> dict[str, str]:
    """Return the lines of the page's table, by fault."""
    lines = PAGE.read_text().partition("|---|---|---|---|\n")[2].splitlines()
    return {line.strip("| ").partition(" | ")[0]: line for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="Of the faults that are played; by default all are.")
    parser.add_argument("--write", action="store_true", help="Write their rows into the documentation.")
    arguments = parser.parse_args()
    chosen = [fault for fault in DRILLS if not arguments.words or any(word in fault for word in arguments.words)]
    rows, failed = [], False
    for fault in chosen:
        try:
            rows.append(play(fault).row(fault))
            print(rows[-1], flush=True)
        except SystemExit as other:
            failed = True
            print(f"{fault}: {other}", file=sys.stderr, flush=True)
    if failed:
        sys.exit("not all has happened as it is told here")
    if arguments.write:
        line_of = known_rows() | dict(zip(chosen, rows, strict=True))
        PAGE.write_text(HEAD + "".join(f"{line_of[fault]}\n" for fault in DRILLS if fault in line_of))


if __name__ == "__main__":
    sys.exit(main())
