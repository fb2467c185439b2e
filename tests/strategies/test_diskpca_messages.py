"""disKPCA's messages: in which order they come, that rows leave with consent only, and who is named for a wrong one."""

import numpy as np
import pytest
from diskpca_runs import KERNELS, SMALL, K, shards_of, strategy
from refusals import refusing
from scipy import sparse
from sites import ask

from fedkernel import RBF, InputError, Linear
from fedkernel.clients.diskpca import (
    DisKPCAClient,
    DrawByDistance,
    DrawByLeverage,
    DrawUniformly,
    ScoreRows,
    SketchPoints,
)
from fedkernel.clients.landmark_base import MeasureCaptured, Sketch, TakeComponents, TakeLandmarks
from fedkernel.ground import ProtocolError, ShareableError
from fedkernel.numerics import SubspaceEmbedding
from fedkernel.protocol import CarriesRows, encode
from fedkernel.strategies import DisKPCA, UniformKPCA


def test_draws_that_have_nothing_to_go_by_are_not_asked_for():
    result = strategy(Linear(), n_leverage=100, n_adaptive=20).fit(shards_of(SMALL), evaluate=True)
    assert "DrawByDistance" not in [row["phase"] for row in result.history]
    values = np.linalg.eigvalsh(SMALL.T @ SMALL)[::-1]
    assert result.metrics["reconstruction_error"] <= 1.05 * values[K:].sum() / values.sum()
    phases = ["SketchPoints", "ScoreRows", "DrawByLeverage", "SketchKernel", "TakeComponents"]
    without = strategy(n_adaptive=0, n_leverage=30).fit(shards_of(SMALL))
    assert [row["phase"] for row in without.history] == ["join", *phases]


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
    with refusing(sentence, "share_rows = true allows that"):
        strategy.fit(shards_of(SMALL))
    assert messages == []


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
    refused("whitening has 11 rows, but must have one for each coordinate", ScoreRows(whitening=np.eye(11)), site)
    ask(site, TakeLandmarks(**CarriesRows.of(SMALL[:4]), before=0, **step))
    refused("it has no distances yet", DrawByDistance(samples=3, **step), site)
    refused("it has no coefficients yet", MeasureCaptured(kernel=KERNELS[0]), site)
    with pytest.raises(InputError, match="samples = 141, but must be at most the 140 rows of client 2"):
        ask(site, DrawUniformly(samples=141))


@pytest.mark.parametrize("size", [1e60, 1e38], ids=["a coefficient", "a sum of them"])
def test_a_site_keeps_no_coordinates_that_float32_cannot_hold(size):
    site, kernel = DisKPCAClient(SMALL, client=2), RBF(gamma=1e-9)
    ask(site, TakeLandmarks(**CarriesRows.of(SMALL[:8]), before=0, kernel=kernel, precision="float32", tol=1e-4))
    take = {"coefficients": np.full((8, 2), size), "kernel": kernel, "embed": True}
    with pytest.raises(ShareableError, match="give coordinates too large for float32"):
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


def narrow_rows(form):
    return DrawByDistance.reply_type(**CarriesRows.of(form(np.ones((1, 7)))))


@pytest.mark.parametrize(
    ("step", "answer", "sentence"),
    [
        ("SketchPoints", Sketch(upper=np.ones(3)), "c = 2, but client 0 has c = 50"),
        ("DrawByDistance", narrow_rows(np.asarray), "dense has 7 entries along axis 1, but width = 8"),
        ("DrawByDistance", narrow_rows(sparse.csr_array), "rows have 7 columns, but width = 8"),
        ("SketchKernel", Sketch(factor=np.ones((3, 2))), "c = 3, but client 0 has c ="),
    ],
)
def test_a_client_that_answers_something_else_is_named(monkeypatch, step, answer, sentence):
    broken(monkeypatch, step, answer)
    with refusing(f"({step}), client 1: ", sentence, error=ProtocolError):
        strategy(n_adaptive=60).fit(np.array_split(SMALL, 3))
