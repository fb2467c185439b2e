"""What a site does not do for a coordinator: show rows, answer from few of them or as another pair, tell paths."""

import re
import sys

import numpy as np
import pytest
from cases import CLIENTS_OF_OURS
from named_sites import COLUMNS, LENIENT, NAMES, TABLE, find, pinned, refused, run_on, vertical
from networks import spread
from refusals import refusing

from fedkernel import ADMMKPCA, DKPCA, RBF, DisKPCA, Linear, PeerVFedPCA, SpectralKMeans, UniformKPCA, VFedPCA
from fedkernel.clients.admm_kpca import ADMMKPCAClient, Features, OwnRows, ShareRows
from fedkernel.clients.diskpca import DisKPCAClient, DrawUniformly
from fedkernel.clients.dkpca import FindLocalEigenpairs
from fedkernel.clients.vfedpca import MeasureVariance, Multiply, Product
from fedkernel.ground import InputError, OwnFileError, ProtocolError
from fedkernel.numerics import RandomFeatures, SubspaceEmbedding
from fedkernel.numerics.random_features import MOST_FEATURES
from fedkernel.peers import neighbours
from fedkernel.peers.agreed_keys import SharedKeys
from fedkernel.protocol import Done, Request, encode
from fedkernel.site import allowed, check_own_pin, read_own_keys
from fedkernel.strategies.drawn_landmarks import DrawnLandmarkStrategy
from fedkernel.wire import RunSpec


def asked(client, request, **config):
    arrays, scalars = encode(request)
    return client.fit(arrays, {**scalars, "round": 1, "run": "run", **config})


def rows_of_their_own(folder, **more):
    nodes = []
    for number, name in enumerate(NAMES):
        np.save(folder / f"{name}.npy", TABLE[number : number + 30, :4])
        own = {"name": name, "data": str(folder / f"{name}.npy"), "out": str(folder / name), "approve": "any"}
        nodes.append({**own, "table-share": 1000, **more})
    return nodes


@pytest.mark.parametrize("samples", [1, 40])
def test_no_row_leaves_without_consent(samples):
    asked(DisKPCAClient(TABLE, client=2, share_rows=True), DrawUniformly(samples=samples))
    sent = f"DrawUniformly would send {samples} of the 40 rows of client 2 unchanged"
    share_rows = "join --share-rows at the site or, for simulated sites, share_rows of the strategy"
    with refusing(whole=f"{sent}; allowed only with {share_rows}"):
        asked(DisKPCAClient(TABLE, client=2), DrawUniformly(samples=samples))


def test_no_letter_carries_a_row_without_consent():
    """Nor with noise; random features may go."""
    keys = {}
    SharedKeys(np.array([1]), np.zeros((1, 2, 32), np.uint8), np.zeros((1, 2), np.int64)).save(keys)
    features = SubspaceEmbedding(RBF(gamma=0.1), None, 30)
    for noise in (0.0, 0.5):
        site = ADMMKPCAClient(TABLE, client=0, memory=dict(keys))
        with pytest.raises(InputError, match="a letter to client 1 would send 40 of the 40 rows of client 0"):
            asked(site, ShareRows(features=None, noise=noise))
        asked(site, ShareRows(features=features, noise=noise))
    asked(ADMMKPCAClient(TABLE, client=0, memory=dict(keys), share_rows=True), ShareRows(features=None, noise=0.0))
    assert OwnRows(rows=TABLE).disclosed == 40
    assert Features(rows=TABLE).disclosed == 0


@pytest.mark.parametrize(
    "strategy",
    [DisKPCA(2, n_adaptive=5), UniformKPCA(2, n_samples=5), SpectralKMeans(2, UniformKPCA(2, n_samples=5)), ADMMKPCA()],
    ids=lambda strategy: type(strategy).__name__,
)
def test_simulated_sites_show_none_either_where_the_strategy_does_not_say_so(strategy, monkeypatch):
    """Also where it forgot to look itself."""
    monkeypatch.setattr(DrawnLandmarkStrategy, "check_cohort", lambda self, cohort: None)
    monkeypatch.setattr(ADMMKPCA, "check_cohort", lambda self, cohort: neighbours(self.graph, len(cohort)))
    with pytest.raises(ProtocolError, match=r"client \d.* would send \d+ of the \d+ rows of client \d unchanged"):
        strategy.fit(spread(5))


def test_a_site_s_own_rows_are_its_own_to_show(tmp_path):
    strategy = UniformKPCA(2, Linear(), n_samples=5, share_rows=True)
    assert refused(rows_of_their_own(tmp_path), strategy, ProtocolError) == (
        "DisKPCAClient, joining: node 1: \"client 0 (site 'north'): run 'trial' sends raw rows of each site, which "
        'needs --share-rows (limits.total.rows)" (and 2 more)'
    )
    # a coordinator that does not say so in its job comes no further
    message = refused(rows_of_their_own(tmp_path), strategy, ProtocolError, parameters={})
    # of the site that is named first of those that draw some: five are divided among three by a seed of all sites
    assert re.match(r"UniformKPCA, round 1 \(DrawUniformly\), client \d \(site '\w+'\): \"DrawUniformly would", message)
    willing = rows_of_their_own(tmp_path, **{"share-rows": "true"})
    assert run_on(willing, strategy)[0].ledger.rows_up == 5


def test_a_site_answers_as_the_clients_its_job_names_or_its_operator_allows(tmp_path):
    nodes = vertical(tmp_path)
    message = refused(nodes, DKPCA(2), ProtocolError, pair="VFedPCAClient", plan=())
    assert message.endswith("(site 'north') runs VFedPCAClient, but was asked for 'DKPCAClient'\" (and 2 more)")
    message = refused(nodes, DKPCA(2), ProtocolError, pair=None, plan=())
    assert "runs no client, since neither its job nor --allow names one, but was asked for 'DKPCAClient'" in message
    run_on(vertical(tmp_path, allow="VFedPCAClient, DKPCAClient"), DKPCA(2), pair=None)
    message = refused(vertical(tmp_path, allow="VFedPCAClient"), DKPCA(2), ProtocolError)
    assert "has client DKPCAClient, which needs --allow DKPCAClient (study.pairs)" in message


def test_what_is_refused_is_told_in_one_short_line_without_paths(tmp_path, monkeypatch):
    message = refused(vertical(tmp_path), DKPCA(2), ProtocolError, pair="q" * 5000)
    assert len(message) < 600
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_lab.py").write_text("from fedkernel import nothing_of_that_name")
    message = refused(vertical(tmp_path, allow="broken_lab:Mine"), DKPCA(2), ProtocolError, pair="broken_lab:Mine")
    assert message == (
        "DKPCAClient, joining: node 1: \"client 0 (site 'north') cannot import the allowed clients (its log has the "
        'details under E-0)" (and 2 more)'
    )


@pytest.mark.parametrize("name", CLIENTS_OF_OURS)
def test_a_client_answers_what_it_lists_and_nothing_else(name):
    kind = CLIENTS_OF_OURS[name]
    assert "answers" in vars(kind)
    assert {request for request, _ in kind.handlers.values()} == set(kind.answers)
    assert name == "VFedPCAClient" or Multiply not in kind.answers, "peers do not multiply in the clear"


class Unknown(Request[Done]): ...


def listed(self, ask: Unknown) -> Done:
    return Done()


def multiplied(self, ask: Multiply) -> Product:
    return self.multiply(ask)


SILENT = (
    "Own has no list of its requests: write answers = (Finish, IterateLocally, MeasureVariance, Multiply, "
    "ProjectOntoDirections, TakeCoordinates"
)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"answers": (Unknown,)}, "Own: answers lists Unknown, but no method answers it: def anything(self, ask:"),
        ({}, f"{SILENT})"),
        ({"tell": listed}, f"{SILENT}, Unknown)"),
        ({"answers": Unknown, "tell": listed}, "Own: answers must be a tuple: write answers = (Unknown,)"),
        ({"answers": (Multiply,), "product": multiplied}, "Own: multiply and product both answer Multiply"),
        ({"answers": (Multiply,), "tell": listed}, "Own.tell answers Unknown, which `answers` does not list: write "),
    ],
)
def test_a_class_that_does_not_say_what_it_answers_is_told_what_to_write(body, says):
    with refusing(start=says, error=TypeError):
        type("Own", (CLIENTS_OF_OURS["VFedPCAClient"],), body)


def test_an_override_without_annotations_answers_what_its_base_does():
    class Doubling(CLIENTS_OF_OURS["VFedPCAClient"]):
        answers = (Multiply,)

        def multiply(self, ask):
            return Product(product=2 * super().multiply(ask).product)

    X, block = TABLE[:, :3], np.eye(40)[:, :2]
    plain = asked(CLIENTS_OF_OURS["VFedPCAClient"](X), Multiply(block=block))
    np.testing.assert_array_equal(asked(Doubling(X), Multiply(block=block))[0][0], 2 * plain[0][0])
    with pytest.raises(ProtocolError, match="'MeasureVariance' is no request of this client"):
        asked(Doubling(X), MeasureVariance(directions=block))


def test_nothing_is_answered_from_few_rows(tmp_path):
    """Neither from a small table nor from a few rows that a coordinator says all have."""
    few = [np.arange(19)] * 3
    message = refused(vertical(tmp_path, few), DKPCA(2), ProtocolError)
    reason = "client 0 (site 'north') has 19 rows; its policy requires at least 20 (--min-rows)"
    assert message.startswith(f'DKPCAClient, joining: node 1: "{reason}')
    run_on(vertical(tmp_path, few, **{"min-rows": 19}), DKPCA(2))
    apart = [np.arange(25), np.arange(20, 40), np.arange(15, 40)]
    message = refused(vertical(tmp_path, apart), DKPCA(2), ProtocolError, id="apart")
    assert "has 5 rows; its policy requires at least 20" in message


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomFeatures(RBF(gamma=0.1), MOST_FEATURES + 2),
        lambda: SubspaceEmbedding(RBF(gamma=0.1), n_features=10**7),
        lambda: DrawUniformly(samples=10**9),
        lambda: VFedPCA(merge="eigenvalue", local_iterations=10**6),
    ],
)
def test_a_site_is_not_asked_for_more_than_it_can_bear(make):
    with pytest.raises(ValueError, match="less than or equal to"):
        make()


def test_paths_and_columns_that_are_kept_out_stay_at_the_site(tmp_path, caplog, monkeypatch):
    nodes = vertical(tmp_path)
    np.save(tmp_path / "north.npy", np.where(np.arange(40)[:, None] == 3, np.nan, TABLE[:, COLUMNS[0]]))
    for changed, outline in (
        ({"label": "diagnosis"}, "client 0 (site 'north') cannot read its data"),
        ({"data": str(tmp_path / "gone.csv")}, "client 0 (site 'north') cannot read its data"),
        ({"id-key": str(tmp_path / "gone.key")}, "client 0 (site 'north') cannot read its keys"),
        ({"out": str(tmp_path / "north.csv")}, "client 0 (site 'north') cannot keep its secret"),
    ):
        caplog.clear()
        run = next(iter(changed))  # one may begin three times
        message = refused([nodes[0] | changed, *nodes[1:]], DKPCA(2), ProtocolError, id=run)
        assert message == f'DKPCAClient, joining: node 1: "{outline} (its log has the details under E-0)"'
        assert next(iter(changed.values())) in caplog.text
    own = [{"name": name, "data": str(tmp_path / f"{name}.npy"), "out": str(tmp_path / name)} for name in NAMES]
    plain = [node | {"approve": "any"} for node in own]
    for node, columns in zip(plain[1:], COLUMNS[1:], strict=True):
        np.save(node["data"], TABLE[:, columns])
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (plain[0]["data"], "~/north.npy"):
        message = refused([plain[0] | {"data": path}, *plain[1:]], DKPCA(2), ProtocolError)
        assert "cannot use its table (its log has the details under E-0)" in message
        assert str(tmp_path) not in message


def test_where_nothing_can_be_kept_is_found_as_a_run_begins(tmp_path):
    node = vertical(tmp_path)[0] | {"out": str(tmp_path / "north.csv")}
    with pytest.raises(OwnFileError, match=r"cannot write to .*north\.csv: File exists"):
        find(node).check_keep()
    np.savez(tmp_path / "trial.npz", X=TABLE)
    own = {"name": "north", "approve": "any", "data": str(tmp_path / "trial.npz"), "out": str(tmp_path)}
    with pytest.raises(OwnFileError, match=r"run 'trial' would overwrite .*trial\.npz; change the folder"):
        find(own).check_keep()
    with pytest.raises(OwnFileError, match=r"run 'trial' would overwrite .*trial\.csv; change the folder"):
        find(node | {"out": str(tmp_path), "new": str(tmp_path / "trial.csv")}).check_keep()
    find(node | {"out": str(tmp_path / "new" / "folder")}).check_keep()
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {"outbox.jsonl", "secret"}
    (tmp_path / "new" / "folder" / "outbox.jsonl").write_text("{")
    with pytest.raises(OwnFileError, match=r"outbox.jsonl: its last line is incomplete"):
        find(node | {"out": str(tmp_path / "new" / "folder")}).check_keep()


def test_what_a_job_says_of_consent_counts_where_sites_are_simulated_only(tmp_path):
    np.save(tmp_path / "X.npy", TABLE)
    for says in (False, True):
        run = RunSpec(id="trial", strategy="DisKPCA", parameters={"share_rows": says}, shards=[str(tmp_path / "X.npy")])
        assert find({"partition-id": 0, "num-partitions": 1}, run).share_rows is says
    nested = RunSpec(id="trial", strategy="S", parameters={"components": {"share_rows": True}}, shards=["X.npy"])
    assert nested.shares_rows


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that is importable, and that leaves a file behind where it is imported."""
    code = tmp_path / "code"
    code.mkdir()
    body = f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n"
    body += "from fedkernel.clients.dkpca import DKPCAClient\nfrom fedkernel.numerics.kernels import Linear\n"
    (code / "trap.py").write_text(body)
    monkeypatch.syspath_prepend(str(code))
    yield tmp_path / "sprung"
    sys.modules.pop("trap", None)


@pytest.mark.parametrize("pair", ["trap:DKPCAClient", "os:system", "nowhere:DKPCAClient"])
@pytest.mark.parametrize("more", [{}, {"allow": "VFedPCAClient"}], ids=["by its job", "by its operator"])
def test_a_site_imports_no_pair_that_only_a_coordinator_names(tmp_path, trap, pair, more):
    """Also where its class has the name of one of ours."""
    message = refused(vertical(tmp_path, **more), DKPCA(2), ProtocolError, pair=pair)
    assert message == (
        f"DKPCAClient, joining: node 1: \"client 0 (site 'north'): run 'trial' has client {pair}, which needs "
        f'--allow {pair} (study.pairs)" (and 2 more)'
    )
    assert not trap.exists()
    assert "trap" not in sys.modules


def test_a_site_imports_what_its_operator_allows(tmp_path, trap):
    run_on(vertical(tmp_path, allow="trap:DKPCAClient"), DKPCA(2), pair="trap:DKPCAClient")
    assert trap.exists()
    with pytest.raises(InputError, match="allow = 'os:system', but must be a client or a kernel"):
        allowed(["os:system"])


def test_a_request_has_no_kernel_imported(trap):
    arrays, scalars = encode(FindLocalEigenpairs(kernel=Linear(), n_components=2))
    scalars["fields"] = scalars["fields"].replace('"linear"', '"trap:Linear"')
    site = CLIENTS_OF_OURS["DKPCAClient"](TABLE)
    with pytest.raises(ProtocolError, match=r"kernel.type = 'trap:Linear' is not known .* at a site by --allow"):
        site.fit(arrays, scalars)
    assert not trap.exists()
    assert allowed(["trap:Linear"]) == {}
    assert trap.exists()
    assert len(site.fit(arrays, scalars)[0]) == 2


def test_letters_are_exchanged_with_pinned_peers_only(tmp_path):
    """Where a site has its own data: a coordinator that hands out keys of its own would else read and write them."""
    refusal = "has pinned no peer of the run, and exchanges letters with pinned peers only: join --pins, or --peers-"
    nodes = vertical(tmp_path, **LENIENT | {"peers-without-pins": "false"})
    assert refusal in refused(nodes, PeerVFedPCA(), ProtocolError)
    keys = pinned(tmp_path, NAMES)
    everybody = [node | keys[node["name"]] for node in nodes]
    for nodes_of_all, run in ((everybody, "pinned"), (vertical(tmp_path), "any")):
        run_on(nodes_of_all, PeerVFedPCA(update="inplace"), id=run)
        assert (tmp_path / "north" / f"{run}.npz").exists()
    (tmp_path / "others.toml").write_text(f'west = "{"0" * 32}"')
    strangers = [node | {"pins": str(tmp_path / "others.toml")} for node in vertical(tmp_path)]
    foreign = " (its pins name none of north, east, south; are they of another deployment?), and"
    assert refusal.replace(", and", foreign) in refused(strangers, PeerVFedPCA(), ProtocolError, id="others")
    (tmp_path / "others.toml").write_text(f'north = "{"0" * 32}"')  # nor is its own line a peer's
    assert foreign in refused([strangers[0], *everybody[1:]], PeerVFedPCA(), ProtocolError, id="own")
    (tmp_path / "others.toml").write_text(f'east = "{"0" * 32}"')
    strangers = [everybody[0] | {"pins": str(tmp_path / "others.toml")}, *everybody[1:]]
    text = refused(strangers, PeerVFedPCA(), ProtocolError, id="another")
    assert "(TakeKeys), client 0 (site 'north'): " in text
    assert "the key of client 1 (site 'east') has fingerprint " in text
    assert ", but 00000000000000000000000000000000 is pinned: the pin may be of another deployment" in text


def test_a_site_whose_own_line_in_a_file_of_pins_is_another_s_does_not_join(tmp_path):
    keys = pinned(tmp_path, NAMES)
    check_own_pin(read_own_keys(keys["north"]), "north")
    check_own_pin(read_own_keys(keys["north"]), "west")
    with pytest.raises(InputError, match=r"is pinned for 'north', but this site's key has fingerprint [0-9a-f]{32};"):
        check_own_pin(read_own_keys(keys["north"] | {"identity": keys["east"]["identity"]}), "north")
    with pytest.raises(InputError, match="a key of 'north' is pinned, but this site has no key"):
        check_own_pin(read_own_keys({"pins": keys["north"]["pins"]}), "north")
