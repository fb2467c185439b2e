"""disKPCA's messages: how many floats they hold, in which order they come, and who is named for a wrong one."""

import numpy as np
import pytest
from diskpca_runs import DIGITS, KERNELS, SMALL, K, as_csr, dense, shards_of, strategy
from scipy import sparse
from sites import ask

from clients import diskpca as pair
from clients.diskpca import (
    DisKPCAClient,
    DrawByDistance,
    DrawByLeverage,
    DrawnRows,
    DrawUniformly,
    MeasureCaptured,
    ScoreRows,
    Sketch,
    SketchPoints,
    SquaredLengths,
    TakeComponents,
)
from fedkernel import RBF, InputError, Linear
from fedkernel.errors import ProtocolError, TellableError
from fedkernel.numerics.sketch import SubspaceEmbedding
from fedkernel.protocol.messages import CarriesRows, Receipt, encode
from strategies import DisKPCA, UniformKPCA

# Communication


@pytest.mark.parametrize("form", [list, as_csr], ids=["dense", "csr"])
def test_the_ledger_is_the_paper_s_word_for_word(form):
    X = np.where(np.random.default_rng(0).random((500, 40)) < 0.3, DIGITS[:500, 10:50], 0.0)
    sizes = [20, 130, 350]  # the first has too few rows for sketches of p and w columns, the second for p
    shards = form(np.split(X, np.cumsum(sizes)[:-1]))
    t, p, k, s = 10, 150, 4, 3
    sketched = {"point_sketch_size": p, "projection_size": "landmarks"}
    strategy = DisKPCA(k, RBF(gamma=0.001), 40, embedding_size=t, **sketched, share_rows=True)
    result = strategy.fit(shards, seed=3, evaluate=True)
    Y = dense(result.model.landmarks_)
    size = np.count_nonzero if form is as_csr else np.size
    entries = {(entry.phase, entry.client): entry for entry in result.ledger.entries}
    drawn = {
        phase: [entries[phase, client].rows_up if (phase, client) in entries else 0 for client in range(s)]
        for phase in ("DrawByLeverage", "DrawByDistance")
    }
    # in the order of the draws, then of the clients: what each owns of Y
    parts = np.split(np.arange(len(Y)), np.cumsum([*drawn["DrawByLeverage"], *drawn["DrawByDistance"]])[:-1])
    owned = {"DrawByLeverage": [Y[at] for at in parts[:s]], "DrawByDistance": [Y[at] for at in parts[s:]]}
    for blocks in owned.values():
        for client, block in enumerate(blocks):
            own = {row.tobytes() for row in dense(shards[client])}
            assert {row.tobytes() for row in block} <= own, f"rows of client {client}'s own"
    assert len(Y) == result.ledger.rows_up == 46
    floats = {}
    for client, n in enumerate(sizes):
        floats["SketchPoints", client] = (t * p if 2 * p <= n else t * (t + 1) // 2, 0)
        floats["ScoreRows", client] = (1, t * t)
        floats["DrawByLeverage", client] = (size(owned["DrawByLeverage"][client]), 0)
        others = sum(size(block) for other, block in enumerate(owned["DrawByLeverage"]) if other != client)
        floats["MeasureDistances", client] = (1, others)
        floats["DrawByDistance", client] = (size(owned["DrawByDistance"][client]), 0)
        others = sum(size(block) for other, block in enumerate(owned["DrawByDistance"]) if other != client)
        floats["SketchKernel", client] = (len(Y) ** 2 if 2 * len(Y) <= n else len(Y) * (len(Y) + 1) // 2, others)
        floats["TakeComponents", client] = (0, len(Y) * k)
        floats["MeasureCaptured", client] = (2, 0)
    traffic = {key: (entry.floats_up, entry.floats_down) for key, entry in entries.items() if key[0] != "join"}
    assert traffic == {key: count for key, count in floats.items() if key in traffic}
    assert {key[0] for key in floats if key not in traffic} <= {"DrawByLeverage", "DrawByDistance"}
    assert all(floats[key] == (0, 0) for key in floats if key not in traffic)
    assert result.ledger.rounds == 8
    assert [row["rows_up"] for row in result.history] == [sum(drawn.get(row["phase"], [0])) for row in result.history]


def test_draws_that_have_nothing_to_go_by_are_not_asked_for():
    result = strategy(Linear(), n_leverage=100, n_adaptive=20).fit(shards_of(SMALL), evaluate=True)
    assert "DrawByDistance" not in [row["phase"] for row in result.history]
    values = np.linalg.eigvalsh(SMALL.T @ SMALL)[::-1]
    assert result.metrics["reconstruction_error"] <= 1.05 * values[K:].sum() / values.sum()
    phases = ["SketchPoints", "ScoreRows", "DrawByLeverage", "SketchKernel", "TakeComponents"]
    without = strategy(n_adaptive=0, n_leverage=30).fit(shards_of(SMALL))
    assert [row["phase"] for row in without.history] == ["join", *phases]


# Consent


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (DisKPCA(3, n_adaptive=30), "DisKPCA sends raw data: up to 34 of the 140 rows, all 8 columns of each"),
        (DisKPCA(3, n_adaptive=300), "DisKPCA sends raw data: up to 140 of the 140 rows, all 8 columns"),
        (UniformKPCA(3, n_samples=50), "UniformKPCA sends raw data: up to 50 of the 140 rows, all 8 columns"),
    ],
    ids=repr,
)
def test_without_consent_nothing_is_asked(strategy, sentence, monkeypatch):
    messages = []
    monkeypatch.setattr(DisKPCAClient, "fit", lambda self, parameters, config: messages.append(config))
    with pytest.raises(InputError) as caught:
        strategy.fit(shards_of(SMALL))
    assert sentence in str(caught.value)
    assert "share_rows = true allows that" in str(caught.value)
    assert messages == []


# Faults


def test_a_request_out_of_order_is_named():
    def refused(text, request, site=None):
        with pytest.raises(ProtocolError, match=text):
            ask(site or DisKPCAClient(SMALL, client=2), request)

    embedding = SubspaceEmbedding(KERNELS[0], 10, 100)
    step = {"kernel": KERNELS[0], "precision": "float64", "tol": 1e-8}
    refused("it has no block products yet", ScoreRows(whitening=np.eye(10)))
    leverage = DrawByLeverage(samples=3, embedding=embedding, precision="float64")
    refused("it has no leverages yet", leverage)
    refused("it has no landmarks yet", DrawByDistance(samples=3, **step))
    refused("it has no landmarks yet", MeasureCaptured(kernel=KERNELS[0]))
    take = TakeComponents(coefficients=np.ones((3, 2)), kernel=KERNELS[0], precision="float64", embed=True)
    refused("it has no landmarks yet", take)
    site = DisKPCAClient(SMALL, client=2)
    ask(site, SketchPoints(embedding=embedding, columns=5, precision="float64"))
    refused("it has no leverages yet", leverage, site)
    refused("a map of 11 rows does not fit the embedding", ScoreRows(whitening=np.eye(11)), site)
    ask(site, pair.TakeLandmarks(**CarriesRows.of(SMALL[:4]), before=0, **step))
    refused("it has no distances yet", DrawByDistance(samples=3, **step), site)
    refused("it has no coefficients yet", MeasureCaptured(kernel=KERNELS[0]), site)
    with pytest.raises(InputError, match="samples = 141, but client 2 has 140 rows"):
        ask(site, DrawUniformly(samples=141))


@pytest.mark.parametrize("size", [1e60, 1e38], ids=["a coefficient", "a sum of them"])
def test_a_site_keeps_no_coordinates_that_float32_cannot_hold(size):
    site, kernel = DisKPCAClient(SMALL, client=2), RBF(gamma=1e-9)
    ask(site, pair.TakeLandmarks(**CarriesRows.of(SMALL[:8]), before=0, kernel=kernel, precision="float32", tol=1e-4))
    take = {"coefficients": np.full((8, 2), size), "kernel": kernel, "embed": True}
    with pytest.raises(TellableError, match="give coordinates that float32 cannot hold"):
        ask(site, TakeComponents(**take, precision="float32"))
    assert "embedding" not in site.outputs
    ask(site, TakeComponents(**take, precision="float64"))
    assert np.isfinite(site.outputs["embedding"]).all()


def broken(monkeypatch, step, answer):
    """Let client 1 answer one step by something else, past its own checks."""
    fit = DisKPCAClient.fit

    def other(self, parameters, config):
        reply = fit(self, parameters, config)
        if self.client != 1 or config["message"] != step:
            return reply
        arrays, scalars = encode(answer)
        return arrays, 1, scalars

    monkeypatch.setattr(DisKPCAClient, "fit", other)


def rows_of_width(width, count=1, form=np.asarray):
    return DrawnRows(**CarriesRows.of(form(np.ones((count, width)))))


@pytest.mark.parametrize(
    ("step", "answer", "sentence"),
    [
        ("SketchPoints", Receipt(), "expected Sketch, but the message is 'Receipt'"),
        ("SketchPoints", Sketch(upper=np.ones(3)), "c = 2, but client 0 has c = 50"),
        ("SketchPoints", Sketch(factor=np.ones((49, 5))), "c = 49, but client 0 has c = 50"),
        ("SketchPoints", Sketch(factor=np.ones((50, 251))), "has 251 columns, but at most 250"),
        ("ScoreRows", SquaredLengths(sums=np.ones(2)), "expected Total, but the message is"),
        ("DrawByLeverage", rows_of_width(8, 99), "the reply holds 99 rows, but from 1 to"),
        ("DrawByDistance", rows_of_width(8, 0), "the reply holds 0 rows, but from 1 to"),
        ("DrawByDistance", rows_of_width(7), "dense has 7 entries along axis 1, but width = 8"),
        ("DrawByDistance", rows_of_width(7, form=sparse.csr_array), "rows have 7 columns, but width = 8"),
        ("SketchKernel", Sketch(factor=np.ones((3, 2))), "c = 3, but client 0 has c ="),
        ("TakeComponents", SquaredLengths(sums=np.ones(2)), "expected Receipt, but the message is"),
    ],
)
def test_a_client_that_answers_something_else_is_named(monkeypatch, step, answer, sentence):
    broken(monkeypatch, step, answer)
    with pytest.raises(ProtocolError) as caught:
        strategy(n_adaptive=60).fit(np.array_split(SMALL, 3))
    assert f"({step}), client 1: " in str(caught.value)
    assert sentence in str(caught.value)
