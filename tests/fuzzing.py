"""Messages that cannot be right, made from valid ones by a seed, and everything that reads what others sent."""

import base64
import contextlib
import io
import json
import math
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import hypothesis
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from folders import FILES
from random_messages import SCALARS, messages

from fedkernel import Letter, clients
from fedkernel.engines.app_execution import answer
from fedkernel.engines.grpc.frames import Envelope, FrameDecoder, FrameError, Note, Welcome, frames
from fedkernel.ground import FedkernelError, open_npz
from fedkernel.peers.letters import letter_from_bytes, letter_to_bytes, unpack
from fedkernel.protocol import Guards, KernelClient, Reply, Request, encode
from fedkernel.run import Journal, result_transport
from fedkernel.run.journal import NAME, Exchange
from fedkernel.site import Site
from fedkernel.site.client_app import client_app
from fedkernel.site.context_state import Memory
from fedkernel.wire import REFUSED, UNFIT_LETTER, Introduce, Introduction, Job, RunSpec, flower_internals, from_content

SECONDS = 1.0
"""That one message may take."""

CONSTANT = 1 << 24
"""Bytes that may be allocated beyond twice a message: what parsers make of texts, which are bounded."""

LONGEST = 2000
"""Characters of a refusal."""


class RefusedMessage(Exception):  # noqa: N818 - it is none
    """A message was refused in one sentence."""


class Valid(NamedTuple):
    """A message of a class, as it travels."""

    message: object
    arrays: list
    scalars: dict


def corpus(examples=3):
    """Return valid messages of every class that leaves a site or comes to it."""
    found = {kind: [] for kind in [*SCALARS, *letters_kinds()]}
    for kind, own in found.items():
        _collect(messages(kind), own, examples)
    names = tuple(f"column {number}" for number in range(3))
    introduction = Introduction(client=0, rows=20, columns=3, new_rows=0, site="a", names=names, sampled=5)
    found[Introduction] = [Valid(introduction, *encode(introduction))]
    found[Introduce] = [Valid(Introduce(), *encode(Introduce()))]
    return found


def letters_kinds():
    """Return all classes of letters of our pairs."""
    kinds, left = [], [Letter]
    while left:
        left += (own := left.pop().__subclasses__())
        kinds += [kind for kind in own if kind.__module__.startswith("fedkernel.clients.")]
    return kinds


def _collect(strategy, own, examples):
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(message):
        own.append(Valid(message, *encode(message)))

    collect()


# --- what is done to a message

INTEGERS = [0, 1, -1, 2**31, 2**63 - 1, -(2**63)]
NUMBERS = [*INTEGERS, math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324]
TEXTS = ["", "\0", "\x1b[2J", "ä" * 40, "../../etc/passwd", "x" * 2**20, "{}", "null", "\u202e", "1e400"]
SHAPES = ["(10**12,)", "(-1,)", "()", "(0,)", "(0, 10**30)", "(1000000000000,)", "(2, 2)", "(True,)", "(1.5,)", "'x'"]
TYPES = ["<f8", ">f8", "<f4", "<i8", "|O", "<U0", "|V0", "<M8[s]", "|b1", "<c16", "<f16", "|S5", "x", "<U999999999"]


def deep(rng):
    """Return JSON that is deep, long, or has numbers that are none."""
    depth = rng.choice([150, 250, 10_000])
    return rng.choice([
        "[" * depth + "]" * depth,
        '{"a":' * depth + "1" + "}" * depth,
        "[" + "[]," * 20_000 + "[]]",
        '{"n_components": ' + "9" * rng.choice([30, 5000]) + "}",
        '{"n_components": NaN}',
        '{"n_components": 1e999}',
        "[]",
        "3",
        "",
        '{"a": "\\ud800"}',
    ])  # fmt: skip


def other_json(rng, text):
    """Return another JSON than a message's."""
    if rng.random() < 0.2:
        return deep(rng)
    try:
        table = json.loads(text)
    except ValueError:
        return text
    if not isinstance(table, dict) or not table:
        return json.dumps({rng.choice(["x", "names", "kernel", "x" * 1000]): rng.choice(NUMBERS)})
    place, inner = table, rng.choice(list(table))
    while isinstance(place[inner], dict) and place[inner] and rng.random() < 0.7:
        place = place[inner]
        inner = rng.choice(list(place))
    action = rng.random()
    if action < 0.1:
        del place[inner]
    elif action < 0.2:
        place[rng.choice(["x", "type", inner + "_"])] = 1
    else:
        others = [*NUMBERS, *TEXTS, None, True, [], {}, [1, "a"], {"type": "rbf"}, ["a", 1], ["x"] * 30_000, 10**40]
        place[inner] = rng.choice(others)
    return json.dumps(table)


def cut_up(rng, data):
    """Return bytes with some of them changed, left out, doubled or put between."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(data) + 1)
        action = rng.randrange(5)
        if action == 0:
            del data[place:]
        elif action == 1:
            data[place : place + rng.randrange(1, 20)] = b""
        elif action == 2:
            data[place:place] = rng.randbytes(rng.randrange(1, 20))
        elif action == 3 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif data:
            begin = rng.randrange(len(data))
            data[place:place] = data[begin : begin + rng.randrange(1, 200)]
    return bytes(data)


def other_array(rng, data):
    """Return an npy file with another header, or other bytes."""
    if rng.random() < 0.5:
        return data if rng.random() < 0.2 else cut_up(rng, data)
    header = f"{{'descr': '{rng.choice(TYPES)}', 'fortran_order': {rng.choice(['False', 'True', '1'])}, 'shape': "
    header = (header + rng.choice(SHAPES) + ", }\n").encode()
    version = rng.choice([(1, 0), (2, 0), (3, 0), (9, 9)])
    size = len(header).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + header + data[rng.randrange(100, 200) :]


def npy(array):
    """Return an array in the form of an .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
    return stream.getvalue()


def other_content(rng, valid, header):
    """Return a content with something wrong in it, or nothing."""
    arrays = {str(place): npy(array) for place, array in enumerate(valid.arrays)}
    scalars = {**header, **valid.scalars}
    action = rng.randrange(12)
    if action in (0, 1) and arrays:
        name = rng.choice(list(arrays))
        arrays[name] = other_array(rng, arrays[name])
    elif action == 2 and arrays:
        name = rng.choice(list(arrays))
        array = valid.arrays[int(name)]
        others = [array.astype("f4"), array[:0], np.full_like(array, 0), array[None], array * 0.5, np.ones(3)]
        others += [array.astype(array.dtype.newbyteorder(">"))]
        if array.dtype.kind == "f":
            others += [np.full_like(array, number) for number in (np.nan, np.inf, 1e300, -1.0, 1e-320)]
        with np.errstate(all="ignore"):
            arrays[name] = npy(rng.choice(others))
    elif action in (3, 4):
        scalars["fields"] = other_json(rng, scalars["fields"])
    elif action == 5:
        name = rng.choice([*scalars, "x"])
        others = [*INTEGERS, *TEXTS[:5], b"\xff", 1.5, math.nan, True, [1], ["a"], [], scalars["arrays"]]
        scalars[name] = rng.choice(others)
    elif action == 6:
        scalars.pop(rng.choice(list(scalars)))
    elif action == 7:
        names = [name for name in scalars["arrays"].split(",") if name]
        scalars["arrays"] = ",".join(rng.choice([names + names, names[:-1], [*names, "x" * 3000], names[::-1]]))
    packed = {name: Array("float64", (1,), "numpy.ndarray", data) for name, data in arrays.items()}
    records = {"arrays": ArrayRecord(packed), "config": ConfigRecord(scalars)}
    if action == 8:
        name = rng.choice(list(records))
        records[name] = rng.choice([MetricRecord({"x": 1}), MetricRecord({"x": [1.0, math.nan]}), *records.values()])
    elif action == 9:
        if rng.random() < 0.5:
            del records[rng.choice(list(records))]
        else:
            record = rng.choice([ConfigRecord({"a": [1] * 5000}), ArrayRecord()])
            records[rng.choice(["x", "arrays ", "y" * 5000])] = record
    return RecordDict(records)


def other_message(rng, valid, header=None):
    """Return a message with such a content, whose bytes may be wrong, too."""
    flower_internals.ensure_task_identity()
    message = Message(other_content(rng, valid, header or {}), 1, MessageType.TRAIN, group_id="1")
    flower_internals.stamp(message)
    data = flower_internals.to_bytes(message)
    return cut_up(rng, data) if rng.random() < 0.3 else data


def of_kind(valid, base):
    """Return the valid messages of subclasses of a class."""
    return {kind: own for kind, own in valid.items() if issubclass(kind, base) and own}


# --- who reads: each returns what makes a message (and its size), and what reads it


def _sized(make):
    def generate(rng):
        sent = make(rng)
        return sent, len(sent[-1] if isinstance(sent, tuple) else sent)

    return generate


def _refusing(read, *errors):
    def decode(sent):
        try:
            read(sent)
        except (FedkernelError, *errors) as error:
            if len(str(error)) > LONGEST:
                raise AssertionError(f"a refusal of {len(str(error))} characters: {str(error)[:100]}") from None
            raise RefusedMessage from None

    return decode


def arrays(valid):
    """Arrays in the form of .npy files."""
    files = [npy(array) for own in valid.values() for one in own for array in one.arrays]
    read = _refusing(lambda data: flower_internals.read_array(Array("", (), "", data)))
    return _sized(lambda rng: other_array(rng, rng.choice(files))), read


def replies(valid):
    """What sites reply, read by the coordinator, and held to a request and to the size of a table."""
    found = of_kind(valid, Reply)
    requests_by_reply = {}
    for own in of_kind(valid, Request).values():
        for one in own:
            requests_by_reply.setdefault(type(one.message).reply_type, []).append(one.message)

    def make(rng):
        kind = rng.choice(list(found))
        requests = [None, *requests_by_reply.get(kind, [])]
        return kind, rng.choice(requests), other_message(rng, rng.choice(found[kind]))

    def read(sent):
        kind, request, data = sent
        message = flower_internals.from_bytes(data)
        if message.has_error():
            return
        reply = from_content(kind, message.content)
        if request is not None:
            try:
                request.check_reply(reply)
                request.check_table(reply, {"n_m": 20, "d_m": 3, "N": 20, "d": 3, "n_new": 0, "width": 3})
            except ValueError as error:  # which the conversation names the site with
                raise FedkernelError(str(error)) from None

    return _sized(make), _refusing(read)


def _compute_nothing(self, answer, request, config):
    """Take a client's place once it has read a request and held it to the guards."""
    raise FedkernelError("nothing is computed here")


def requests(valid):
    """What a site is asked, by its whole app."""
    found = of_kind(valid, Request)
    public = (getattr(clients, name) for name in clients.__all__)
    kinds = [kind for kind in public if isinstance(kind, type) and issubclass(kind, KernelClient)]
    own = {kind: {"_respond": _compute_nothing, "answers": kind.answers} for kind in kinds if kind.answers}
    deaf = {kind.__name__: type(kind.__name__, (kind,), body) for kind, body in own.items()}
    X = np.random.default_rng(0).standard_normal((20, 3))
    more = {"guards": Guards(), "share_rows": True, "pairs": deaf, "labels": lambda: np.zeros(20)}
    site = Site(0, X, None, lambda outputs: None, **more)
    app, context = client_app({}, lambda context, config: site), flower_internals.new_context(1, {}, {})
    Memory.begin(context, "run")
    pair_of = {request: name for name, kind in deaf.items() for request in kind.answers}

    def make(rng):
        kind = rng.choice(list(found))
        pair = pair_of.get(kind, rng.choice(list(deaf)))
        return other_message(rng, rng.choice(found[kind]), {"pair": pair, "run": "run", "seed": 1, "round": 1})

    def read(data):
        message = flower_internals.from_bytes(data)
        reply = flower_internals.from_bytes(flower_internals.to_bytes(answer(app, message, context)))
        if reply.has_error():
            reason, refused = reply.error.reason, reply.error.code in {REFUSED, UNFIT_LETTER}
            if not (refused or "No valid" in reason or "category" in reason):
                raise AssertionError(reason)
            raise FedkernelError(reason)

    return _sized(make), _refusing(read)


def letters(valid):
    """What peers write to each other, once it is unsealed, and letters as they are packed."""
    found = of_kind(valid, Letter)

    def make(rng):
        one = rng.choice(found[rng.choice(list(found))])
        return type(one.message), cut_up(rng, letter_to_bytes(one.message))

    def read(sent):
        kind, data = sent
        with contextlib.suppress(ValueError):
            list(unpack(np.frombuffer(data, np.uint8)))
        letter_from_bytes(kind, data)

    return _sized(make), _refusing(read)


def notes(valid):
    """What a server sends in a stream: frames of messages, and notes."""
    welcome = Note(welcome=Welcome(client=1, clients=3, job='{"runs": []}', limit=1000, files=["a.npz"])).frame
    plain = [welcome, Note(end="it failed").frame, Note(file="a.npz").frame]

    def make(rng):
        frame = rng.choice([*plain, *frames(Envelope("0" * 36, (rng.randbytes(rng.randrange(500)),)))])
        if frame[:1] == b"\0" and rng.random() < 0.5:
            return b"\0" + other_json(rng, frame[1:].decode()).encode()
        return cut_up(rng, frame)

    return _sized(make), _refusing(lambda frame: FrameDecoder(1000, notes=True).decode(frame), FrameError)


def jobs(valid):
    """What a site is told that it takes part in."""
    run = RunSpec(id="run", strategy="DKPCA", parameters={"n_components": 2}, sites=["a", "b"], seed=1)
    simulated = RunSpec(id="run", strategy="DKPCA", shards=["a.npy"], clients=1, seed=1)
    texts = [Job(runs=[one]).model_dump_json() for one in (run, simulated)]

    def read(data):
        job = Job.from_json(data.decode())
        assert isinstance(job.work, str)
        job.run("run")

    return _sized(lambda rng: other_json(rng, rng.choice(texts)).encode(errors="replace")), _refusing(read)


def results(valid):
    """What a run's log has as its results."""
    parcel = result_transport.Parcel("run", {"result.json": base64.b64encode(b"{}").decode()})

    def make(rng):
        text = json.dumps(asdict(parcel))
        packed = zlib.compress((other_json(rng, text) if rng.random() < 0.7 else text).encode(errors="replace"))
        line = base64.b64encode(cut_up(rng, packed) if rng.random() < 0.4 else packed).decode()
        return result_transport.PREFIX + line

    def read(line):
        parcel = result_transport.read(line)
        if parcel is not None:
            with TemporaryDirectory(dir=FILES) as folder:
                result_transport.unpack_result(parcel, Path(folder))

    return _sized(make), _refusing(read)


def journals(valid):
    """A file that should have the replies of a run."""
    with TemporaryDirectory(dir=FILES) as name:
        journal = Journal(Path(name), {"run": "run"})
        for number in range(4):
            exchange = Exchange(str(number), [1, 2], {"seconds": 0.5}, [b"first", bytes(200)])
            journal.add(exchange, lambda: b"sites")
        journal.close()
        whole = (Path(name) / NAME).read_bytes()

    def read(data):
        with TemporaryDirectory(dir=FILES) as name:
            (Path(name) / NAME).write_bytes(data)
            journal = Journal(Path(name), {"run": "run"})
            records = 0
            while journal.next(str(records)) is not None:
                records += 1
            journal.close()
        if records < 4:
            raise RefusedMessage
        assert records == 4

    return _sized(lambda rng: cut_up(rng, whole)), _refusing(read)


def archives(valid):
    """Files of arrays that somebody else wrote."""

    def make(rng):
        stream = io.BytesIO()
        how = rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
        with zipfile.ZipFile(stream, "w", how) as file, warnings.catch_warnings(action="ignore"):  # of doubled names
            for name in ("a", rng.choice("ab")) if rng.random() < 0.1 else ("a",):
                content = npy(np.arange(rng.choice([0, 3, 100.0])))
                file.writestr(f"{name}.npy", other_array(rng, content) if rng.random() < 0.5 else content)
        data = stream.getvalue()
        return cut_up(rng, data) if rng.random() < 0.6 else data

    def read(data):
        with TemporaryDirectory(dir=FILES) as folder:
            path = Path(folder) / "a.npz"
            path.write_bytes(data)
            with open_npz(path, own=False) as file:
                for name in file:
                    _ = file[name]

    return _sized(make), _refusing(read)


DECODERS: dict[str, Callable] = {
    decoder.__name__: decoder
    for decoder in (arrays, replies, requests, letters, notes, jobs, results, journals, archives)
}
