"""Runs that go on without a client, as far as the method allows and the quorum asks; deadlines by phase."""

import math
import threading

import cases
import lost_clients
import numpy as np
import pydantic
import pytest
from lost_clients import PAIRS
from sites import app_over
from test_protocol import TABLES, Ask, AskMore, Numbers, Talker, Toy

from fedkernel import InputError, KernelClient, ProtocolError, to_all
from fedkernel.engines.local import LocalGrid
from fedkernel.run import RunSettings
from fedkernel.wire import Job, Losses, RunSpec
from fedkernel.wire.quorum import needed


def test_the_page_says_what_comes_of_a_lost_client():
    assert PAIRS.keys() == cases.PAIRS.keys(), "every registered pair is tried"
    assert lost_clients.PAGE.read_text() == lost_clients.page(), "cd tests && python -m lost_clients"


def test_a_quorum_is_a_number_or_a_fraction():
    assert [needed(*pair) for pair in ((3, 4), (1, 4), (0.5, 5), (0.75, 4), (1.0, 4))] == [3, 1, 3, 3, 4]
    for clients in range(1, 101):  # of which 0.28 * 25 is above 7
        assert all(needed(share / clients, clients) == share for share in range(1, clients))
        assert all(needed(percent / 100, clients) == -(-percent * clients // 100) for percent in range(1, 100))
    for quorum in (0, -1, 1.5, 2.5, True, math.nan, math.inf):
        with pytest.raises(InputError, match=r"^quorum = .*, but must be a fraction of the clients, above 0 and"):
            RunSettings(quorum=quorum)
    with pytest.raises(InputError, match=r'^quorum = 2, but sums = "masked" needs all clients; allowed: no quorum$'):
        RunSettings(quorum=2, sums="masked")


@pytest.fixture
def lose(monkeypatch):
    """Has clients answer nothing."""
    respond = KernelClient._respond

    def lose(*clients):
        def without_these(self, answer, request, config):
            if self.client in clients:
                raise InputError("no")
            return respond(self, answer, request, config)

        monkeypatch.setattr(KernelClient, "_respond", without_these)

    return lose


def test_fewer_than_the_quorum_end_the_run_with_both_numbers(lose):
    pair = PAIRS["DKPCA"]
    lose(1, 3)
    for quorum in (3, 0.6):
        with pytest.raises(ProtocolError, match=rf"; 2 of 4 clients are left, but quorum = {quorum} asks for 3$"):
            pair.fit(pair.tables, quorum=quorum)
    result = pair.fit(pair.tables, quorum=2)
    assert [text[:8] for text in result.findings if "was lost" in text] == ["client 1", "client 3"]
    lose()
    others = pair.fit([pair.tables[0], pair.tables[2]])
    assert np.array_equal(result.model.eigenvectors_, others.model.eigenvectors_)


def test_what_is_left_is_not_measured_as_if_it_were_all(lose):
    lose(3)
    result = PAIRS["VFedPCA"].fit(PAIRS["VFedPCA"].tables, quorum=0.5, evaluate=True)
    assert not result.metrics
    assert result.findings[0].startswith("the model was not measured: client 3 was lost in round 1 (IterateLocally)")


def test_who_goes_on_everywhere_still_keeps_to_a_quorum():
    losses = Losses(any_round=True, quorum=2, clients=3)
    assert losses.fault(4, "Ask", 2, summed=False) is None
    assert losses.fault(4, "Ask", 1, summed=False) == "quorum = 2 asks for 2"
    assert "all are needed in this round" in losses.fault(4, "Ask", 2, summed=True)
    assert Losses(any_round=True).fault(4, "Ask", 0, summed=False) == "1 is needed", "nobody is left"


def test_phases_have_deadlines_of_their_own_and_late_replies_are_dropped(monkeypatch):
    """Client 1 answers round 1 while round 2 waits for client 2: that answer enters neither."""
    released, came = threading.Event(), threading.Event()

    class Slow(Talker):
        answers = (Ask, AskMore)

        def tell(self, ask: Ask) -> Numbers:
            if self.client == 1 and type(ask) is Ask:
                released.wait(10)
            elif type(ask) is AskMore and self.client == 2:
                released.set()
                assert came.wait(10)
            return super().tell(ask)

    deliver = LocalGrid._deliver

    def noting(self, node, *reply):
        deliver(self, node, *reply)
        if node == 2 and released.is_set():
            came.set()

    monkeypatch.setattr(LocalGrid, "_deliver", noting)
    monkeypatch.setattr("os.cpu_count", lambda: 3)

    def protocol():
        first = yield from to_all(Ask())
        second = yield from to_all(AskMore(word=2))
        return [[reply.values[0] for reply in replies] for replies in (first, second)]

    settings = RunSettings(deadline=30.0, deadlines={"Ask": 1.0})
    with LocalGrid(app_over(Slow, TABLES), clients=3) as grid:
        result = Toy(protocol, client=Slow, on_missing="continue").run(grid, settings)
        assert result.model == [[0.0, 2.0], [0.0, 4.0]]
        assert not grid._replies
        assert not grid._asked
    sentence = "the result is what the method makes of the replies that are left"
    assert result.findings[0] == f"client 1 was lost in round 1 (Ask): {sentence}"


def test_a_deadline_of_no_phase_is_refused():
    pair = PAIRS["DKPCA"]
    with pytest.raises(InputError, match=r"^deadlines: unknown phase 'Asking'; allowed: join, align, seed, FindL"):
        pair.fit(pair.tables, deadlines={"Asking": 3.0})
    with pytest.raises(InputError, match="deadlines: join = 0, but must be greater than 0, and finite"):
        pair.fit(pair.tables, deadlines={"join": 0.0})
    # in JSON, as the engines between processes have it, it is no number
    for settings in ({"deadline": math.inf}, {"deadlines": {"join": math.inf}}):
        with pytest.raises(InputError, match="= inf, but must be greater than 0, and finite"):
            RunSettings(**settings)
        with pytest.raises(pydantic.ValidationError, match="finite number"):
            Job(runs=[RunSpec(id="r", strategy="DKPCA", sites=["a"])], **settings)
