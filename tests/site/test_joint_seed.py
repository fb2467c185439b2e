"""How a run begins at a site: with a seed that all sites draw, and again only as it began before."""

import resource
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from named_sites import NAMES, drawn_seed, settings_of, vertical
from test_gate import Approved, Target, approve_at, nodes_of, study_of, target_of

from fedkernel import ADMMKPCA, DKPCA, RBF, Linear, PeerVFedPCA, UniformKPCA, VFedPCA, wire
from fedkernel.clients.diskpca import DrawUniformly
from fedkernel.clients.dkpca import FindLocalEigenpairs
from fedkernel.clients.vfedpca import Multiply
from fedkernel.ground import ProtocolError, RefusedError, ShareableError, noise_on
from fedkernel.site import LEAST_MEMORY, Policy, approve, audit_log, copy_state, read_outbox, site_of_job
from fedkernel.site.audit_log import Answer
from fedkernel.site.gate import Gate
from fedkernel.site.keys import own_secret
from fedkernel.site.raw_request import read_raw_request
from fedkernel.wire import Introduce, ShowShare, Study, TakeShares, commitment, flower_internals, from_content

V = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))[0]
BLOCKS = [Multiply(block=V[:, place : place + 2]) for place in range(0, 40, 2)]
EIGENPAIRS = FindLocalEigenpairs(kernel=Linear(), n_components=2)
PARTS = [np.random.default_rng(number).standard_normal((60, 4)) for number in range(3)]
SAMPLING = UniformKPCA(2, n_samples=9, share_rows=True)


@pytest.fixture
def nodes(tmp_path):
    """Three sites that have approved a run whose landmarks are drawn."""
    study = study_of(SAMPLING, NAMES)
    approve_at(tmp_path, NAMES, study)
    return study, list(nodes_of(tmp_path, NAMES, PARTS, "[limits.total]\nrows = 1000"))


def run_of(study, nodes):
    with Approved(study, nodes) as grid:
        return SAMPLING.run(grid, settings_of(study.runs[0]))


def test_a_run_that_begins_again_has_the_same_seed_and_gives_the_same(nodes):
    study, configurations = nodes
    runs = [run_of(study, configurations) for _ in range(3)]
    seeds = {drawn_seed(result) for result in runs}
    assert len(seeds) == 1
    assert 0 < seeds.pop() < 2**48
    for result in runs[1:]:
        np.testing.assert_array_equal(result.model.landmarks_, runs[0].model.landmarks_)
    with pytest.raises(ProtocolError, match=r"was started 3 times, as often as the policy allows \(study.attempts\)"):
        run_of(study, configurations)


def test_another_study_and_another_site_give_another_seed(tmp_path, nodes):
    study, configurations = nodes
    seed = drawn_seed(run_of(study, configurations))
    other = Study(name="another", runs=study.runs)
    approve_at(tmp_path, NAMES, other)
    assert drawn_seed(run_of(other, configurations)) != seed
    (tmp_path / "north" / "secret").write_bytes(bytes(32))
    (tmp_path / "north" / "asked" / next((tmp_path / "north" / "asked").iterdir()).name).unlink()
    assert own_secret(tmp_path / "north") == bytes(32)
    assert own_secret(tmp_path / "east") == own_secret(tmp_path / "east") != own_secret(tmp_path / "south")
    (tmp_path / "north" / "secret").write_bytes(b"")  # as after a loss of power
    with pytest.raises(ProtocolError, match=r"cannot keep its secret \(its log has the"):
        run_of(other, configurations)


def test_a_run_whose_coordinator_chose_the_seed_is_refused_where_it_decides_what_is_drawn(tmp_path, nodes):
    ((run,), configurations) = nodes[0].runs, nodes[1]
    chosen = Study(name="study", runs=[run.model_copy(update={"joint_seed": False})])
    approve_at(tmp_path, NAMES, chosen)
    with pytest.raises(ProtocolError, match=r"a seed chosen by its coordinator, but all sites must draw it together"):
        run_of(chosen, configurations)
    # and says that nothing is
    requests = [[planned.model_copy(update={"seeded": False}) for planned in step.requests] for step in run.plan]
    steps = zip(run.plan, requests, strict=True)
    plan = tuple(step.model_copy(update={"requests": tuple(lies)}) for step, lies in steps)
    lying = Study(name="study", runs=[run.model_copy(update={"joint_seed": False, "plan": plan})])
    approve_at(tmp_path, NAMES, lying)
    with pytest.raises(ProtocolError, match=r"the plan has DrawUniformly with seeded = False, but its class has True"):
        run_of(lying, configurations)


@pytest.fixture
def coordinator(tmp_path):
    """A coordinator that asks one site, having invented the two others."""
    return target_of(tmp_path, SAMPLING, "[limits.total]\nrows = 1000")


OTHERS = [f"{number:064x}" for number in (1, 2)]
BOUND = list(map(commitment, OTHERS))


def test_a_site_shows_its_share_once_and_to_who_is_committed(coordinator):
    own = from_content(wire.Introduction, coordinator.ask(Introduce())).commitment
    draw = DrawUniformly(samples=3)
    assert "the joint seed of run 'trial' is not drawn yet (study.joint_seed)" in coordinator.ask(draw)
    for commitments in ([own], [*BOUND, own], [BOUND[0], *BOUND], []):
        assert "must hold one commitment per site (3)" in coordinator.ask(ShowShare(commitments=commitments))
    share = from_content(wire.Share, coordinator.ask(ShowShare(commitments=[own, *BOUND]))).share
    assert commitment(share) == own
    # now that it knows the share, it would rather have others of its own
    assert "ShowShare came 1 times" in coordinator.ask(ShowShare(commitments=[own, BOUND[1], BOUND[0]]))
    for shares in ([share, OTHERS[1], OTHERS[0]], [share], [share, "0" * 64, OTHERS[1]]):
        assert "do not match the sites' commitments" in coordinator.ask(TakeShares(shares=shares))
    assert not isinstance(coordinator.ask(TakeShares(shares=[share, *OTHERS])), str)
    assert "has seed = " in coordinator.ask(draw)
    coordinator.seed = wire.joint_seed([share, *OTHERS])
    assert not isinstance(coordinator.ask(draw), str)
    assert {line.rule for line in coordinator.lines if line.refused} == {"study.joint_seed", "plan"}


def test_begun_again_it_cannot_have_another_seed(coordinator):
    """Though it knows this site's share by then."""
    coordinator.begin()
    coordinator.seed = 0
    own = from_content(wire.Introduction, coordinator.ask(Introduce())).commitment
    other = coordinator.ask(ShowShare(commitments=[own, BOUND[1], BOUND[0]]))
    assert "request 2 of the run (ShowShare) differs from the run's previous start; repeat it" in other
    assert coordinator.lines[-1].rule == "study.attempts"


def test_a_site_that_shows_another_share_than_it_committed_to_is_named(nodes, monkeypatch):
    study, configurations = nodes

    class Lying(Approved):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            if messages[0].metadata.message_type == "query.share":
                replies[1].content = wire.to_content(wire.Share(share="0" * 64))
            return replies

    with Lying(study, configurations) as grid, pytest.raises(ProtocolError, match=r"'\w+'\) sent a share that"):
        SAMPLING.run(grid, settings_of(study.runs[0]))


def test_begun_again_a_run_is_asked_the_same_as_far_as_it_got(tmp_path):
    """Or three beginnings would have three times the vectors that guards allow."""
    target = target_of(tmp_path, VFedPCA(2, merge="exact"))
    target.begin()
    assert not any(isinstance(target.ask(block), str) for block in BLOCKS[:2])
    target.begin()
    assert not isinstance(target.ask(BLOCKS[0]), str)
    assert "request 5 of the run (Multiply) differs from the run's previous start" in target.ask(BLOCKS[2])
    assert not isinstance(target.ask(BLOCKS[1]), str)
    assert not isinstance(target.ask(BLOCKS[2]), str), "it had not got so far"
    target.begin()
    assert not any(isinstance(target.ask(block), str) for block in BLOCKS[:3])
    assert [line.standing.taken for line in target.lines][-3:] == [4, 5, 6]


def test_what_takes_more_memory_than_is_allowed_is_refused(tmp_path, monkeypatch):
    """And the process goes on, with the limit that it had."""
    target = target_of(tmp_path, DKPCA(2), f"[limits.run]\nmemory = {LEAST_MEMORY}")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    target.begin()

    def greedy(self, ask):
        return np.zeros(2 * LEAST_MEMORY // 8)

    with monkeypatch.context() as patched:
        patched.setattr("fedkernel.clients.dkpca.DKPCAClient.find_local_eigenpairs", greedy)
        assert "needs more than the 268,435,456 bytes of memory allowed (limits.run.memory)" in target.ask(EIGENPAIRS)
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
    assert target.lines[-1].rule == "limits.run.memory"
    assert not isinstance(target.ask(EIGENPAIRS), str)


def test_what_was_computed_before_an_error_counts(tmp_path, monkeypatch):
    """Or a request that fails at its end could be made for ever; also once no more refusals are written down."""
    monkeypatch.setattr(audit_log, "MOST_REFUSALS", 0)
    target = target_of(tmp_path, DKPCA(2), "[limits.run]\nseconds = 0.3")
    target.begin()

    def slow(self, ask):
        began = time.process_time()
        while time.process_time() < began + 0.2:
            pass
        raise ShareableError("too late")

    monkeypatch.setattr("fedkernel.clients.dkpca.DKPCAClient.find_local_eigenpairs", slow)
    answers = [target.ask(EIGENPAIRS) for _ in range(4)]
    assert answers[:2] == ["too late"] * 2
    assert all("s of computing are used up, of 0.3 allowed (limits.run.seconds)" in answer for answer in answers[2:])
    assert [line.refused for line in target.lines if line.refused] == answers[:2]


def test_refusals_do_not_fill_the_disk_and_what_leaves_is_always_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_log, "MOST_REFUSALS", 3)
    target = target_of(tmp_path, DKPCA(2))
    for _ in range(9):
        assert "is not in the plan" in target.ask(Multiply(block=np.eye(2)))
    target.begin()
    assert not isinstance(target.ask(EIGENPAIRS), str)
    assert [bool(line.refused) for line in read_outbox(target.folder).departures] == [True] * 3 + [False] * 2


def test_noise_is_the_same_in_all_runs_of_a_site_and_another_at_each(tmp_path, nodes):
    """Or the mean over a study's seeds would undo it; shares of the seed are others in each run."""
    study, own = nodes
    seeds = [study.runs[0].model_copy(update={"id": f"trial-{seed}", "seed": seed}) for seed in range(3)]
    both = Study(name="study", runs=seeds)
    approve_at(tmp_path, NAMES, both)
    job = {"job": wire.Job(runs=seeds, study=both).model_dump_json()}
    sites = [site_of_job(flower_internals.new_context(1, node, job), {"run": run.id}) for node in own for run in seeds]
    keys = [site.noise_key for site in sites]
    assert [keys.index(key) for key in keys] == [0] * 3 + [3] * 3 + [6] * 3
    assert len({site.gate.share for site in sites}) == 9


def test_noise_is_the_same_for_the_same_rows_and_independent_for_all_others():
    rows = np.random.default_rng(0).standard_normal((4000, 5))
    key, other = bytes(32), bytes([1] * 32)
    noise = noise_on(rows, 0.5, key)
    np.testing.assert_array_equal(noise_on(rows.copy(), 0.5, key), noise)
    changed = rows + np.eye(4000, 5)
    draws = [noise, noise_on(rows, 0.5, other), noise_on(rows, 1.0, key) / 2, noise_on(changed, 0.5, key)]
    draws += [noise_on(rows, 0.5, b""), noise_on(rows, 0.5, b"")]
    correlations = np.corrcoef([draw.ravel() for draw in draws])
    assert np.abs(correlations - np.eye(6)).max() < 6 / 20000**0.5  # six standard errors
    assert all(abs(draw.std() / 0.5 - 1) < 6 / 40000**0.5 for draw in draws)


def test_guards_count_the_same_where_a_coordinator_has_several_contexts(tmp_path):
    """As it has that starts an engine's run for each beginning: else all inner products would leave, 14 at each."""
    target = target_of(tmp_path, VFedPCA(2, merge="exact"))
    contexts = []
    for _ in range(3):
        target.context = flower_internals.new_context(1, target.context.node_config, target.context.run_config)
        target.begin()
        contexts.append(target.context)
    for target.context in contexts[:2]:
        assert "was started again, or got another request" in target.ask(BLOCKS[0])
    target.context = contexts[2]
    assert not any(isinstance(target.ask(block), str) for block in BLOCKS[:10])
    assert "span 22 dimensions; allowed: at most 20" in target.ask(BLOCKS[10])
    assert {line.rule for line in target.lines if line.refused} == {"study.attempts", ""}


def test_guards_count_the_same_where_requests_are_answered_at_the_same_time(tmp_path):
    """As processes of a SuperNode could: each begins with what the last one had left."""
    target = target_of(tmp_path, VFedPCA(2, merge="exact"))
    target.begin()
    memory = copy_state(target.context.state)
    assert not isinstance(target.ask(BLOCKS[0]), str)
    target.context.state = memory
    assert "got another request" in target.ask(BLOCKS[1])
    node = {"data": "a.csv", "out": str(tmp_path)}
    request = read_raw_request(Message(wire.to_content(Introduce(), {"run": "trial", "round": 0}), 1, "query"))
    rules = Gate(Policy(), study_of(DKPCA(2), NAMES).runs[0])
    reply = wire.Introduction(client=0, rows=40, columns=2, new_rows=0)
    admitted = audit_log.admit(node, request, rules)
    audit_log.append_to_outbox(node, request, Answer(wire.to_content(reply), reply), gate=rules, admitted=admitted)
    with pytest.raises(RefusedError, match=r"another request of this run was answered at the same time"):
        audit_log.append_to_outbox(node, request, Answer(wire.to_content(reply), reply), gate=rules, admitted=admitted)


@pytest.mark.parametrize(
    "strategy",
    [PeerVFedPCA(2, rounds=2), ADMMKPCA(kernel=RBF(0.5), exchange="features", n_features=50, noise=0.1, iterations=2)],
    ids=["vfedpca", "admm"],
)
def test_begun_again_peers_write_the_same(tmp_path, strategy):
    """Or a peer that lies would have, at each beginning, what guards allow in all; honest ones go on as before."""
    study, configurations = study_of(strategy, NAMES), list(nodes_of(tmp_path, NAMES, PARTS))
    approve_at(tmp_path, NAMES, study)

    def run():
        with Approved(study, configurations) as grid:
            strategy.run(grid, settings_of(study.runs[0]))
        with np.load(tmp_path / "south" / "trial.npz") as outputs:
            return dict(outputs)

    first, again = run(), run()
    assert len(first) == len(again) > 0
    for name, output in first.items():
        np.testing.assert_array_equal(again[name], output)
    np.save(tmp_path / "south.npy", PARTS[2] + 0.1 * PARTS[0])
    refusal = r"request \d+ of the run \(\w+\) delivers other letters, or gets other masked numbers, than"
    with pytest.raises(ProtocolError, match=refusal):
        run()


def test_what_cannot_be_hashed_is_refused_and_written_down(tmp_path):
    """Dates had made the app itself raise, with no line of it."""
    target = target_of(tmp_path, VFedPCA(2, merge="exact"))
    target.begin()
    content = wire.to_content(BLOCKS[0], {"pair": "VFedPCAClient", "run": "trial", "seed": target.seed, "round": 1})
    for dtype in ("M8[D]", "m8[s]", [("date", "M8[D]")]):
        content["arrays"] = ArrayRecord([np.zeros((40, 2), dtype)])
        lines = len(target.lines)
        reason = target.app(Message(content, 1, "train"), target.context).error.reason
        assert reason.endswith("allowed: numbers or text")
        assert [line.refused for line in target.lines[lines:]] == [reason]


def test_rows_of_which_nothing_left_are_not_noted(tmp_path):
    """Or a coordinator could fill the disk with them, and have a later run refused whose rows differ by few."""
    flower_internals.ensure_task_identity()
    study = study_of(DKPCA(2), NAMES)
    node = vertical(tmp_path, [np.arange(40)] * 3, policy=str(tmp_path / "site.toml"), approve="by hash")[0]
    out = Path(node["out"])
    approve(out, study.sha256, 2.0)
    (tmp_path / "site.toml").write_text("")
    target = Target(tmp_path, wire.Job(runs=study.runs, study=study), **node)
    target.begin()
    hashes = from_content(wire.HashedIds, target.ask(wire.HashIds())).hashes
    common = np.array(sorted(map(bytes, hashes)), "V16").view(np.uint8).reshape(-1, 16)
    (tmp_path / "site.toml").write_text("[limits.run]\nbytes = 0")
    for rows in range(25, 40):
        assert "limits.run.bytes" in target.ask(wire.TakeRows(hashes=common[:rows]))
    assert not list(out.glob("rows/*"))
    (tmp_path / "site.toml").write_text("")
    assert not isinstance(target.ask(wire.TakeRows(hashes=common)), str)
    assert not list(out.glob("rows/*")), "nothing about their values has left"
    assert not isinstance(target.ask(EIGENPAIRS), str)
    assert len(list(out.glob("rows/*.npy"))) == len(list(out.glob("rows/values/*.npy"))) == 1
