"""The record of what left a site: complete, as the coordinator's ledger has it, and not changed unnoticed."""

import dataclasses
import io
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import call
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from named_sites import COMMON, NAMES, refused, run_on, spec, vertical

from fedkernel import DKPCA, Linear, UniformKPCA, VFedPCA
from fedkernel.clients.dkpca import FindLocalEigenpairs, LocalSpectrum
from fedkernel.experiments.commands.outbox import missing_from
from fedkernel.experiments.commands.site_session import review_study
from fedkernel.experiments.commands.study_text import read_study
from fedkernel.ground import InputError, OwnFileError, ProtocolError
from fedkernel.protocol import Done, share_text
from fedkernel.site import OUTBOX, audit_log, read_outbox, read_policy
from fedkernel.site.audit_log import Answer, admit, append_to_outbox
from fedkernel.site.audit_log_reader import FIRST
from fedkernel.site.raw_request import read_raw_request
from fedkernel.wire import Job, Study, flower_internals, to_content


@pytest.fixture(autouse=True)
def _identity():
    flower_internals.ensure_task_identity()


def asked(**more):
    content = to_content(FindLocalEigenpairs(kernel=Linear(), n_components=2), {"run": "run", "round": 1, **more})
    return read_raw_request(Message(content, 1, "train"))


def planned(strategy, **more):
    return spec(parameters=strategy.hyperparameters, plan=strategy.plan(3, 0), **more)


def outbox(*arguments, code=0):
    return call("outbox", *arguments, code=code, COLUMNS="400").output


@pytest.fixture
def node(tmp_path):
    return {"data": "a.csv", "out": str(tmp_path / "out")}


@pytest.fixture
def five(node, tmp_path):
    for number in range(5):
        append_to_outbox(node, asked(round=number), refused=f"reason {number}")
    return tmp_path / "out" / OUTBOX


def test_each_reply_stands_there_before_it_leaves_as_the_ledger_has_it(tmp_path):
    nodes = vertical(tmp_path, **{"keep-payloads": "true"})
    result, grid = run_on(nodes, VFedPCA(merge="eigenvalue", rounds=2))
    requests = ["Introduce", "HashIds", "TakeRows", "IterateLocally", "IterateLocally", "FinishIterations"]
    for client, name in enumerate(NAMES):
        lines = read_outbox(tmp_path / name).departures
        assert [line.request for line in lines][:5] == requests[:5]
        ledger = result.ledger.of_client(client)
        assert len(lines) == len(ledger.entries)
        assert missing_from(lines, "trial", ledger) == []
        assert missing_from(lines[:-1], "trial", ledger) == ledger.entries[-1:]
        changed = dataclasses.replace(ledger.entries[3], sha256="0" * 64)
        assert missing_from(lines, "trial", type(ledger)([changed])) == [changed]
        assert sum(line.floats for line in lines) == ledger.floats_up
        assert sum(line.bytes for line in lines) == ledger.bytes_up
        assert lines[3].parameters["iterations"] == 10
        # what crossed the wire is what is stored
        replies = [message for message in grid.seen if message.metadata.reply_to_message_id][client::3]
        for line, message in zip(lines, replies, strict=True):
            with np.load(tmp_path / name / "payloads" / f"{line.sha256}.npz") as stored:
                fields = [field for field in stored.files if field != "message.json"]
                sent = dict(zip(fields, message.content["arrays"].to_numpy_ndarrays(), strict=True))
                assert all(stored[field].tolist() == array.tolist() for field, array in sent.items())
                assert {field: array.shape for field, array in sent.items()} == line.shapes


def test_rows_are_counted_and_a_refusal_says_what_the_coordinator_read(tmp_path):
    strategy = UniformKPCA(2, Linear(), n_samples=6, projection_size="exact", share_rows=True)
    nodes = [{**node, "min-rows": 1} for node in vertical(tmp_path, [np.arange(25)] * 3)]
    for node, other in zip(nodes, NAMES, strict=True):
        np.save(tmp_path / f"{other}.npy", np.random.default_rng(0).random((30, 4)))
        node["data"] = str(tmp_path / f"{other}.npy")
        del node["id"]
    message = refused(nodes, strategy, ProtocolError, parameters={})
    (line,) = [line for line in read_outbox(tmp_path / "north").departures if line.refused]
    assert line.request == "DrawUniformly"
    assert line.refused in message
    assert line.reply == line.sha256 == ""
    result, _ = run_on([{**node, "share-rows": "true"} for node in nodes], strategy)
    rows = [sum(line.rows for line in read_outbox(tmp_path / name).departures) for name in NAMES]
    assert rows == [result.ledger.of_client(client).rows_up for client in range(3)]
    assert sum(rows) == 6


def test_what_cannot_be_written_down_does_not_leave(tmp_path, monkeypatch):
    def full(file, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_log, "_append", full)
    message = refused(vertical(tmp_path), DKPCA(2), ProtocolError)
    assert message == (
        'DKPCAClient, joining: node 1: "the site cannot write its outbox, so nothing may leave (its log has the '
        'details under E-0)" (and 2 more)'
    )


def test_no_half_of_a_line_stays(node, five, tmp_path, monkeypatch):
    """As where the disk is full."""
    before = five.read_bytes()

    class Full(io.FileIO):
        def write(self, line):
            return super().write(line[:10])

    open_full = lambda path, mode, opener, **more: Full(path, "a+", opener=opener)  # noqa: E731
    monkeypatch.setattr(audit_log, "open", open_full, raising=False)
    with pytest.raises(OwnFileError, match="No space left"):
        append_to_outbox(node, asked(), refused="reason")
    monkeypatch.undo()
    assert five.read_bytes() == before
    append_to_outbox(node, asked(), refused="after")
    assert read_outbox(five).departures[-1].refused == "after"


@pytest.mark.parametrize(
    "config",
    [
        None,
        {"message": "Multiply", "fields": "[", "arrays": "a,b", "round": -3},
        {"message": "\x1b[2J\n" * 5, "fields": '"x"', "round": "none", "run": "\x1b[2J"},
        {"message": "\ud800", "fields": '{"a": "\\ud800", "b": NaN, "c": 1e999}', "round": 2**70},
        {"message": "deep", "fields": '{"a":' + "[" * 9000 + "]" * 9000 + "}"},
        {"message": "long" * 1000, "fields": '{"a": "' + "x" * 100_000 + '"}'},
    ],
)
def test_a_request_made_to_spoil_the_record_is_a_line_of_it(node, tmp_path, config):
    content = RecordDict({} if config is None else {"config": ConfigRecord()})
    if config is not None:
        content["config"]._data.update(config)  # as it may come, past what Flower checks
    request = read_raw_request(SimpleNamespace(content=content, has_content=lambda: True))
    append_to_outbox(node, request, refused="a\n\x1b[2Jb")
    append_to_outbox(node, asked(), refused="after")
    first, second = read_outbox(tmp_path / "out").departures
    assert (first.number, first.arrays, second.number) == (1, {}, 2)
    assert first.refused == "a\n\x1b[2Jb"
    assert (tmp_path / "out" / OUTBOX).stat().st_size < 30_000
    assert "\x1b[2J" not in outbox("show", tmp_path / "out")
    # at no depth does Python's own reader give up, nor where nothing is asked; a line has one level more
    for depth in (100, *range(190, 210), 991):
        fields = '{"a":' + "[" * depth + "]" * depth + "}"
        content = RecordDict({"config": ConfigRecord({"message": "deep", "fields": fields})})
        append_to_outbox(node, read_raw_request(Message(content, 1, "train")), refused="reason")
    empty = Message(Error(1, "nothing"), reply_to=Message(to_content(Done()), 1, "train"))
    append_to_outbox(node, read_raw_request(empty), refused="reason")
    lines = read_outbox(tmp_path / "out").departures
    assert [line.request for line in lines[2:]] == ["deep"] * 22 + [""]


NAMED = [np.zeros((0,)), np.zeros((2, 3))]


@pytest.mark.parametrize(
    ("arrays", "names", "listed"),
    [
        (NAMED, "a,b", {"a": (0,), "b": (2, 3)}),
        (NAMED, "a,a", {"0": (0,), "1": (2, 3)}),
        (NAMED, "a,a,b", {"0": (0,), "1": (2, 3)}),
        (NAMED, "a," + "n" * 10**6, {"0": (0,), "1": (2, 3)}),
        ([np.zeros(0)] * 3000, "", {str(number): (0,) for number in range(100)}),
        ({"a": Array("float64", (1,), "numpy.ndarray", b"none")}, "a", {}),
    ],
)
def test_arrays_of_a_request_are_listed(node, tmp_path, arrays, names, listed):
    content = RecordDict({"config": ConfigRecord({"message": "m", "arrays": names}), "arrays": ArrayRecord(arrays)})
    append_to_outbox(node, read_raw_request(Message(content, 1, "train")), refused="reason")
    (line,) = read_outbox(tmp_path / "out").departures
    assert line.arrays == listed
    assert (tmp_path / "out" / OUTBOX).stat().st_size < 10_000


def test_what_is_stored_is_what_left(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    node["keep-payloads"] = "true"
    for reply in (LocalSpectrum(vectors=np.eye(3, 2), values=np.ones(2)), Done(), Done()):
        append_to_outbox(node, asked(), Answer(to_content(reply), reply))
    append_to_outbox(node, asked(), refused="reason")
    for config in ({}, {"out": "out"}, {"data": "a.csv"}):  # a simulated site, and one without a folder, have none
        append_to_outbox(config, asked(), refused="reason")
    out = tmp_path / "out"
    assert [*tmp_path.iterdir()] == [out]
    assert "3 replies are stored as they left" in outbox("verify", out)
    lines = read_outbox(out).departures
    assert lines[1].sha256 != lines[2].sha256, "a small reply cannot be guessed from its hash"
    assert {path.stat().st_mode & 0o777 for path in (out / OUTBOX, *(out / "payloads").iterdir())} == {0o600}
    first, second, _ = [out / "payloads" / f"{line.sha256}.npz" for line in lines if line.reply]
    other = first.read_bytes()
    first.write_bytes(second.read_bytes())
    assert "differs from the reply that left by line 1" in outbox("verify", out, code=2)
    first.write_bytes(other[:50])
    assert f"{first.name} is damaged" in outbox("verify", out, code=2)


def test_what_cannot_be_written_is_said_without_a_path(node, five, tmp_path):
    five.write_bytes(five.read_bytes()[:-1])
    with pytest.raises(OwnFileError, match=f"{OUTBOX}: its last line is incomplete; move the file away") as caught:
        append_to_outbox(node, asked(), refused="reason")
    assert str(tmp_path) not in caught.value.outline
    with pytest.raises(OwnFileError, match=f"{OUTBOX}: its last line is incomplete"):
        admit(node, asked(), SimpleNamespace(study=""))
    five.write_text('{"number": 1}\n')
    with pytest.raises(OwnFileError, match="time is required"):
        append_to_outbox(node, asked(), refused="reason")
    (tmp_path / "file").touch()
    with pytest.raises(OwnFileError, match="Not a directory"):
        append_to_outbox({**node, "out": str(tmp_path / "file" / "out")}, asked(), refused="reason")


def test_the_lines_hold_each_other(five):
    lines = five.read_bytes().splitlines(keepends=True)
    whole = read_outbox(five)
    assert [line.refused for line in whole.departures] == [f"reason {number}" for number in range(5)]
    assert whole.departures[0].previous == FIRST
    assert read_outbox(five.parent) == whole
    for place in range(4):
        changed = lines[place].replace(b"reason", b"treason")
        for others, bad in (
            ([*lines[:place], changed, *lines[place + 1 :]], place + 2),
            ([*lines[:place], *lines[place + 1 :]], place + 1),
            ([*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]], place + 1),
            ([*lines[:place], lines[place], *lines[place:]], place + 2),
        ):
            five.write_bytes(b"".join(others))
            with pytest.raises(InputError, match=f"outbox.jsonl, line {bad}: "):
                read_outbox(five)
    five.write_bytes(b"".join(lines)[:-1])
    with pytest.raises(InputError, match=r"outbox.jsonl, line 5: it is incomplete"):
        read_outbox(five)
    five.write_bytes(b"".join(lines[:-1]))
    assert read_outbox(five).end != whole.end, "what the last line's hash is for"


def test_processes_that_answer_at_once_take_turns(node, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append_to_outbox(node, asked(round=number), refused="x" * number), range(200)))
    lines = read_outbox(tmp_path / "out").departures
    assert sorted(line.round for line in lines) == list(range(200))


def test_what_has_left_counts_where_a_policy_is_explained(tmp_path):
    strategy = DKPCA(2)
    result, _ = run_on(vertical(tmp_path), strategy)
    (tmp_path / "study.json").write_text(Study(name="s", runs=[planned(strategy, align=False)]).text)
    took = result.ledger.of_client(1).floats_up
    for most, code in ((2 * took, 0), (2 * took - 1, 2)):
        (tmp_path / "site.toml").write_text(f"[limits.total]\nfloats = {most}\nrows = 0\n[guards]\ntable_share = 9")
        arguments = [tmp_path / "site.toml", tmp_path / "study.json", "--shape", f"{len(COMMON)}x3"]
        for out, ends in (([], 0), (["--out", tmp_path / "east"], code)):
            done = call("policy", "explain", *arguments, *out, code=ends)
        assert f"the study, with {took:,} floats from before, sends {2 * took:,} floats" in done.output


def test_numbers_for_each_entry_add_up_over_runs_and_a_run_that_passes_the_limit_is_refused(tmp_path):
    """The operator reads how much it is, and is told before."""
    result, _ = run_on(vertical(tmp_path), DKPCA(2))
    (tmp_path / "study.json").write_text(Study(name="s", runs=[planned(DKPCA(2), align=False)]).text)
    share = result.ledger.of_client(0).floats_up / (2 * len(COMMON))
    once, twice, out = share_text(share), share_text(2 * share), tmp_path / "north"
    assert f"in all 1 runs, {once} numbers for each entry of" in outbox("show", out)
    arguments = ["study", "approve", tmp_path / "study.json", "--out", out, "--shape", f"{len(COMMON)}x2"]
    done = call(*arguments, "--table-share", "1.5")
    sentence = f"the study, with {once} from before, sends {twice} at most by its plan; allowed: "
    assert f"{sentence}15" in " ".join(done.output.split())
    limits = f"[guards]\ntable_share = 1.8\n[limits.total]\nrows = 0\nshare = {2 * share - 1e-9!r}"
    (tmp_path / "site.toml").write_text(f'[study]\njoint_seed = "never"\n{limits}')
    text = refused(vertical(tmp_path, policy=str(tmp_path / "site.toml")), DKPCA(2), ProtocolError, id="again")
    assert f"{twice} numbers for each entry of the table would leave in all runs, but {2 * share:g} are" in text
    says, study, rules = [], read_study(tmp_path / "study.json"), read_policy(tmp_path / "site.toml")
    review_study(rules, "any", out, says.append, Job(runs=study.runs, study=study), shape=(len(COMMON), 2))
    assert f"is refused by the policy: numbers per table entry in all runs: {sentence}{2 * share:g} (limits" in says[0]


def test_an_operator_reads_it_and_compares_it_with_the_server_s_account(tmp_path):
    result, _ = run_on(vertical(tmp_path), DKPCA(2))
    result.save(tmp_path / "results" / "trial")
    lines = outbox("show", tmp_path / "east").splitlines()
    assert "FindLocalEigenpairs(n_components = " in lines[4]
    assert f"LocalSpectrum vectors {len(COMMON)} x 2 values 2" in lines[4]
    assert lines[-1].startswith(f"in all {result.ledger.of_client(1).floats_up:,} floats, ")
    east, against = tmp_path / "east", ("--against", tmp_path / "results" / "trial", "--client")
    for command, arguments, says in (
        ("show", ("--run", "trials"), "run = 'trials', but the outbox has only trial"),
        ("verify", (*against, 7), "client = 7, but"),
        ("verify", (*against, 7), "has client 0, client 1, client 2\n"),
        ("verify", (*against, 2), "this outbox is that of client 1, not of client 2; allowed: --client 1"),
        ("verify", ("--client", 1), "--against RESULT and --client NUMBER go together"),
        ("verify", ("--against", tmp_path, "--client", 1), "there is no "),
    ):
        assert says in outbox(command, east, *arguments, code=2)
    # where the experiment lies around the result, names are known
    (tmp_path / "config.json").write_text(json.dumps({"data": {"sites": list(NAMES)}}))
    other, good = (outbox("verify", east, *against, client, code=code) for client, code in ((2, 2), (1, 0)))
    assert "this outbox is that of client 1 (site 'east'), not of client 2 (site 'south')" in other
    assert "client 1 (site 'east'): all 4 replies that the server counts are there" in good
    assert read_outbox(east).end in good
    account = tmp_path / "results" / "trial" / "result.json"
    table = json.loads(account.read_text())
    table["ledger"][-2]["sha256"] = "1" * 64
    account.write_text(json.dumps(table))
    bad, size = outbox("verify", east, *against, 1, code=2), result.ledger.entries[-2].bytes_up
    assert "this record is that of" not in bad
    assert f"client 1 (site 'east'): round 1 (FindLocalEigenpairs) has {size} bytes, SHA-256 1111" in bad
    (tmp_path / "config.json").write_text("[]")
    assert "trial, client 1: round 1" in outbox("verify", east, *against, 1, code=2)
    none = outbox("show", tmp_path, code=2)
    assert "outbox.jsonl cannot be read: No such file or directory" in none
    assert "in all" not in none, "no table of what is not there"
    (east / OUTBOX).write_bytes((east / OUTBOX).read_bytes()[:-10])
    torn = outbox("show", east, code=2)
    assert "TakeRows" in torn, "what is before the damage is shown"
    assert "line 4: it is incomplete" in torn
