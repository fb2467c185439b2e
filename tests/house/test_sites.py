"""Sites in processes of their own, started as their operators would: who joins, what is kept, what goes wrong."""

import json
import os
import re
import signal
import socket
import time
import zipfile
from contextlib import ExitStack
from urllib.request import urlopen

import grpc
import model_files
import numpy as np
import pandas as pd
import pytest
from counting import until
from federation import COMMON, CONFIG, KEPT, NAMES, PARTS, SLOW, WINE, federation, furnish
from named_sites import drawn_seed, pinned
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedkernel import DKPCA, RBF, FKKMeans, PeerVFedPCA, VFedPCA, load_model
from fedkernel.engines.grpc.certificates import make_certificates
from fedkernel.experiments.commands.outbox import missing_from
from fedkernel.experiments.commands.projection_study import projection_of
from fedkernel.experiments.commands.study_text import read_study
from fedkernel.peers import KeyPair
from fedkernel.peers.run_key_file import KEY_FOLDER
from fedkernel.run import Result, read_ledger
from fedkernel.site import RECEIPTS, RunRows, approve, read_outbox, read_receipts
from fedkernel.site.audit_log_reader import payload_of
from fedkernel.site.result_files import NOISE_FOLDER

CLUSTERS = """
[[strategy]]
name = "clusters"
method = "FKKMeans"
n_clusters = 3
solver = "gram"
coreset_size = 30
kernel = { type = "rbf", gamma = 0.05 }
"""

NOISY = """
name = "noisy"
sums = "masked"

[privacy]
epsilon = 10.0
radius = 6.0

[[strategy]]
name = "noisy"
method = "CentroidKMeans"
n_clusters = 3
rounds = 20
kernel = { type = "rbf", width = "columns" }

[data]
sites = ["a", "b", "c"]

[data.identities]
"""

LETTERS = """
[[strategy]]
name = "letters"
method = "PeerVFedPCA"
n_components = 2
graph = "ring"
"""

pytestmark = pytest.mark.xdist_group("sites")


def test_three_sites_with_their_own_rows(place, tls):
    """The model is that of the rows all have, in one order; each site keeps it; nothing of the data is printed."""
    (place / "run.toml").write_text(CONFIG + SLOW.replace("100", "3"))
    with federation(place, tls) as (serve, join):
        server, sites = serve(), [join(name, "--log", f"{name}-own.log", take=name != "b") for name in reversed(NAMES)]
        assert [one.end() for one in (server, *sites)] == [0, 0, 0, 0], server.text
        result = Result.load(place / "out" / "results" / "DKPCA__seed=0")
        assert f"{len(COMMON)}" in server.text
        assert result.history[0]["phase"] == "join"
        model = load_model(place / "kept-a" / "received" / "DKPCA__seed=0.model.npz")
        np.testing.assert_array_equal(model.eigenvectors_, result.model.eigenvectors_)
        assert not (place / "kept-b" / "received").exists()
        assert "which is not accepted; allowed: models, with --take-models" in (place / "b.log").read_text()
        sheet = pd.read_csv(place / "kept-a" / "DKPCA__seed=0.csv", index_col="id")
        np.testing.assert_array_equal(sheet.to_numpy(), model.embedding())
        assert sheet.index.tolist() == RunRows.load(place / "kept-c", "DKPCA__seed=0").ids.tolist()
        reference = DKPCA(3, RBF(gamma=0.05), local_components=20).fit([part[COMMON] for part in PARTS]).model
        np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=0, atol=1e-10)
        printed = "".join(path.read_text() for path in place.glob("*.log"))
        assert "p001" not in printed
        assert repr(float(PARTS[0][0, 0])) not in printed
        work = "the work: DKPCA (DKPCAClient); VFedPCA (VFedPCAClient)"
        for text in ("a.csv: 170 rows, 5 columns", work, "joined 127.0.0.1", "is done"):
            assert text in (place / "a.log").read_text()
            assert text in (place / "a-own.log").read_text()

        own = [place / "kept-a", *(place / "kept-a").rglob("*"), place / "a-own.log"]
        assert not [path for path in own if path.stat().st_mode & 0o077], "what a site keeps is for its owner only"
        with np.load(place / "kept-b" / "slow__seed=0.npz") as stored:
            assert sorted(stored["ids"]) == [f"p{row:03}" for row in COMMON]
            assert set(stored) > {"ids"}
        for number, name in enumerate(NAMES):
            left = read_outbox(place / f"kept-{name}").departures
            receipts = read_receipts((place / f"kept-{name}" / RECEIPTS).iterdir())
            assert {(it.site, it.run) for it in receipts} == {(name, line.run) for line in left}
            for run in ("DKPCA__seed=0", "slow__seed=0"):
                counted = read_ledger(place / "out" / "results" / run).of_client(number)
                assert all(entry.sha256 for entry in counted.entries)
                assert missing_from(left, run, counted) == []
                assert len(counted.entries) == sum(line.run == run for line in left)


def test_new_rows_are_projected_by_three_sites(place, tls):
    """Onto what an earlier run found: 50 patients, in another order at each site, some missing somewhere.

    The coordinates are those of the exact kernel between new and training rows, as scikit-learn prepares them in one
    table, at the coordinator and at each site.
    """
    rng, run = np.random.default_rng(5), "DKPCA__seed=0"
    raw = CONFIG.replace("share_model = true", "").replace("gamma = 0.05", 'width = "scale"')
    table = np.hstack(PARTS)
    table[rng.random(table.shape) < 0.05] = np.nan
    parts = np.array_split(table, 3, axis=1)
    furnish(place, parts)
    (place / "run.toml").write_text(raw + '\n[prepare]\nmissing = "mean"\n')
    fresh = [rng.permutation(part[rng.integers(0, 178, 54)]) for part in parts]
    held = [rng.permutation([row for row in range(54) if row not in (site, 50)]) for site in range(3)]
    for name, part, rows in zip(NAMES, fresh, held, strict=True):
        columns = {f"{name}{column}": part[rows, column] for column in reversed(range(part.shape[1]))}
        frame = pd.DataFrame({"note": "-", **columns, "patient": [f"n{row:03}" for row in rows]})
        frame.to_csv(place / f"{name}-new.csv", index=False)
    with federation(place, tls) as (serve, join):
        processes = [serve(), *map(join, NAMES)]
        assert [one.end() for one in processes] == [0, 0, 0, 0], processes[0].text
        again = [serve("--project", "--run", run, "--name", "week-14", "--out", "new", name="again", config="out")]
        again += [join(name, "--new", f"{name}-new.csv", log=f"{name} again") for name in NAMES]
        assert [one.end() for one in again] == [0, 0, 0, 0], again[0].text
        assert "n0" not in "".join(process.text for process in again)
    model = load_model(place / "out" / "results" / run / "model.npz")
    train = [int(patient[1:]) for patient in RunRows.load(place / "kept-b", run).ids]
    with np.load(place / "kept-c" / f"{run}__week-14.npz") as stored:
        order, coordinates = [int(patient[1:]) for patient in stored["ids"]], stored["embedding"]
    assert sorted(order) == sorted(set(range(54)) - {0, 1, 2, 50})
    prepared = make_pipeline(SimpleImputer(), StandardScaler())
    X, new = prepared.fit_transform(table[train]), prepared.transform(np.hstack([part[order] for part in fresh]))
    assert model.kernel.gamma == pytest.approx(1 / 13), "of columns with variance 1"
    step = projection_of(place / "out", run, "next", to_sites=True).run.plan[0]
    assert step.requests[0].fields["kernel"] == {"gamma": model.kernel.gamma, "type": "rbf"}, "which the study settles"
    exact = model.project(rbf_kernel(new, X, gamma=1 / 13))
    np.testing.assert_allclose(coordinates, exact, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(coordinates, load_model(place / "new" / f"{run}__week-14" / "model.npz"))
    sheet = pd.read_csv(place / "kept-a" / f"{run}__week-14.csv", index_col="id")
    assert sheet.index.tolist() == [f"n{row:03}" for row in order]
    at_server = pd.read_csv(place / "new" / f"{run}__week-14" / "coordinates.csv", index_col="row")
    np.testing.assert_array_equal(sheet.to_numpy(), at_server.to_numpy())


def test_new_rows_are_labelled_at_each_site(place, tls):
    """By a model that the server sends and is not told how many rows; two seeds' labels were compared before."""
    seeds = "seeds = [0, 1]\nevaluate = true\n"
    (place / "run.toml").write_text(seeds + CONFIG.split("share_model", maxsplit=1)[0] + CLUSTERS)
    names, run = [f"c{column}" for column in range(13)], "clusters__seed=0"
    for site, name in enumerate(NAMES):
        frame = pd.DataFrame(WINE, columns=names).assign(patient=[f"p{row}" for row in range(178)])
        frame[site::3].to_csv(place / f"{name}.csv", index=False)
        frame[[*names[::-1], "patient"]][site:9:2].assign(seen="-").to_csv(place / f"{name}-new.csv", index=False)
    with federation(place, tls) as (serve, join):
        processes = [serve(), *map(join, NAMES)]
        assert [one.end() for one in processes] == [0, 0, 0, 0], processes[0].text
        again = [serve("--project", "--run", run, "--name", "week-14", name="again", config="out")]
        again += [join(name, "--new", f"{name}-new.csv", log=f"{name} again") for name in "ab"]
        own = ("--data", "c-new.csv", "--id", "patient", "--min-rows", "1")  # with the new rows and no others
        again.append(join("c", *own, log="c again"))
        assert [one.end() for one in again] == [0, 0, 0, 0], again[0].text
    result = Result.load(place / "out" / "results" / run)
    assert result.columns == tuple(names)
    for site, name in enumerate(NAMES):
        sheet = pd.read_csv(place / f"kept-{name}" / f"{run}__week-14.csv", index_col="id")
        assert sheet.index.tolist() == [f"p{row}" for row in range(site, 9, 2)]
        np.testing.assert_array_equal(sheet["label"], result.model.predict(WINE[site:9:2]))
        left = read_outbox(place / f"kept-{name}").departures
        assert sum(line.request == "Introduce" for line in left) == 2, "nothing was asked again"
    second = Result.load(place / "out" / "results" / "clusters__seed=1")
    metrics = second.metrics
    sheets = ("clusters__seed=0.csv", "clusters__seed=1.csv")
    labels = [[pd.read_csv(place / f"kept-{name}" / sheet).label for name in NAMES] for sheet in sheets]
    stability = adjusted_rand_score(*map(np.concatenate, labels))
    assert abs(metrics["stability"] - stability) <= metrics["stability_error"]
    sentence = f"stability is {metrics['stability']:.2f}, with an error of up to {metrics['stability_error']:.2f}"
    assert any(finding.startswith(sentence) for finding in second.findings), "178 rows tell little in steps of 5"


@pytest.mark.drill
def test_a_run_below_its_quorum_ends_with_one_cause_and_the_same_commands_go_on_with_it(place, tls):
    """In plaintext, which a loopback may have; two of three sites are killed, and then all are started again."""
    (place / "run.toml").write_text("quorum = 2\n" + CONFIG.split("[[strategy]]", maxsplit=1)[0] + SLOW)
    with federation(place, tls) as (serve, join):

        def start(again=""):
            server = serve("--insecure", "--patience", "2", name=f"serve{again}")
            return server, {name: join(name, "--insecure", log=f"{name}{again}") for name in NAMES}

        server, sites = start()
        server.until("phase IterateLocally, round 1 of 101, 3 of 3 sites answered")
        for name in "bc":
            sites[name].kill()
        assert server.end() == 1
        cause = (
            r"VFedPCA, round \d+ \(IterateLocally\), client (1|2) \(site '(b|c)'\): site '\2' is no longer connected "
            r"\(waited 2 s\); client (2|1) \(site '(c|b)'\) is missing, too; 1 of 3 clients are left, but all are "
            r"needed in this round, whatever quorum = 2 asks for"
        )
        assert re.search(f"error: run slow__seed=0 has failed: {cause}", server.text), server.text
        (failure,) = map(json.loads, (place / "out" / "failures.jsonl").read_text().splitlines())
        assert "QuorumError" in failure.values(), failure
        assert sites["a"].end() == 1
        assert re.search(f'the server ended the work: "{cause}"', sites["a"].text), sites["a"].text
        server, sites = start(" again")
        assert [one.end(90) for one in (server, *sites.values())] == [0, 0, 0, 0], server.text
    folder = place / "out" / "results" / "slow__seed=0"
    result, ids = Result.load(folder), RunRows.load(place / "kept-b", "slow__seed=0").ids
    assert re.search(r"the run was stopped, and resumed at round \d+'", str(result.findings))
    parts = [part[[int(patient[1:]) for patient in ids]] for part in PARTS]
    reference = VFedPCA(merge="eigenvalue", rounds=100).fit(parts, seed=drawn_seed(result))
    np.testing.assert_array_equal(result.model.eigenvectors_, reference.model.eigenvectors_)


def test_a_site_whose_columns_do_not_fit_comes_back_mended_while_the_others_wait(place, tls):
    """It is told why, and its seat is free; the others' processes stay, and what comes out is of the mended tables."""
    (place / "run.toml").write_text(CONFIG.split("share_model", maxsplit=1)[0] + CLUSTERS)
    frame = pd.DataFrame(WINE, columns=[f"c{column}" for column in range(13)])
    for site, name in enumerate(NAMES):
        frame[site::3].assign(patient=frame.index[site::3]).to_csv(place / f"{name}.csv", index=False)
    mended = (place / "a.csv").read_text()
    (place / "a.csv").write_text(mended.replace("c12", "d12"))  # most decide what is right, not who comes first
    with federation(place, tls) as (serve, join):
        server, sites = serve(), {name: join(name) for name in NAMES}
        assert sites["a"].end() == 1
        sentence = (
            "a cannot take part: client 0 (site 'a'): column 12 (counted from 0) is 'd12', but 'c12' was expected, as "
            "at client 1 (site 'b'); the others wait until this is repaired"
        )
        server.until(sentence)
        assert f'error: the server ended the work: "{sentence}"\n' in sites["a"].text
        (place / "a.csv").write_text(mended)
        sites["a"] = join("a", log="a again")
        assert [one.end(90) for one in (server, *sites.values())] == [0, 0, 0, 0], server.text
        assert server.text.count("b is here") == server.text.count("c is here") == 1, "they were not started again"
    result = Result.load(place / "out" / "results" / "clusters__seed=0")
    strategy = FKKMeans(n_clusters=3, solver="gram", coreset_size=30, kernel=RBF(gamma=0.05))
    clean = strategy.fit([WINE[site::3] for site in range(3)], seed=drawn_seed(result))
    text = f"{[row['values'] for row in result.history if row['phase'] == 'seed']}, {result.findings}\n{server.text}"
    np.testing.assert_array_equal(result.model.centers_, clean.model.centers_, err_msg=text)


@pytest.mark.drill
def test_sites_that_write_letters_are_killed_and_come_back(place, tls):
    """One between the two requests by which keys are agreed on, one in the middle: letters are opened as if not."""
    (place / "run.toml").write_text(CONFIG.split("share_model", maxsplit=1)[0] + LETTERS)
    own = pinned(place, NAMES)
    with federation(place, tls) as (serve, join):

        def start(name, again=""):
            options = (word for option, path in own[name].items() for word in (f"--{option}", path))
            return join(name, *options, log=f"{name}{again}")

        server, sites = serve(), {name: start(name) for name in NAMES}
        for name, request, times in (("b", "PublishKeys", 1), ("c", "AddProducts", 3)):
            record = place / f"kept-{name}" / "outbox.jsonl"
            server.until(f"{name} is here")
            while record.read_text().count(f'"request": "{request}"') < times:
                assert server.process.poll() is None, server.text
                time.sleep(0.002)
            sites[name].kill()
            sites[name] = start(name, " again")
        assert [one.end(90) for one in (server, *sites.values())] == [0, 0, 0, 0], server.text
        for name in "bc":
            assert f"{name} is back, restarted" in server.text
    result = Result.load(place / "out" / "results" / "letters__seed=0")
    site_outputs = [model_files.contents(place / f"kept-{name}" / "letters__seed=0.npz") for name in NAMES]
    order = [int(patient[1:]) for patient in site_outputs[0]["ids"]]
    strategy = PeerVFedPCA(2, graph="ring")
    reference = strategy.fit([part[order] for part in PARTS], seed=drawn_seed(result))
    for outputs, expected in zip(site_outputs, reference.outputs.values(), strict=True):
        for name, array in expected.items():
            assert outputs[name].tobytes() == array.tobytes(), name
    assert [list((place / f"kept-{name}" / KEY_FOLDER).glob("*")) for name in NAMES] == [[], [], []]


def test_a_server_that_is_stopped_or_killed_is_started_again(place, tls):
    """The sites come back by themselves; what was finished is not repeated, and what was under way goes on."""
    (place / "run.toml").write_text(CONFIG + SLOW)
    with federation(place, tls) as (serve, join):
        server, site = serve(), join("a")
        site.until("joined")  # the server's "a is here" comes before its welcome is sent
        server.process.terminate()
        assert server.end() == 128 + signal.SIGTERM
        site.until("is lost; reconnecting")
        server, sites = serve(name="second"), {name: join(name) for name in NAMES[1:]} | {"a": site}
        until((place / "out" / "results" / "DKPCA__seed=0" / "result.json").exists, seconds=150)
        server.until("run slow__seed=0: phase IterateLocally, round 1 of 101, 3 of 3 sites answered")
        first = (place / "out" / "results" / "DKPCA__seed=0" / "result.json").stat().st_mtime_ns
        server.kill()
        sites["b"].until("is lost; reconnecting")
        again = serve("--log-json", "--metrics", "0", name="third")
        again.until("phase IterateLocally")
        counters, give_up = "", time.monotonic() + 30
        while not re.search(r'fedkernel_bytes_total{direction="up"} [1-9]', counters):  # of a round that was asked now
            assert time.monotonic() < give_up, counters
            with urlopen(re.search(r"metrics at (http://127.0.0.1:\d+/metrics)", again.text)[1]) as scraped:  # noqa: S310
                counters = scraped.read().decode()
        for line in ("fedkernel_sites_expected 3.0", 'fedkernel_site_connected{site="b"} 1.0'):
            assert line in counters.splitlines()
        assert 'fedkernel_run_rounds_expected{run="slow__seed=0"} 101.0' in counters.splitlines()
        assert [one.end(90) for one in (again, *sites.values())] == [0, 0, 0, 0], again.text
        assert (place / "out" / "results" / "DKPCA__seed=0" / "result.json").stat().st_mtime_ns == first
    assert re.search(r"slow__seed=0: resumed at round \d+, after \d+ recorded exchanges", again.text), again.text
    lines = [json.loads(line) for line in again.text.splitlines() if line.startswith("{")]
    assert all(line["time"].endswith("Z") and {"level", "logger", "event"} < line.keys() for line in lines)
    assert {line.get("site") for line in lines} == {None, *NAMES}
    phases = {(line["run"], line["phase"]) for line in lines if "round" in line}
    assert phases == {("slow__seed=0", "IterateLocally"), ("slow__seed=0", "Finish")}
    folder = place / "out" / "results" / "slow__seed=0"
    assert not list(folder.glob("journal*")), "its result is there"
    result = Result.load(folder)
    order = [int(patient[1:]) for patient in RunRows.load(place / "kept-b", "slow__seed=0").ids]
    reference = VFedPCA(merge="eigenvalue", rounds=100).fit([part[order] for part in PARTS], seed=drawn_seed(result))
    np.testing.assert_array_equal(result.model.eigenvectors_, reference.model.eigenvectors_)
    assert result.ledger.rounds == reference.ledger.rounds
    for client, name in enumerate(NAMES):
        departures = [line for line in read_outbox(place / f"kept-{name}").departures if line.run == "slow__seed=0"]
        hashes = [entry.sha256 for entry in result.ledger.of_client(client).entries]
        assert [line.sha256 for line in departures] == hashes, "each was asked and answered once"


@pytest.mark.drill
def test_sums_with_noise_are_the_same_after_a_server_and_a_site_are_killed(place, tls):
    """Killed after the site has sent a sum that the server does not have, while another site is asleep.

    Then the whole run once more, undisturbed: had the noise of a sum been drawn twice, its result would be another.
    """
    for site, name in enumerate(NAMES):
        frame = pd.DataFrame(WINE - WINE.mean(axis=0)).assign(patient=range(178))
        frame[site::3].to_csv(place / f"{name}.csv", index=False)
    own = pinned(place, NAMES)
    listed = [f'{name} = "{KeyPair.read(own[name]["identity"]).listed}"\n' for name in NAMES]
    (place / "run.toml").write_text(NOISY + "".join(listed))

    def sums(name):
        left = read_outbox(place / f"kept-{name}").departures
        with_noise = [line for line in left if line.masked]
        words = [np.load(payload_of(place / f"kept-{name}", line.sha256))["words"].tobytes() for line in with_noise]
        return list(zip([line.round for line in with_noise], words, strict=True))

    with federation(place, tls) as (serve, join):

        def start(name, again=""):
            options = (word for option, path in own[name].items() for word in (f"--{option}", path))
            return join(name, *options, "--keep", log=f"{name}{again}")

        server, sites = serve(), {name: start(name) for name in NAMES}
        server.until("phase SumCells, round 2 of")
        os.kill(sites["c"].process.pid, signal.SIGSTOP)
        until(lambda: len(sums("a")) > len(sums("c")), seconds=30)
        before = sums("a")
        for one in (server, sites["a"]):
            one.kill()
        os.kill(sites["c"].process.pid, signal.SIGCONT)
        server, sites["a"] = serve(name="second"), start("a", " again")
        assert [one.end(90) for one in (server, *sites.values())] == [0, 0, 0, 0], server.text
        assert re.search(r"noisy__seed=0: resumed at round \d+, after \d+ recorded exchanges", server.text), server.text
        assert sums("a")[len(before) :][: len(before)] == before, "the site was asked again, and sent the same bytes"
        again = [serve("--out", "undisturbed", name="third"), *(start(name, " third") for name in NAMES)]
        assert [one.end(90) for one in again] == [0, 0, 0, 0], again[0].text
    for name in NAMES:
        assert len(set(sums(name))) == len({number for number, _ in sums(name)}) == 21, "one reply for each sum"
        assert len(list((place / f"kept-{name}" / NOISE_FOLDER).rglob("*.npz"))) == 21, "one draw for each sum"
    first, second = (
        load_model(place / out / "results" / "noisy__seed=0" / "model.npz") for out in ("out", "undisturbed")
    )
    np.testing.assert_array_equal(first.centers_, second.centers_)


def test_a_study_is_approved_before_anything_leaves(place, tls):
    """One site by its policy and a command while it waits, one by a hash, one at no terminal; then that one, too."""
    (place / "a.toml").write_text('[study]\napprove = "by hash"\n')
    (place / "c.toml").write_text("")
    study = read_study(place / "run.toml").sha256
    with federation(place, tls) as (serve, join):
        for name in ("first", "second"):
            server = serve(name=name)
            sites = [join("a", "--policy", "a.toml"), join("b", "--approve", study), join("c", "--policy", "c.toml")]
            if name == "first":
                sites[0].until(f"study {study[:12]} is not approved: fedkernel study approve {study} --out kept-a")
                assert "Reveals the site's similarities between all pairs of rows" in sites[0].text
                approve(place / "kept-a", study, 9.0)
            codes = [process.end() for process in (server, *sites)]
            if name == "second":
                assert codes == [0, 0, 0, 0], server.text
                continue
            assert 0 not in codes
            refusal = f"study {study[:12]} is not approved; to approve it: fedkernel study approve {study} --out FOLDER"
            assert f"client 2 (site 'c'): {refusal} (study.approve)" in server.text
            assert refusal in sites[2].text
            (line,) = read_outbox(place / "kept-c").departures
            assert (line.rule, line.reply) == ("study.approve", "")
            approve(place / "kept-c", study, 9.0)
    for name in NAMES:
        departures = [line for line in read_outbox(place / f"kept-{name}").departures if not line.refused]
        assert {line.study for line in departures} == {study}
        assert [line.rule for line in departures if line.reply == "LocalSpectrum"] == ["plan"]
        assert departures[-1].standing.total.floats == sum(line.floats for line in departures)


def test_refusals_at_the_server(place, tls):
    make_certificates(place / "other", [], ["b"])
    make_certificates(tls, [], ["old"], days=1e-9, renew=True)
    few = ("sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh")
    with federation(place, tls) as (serve, join), ExitStack() as idle:
        server = serve(within=few)
        server.until("listening")
        host, _, port = serve.address.rpartition(":")
        for _ in range(300):  # they show no certificate, and take a file of the server's each
            idle.enter_context(socket.create_connection((host, int(port)), timeout=10))
        site = join("a")
        server.until("a is here")
        others = {
            "site 'a' is already connected": join("a", log="double"),
            "closes every connection: the server probably requires TLS": join("b", "--insecure", log="plain"),
            "its certificate is not signed by ca.crt": join("b", "--tls", str(place / "other" / "b"), log="stranger"),
        }
        for text, other in others.items():
            assert other.end() == 1
            assert text in other.text
        server.until("refused 'a' from")
        server.until("refused a connection: it speaks plaintext, where TLS is needed")
        # who does not look at its own certificate before
        for folder in (place / "other" / "b", tls / "old"):
            knock(serve.address, (tls / "a" / "ca.crt").read_bytes(), folder)
        server.until("refused a connection: its certificate is not signed by this server's authority")
        server.until("refused a connection: its certificate has expired")
        assert server.process.poll() is site.process.poll() is None
        site.process.terminate()
        site.end()
        server.until("a is gone (0 of 3)")


def knock(address, authority, folder):
    own = ((folder / name).read_bytes() for name in ("tls.key", "tls.crt"))
    credentials = grpc.ssl_channel_credentials(authority, *own)
    with grpc.secure_channel(address, credentials) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/any/Thing")(b"", timeout=5)


def test_sites_that_do_not_fit_are_named_and_nothing_of_their_files_is_told(place, tls):
    """A run is refused at a site, one by columns of the study, which are named, and one prepares raw tables.

    Ids, cells, columns that are kept out and paths are marked; first a cell of a category is what the study has not.
    At the end no file of the server has a mark, and no site's has one of another's, whatever is logged.
    """
    others = """
[prepare]
missing = "mean"
categories = { region = ["north", "south"] }

[[strategy]]
name = "clusters"
method = "FKKMeans"
n_clusters = 3

[[strategy]]
name = "rows"
method = "UniformKPCA"
n_components = 2
n_samples = 5
share_rows = true
"""
    (place / "run.toml").write_text(CONFIG + others)
    for site, name in enumerate(NAMES):
        mark_file(place, site, name, level=f"MARK{name}level" if name == "c" else "north")
    with federation(place, tls) as (serve, join):
        server, sites = serve("--debug", name="first"), {name: join(*marked(name, "first")) for name in NAMES}
        server.until("c cannot take part")
        sites["c"].end()
        code = re.search(r"cannot prepare its table \(its log has the details under (E-\w+)\)", server.text)
        assert code, server.text
        text = f"{code[1]}: client 2: MARKcfolder/table.csv: row 11 (row 1 has the names) of column 'region' has a"
        assert text in (place / "c-first-own.log").read_text()
        mark_file(place, 2, "c", level="north")
        sites["c"] = join(*marked("c", "second"))
        server.until("client 1 (site 'b')")
        codes = [process.end() for process in (server, *sites.values())]
        assert 0 not in codes, server.text
        assert "which needs --share-rows (limits.total.rows)" in server.text
    assert (place / "out" / "results" / "DKPCA__seed=0" / "result.json").exists()
    assert "a0" in contents(place / "out"), "the columns of the study are told"
    assert "north" in contents(place / "out"), "and what it declares"
    told = contents(place / "out") + contents(place, "first*", "second*")
    assert hits(told, "MARK", *KEPT_OUT) == []
    cells = WINE[(WINE != 0).all(axis=1)].ravel()  # also those that the methods work with
    assert not [cell for cell in cells if cell.tobytes().decode("latin-1") in told or repr(float(cell)) in told]
    for name in NAMES:
        own = contents(place / f"kept-{name}") + contents(place, f"{name}-*", f"{name}.log")
        assert hits(own, f"MARK{name}") != [], "a site's own log and record have its own"
        assert [hit for hit in hits(own, "MARK", *KEPT_OUT) if not hit.startswith((f"MARK{name}", "MARKid"))] == []


KEPT_OUT = ("7.1234567", "7123456")
"""How numbers begin that stand in columns that are kept out."""


def mark_file(place, site, name, level):
    """Write a site's table with marks: its path, its ids, columns that are kept out, their cells, a level."""
    rng, rows = np.random.default_rng(site), KEPT[site]
    columns = {f"{name}{column}": PARTS[site][rows, column] for column in range(PARTS[site].shape[1])}
    frame = pd.DataFrame({"patient": [f"MARKid{row:03}" for row in rows], **columns})
    frame.iloc[7, 2] = np.nan
    frame[f"MARK{name}number"] = 7.123456789e77 * rng.random(len(frame)).round()
    frame[f"MARK{name}text"] = [f"MARK{name}cell {row}" for row in rows]
    if name == "c":
        frame["region"] = rng.choice(["north", "south"], len(frame))
        frame.loc[9, "region"] = level
    (place / f"MARK{name}folder").mkdir(exist_ok=True)
    frame.to_csv(place / f"MARK{name}folder" / "table.csv", index=False)


def marked(name, phase):
    """Return with which options a site joins."""
    own = ("--data", f"MARK{name}folder/table.csv", "--id", "patient", "--ids-without-key", "--debug")
    dropped = ("--drop", f"MARK{name}number", "--drop", f"MARK{name}text")
    return name, *own, *dropped, "--log", f"{name}-{phase}-own.log"


def contents(folder, *patterns):
    """Return what is in files, as text: what an archive holds unpacked."""
    texts = []
    for path in [file for pattern in patterns or ("**/*",) for file in folder.glob(pattern) if file.is_file()]:
        texts += [path.name, path.read_bytes().decode("latin-1")]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                members = [archive.read(member) for member in archive.namelist()]
            # numpy's texts have four bytes a character
            texts += [text for member in members for text in (member.decode("latin-1"), member[::4].decode("latin-1"))]
    return "\n".join(texts)


def hits(text, *signs):
    """Return where signs are in a text, with what follows."""
    return [text[found.start() : found.start() + 20] for sign in signs for found in re.finditer(re.escape(sign), text)]
