"""What the commands for sites and their server refuse before anything is sent."""

import hashlib
import io
import re
from types import SimpleNamespace

import pytest
from command_line import call
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from federation import CONFIG

from fedkernel import Linear
from fedkernel.clients.diskpca import SketchPoints
from fedkernel.clients.dkpca import FindLocalEigenpairs
from fedkernel.engines.grpc.certificates import make_certificates
from fedkernel.experiments.commands import site_session
from fedkernel.experiments.commands.study_text import read_study
from fedkernel.numerics import SubspaceEmbedding
from fedkernel.protocol import Step, once
from fedkernel.site import Policy, approved_policy, is_approved
from fedkernel.site.approval import is_signed
from fedkernel.wire import Job


def told(*arguments, code=2):
    return call(*arguments, code=code).output


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--tls", "old/a"], "the certificate in old/a has expired"),
        (["--tls", "TLS/b"], "name = 'a', but the certificate in"),
        (["--tls", "TLS/server"], "is of 'server', which is not a site"),
        (["--tls", "TLS/a", "--insecure"], "--tls DIR or --insecure is needed, but both are given"),
        ([], "--tls DIR or --insecure is needed, but neither is given"),
        (["--tls", "TLS/a", "--data", "none.csv"], "none.csv"),
        (["--tls", "TLS/a", "--id-key", "none"], "there is no file none"),
        (["--tls", "TLS/a", "--identity", "none"], "there is no identity file none"),
        (["--tls", "TLS/a", "--data", "a.csv"], "column 'patient'"),
        (["--tls", "TLS/a", "--min-rows", "171"], "a.csv has 170 rows; the policy requires at least 171"),
        (["--tls", "TLS/a", "--policy", "none.toml"], "there is no file none.toml"),
        (["--tls", "TLS/a", "--policy", "wrong.toml"], "wrong.toml: table.min_row is not a known name here (did you"),
        (["--tls", "TLS/a", "--policy", "hides.toml", "--columns", "a0,a1"], "columns names 'a1', which the policy"),
        (["--tls", "TLS/a", "--policy", "other.toml"], "a.csv differs from the file that the policy is for (table."),
        (["--tls", "TLS/a", "--policy", "hides.toml", "--share-rows"], "share-rows and policy are both given"),
        (["--tls", "TLS/a", "--approve", "yes"], "study = 'yes', but must be the SHA-256 of a study, 64 hexadecimal"),
        (["--tls", "TLS/a", "--allow", "DKPCA"], "'DKPCA', but must be one of ADMMKPCAClient, CentroidKMeansClient"),
        (["--tls", "TLS/a", "--pins", "empty"], "there is no pin in it"),
        (["--tls", "TLS/a", "--out", "a.csv"], "cannot write to a.csv: File exists; allowed: a writable folder"),
        (["--tls", "TLS/a", "--out", "torn"], "torn/outbox.jsonl: its last line is incomplete; move the file away"),
        (["--tls", "TLS/a", "--out", "kept", "--log", "none/log"], "log = none/log cannot be written: No such file"),
        (["--tls", "TLS/a", "--table-share", "0"], "table_share = 0.0: input should be greater than 0"),
        (["--tls", "nowhere"], "nowhere/ca.crt cannot be read: No such file or directory"),
    ],
)
def test_what_a_site_is_told_before_anything_is_sent(place, tls, monkeypatch, more, text):
    monkeypatch.chdir(place)
    make_certificates(place / "old", [], ["a"], days=1e-9)
    own = [] if "--data" in more else ["--data", "a.csv", "--id", "patient"]
    more = [option.replace("TLS", str(tls)) for option in more]
    (place / "empty").write_text("")
    (place / "wrong.toml").write_text("[table]\nmin_row = 1")
    (place / "hides.toml").write_text('[table]\nhidden = ["?1"]')
    (place / "other.toml").write_text(f'[table]\nsha256 = "{"0" * 64}"')
    (place / "torn").mkdir()
    (place / "torn" / "outbox.jsonl").write_text("{")
    out = [] if "--out" in more else ["--out", "kept"]
    assert text in told("join", "127.0.0.1:1", "--name", "a", *out, *own, *more)
    assert out == [] or not (place / "kept").exists()


OWN_DATA = 'sites = ["a", "b", "c"]\nshare_model = true'


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('sites = ["a", "a"]', "'a' is listed twice"),
        ('sites = ["../a"]', "'../a', but must be 1 to 63 letters"),
        ('name = "wine"\n[partition]\nclients = 3', "serve needs a table [data] with sites"),
        ('sites = ["a"]\n[[baseline]]\nname = "x"\nmethod = "central KPCA"', "baseline has no meaning with data.sites"),
        ('sites = ["a"]\n[partition]\nclients = 3', "partition has no meaning with data.sites"),
    ],
)
def test_configurations_that_cannot_be_served(place, tls, monkeypatch, data, text):
    monkeypatch.chdir(place)
    (place / "run.toml").write_text(CONFIG.replace(OWN_DATA, data))
    assert text in told("serve", "run.toml", "--tls", tls / "server", "--listen", "127.0.0.1:0")


def test_what_sites_are_not_served_with(place, monkeypatch):
    monkeypatch.chdir(place)
    for address in ("127.0.0.1", "127.0.0.1:0", "host:port", ":80"):
        text = told("join", address, "--name", "a", "--out", "kept", "--data", "a.csv", "--insecure")
        assert f"address = {address!r}, but must be HOST:PORT" in text
    text = told("serve", "run.toml", "--insecure", "--listen", "0.0.0.0:0")
    assert "--insecure with 0.0.0.0:0, but plaintext is allowed on loopback only" in text
    assert "`fedkernel serve run.toml` waits for them" in told("run", "run.toml")


DISKPCA = {"pair": "fedkernel.clients.diskpca:DisKPCAClient", "align": False}


@pytest.mark.parametrize("answer", [True, False])
def test_a_study_is_shown_at_a_terminal_and_asked_about(place, monkeypatch, answer, capsys):
    """The policy's other rules come first: what they refuse is not asked about."""
    study = read_study(place / "run.toml")
    job, sentences, questions = Job(runs=study.runs, study=study), [], []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    words = iter(["yes" if answer else "", *(["much", "6.5"] if answer else []), ""])
    monkeypatch.setattr(site_session, "ask_operator", lambda text: questions.append(text) or next(words))
    site_session.review_study(Policy(study={"min_sites": 4}), "ask", place, sentences.append, job)
    sentence = "run 'DKPCA__seed=0' has 3 sites, but must have at least 4 (study.min_sites)"
    assert sentences[0].endswith(f"refused by the policy: {sentence}")
    assert questions == []
    sketch = once(SketchPoints, embedding=SubspaceEmbedding(Linear()), columns=40, precision="float64")
    narrow = study.model_copy(update={"runs": [study.runs[0].model_copy(update={**DISKPCA, "plan": (sketch,)})]})
    job_of_narrow = Job(runs=narrow.runs, study=narrow)
    site_session.review_study(Policy(), "ask", place, sentences.append, job_of_narrow, shape=(100, 5))
    assert sentences.pop().endswith("or products (guard: sums) (guards.lone_rows)")
    assert questions == []
    site_session.review_study(Policy(), "ask", place, sentences.append, job, shape=(178, 4))
    share = "Limit per run: numbers sent per table entry [5.1]"
    assert questions == ["Take part in this study? [y/N]", *([share] * 2 if answer else [])]
    assert study.sha256 in capsys.readouterr().out
    assert is_approved(place, study.sha256) is answer
    assert approved_policy(Policy(), place, study.sha256).guards.table_share == (6.5 if answer else 0.5)
    each = "numbers per table entry (712 entries)"
    takes = f"{each}: run 'DKPCA__seed=0' sends 5.1 at most by its plan; allowed:"
    assert sentences.pop().startswith(f"{takes} 0.5, so --table-share 5.1 is needed (")
    site_session.review_study(Policy(), "ask", place, sentences.append, job, shape=(178, 4))
    assert len(questions) == (3 if answer else 2)
    assert sentences[1:] == ([f"study {study.sha256[:12]} is approved: {study.sha256}"] if answer else sentences[1:])
    named = site_session.approved_runs(job, "ask", Policy(), place)
    assert named == [run.id for run in study.runs if answer], "whose results a server's model may replace"


def test_a_question_has_a_line_of_its_own_on_standard_output(monkeypatch, capsys):
    """What Python's prompts write to standard error is held back there till the end of a line."""
    monkeypatch.setattr("sys.stdin", io.StringIO(" yes \n"))
    assert site_session.ask_operator("Take part?") == "yes"
    assert capsys.readouterr() == ("Take part?\n", "")


def test_a_study_is_shown_whole_but_for_seeds(place, monkeypatch):
    """Runs that differ in their seeds only are shown once; one that differs in its plan is shown beside them."""
    monkeypatch.chdir(place)
    (place / "run.toml").write_text(f"seeds = [0, 1]\n{CONFIG}")
    text = told("study", "show", "run.toml", "--out", "study.json", code=0)
    study = read_study(place / "run.toml")
    assert hashlib.sha256((place / "study.json").read_bytes()).hexdigest() == study.sha256
    assert read_study(place / "study.json") == study
    assert study.sha256 in text
    assert text.count("FindLocalEigenpairs") == 1
    assert "seeds: 0, 1" in text
    wide = once(FindLocalEigenpairs, kernel=Linear(), n_components=178)
    runs = [study.runs[0], study.runs[1].model_copy(update={"plan": (wide,)})]
    (place / "study.json").write_text(study.model_copy(update={"runs": runs}).text)
    text = told("study", "show", "study.json", code=0)
    assert text.count("FindLocalEigenpairs") == 2
    assert text.count("LocalSpectrum: Reveals") == text.count("\nLocalSpectrum: as above\n") == 1
    assert "n_components = 178" in text
    assert "epsilon open, omitted open" in text, "what the plan leaves to whoever asks"
    claims = wide.requests[0].model_copy(update={"reveals": "Nothing.\nSHA-256: 0"})
    runs = [study.runs[0].model_copy(update={"pair": "a:B\n[red]", "plan": (Step(requests=(claims,)),)})]
    (place / "study.json").write_text(study.model_copy(update={"runs": runs}).text)
    text = told("study", "show", "study.json", code=0)
    assert "LocalSpectrum: (so its author says) Nothing. SHA-256: 0" in text
    assert [line for line in text.splitlines() if line.startswith("SHA-256")] == text.splitlines()[-1:]
    (place / "wine.toml").write_text(CONFIG.replace(OWN_DATA, 'name = "wine"\n[partition]\nclients = 3'))
    assert "a study needs a table [data] with sites" in told("study", "show", "wine.toml")
    (place / "changed.toml").write_text((place / "run.toml").read_text().replace("seeds = [0, 1]", "seeds = [5]"))
    text = told("study", "show", "run.toml", "--set", "seeds=[5]", code=0)
    assert f"SHA-256: {read_study(place / 'changed.toml').sha256}" in text, "what serve --set asks to be approved"
    assert "travel" not in text
    text = told("study", "show", "run.toml", "--set", 'wire="float32"', code=0)
    assert "arrays travel as float32, up and down: half of the bytes" in text
    assert study.sha256 not in text
    assert "works with an experiment only; study.json" in told("study", "show", "study.json", "--set", "seeds=[1]")
    peers = '[[strategy]]\nname = "peers"\nmethod = "ADMMKPCA"\nexchange = "{}"\nshare_rows = true\nnoise = 0.5\n'
    data = (place / "run.toml").read_text().split("[[strategy]]")[0]
    for exchange, letter, other in (("rows", "OwnRows", "Features"), ("features", "Features", "OwnRows")):
        (place / "peers.toml").write_text(data + peers.format(exchange))
        text = told("study", "show", "peers.toml", code=0)
        assert f"{letter}, sealed to peers: Reveals" in text, "what is written to peers is shown, too"
        assert f"{other}, sealed to peers" not in text


def test_a_study_is_approved_by_its_hash_or_its_file(place, monkeypatch):
    monkeypatch.chdir(place)
    told("study", "show", "run.toml", "--out", "study.json", code=0)
    sha256 = read_study(place / "study.json").sha256
    for number, name in enumerate((sha256, "study.json")):
        text = told("study", "approve", name, "--out", f"kept-{number}", code=0)
        assert f"study {sha256} is approved in kept-{number}" in text
        assert is_approved(place / f"kept-{number}", sha256)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (place / "key.pem").write_bytes(pem)
    signature = re.search(r'signatures = \["(\S+)"\]', told("study", "sign", "run.toml", "--key", "key.pem", code=0))[1]
    assert is_signed(sha256, [signature], [signature.partition(":")[0]])
    (place / "run.toml").write_text(CONFIG.replace("share_model", f'signatures = ["{signature}"]\nshare_model'))
    assert read_study(place / "run.toml").sha256 == sha256, "it is not what it signs"
    for text, says in (
        (sha256[:12], "has 12 of 64 digits, which other studies may share; allowed: all 64, from the last"),
        ("run.toml", "study = 'run.toml', but must be the SHA-256 of a study, 64 hexadecimal digits"),
    ):
        assert says in told("study", "approve", text, "--out", "kept")
        assert not (place / "kept").exists(), "nothing is approved by its beginning"
    (place / "site.toml").write_text("[limits.run]\nrows = 0")
    assert "the policy allows it" in told("policy", "explain", "site.toml", "study.json", code=0)
    sized = (["--shape", "170x5"], ["--data", "a.csv", "--id", "patient"])
    for floats, answer in ((3419, "open"), (3420, "allowed")):  # 20 vectors of 170 rows at most, and 20 values
        (place / "site.toml").write_text(f"[limits.run]\nfloats = {floats}\n[guards]\ntable_share = 5")
        for size, says in (([], "open"), (sized[0], answer), (sized[1], answer)):
            text = told("policy", "explain", "site.toml", "study.json", *size, code=0)
            assert [line.split()[1] for line in text.splitlines() if line.startswith("limits.run.floats")] == [says]
    assert "are both given; allowed: one" in told("policy", "explain", "site.toml", "study.json", *sized[0], *sized[1])
    (place / "site.toml").write_text("[study]\nn_components = 19\nmin_sites = 4")
    text = told("policy", "explain", "site.toml", "run.toml")
    assert "2 reasons to refuse it" in text
    assert "refused  run 'DKPCA__seed=0' has 3 sites, but must have at least 4" in text
    assert ["study.min_sites", "4"] in map(str.split, told("policy", "check", "site.toml", code=0).splitlines())
