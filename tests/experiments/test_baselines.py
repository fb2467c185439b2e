"""A clustering experiment's figures are those of what its folder holds, for strategies and what they are held against.

The oracles are scikit-learn's indices of the labels that the sites stored, dense kernel matrices, and the history.
"""

from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from model_files import contents
from refusals import refusing
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import scale

from fedkernel.data import PartitionSpec, split
from fedkernel.experiments.baselines import Baseline, baselines
from fedkernel.experiments.config import Experiment, read_config, read_table
from fedkernel.experiments.running import plan, run_experiment
from fedkernel.ground import InputError, check_at_most, value_object
from fedkernel.models import KernelKMeans, KernelPCA, kernel_kmeans, nystroem_kernel_kmeans
from fedkernel.numerics import RBF, sin_theta_error
from fedkernel.strategies import VFedPCA
from fedkernel.strategy import Rival

N, d, K, GAMMA = 150, 4, 3, 0.2
SIZES = (70, 50, 30)
D, T = {"gram": 12, "lanczos": 6}, {"gram": 5, "lanczos": 3}
BOTH = f"n_clusters = {K}, n_components = {K}"
SOLVED = {way: f'solver = "{way}", n_features = {D[way]}, iterations = {T[way]}' for way in D}
TINY = f"""
name = "tiny"
seeds = [0, 1]
report = {{ plots = false }}
data = {{ name = "iris", scale = "standard" }}
partition = {{ kind = "horizontal", method = "sizes", sizes = {list(SIZES)}, shuffle = true }}
"""
METHODS = f"""
strategy = [
  {{ name = "gram", method = "FKKMeans", {BOTH}, {SOLVED["gram"]} }},
  {{ name = "lanczos", method = "FKKMeans", {BOTH}, {SOLVED["lanczos"]} }},
  {{ name = "once", method = "RFKKMeans", n_clusters = {K}, n_features = 8 }},
]
baseline = [
  {{ name = "central", method = "central kernel k-means", {BOTH} }},
  {{ name = "sampled", method = "Nystroem kernel k-means", n_landmarks = 20, {BOTH} }},
  {{ name = "isolated", method = "isolated kernel k-means", {BOTH} }},
]
"""
KERNEL = [f'{kind}.*.kernel={{type="rbf", gamma={GAMMA}}}' for kind in ("strategy", "baseline")]
STRATEGIES, OTHERS = ("gram", "lanczos", "once"), ("central", "sampled", "isolated")
IDS = [f"{name}__seed={seed}" for seed in (0, 1) for name in (*STRATEGIES, *OTHERS)]


def experiment(folder, *overrides):
    path = folder / "tiny.toml"
    path.write_text(TINY + METHODS, encoding="utf-8")
    table, text = read_table(path, [*KERNEL, *overrides])
    return Experiment.from_table(table, "tiny.toml", text)


def carry_out(folder, *overrides, **options):
    return run_experiment(experiment(folder.parent, *overrides), folder, **options).rows


def parts(seed):
    X, y = load_iris(return_X_y=True)
    spec = PartitionSpec(kind="horizontal", method="sizes", sizes=SIZES, shuffle=True)
    indices = split(spec, scale(X), seed=seed).indices
    return [scale(X)[index] for index in indices], [y[index] for index in indices]


def indices_of(labels, classes):
    return {"nmi": normalized_mutual_info_score(classes, labels), "ari": adjusted_rand_score(classes, labels)}


def told(row, names=("nmi", "ari")):
    return {name: row.metrics[name] for name in names}


def best_approximation(X):
    values, vectors = np.linalg.eigh(rbf_kernel(X, gamma=GAMMA))
    return (vectors[:, -K:] * values[-K:]) @ vectors[:, -K:].T


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, carry_out(folder)


def test_indices_are_those_of_the_labels_that_sites_stored_and_of_what_a_baseline_s_model_says(whole):
    folder, rows = whole
    assert [row.id for row in rows] == IDS
    for row in (row for row in rows if row.kind == "strategy"):
        _, classes = parts(row.seed)
        stored = [contents(folder / "results" / row.id / f"client-{m}.npz")["labels"] for m in range(len(SIZES))]
        assert tuple(map(len, stored)) == SIZES
        labels = np.concatenate(stored)
        assert told(row) == pytest.approx(indices_of(labels, np.concatenate(classes)), rel=1e-12), row.id
        assert row.metrics["nmi"] != pytest.approx(indices_of(labels, load_iris().target)["nmi"], rel=1e-3)
    for row in (row for row in rows if row.kind == "baseline"):
        shards, classes = parts(row.seed)
        if row.name == "isolated":
            # means over the clients, each with its own rows and classes; the model is client 0's
            models = [kernel_kmeans(X, RBF(gamma=GAMMA), K, K) for X in shards]
            indices = [indices_of(model.predict(X), y) for model, X, y in zip(models, shards, classes, strict=True)]
            expected = {name: np.mean([index[name] for index in indices]) for name in ("nmi", "ari")}
            first = KernelKMeans.load(folder / str(row.model)).predict(shards[0])
            assert indices_of(first, models[0].predict(shards[0]))["ari"] == 1
            assert set(row.metrics) == {"nmi", "ari", "parallel_seconds"}
        else:
            model = KernelKMeans.load(folder / str(row.model))
            expected = indices_of(model.predict(np.vstack(shards)), np.concatenate(classes))
        assert told(row) == pytest.approx(expected, rel=1e-12), row.id


def test_landmarks_are_drawn_anew_for_every_seed(tmp_path):
    folder = tmp_path / "out"
    rows = carry_out(folder, "strategy=[]", "partition.seed=0")
    drawn = {row.seed: KernelKMeans.load(folder / str(row.model)) for row in rows if row.name == "sampled"}
    X = np.vstack(parts(0)[0])
    for seed, model in drawn.items():
        expected = nystroem_kernel_kmeans(X, RBF(gamma=GAMMA), K, K, n_landmarks=20, seed=seed)
        np.testing.assert_array_equal(model.embedding.landmarks, expected.embedding.landmarks)  # type: ignore[attr-defined]
    first, second = (model.embedding.landmarks for model in drawn.values())  # type: ignore[attr-defined]
    assert not np.array_equal(first, second)


def test_the_recover_error_is_against_the_dense_kernel_matrix_that_of_each_iteration_in_its_last_round(whole):
    folder, rows = whole
    for row in (row for row in rows if row.kind == "strategy"):
        X = np.vstack(parts(row.seed)[0])
        last = {round_.values["t"]: round_ for round_ in row.history if "t" in round_.values}
        assert list(last) == list(range(1, T.get(row.name, 0) + 1))
        telling = [round_ for round_ in row.history if "recover_error" in round_.values]
        assert telling == list(last.values())
        if telling:
            estimates = KernelKMeans.load(folder / str(row.model)).embedding.estimates(X)  # type: ignore[attr-defined]
            expected = [np.sum((H @ H.T - best_approximation(X)) ** 2) / N**2 for H in estimates]
            np.testing.assert_allclose([round_.values["recover_error"] for round_ in telling], expected, rtol=1e-9)
            assert telling[-1].values["recover_error"] == pytest.approx(row.metrics["recover_error"], rel=1e-9)
            assert len(set(expected)) == T[row.name]
    for row in (row for row in rows if row.name != "isolated"):
        X = np.vstack(parts(row.seed)[0])
        model = KernelKMeans.load(folder / str(row.model))
        central = KernelKMeans.load(folder / "results" / f"central__seed={row.seed}" / "model.npz")
        H = model.transform(X)
        expected = {
            "recover_error": np.sum((H @ H.T - best_approximation(X)) ** 2) / N**2,
            "nmi_central": indices_of(model.predict(X), central.predict(X))["nmi"],
        }
        assert told(row, ("recover_error", "nmi_central")) == pytest.approx(expected, rel=1e-9, abs=1e-20), row.id
        assert (row.metrics["recover_error"] > 1e-9) == (row.name != "central")  # type: ignore[operator]


def test_without_a_reference_only_what_needs_one_is_missing(whole, tmp_path):
    rows = carry_out(tmp_path / "out", "report.reference=false", "seeds=[0]")
    for row, other in zip(rows, whole[1], strict=False):
        needing = () if row.name == "central" else ("recover_error", "nmi_central")  # which is a reference itself
        unaffected = {name: x for name, x in other.metrics.items() if name not in needing}
        assert row.id == other.id
        assert row.metrics == unaffected | {"parallel_seconds": row.metrics["parallel_seconds"]}
        assert {"nmi", "ari"} <= set(unaffected)
        assert not any("recover_error" in round_.values for round_ in row.history)


def test_figures_per_iteration_follow_from_the_history(whole):
    for row in whole[1]:
        rounds = [round_ for round_ in row.history if "t" in round_.values]
        names = {"floats_up_per_iteration", "lanczos_iterations"}
        if row.name not in T:
            assert not names & set(row.metrics)
            continue
        sizes = [D[row.name] + int(round_.values["rank"] or 0) for round_ in rounds]  # p = D + r_t
        up = [p if row.name == "lanczos" else p * (p + 1) // 2 for p in sizes]
        assert [round_.floats_up for round_ in rounds] == [len(SIZES) * floats for floats in up]
        assert row.metrics["floats_up_per_iteration"] == pytest.approx(len(SIZES) * sum(up) / T[row.name], rel=1e-12)
        if row.name == "gram":
            assert len(rounds) == T["gram"]
            assert "lanczos_iterations" not in row.metrics
        else:
            assert [round_.values["lanczos_step"] for round_ in rounds][:2] == [1, 2]
            assert row.metrics["lanczos_iterations"] == pytest.approx(len(rounds) / T["lanczos"], rel=1e-12)


def test_without_cem_a_lanczos_iteration_takes_two_rounds(tmp_path):
    some = ("seeds=[0]", "baseline=[]", "data.rows=40", "partition.sizes=[25, 15]", "strategy.lanczos.cem=false")
    (row,) = [row for row in carry_out(tmp_path / "out", *some) if row.name == "lanczos"]
    rounds = [round_ for round_ in row.history if "t" in round_.values]
    assert row.metrics["lanczos_iterations"] == pytest.approx(len(rounds) / 2 / T["lanczos"], rel=1e-12)
    per_pair = 40 + 2 * D["lanczos"]  # N + M D
    assert row.metrics["floats_up_per_iteration"] == pytest.approx(len(rounds) / 2 * per_pair / T["lanczos"], rel=1e-12)


def test_a_baseline_moves_all_rows_or_none_and_has_its_own_seconds_whoever_asked_first(whole):
    for row in (row for row in whole[1] if row.kind == "baseline"):
        assert (row.floats_up, row.floats_down, row.rounds) == (0 if row.name == "isolated" else N * d, 0, 0)
        assert (row.engine, row.clients) == ("none", len(SIZES))
    for row in whole[1]:
        seconds = row.metrics["parallel_seconds"]
        assert seconds > 0
        if row.kind == "strategy":
            assert seconds == pytest.approx(sum(round_.slowest_seconds for round_ in row.history), rel=1e-12)
        else:
            assert seconds <= 1.1 * row.seconds + 1e-3


RNG = np.random.default_rng(0)
TABLE, THREE = RNG.standard_normal((60, 4)), np.repeat([0, 1, 2], 20)


@pytest.mark.parametrize(
    ("there", "overrides"),
    [
        (False, ["data.name=npz:none"]),
        (True, ["data.name=npz:numbers"]),
        (True, ["data.name=npz:text"]),
        (False, ["data.name=npz:measured"]),
        (False, ["data.name=geometric", "data.options={n = 60, d = 5}"]),
        (False, ["data.name=diabetes", "data.rows=60"]),  # its targets are whole numbers
        (True, ["data.name=blobs", "data.options={n = 60}"]),
        (False, ["data={shards = ['a.npy', 'b.npy']}", "partition={}"]),
    ],
    ids=str,
)
def test_only_data_with_labels_have_indices(folder, there, overrides):
    """Other metrics they have in any case."""
    ys = {"none": {}, "numbers": {"y": THREE}, "text": {"y": np.array([*"abc"])[THREE]}, "measured": {"y": TABLE.T[0]}}
    for name, y in ys.items():
        np.savez(folder / f"{name}.npz", X=TABLE, **y)
    for name, part in zip("ab", np.split(TABLE, [35]), strict=True):
        np.save(folder / f"{name}.npy", part)
    divided = "partition={kind = 'horizontal', clients = 2}"
    short = [f"strategy.{name}.iterations=1" for name in T]
    for row in carry_out(folder / "out", "seeds=[0]", *short, divided, *overrides):
        assert {"nmi", "ari"} & set(row.metrics) == ({"nmi", "ari"} if there else set()), row.id
        assert ("recover_error" in row.metrics) == (row.name != "isolated")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("baseline.sampled.n_landmarks=many", "n_landmarks = 'many': input should be a valid integer"),
        ("baseline.sampled.n_landmarks=2", "n_components = 3, but must be at most the number of landmarks, "),
        ("baseline.sampled.n_landmarks=151", "n_landmarks = 151, but must be at most the number of rows, 150"),
        ("baseline.central.n_landmarks=20", "n_landmarks is not a known name here"),
        ("baseline.central.n_components=151", "n_components = 151, but must be at most the number of rows, 150"),
        ("baseline.isolated.n_components=31", "at most the number of rows, 30, since each client clusters its own"),
        ("baseline.isolated.n_clusters=31", "n_clusters = 31, but must be at most the number of rows of client 2, 30"),
        ("baseline.central.n_clusters=0", "n_clusters = 0: input should be greater than or equal to 1"),
        ("baseline.central.method=Nystroem KPCA", "method = 'Nystroem KPCA', but must be one of "),
        ('baseline.central.kernel={type="linear"}', "baseline 'central': "),
    ],
)
def test_a_baseline_that_cannot_be_is_refused(tmp_path, override, says):
    with refusing(says, start=f"tiny.toml: baseline '{override.split('.')[1]}': "):
        carry_out(tmp_path / "out", override)
    assert not (tmp_path / "out").exists()


def test_limits_of_the_baselines_are_themselves_allowed(tmp_path):
    landmarks = ("sampled.n_landmarks=150", "sampled.n_landmarks=3")
    for most in (*landmarks, "isolated.n_components=30", "central.n_clusters=30"):
        assert plan(experiment(tmp_path, f"baseline.{most}"))
    large = ["strategy=[]", "partition={kind = 'horizontal', clients = 1}", "baseline.central.n_clusters=60"]
    assert plan(experiment(tmp_path, *large))  # more clusters than FKKMeans has features, by default


@value_object()
class Shrunk(Rival[KernelPCA]):
    """PCA of all columns, its eigenvalues made smaller."""

    by: float = 2.0

    def check(self, strategy, rows):
        check_at_most("n_components", strategy.n_components, rows)

    def find(self, strategy, shards, seed):
        exact = strategy.central(shards)
        return KernelPCA(exact.eigenvalues_ / self.by, exact.eigenvectors_, exact.kernel)


class Mine(VFedPCA):
    rivals: ClassVar = (Shrunk,)

    def alone(self, shard):
        return self.central([3 * shard])

    def judge(self, result, shards, reference=None):
        return super().judge(result, shards, reference) | {"largest": result.model.eigenvalues_[0]}


def test_a_pairs_baselines_are_what_its_own_hooks_find_and_say():
    """So that a new pair needs no line in the baselines."""
    name, parameters = f"{__name__}:Mine", {"n_components": 2}
    X = scale(load_iris().data)
    shards, singular = [X[:, :2], X[:, 2:]], partial(np.linalg.svd, compute_uv=False)
    central, isolated = (Baseline(f"{place} {name}", parameters) for place in Mine.places)
    reference = isolated.strategy.central(shards)
    largest = pytest.approx(singular(X)[0] ** 2)
    assert central.run(shards, None).metrics == {"error": 0.0, "distance": 0.0, "largest": largest}
    done = isolated.run(shards, reference)
    assert done.metrics["largest"] == pytest.approx(np.mean([9 * singular(shard)[0] ** 2 for shard in shards]))
    errors = [sin_theta_error(reference.eigenvectors_, np.linalg.svd(shard)[0][:, :2]) for shard in shards]
    assert done.metrics["error"] == pytest.approx(np.mean(errors))
    assert done.metrics["worst_error"] == pytest.approx(max(errors))
    shrunk = Baseline(f"Shrunk {name}", {**parameters, "by": 4.0})
    largest = shrunk.run(shards, reference).metrics["largest"]
    assert largest == pytest.approx(singular(X)[0] ** 2 / 4)
    with pytest.raises(InputError, match="n_components = 5, but must be at most the number of rows, 3"):
        Baseline(f"Shrunk {name}", {"n_components": 5}).check([np.ones((3, 2))])
    with pytest.raises(InputError, match="Mine there is central or isolated or Shrunk"):
        Baseline(f"pooled {name}", parameters)


def test_horizontal_pca_has_its_central_and_isolated_baselines(tmp_path):
    X = scale(load_iris().data)
    shards = np.split(X, np.cumsum(SIZES)[:-1])
    squares = np.linalg.svd(X, compute_uv=False) ** 2
    central = Baseline("central batch PCA", {"n_components": 2})
    done = central.run(shards, None)
    lost = pytest.approx(1 - squares[:2].sum() / squares.sum())
    assert done.metrics == {"reconstruction_error": lost, "error_ratio": 1.0, "error": 0.0}
    alone = Baseline("isolated batch PCA", {"n_components": 2}).run(shards, done.models[0]).metrics
    spans = [np.linalg.svd(shard)[2][:2] for shard in shards]
    missed = [1 - np.square(X @ V.T).sum() / np.square(X).sum() for V in spans]
    assert alone["reconstruction_error"] == pytest.approx(np.mean(missed))
    own = '[[strategy]]\nname = "mine"\nmethod = "DisKPCA"\nn_components = 2\nn_adaptive = 20\nshare_rows = true'
    methods = f"{own}\nkernel = {{type = 'linear'}}\nprojection_size = 'exact'\n" + "".join(
        f'[[baseline]]\nname = "{place}"\nmethod = "{place} batch PCA"\nn_components = 2\n'
        for place in ("central", "isolated")
    )
    (tmp_path / "pca.toml").write_text(TINY + methods, encoding="utf-8")
    rows = run_experiment(read_config(tmp_path / "pca.toml", ["seeds=[0]"]), tmp_path / "out").rows
    errors = {row.name: row.metrics["reconstruction_error"] for row in rows}
    # 22 rows by leverage and distance span all 4 columns, and products lose nothing
    assert errors["mine"] == pytest.approx(errors["central"])
    assert errors["central"] == lost
    assert errors["isolated"] > errors["central"]


def test_a_networks_central_baseline_is_what_its_nodes_are_compared_with():
    shards, kernel = np.split(scale(load_iris().data), 3), {"type": "rbf", "gamma": 0.1}
    central, isolated = (Baseline(f"{place} network KPCA", {"kernel": kernel}) for place in ("central", "isolated"))
    done = central.run(shards, None)
    K = np.exp(-0.1 * np.square(np.vstack(shards)[:, None] - np.vstack(shards)).sum(axis=2))
    J = np.eye(150) - 1 / 150
    largest = np.linalg.eigh(J @ K @ J)[1][:, -1:]
    assert sin_theta_error(largest, done.models[0].eigenvectors_ / np.linalg.norm(done.models[0].eigenvectors_)) < 1e-12
    assert done.metrics == {"similarity": 1.0}
    assert central.floats_up(shards) == 600
    assert isolated.run(shards, done.models[0]).metrics["similarity"] < 0.999


def test_a_method_must_be_a_baseline():
    with pytest.raises(InputError, match=r"^method = 'CK', but must be one of .*central KPCA, .*Nystroem kernel"):
        Baseline("CK", {})
    assert [name for name in baselines() if name.startswith("Nystroem")] == ["Nystroem kernel k-means"]
