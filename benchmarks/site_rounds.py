"""Rounds a second of eight sites over gRPC with mutual TLS, and of two SuperNodes of Flower, all on this machine.

    python benchmarks/site_rounds.py

VFedPCA in the paper's form on 128 rows, some 1 KB down and up a site and round, so that hardly anything is computed.
Joining is left out. The SuperNodes have no TLS; Flower's processes ask for messages every now and then, and that is
most of a round's time.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedkernel.engines.grpc import serve
from fedkernel.engines.grpc.certificates import make_certificates, read_tls
from fedkernel.experiments.commands.study_text import read_study
from fedkernel.flower_apps import APPS
from fedkernel.run import Result
from fedkernel.strategies import VFedPCA
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from test_superlink import NAME, network, write_table

ROWS = 128
EXPERIMENT = """
name = "rounds"
engine = "superlink"
data.sites = ["a", "b"]
report.plots = false
[[strategy]]
name = "components"
method = "VFedPCA"
merge = "eigenvalue"
n_components = 1
rounds = 5
"""


def said(where: str, result: Result) -> str:
    """Return a line with a run's rounds a second."""
    each = [row["seconds"] for row in result.history if row.get("seconds")]
    return f"{where:<44} {len(each):>5} rounds {len(each) / sum(each):>9.3g} a second"


def over_grpc(folder: Path, sites: int, rounds: int) -> Result:
    """Run with so many processes, which reach the coordinator on loopback."""
    names = [f"site-{number}" for number in range(sites)]
    make_certificates(folder, ["127.0.0.1"], names)
    rng = np.random.default_rng(0)
    files = [as_file(rng.standard_normal((ROWS, 2)), folder / name) for name in names]
    own = {"strategy": "VFedPCA", "parameters": VFedPCA(merge="eigenvalue", rounds=rounds).hyperparameters}
    job = Job(
        runs=[RunSpec(id="rounds", **own, shards=files, seed=0, clients=sites)], apps=APPS, out=str(folder / "out")
    )
    with ExitStack() as stack:

        def start(port: int) -> None:
            for name in names:
                command = [sys.executable, "-m", "fedkernel.engines.grpc.client_process", f"127.0.0.1:{port}"]
                process = subprocess.Popen([*command, str(folder / name), "60"])
                stack.callback(process.wait)
                stack.callback(process.terminate)

        (finished,) = serve(job, names, "127.0.0.1:0", read_tls(folder / "server", "server"), ready=start)
        return Result.load(folder / "out" / str(finished))


def over_supernodes(folder: Path) -> Result:
    """Run with two SuperNodes and a SuperLink, each a process of Flower's."""
    (folder / "rounds.toml").write_text(EXPERIMENT)
    approved = read_study(folder / "rounds.toml").sha256
    own = f'id="patient" ids-without-key=true out="kept" min-sites=2 table-share=100 approve="{approved}"'
    rng = np.random.default_rng(0)
    for name in "ab":
        write_table(folder / "net" / name / f"{name}.csv", np.arange(ROWS), rng.standard_normal((ROWS, 4)))
    nodes = {name: f'name="{name}" data="{name}.csv" {own}' for name in "ab"}
    with network(folder / "net", nodes, secure=False) as flower:
        command = [Path(sys.executable).parent / "fedkernel", "run", folder / "rounds.toml", "--connection", NAME]
        done = subprocess.run(
            [*command, "--out", folder / "out"],
            env={**os.environ, **flower.user},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    return Result.load(folder / "out" / "results" / "components__seed=0")


def main() -> None:
    for sites in (2, 8):
        with TemporaryDirectory(prefix="fedkernel-bench-") as folder:
            print(said(f"{sites} sites over gRPC with mutual TLS", over_grpc(Path(folder), sites, 200)), flush=True)
    with TemporaryDirectory(prefix="fedkernel-bench-") as folder:
        print(said("2 SuperNodes and a SuperLink", over_supernodes(Path(folder))), flush=True)


if __name__ == "__main__":
    main()
