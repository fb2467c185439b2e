"""Clients: NumPyClient's contract, dispatch, memory, and what of an error leaves the site."""

import pickle
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.client import NumPyClient
from named_sites import codeless
from refusals import refusing

from fedkernel import RBF, InputError, Linear, ProtocolError
from fedkernel.clients.dkpca import DKPCAClient, FindLocalEigenpairs, LocalSpectrum
from fedkernel.clients.vfedpca import Finish, IterateLocally, Multiply, VFedPCAClient
from fedkernel.protocol import Done, KernelClient, Reply, Request, Shape, State, decode, encode
from fedkernel.site import Site
from fedkernel.site.client_app import client_app
from fedkernel.site.context_state import Memory
from fedkernel.wire import FAILED, REFUSED, Introduce, flower_internals

X = np.random.default_rng(0).standard_normal((9, 4))
SECRET = 8675309.25
V = np.linalg.qr(np.random.default_rng(1).standard_normal((9, 2)))[0]

ASKS = [
    (DKPCAClient, FindLocalEigenpairs(kernel=Linear(), n_components=2)),
    (VFedPCAClient, IterateLocally(n_components=2, iterations=3, kernel=RBF(width="columns"), directions=V)),
    (VFedPCAClient, Finish(directions=V)),
]


class Nothing(Request[Done]):
    """Asks for nothing."""


class Numbers(Reply):
    count: int
    values: Annotated[np.ndarray, Shape("n")]


class Tell(Request[Numbers]):
    """What a toy client does wrong is chosen by a word."""

    how: str = ""


class Remember(Request[Numbers]):
    """Asks to count how often this was asked."""


class Teller(KernelClient):
    answers = (Tell, Remember)

    def tell(self, ask: Tell) -> Numbers:
        table = self.X.ravel()
        if ask.how == "key":
            return {}[SECRET]
        if ask.how == "value":
            raise ValueError(f"cannot use {SECRET}")
        if ask.how == "input":
            raise InputError("n_components = 12, but there are only 9 rows")
        if ask.how == "table for a scalar":
            return Numbers(count=table, values=table)
        if ask.how == "list for a scalar":
            return Numbers(count=table.tolist(), values=table)
        if ask.how == "infinite":
            return Numbers(count=1, values=np.full(3, np.inf))
        return Numbers(count=1, values=np.ones(3))

    def remember(self, ask: Remember) -> Numbers:
        count = self.memory.get("count", np.array(0.0)) + 1
        self.memory["count"] = count
        return Numbers(count=float(count), values=np.array([count.ndim], dtype=float))


@pytest.mark.parametrize(("kind", "ask"), ASKS, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_fit_follows_the_contract_of_numpyclient(kind, ask):
    client = kind(X, client=1, seed=5)
    assert isinstance(client, NumPyClient)
    arrays, examples, scalars = client.fit(*encode(ask))
    assert type(arrays) is list
    assert all(isinstance(array, np.ndarray) for array in arrays)
    assert type(examples) is int
    assert examples == 9
    assert all(type(k) is str and type(v) in (bool, bytes, float, int, str) for k, v in scalars.items())
    assert type(decode(ask.reply_type, arrays, scalars)) is ask.reply_type
    sizes = kind(X, new=X[:2], client=3, seed=7).get_properties({})
    assert sizes == {"client": 3, "rows": 9, "columns": 4, "new_rows": 2}
    assert kind(X).get_properties({})["new_rows"] == 0


def test_an_unknown_request_is_refused():
    known = str(sorted(request.__name__ for request in DKPCAClient.answers))
    refusal = "DKPCAClient, round ?, client 4: 'Nothing' is no request of this client; it answers "
    with refusing(whole=refusal + known, error=ProtocolError):
        DKPCAClient(X, client=4).fit(*encode(Nothing()))
    with pytest.raises(ProtocolError, match="None is no request"):
        DKPCAClient(X).fit([], {})
    arrays, scalars = encode(Multiply(block=V))
    with pytest.raises(ProtocolError, match=r"^VFedPCAClient, round 8, client 2: request Multiply: block: must be a"):
        VFedPCAClient(X, client=2).fit([arrays[0].astype(np.float32)], {**scalars, "round": 8})


@pytest.mark.parametrize(
    ("vectors", "values", "sentence"),
    [
        (np.eye(9, 2), np.array([1.0, 2.0]), "values must be in non-increasing order"),
        (np.eye(9, 3), np.ones(3), "values has 3 entries, but must have at most 2"),
        (np.eye(9, 2), np.ones(3), "values has 3 entries along axis 0, but D_m = 2"),
        (np.full((9, 1), np.nan), np.ones(1), "9 of its entries are not finite"),
    ],
)
def test_the_wrong_reply_of_a_broken_client_does_not_leave_it(vectors, values, sentence):
    class Broken(DKPCAClient):
        answers = (FindLocalEigenpairs,)

        def find_local_eigenpairs(self, ask: FindLocalEigenpairs) -> LocalSpectrum:
            return LocalSpectrum(vectors=vectors, values=values)

    arrays, scalars = encode(FindLocalEigenpairs(kernel=Linear(), n_components=2))
    start = "Broken, round 3, client 6: the reply to FindLocalEigenpairs would "
    with refusing(sentence, start=start, error=ProtocolError):
        Broken(X, client=6).fit(arrays, {**scalars, "round": 3})


class Conversation:
    """Sends messages to the app of one site, whose context lives on between them."""

    def __init__(self, kind=Teller, table=X):
        flower_internals.ensure_task_identity()
        self.app = client_app({kind.__name__: kind}, lambda context, config: Site(0, table, None, lambda outputs: None))
        self.kind = kind
        self.restart()
        assert not self.join().has_error()

    def restart(self):
        self.context = flower_internals.new_context(1, {"partition-id": 0, "num-partitions": 1}, {})

    def ask(self, request, run="run", **config):
        arrays, scalars = encode(request)
        header = {"pair": self.kind.__name__, "run": run, "seed": 0, "round": 1}
        return self.send(ArrayRecord(arrays), {**header, **scalars, **config}, MessageType.TRAIN)

    def join(self, run="run"):
        header = {"pair": self.kind.__name__, "run": run, "seed": 0}
        return self.send(ArrayRecord(), {**header, **encode(Introduce())[1]}, MessageType.QUERY)

    def send(self, arrays, config, message_type):
        content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
        message = Message(content, 1, message_type, group_id="1")
        flower_internals.stamp(message)
        return self.app(flower_internals.from_bytes(flower_internals.to_bytes(message)), self.context)


@pytest.mark.parametrize(
    ("how", "code", "outline"),
    [
        ("key", FAILED, "KeyError on the site (its log has the details under E-0)"),
        ("value", FAILED, "ValueError on the site (its log has the details under E-0)"),
        ("input", REFUSED, "n_components = 12, but there are only 9 rows"),
        ("table for a scalar", REFUSED, "count: input should be a valid integer, not ndarray"),
        ("list for a scalar", REFUSED, "count: input should be a valid integer, not list"),
        ("infinite", REFUSED, "3 of its entries are not finite"),
    ],
)
def test_no_value_of_the_table_leaves_in_the_text_of_an_error(how, code, outline, caplog):
    reply = Conversation(table=np.full((2, 2), SECRET)).ask(Tell(how=how))
    assert reply.has_error()
    assert reply.error.code == code
    assert codeless(reply.error.reason).endswith(outline)
    assert "8675309" not in reply.error.reason
    assert ("8675309" in caplog.text) == (code == FAILED), "the site's own log has what the coordinator does not get"


def test_a_request_to_another_pair_or_without_its_header_is_refused():
    another = Conversation().ask(Tell(), pair="DKPCAClient").error
    bare = Conversation().send(ArrayRecord(), {"note": f"{SECRET}"}, MessageType.TRAIN).error
    assert (another.code, another.reason) == (REFUSED, "client 0 runs Teller, but was asked for 'DKPCAClient'")
    assert (bare.code, bare.reason) == (REFUSED, "the request cannot be read: run must be a str, not None")


def test_memory_survives_the_messages_of_a_run_and_no_longer():
    site = Conversation()

    def count(run):
        arrays = site.ask(Remember(), run=run).content
        reply = decode(Numbers, arrays.array_records["arrays"].to_numpy_ndarrays(), arrays.config_records["config"])
        assert reply.values.tolist() == [0], "a number comes back without dimensions, as it was kept"
        return reply.count

    assert not site.join("first").has_error()
    assert [count("first"), count("first"), count("first")] == [1, 2, 3]
    site.join("second")
    assert [count("second"), count("second")] == [1, 2]
    left = site.ask(Remember(), run="first").error
    assert (left.code, left.reason) == (REFUSED, "it has no memory of run 'first': it has begun run 'second' since")
    site.join("first")
    assert count("first") == 1, "joining begins a run, also one whose name was used before"
    site.restart()
    lost = site.ask(Remember()).error
    reason = "it has no memory of run 'run': it was restarted after the run had begun"
    assert (lost.code, lost.reason) == (REFUSED, reason)


def test_memory_is_changed_by_what_is_written_only():
    context = flower_internals.new_context(1, {}, {})
    memory, own = Memory.begin(context, "run"), X.copy()
    memory["own"] = own
    own[:] = 0.0
    assert memory["own"] is memory["own"], "nothing is read anew"
    for state in (context.state, pickle.loads(pickle.dumps(context.state))):  # noqa: S301 - our own, as Ray does
        context.state = state
        values = Memory(context, "run")["own"]
        np.testing.assert_array_equal(values, X)
        with pytest.raises(ValueError, match="read-only"):
            values[:] = 0.0
    with pytest.raises(ValueError, match="entries have type object, but must be numbers or text"):
        memory["objects"] = np.array([None])


@dataclass(frozen=True)
class HalfState(State):
    values: np.ndarray
    more: np.ndarray | None = None


class Other(HalfState):
    pass


@pytest.mark.parametrize("memory", [{}, Memory.begin(flower_internals.new_context(1, {}, {}), "run")], ids=type)
def test_a_state_comes_back_from_the_memory_as_it_was_saved_beside_others(memory):
    with pytest.raises(ProtocolError, match="no half state yet: the request that must come before this one is missing"):
        HalfState.load(memory)
    HalfState(np.asfortranarray(X)).save(memory)
    assert (HalfState.known(memory), Other.known(memory)) == (True, False)
    Other(np.arange(3), np.array(2.5)).save(memory)
    half, other = HalfState.load(memory), Other.load(memory)
    assert (half.values.tobytes(), half.more) == (X.tobytes(), None)
    HalfState(half.values, np.ones(1)).save(memory)
    assert memory["HalfState.values"] is half.values, "what is there already is not copied once more"
    assert (other.values.dtype, other.values.tolist(), float(other.more)) == (np.arange(3).dtype, [0, 1, 2], 2.5)
    Other(np.arange(2)).save(memory)
    assert Other.load(memory).more is None, "nothing of the earlier one is left"
    Other.forget(memory)
    assert (HalfState.known(memory), Other.known(memory)) == (True, False)
