"""At a site with a policy: every pair runs as its approved study has it, and what is not in that does not pass."""

from pathlib import Path

import numpy as np
import pytest
from cases import ONE_OF_EACH
from flwr.app import Message
from named_sites import NAMES, TABLE, Sites, draw_seed, drawn_seed, pinned, settings_of, vertical
from networks import digits, spread
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import ADMMKPCA, DKPCA, RBF, Linear, VFedPCA, once, wire
from fedkernel.clients.diskpca import DrawUniformly, SketchPoints
from fedkernel.clients.dkpca import FindLocalEigenpairs, FindLocalProducts, LocalSpectrum
from fedkernel.clients.vfedpca import Multiply
from fedkernel.ground import InputError, RefusedError, derive_key
from fedkernel.numerics import SubspaceEmbedding
from fedkernel.peers import KeyPair
from fedkernel.protocol import Step, is_seeded
from fedkernel.site import Policy, approve, keys, read_outbox, site_builder, site_of_job
from fedkernel.site.audit_log import Answer, admit, append_to_outbox
from fedkernel.site.client_app import client_app
from fedkernel.site.gate import Gate
from fedkernel.site.raw_request import read_raw_request
from fedkernel.wire import Introduce, Job, Study, flower_internals, from_content, to_content

SEED = 0


def study_of(strategy, names, **more):
    kind = type(strategy)
    table = {
        "id": "trial",
        "strategy": f"{kind.__module__}:{kind.__name__}",
        "pair": f"{kind.client.__module__}:{kind.client.__name__}",
        "parameters": strategy.hyperparameters,
        "seed": SEED,
        "sites": list(names),
        "plan": (plan := strategy.plan_of_run(len(names), SEED)),
        "joint_seed": is_seeded(plan),
    }
    return Study(name="study", runs=[wire.RunSpec(**table | more)])


WINE = StandardScaler().fit_transform(load_wine().data)
PATIENTS = StandardScaler().fit_transform(load_breast_cancer().data)


def shards_of(case):
    """More than 100 rows at each site, as guards suppose."""
    if isinstance(case.strategy, ADMMKPCA):
        return digits(100, 6) if case.table.shape[1] == 64 else spread(6, rows=100)
    parts = np.array_split(PATIENTS if case.axis == 0 else WINE, case.clients, axis=case.axis)
    return [np.ascontiguousarray(part) for part in parts]


def nodes_of(folder, names, tables, policy=""):
    small = "" if "[guards]" in policy else "\n[guards]\ntable_share = 1000\n"  # as tables of tests are
    (folder / "site.toml").write_text(policy + small)
    keys = pinned(folder, names)
    for name, table in zip(names, tables, strict=True):
        np.save(folder / f"{name}.npy", table)
        paths = {"data": f"{name}.npy", "out": name, "policy": "site.toml"}
        yield {**keys[name], "name": name, **{option: str(folder / path) for option, path in paths.items()}}


def approve_at(folder, names, study):
    for name in names:
        approve(folder / name, study.sha256)


class Approved(Sites):
    """Nodes that are given a job with its study."""

    def __init__(self, study, nodes):
        super().__init__(study.runs[0], nodes)
        for context in self._contexts.values():
            context.run_config = {"job": Job(runs=study.runs, study=study).model_dump_json()}


@pytest.mark.parametrize("case", ONE_OF_EACH)
def test_every_pair_runs_under_the_policy_that_its_study_asks_for_and_gives_the_same(tmp_path, case, monkeypatch):
    """The same as at simulated sites, which have neither policy nor guards; what has left is what the server counts."""
    # of so few rows some seeds that sites may draw have vectors that a guard refuses; this one no wording changes
    monkeypatch.setattr(keys.secrets, "token_bytes", lambda size: bytes(range(5, size + 5)))
    of_any_run = lambda secret, purpose: derive_key(secret, purpose if len(purpose) < 64 else "any run")  # noqa: E731
    monkeypatch.setattr(site_builder, "derive_key", of_any_run)
    strategy, shards = case.strategy, shards_of(case)
    names = [f"site-{number}" for number in range(len(shards))]
    plan = strategy.plan_of_run(len(names), SEED, evaluate=True)
    study = study_of(strategy, names, evaluate=True, plan=plan)
    times = {}
    for step in study.runs[0].plan:
        for planned in step.requests:
            times[planned.reply] = times.get(planned.reply, 0) + step.times
    shares = "'share_rows': True" in str(strategy.hyperparameters)
    policy = "[study]\nmin_sites = 3\n" + ("[limits.total]\nrows = 10000\n" if shares else "")
    policy += "".join(f"[messages.{reply}]\ntimes = {number}\n" for reply, number in times.items())
    nodes = list(nodes_of(tmp_path, names, shards, policy))
    approve_at(tmp_path, names, study)
    with Approved(study, nodes) as grid:
        result = strategy.run(grid, settings_of(study.runs[0]), evaluate=True)
    expected = strategy.fit(shards, seed=drawn_seed(result), evaluate=True)
    assert result.metrics == expected.metrics
    for name, array in vars(expected.model).items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(getattr(result.model, name), array)
    for client, name in enumerate(names):
        if expected.outputs[client]:
            with np.load(tmp_path / name / "trial.npz") as stored:
                for output, array in expected.outputs[client].items():
                    np.testing.assert_array_equal(stored[output], array)
        last = read_outbox(tmp_path / name).departures[-1]
        ledger = result.ledger.of_client(client)
        assert last.study == study.sha256
        letters = sum(letter.floats for letter in result.ledger.letters if letter.sender == client)
        assert last.standing.total.floats == ledger.floats_up + letters
        assert letters == sum(line.letters for line in read_outbox(tmp_path / name).departures)
        assert last.standing.total.bytes == ledger.bytes_up
        assert not last.refused


KINDS = {Introduce: "query", wire.ShowShare: "query.share", wire.TakeShares: "query.seed"}
KINDS |= {wire.HashIds: "query.ids", wire.TakeRows: "query.align"}


class Target:
    """A site, and a coordinator that sends it what it likes; by itself with the job's pair, and in round 0 or 1."""

    def __init__(self, folder, job, header=None, **node):
        np.save(folder / "north.npy", TABLE)
        node = {"name": "north", "data": str(folder / "north.npy"), "out": str(folder / "out"), **node}
        self.app = client_app({}, site_of_job)
        self.context = flower_internals.new_context(1, node, {"job": job.model_dump_json()})
        self.folder, self.run, self.seed = folder / "out", "trial", SEED
        self.header = {"pair": job.runs[0].pair.partition(":")[2]} | (header or {})

    def ask(self, request, **config):
        kind = KINDS.get(type(request), "train")
        header = {"run": self.run, "seed": self.seed, "round": int(kind == "train"), **self.header, **config}
        reply = self.app(Message(to_content(request, header), 1, kind), self.context)
        return reply.error.reason if reply.has_error() else reply.content

    def begin(self):
        """Begin the run, and draw its seed where all sites do."""

        def ask(request):
            return from_content(request.reply_type, self.ask(request))

        self.seed = SEED
        introduction = ask(Introduce())
        if introduction.commitment is not None:
            self.seed = draw_seed(introduction, ask)

    @property
    def lines(self):
        return read_outbox(self.folder).departures


def target_of(folder, strategy, policy="", **more):
    """Return a site that has approved a run of a strategy, and whoever asks it."""
    flower_internals.ensure_task_identity()
    study = study_of(strategy, NAMES, **more)
    approve(folder / "out", study.sha256, 1000.0)  # numbers for each entry: its table is small
    (folder / "site.toml").write_text(policy)
    return Target(folder, Job(runs=study.runs, study=study), policy=str(folder / "site.toml"))


def masked(folder, strategy, policy="", change=lambda keys: keys, **more):
    """Return nodes that have approved a study of masked sums, and the study."""
    nodes = list(nodes_of(folder, NAMES, [TABLE] * 3, policy))
    keys = change([KeyPair.read(node["identity"]).listed for node in nodes])
    study = study_of(strategy, NAMES, sums="masked", identities=keys, align=False, **more)
    approve_at(folder, NAMES, study)
    return nodes, study


def masked_target(folder, node, study, **header):
    """Return a site that has approved such a study, and whoever asks it."""
    flower_internals.ensure_task_identity()
    approve(folder / "out", study.sha256, 1000.0)
    own = {name: node[name] for name in ("identity", "pins", "policy")}
    return Target(folder, Job(runs=study.runs, study=study), {"sums": "masked", "alike": True} | header, **own)


PLANNED = FindLocalEigenpairs(kernel=Linear(), n_components=2)
SKETCH = SketchPoints(embedding=SubspaceEmbedding(Linear(), None), columns=40, precision="float64")
THINGS = {
    "the whole table": (DrawUniformly(samples=40), "DisKPCAClient"),
    "its transpose": (SKETCH, "DisKPCAClient"),
    "all inner products": (Multiply(block=np.eye(40)), "VFedPCAClient"),
    "all eigenpairs": (FindLocalEigenpairs(kernel=Linear(), n_components=40), "DKPCAClient"),
}


@pytest.mark.parametrize("study", [None, study_of(DKPCA(2), NAMES)], ids=["no study", "a study of another method"])
def test_from_a_site_with_no_policy_nothing_comes_back_and_every_attempt_is_recorded(tmp_path, study):
    """Not even its name and the size of its table."""
    flower_internals.ensure_task_identity()
    runs = study_of(DKPCA(2), NAMES).runs
    target = Target(tmp_path, Job(runs=runs, study=study))
    queries = Introduce(), wire.HashIds(), wire.TakeRows(hashes=np.zeros((1, 16), np.uint8))
    answers = [target.ask(query) for query in queries]
    answers += [target.ask(request, pair=pair) for request, pair in [*THINGS.values()] * 3]
    reason = study.sha256[:12] if study else "the job has no study"
    assert all(reason in answer and answer.endswith("(study.approve)") for answer in answers), answers
    assert [line.refused for line in target.lines] == answers
    assert {line.rule for line in target.lines} == {"study.approve"}
    assert target.lines[-1].standing.total.bytes == 0


def test_after_an_approval_only_what_the_plan_has_next_comes_back(tmp_path):
    target, planned = target_of(tmp_path, DKPCA(2)), PLANNED
    for request, pair in THINGS.values():
        assert "plan of study" in target.ask(request, pair=pair)
    assert not isinstance(target.ask(Introduce()), str)
    wide = FindLocalEigenpairs(kernel=Linear(), n_components=3)
    assert "n_components = 3, but the plan" in target.ask(wide)
    # padded so that a reader who gives up would let it pass
    padded = to_content(wide)["config"]["fields"] + " " * 30_000
    assert "n_components = 3, but the plan" in target.ask(wide, fields=padded)
    assert "runs DKPCAClient, but was asked for 'VFedPCAClient'" in target.ask(planned, pair="VFedPCAClient")
    assert not isinstance(target.ask(planned), str)
    assert "came 1 times, as often as the plan allows" in target.ask(planned)
    assert [line.reply for line in target.lines if line.reply] == ["Introduction", "LocalSpectrum"]
    assert "no run" in target.ask(planned, run="another")


@pytest.mark.parametrize(("dtype", "other"), [("float32", "float64"), ("float64", "float32")])
def test_arrays_travel_as_the_study_has_it(tmp_path, dtype, other):
    target = target_of(tmp_path, DKPCA(2), wire=dtype)
    refusal = target.ask(Introduce(), wire=other)
    assert f"wire = {other} in the request, but run 'trial' has wire = {dtype}" in refusal
    assert not isinstance(target.ask(Introduce(), wire=dtype), str)
    assert f"wire = {other} in the request" in target.ask(PLANNED, wire=other)
    assert target.ask(PLANNED, wire=dtype)["arrays"].to_numpy_ndarrays()[0].dtype == dtype


def test_what_is_refused_makes_no_guard_forget_and_settles_no_rows(tmp_path):
    exact, multiply = target_of(tmp_path, VFedPCA(2, merge="exact")), lambda V: Multiply(block=V)
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))[0]
    exact.begin()
    for first in range(0, 20, 2):
        assert not isinstance(exact.ask(multiply(V[:, first : first + 2])), str)
    for _ in range(5):
        assert "request 1 of the run (Introduce) differs" in exact.ask(Introduce(), pair="Nope")
        assert "span 22 dimensions; allowed: at most 20" in exact.ask(multiply(V[:, 20:22]))
    assert exact.lines[-1].standing.run.begun == 1


def test_rows_that_are_refused_are_not_worked_on(tmp_path):
    """Where a run would have fewer rows than an earlier one, by one, nothing is asked of these."""
    flower_internals.ensure_task_identity()
    first = study_of(DKPCA(2), NAMES).runs[0]
    study = Study(name="study", runs=[first, first.model_copy(update={"id": "again"})])
    node = vertical(tmp_path, [np.arange(40)] * 3)[0]
    approve(Path(node["out"]), study.sha256)
    target = Target(tmp_path, Job(runs=study.runs, study=study), **node | {"approve": "by hash"})
    target.folder = Path(node["out"])
    for target.run, rows in (("trial", 40), ("again", 39)):
        target.ask(Introduce())
        hashes = from_content(wire.HashedIds, target.ask(wire.HashIds())).hashes
        common = np.array(sorted(map(bytes, hashes)), "V16").view(np.uint8).reshape(-1, 16)[:rows]
        aligned = target.ask(wire.TakeRows(hashes=common))
        reply = from_content(LocalSpectrum, target.ask(PLANNED))
    assert "has 1 rows fewer than an earlier run" in aligned
    assert reply.vectors.shape == (40, 2), "but on all, as the earlier one did"


def test_a_line_about_another_run_of_that_name_makes_no_limit_forget(tmp_path):
    """As where the job is not the one that had been approved: nothing was looked up for it."""
    flower_internals.ensure_task_identity()
    node = {"data": "a.csv", "out": str(tmp_path)}
    request = read_raw_request(Message(to_content(Introduce(), {"run": "trial", "round": 0}), 1, "query"))
    rules = Gate(Policy(), study_of(DKPCA(2), NAMES).runs[0])
    reply = wire.Introduction(client=0, rows=40, columns=2, new_rows=0)
    for _ in range(3):
        append_to_outbox(node, request, Answer(to_content(reply), reply), gate=rules)
        append_to_outbox(node, request, refused="of another job")
    with pytest.raises(RefusedError, match="was started 3 times"):
        admit(node, request, rules)


def test_what_was_computed_for_nothing_counts(tmp_path):
    target = target_of(tmp_path, DKPCA(2), "[limits.run]\nfloats = 1")
    target.ask(Introduce())
    for _ in range(3):
        assert "limits.run.floats" in target.ask(PLANNED)
    seconds = [line.standing.run.seconds for line in target.lines]
    assert 0 < seconds[1] < seconds[2] < seconds[3]


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ({"reply": "Done"}, "FindLocalEigenpairs with reply = Done, but its class has LocalSpectrum"),
        ({"summed": True}, "the plan has FindLocalEigenpairs with summed = True, but its class has False"),
        ({"arrays": {}}, "the plan has FindLocalEigenpairs with arrays = {}, but its class has {'vectors'"),
        ({"fields": {"at most 1": None}}, "parameter at most 1 for FindLocalEigenpairs, but that class has none"),
        ({"request": "Steal"}, "the plan has Steal, which its client does not answer"),
        ({"posts": {"Rows": ""}}, "the plan lists letter Rows for FindLocalEigenpairs, but that class has none"),
    ],
)
def test_a_plan_that_says_of_a_reply_what_its_class_does_not_is_refused(tmp_path, claim, sentence):
    ((planned,),) = [step.requests for step in DKPCA(2).plan(3, SEED)]
    plan = (Step(requests=(planned.model_copy(update=claim),)),)
    assert sentence in target_of(tmp_path, DKPCA(2), plan=plan).ask(Introduce())


def test_a_run_is_as_the_study_has_it(tmp_path):
    study = study_of(DKPCA(2), NAMES)
    approve(tmp_path / "out", study.sha256)
    other = study_of(DKPCA(3), NAMES).runs
    job = {"job": Job(runs=other, study=study).model_dump_json()}
    with pytest.raises(InputError, match=f"run 'trial' differs from the run in study {study.sha256[:12]}"):
        site_of_job(flower_internals.new_context(1, {"name": "north"}, job), {"run": "trial"})


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (FindLocalProducts(n_components=2), '{"n_components": 2}'),
        (FindLocalEigenpairs(n_components=2, kernel=Linear()), '{"n_components": 2, "kernel": "linear"}'),
    ],
    ids=["left out", "named"],
)
def test_a_kernel_that_a_request_leaves_out_or_names_alone_is_held_to_the_policy(tmp_path, request_, fields):
    """A request has its class's kernel then; the policy sees only what is written."""
    plan, policy = (once(type(request_)),), "[study.kernels]\nrbf = {}\n"
    target = target_of(tmp_path, DKPCA(2, RBF(gamma=0.1)), policy, plan=plan)
    target.begin()
    content = to_content(request_, {"run": target.run, "seed": target.seed, "round": 1, **target.header})
    content["config"]["fields"] = fields
    reply = target.app(Message(content, 1, "train"), target.context)
    assert reply.has_error()
    assert "a kernel of type 'linear' is not allowed (study.kernels)" in reply.error.reason
    assert target.lines[-1].rule == "study.kernels"
