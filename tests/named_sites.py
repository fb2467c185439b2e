"""Three sites with files of their own, as nodes of a grid in this process."""

import re

import numpy as np
import pytest
from cases import PAIRS

from fedkernel.engines.local import LocalGrid
from fedkernel.flower_apps import client
from fedkernel.ground import InputError
from fedkernel.peers import KeyPair
from fedkernel.protocol import is_seeded
from fedkernel.run import RunSettings
from fedkernel.site import site_of_job
from fedkernel.wire import Job, RunSpec, ShowShare, TakeShares, commitment, flower_internals, joint_seed

rng = np.random.default_rng(0)
IDS = [f"patient-{number:03d}" for number in rng.permutation(40)]
TABLE = rng.standard_normal((40, 7))
COLUMNS = [slice(0, 2), slice(2, 5), slice(5, 7)]
HELD = [rng.permutation(40)[:count] for count in (36, 33, 38)]  # each site has other rows, in another order
COMMON_ROWS = [row for row in range(40) if all(row in held for held in HELD)]
COMMON = {IDS[row] for row in range(40) if all(row in held for held in HELD)}
NAMES = ("north", "east", "south")
KEY = b"0123456789abcdef0123456789abcdef"
LENIENT = {"given-seed": "true", "peers-without-pins": "true", "table-share": 1000}


def pinned(folder, names):
    """Return, for each site, its key for letters and its pins of all: node configurations."""
    keys = {name: KeyPair.new() for name in names}
    for name, key in keys.items():
        (folder / f"{name}.pem").unlink(missing_ok=True)
        key.write(folder / f"{name}.pem")
    pins = folder / "pins.toml"
    pins.write_text("".join(f'{name} = "{key.fingerprint}"\n' for name, key in keys.items()))
    return {name: {"identity": str(folder / f"{name}.pem"), "pins": str(pins)} for name in names}


def write_csv(path, ids, X, names=None):
    names = names or [f"c{place}" for place in range(X.shape[1])]
    lines = [",".join([*map(repr, row.tolist()), id_]) for id_, row in zip(ids, X, strict=True)]
    path.write_text("\n".join([",".join([*names, "patient"]), *lines]) + "\n", encoding="utf-8")
    return path


def vertical(folder, held=HELD, **more):
    """Node configurations of three sites with columns of different, shuffled rows."""
    nodes = []
    for name, columns, rows in zip(NAMES, COLUMNS, held, strict=True):
        path = write_csv(folder / f"{name}.csv", [IDS[row] for row in rows], TABLE[rows, columns])
        own = {"name": name, "data": str(path), "id": "patient", "out": str(folder / name), "approve": "any"}
        nodes.append(own | {"ids-without-key": "true"} | ({} if "policy" in more else LENIENT) | more)
    return nodes


class Sites(LocalGrid):
    """Nodes with these configurations; keeps all that crosses the wire."""

    def __init__(self, run, nodes):
        super().__init__(client, clients=len(nodes), run_config={"job": Job(runs=[run]).model_dump_json()})
        for context, node in zip(self._contexts.values(), nodes, strict=True):
            context.node_config = dict(node)
        self.seen, self.wire = [], b""

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self.seen += messages + replies
        self.wire += b"".join(flower_internals.to_bytes(message) for message in messages + replies)
        return replies


def spec(strategy="DKPCA", sites=NAMES, **more):
    default = {"pair": PAIRS[strategy].client.__name__, "plan": ()}
    return RunSpec(strategy=strategy, sites=list(sites), **{"id": "trial"} | default | more)


def settings_of(run):
    own = {name: getattr(run, name) for name in ("joint_seed", "sums", "privacy")}
    return RunSettings(run.id, run.seed, run.clients, 60, run.missing, hashes=True, **own)


def draw_seed(introduction, ask):
    """Return the seed that a site draws with two others, which whoever asks has invented."""
    others = [f"{number:064x}" for number in (1, 2)]
    share = ask(ShowShare(commitments=(introduction.commitment, *map(commitment, others)))).share
    ask(TakeShares(shares=(share, *others)))
    return joint_seed([share, *others])


def drawn_seed(result):
    """Return the seed that the sites of a run drew together; 0, the one it has, where they did not."""
    return next((row["values"]["seed"] for row in result.history if row["phase"] == "seed"), 0)


def run_on(nodes, strategy, **more):
    plan = strategy.plan_of_run(len(nodes), more.get("seed", 0))
    own = {"parameters": strategy.hyperparameters, "plan": plan}
    own["joint_seed"] = is_seeded(plan) and "given-seed" not in nodes[0]
    run = spec(type(strategy).__name__, [node["name"] for node in nodes], **own | more)
    with Sites(run, nodes) as grid:
        return strategy.run(grid, settings_of(run)), grid


def refused(nodes, strategy, error=InputError, **more):
    with pytest.raises(error) as caught:
        run_on(nodes, strategy, **more)
    assert "\n" not in str(caught.value)
    assert "patient-" not in str(caught.value)
    return codeless(str(caught.value))


def codeless(text):
    """Without the codes by which texts are found in a site's log, which are drawn."""
    return re.sub(r"E-[0-9a-f]{4}\b", "E-0", text)


def find(node, run=None):
    job = Job(runs=[run or spec()], out="/nowhere").model_dump_json()
    return site_of_job(flower_internals.new_context(1, node, {"job": job}), {"run": "trial"})
