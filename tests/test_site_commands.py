"""What the commands for sites and their server refuse before anything is sent."""

import pytest
from federation import CONFIG
from typer.testing import CliRunner

from experiments.cli import app
from fedkernel.engines.grpc.certificates import make_certificates


def told(*arguments, code=2):
    """Run a command that has nothing to wait for, in this process, and return what it says."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--tls", "old/a"], "the certificate in old/a has expired"),
        (["--tls", "TLS/b"], "name = 'a', but the certificate in"),
        (["--tls", "TLS/server"], "is that of 'server', which is no site"),
        (["--tls", "TLS/a", "--insecure"], "--tls DIR or --insecure is needed, but both are given"),
        ([], "--tls DIR or --insecure is needed, but neither is given"),
        (["--tls", "TLS/a", "--data", "none.csv"], "none.csv"),
        (["--tls", "TLS/a", "--id-key", "none"], "there is no file none"),
        (["--tls", "TLS/a", "--identity", "none"], "there is no identity file none"),
        (["--tls", "TLS/a", "--data", "a.csv"], "column 'patient'"),
        (["--tls", "TLS/a", "--min-rows", "171"], "a.csv has 170 rows, but --min-rows = 171"),
        (["--tls", "TLS/a", "--allow", "DKPCA"], "allow = 'DKPCA', but must be one of ADMMKPCAClient, DKPCA"),
        (["--tls", "TLS/a", "--pins", "empty"], "there is no pin in it"),
        (
            ["--tls", "TLS/a", "--out", "a.csv"],
            "nothing can be written to a.csv: File exists; allowed: a folder",
        ),
        (["--tls", "TLS/a", "--out", "torn"], "torn/outbox.jsonl: its last line has no end; put the file aside"),
        (["--tls", "TLS/a", "--out", "kept", "--log", "none/log"], "log = none/log cannot be written: No such file"),
        (["--tls", "nowhere"], "nowhere/ca.crt cannot be read: No such file or directory"),
    ],
)
def test_what_a_site_is_told_before_anything_is_sent(place, tls, monkeypatch, more, text):
    monkeypatch.chdir(place)
    make_certificates(place / "old", [], ["a"], days=1e-9)
    own = [] if "--data" in more else ["--data", "a.csv", "--id", "patient"]
    more = [option.replace("TLS", str(tls)) for option in more]
    (place / "empty").write_text("")
    (place / "torn").mkdir()
    (place / "torn" / "outbox.jsonl").write_text("{")
    out = [] if "--out" in more else ["--out", "kept"]
    assert text in told("join", "127.0.0.1:1", "--name", "a", *out, *own, *more)
    assert out == [] or not (place / "kept").exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:0", "host:port", ":80"])
def test_addresses_that_are_none(place, monkeypatch, address):
    monkeypatch.chdir(place)
    text = told("join", address, "--name", "a", "--out", "kept", "--data", "a.csv", "--insecure")
    assert f"address = {address!r}, but must be HOST:PORT" in text


def test_plaintext_stays_on_this_machine(place, monkeypatch):
    monkeypatch.chdir(place)
    text = told("serve", "run.toml", "--insecure", "--listen", "0.0.0.0:0")
    assert "--insecure with 0.0.0.0:0, but plaintext is allowed on loopback only" in text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('sites = ["a", "a"]', "'a' stands twice"),
        ('sites = ["../a"]', "'../a', but must be 1 to 63 letters"),
        ('name = "wine"\n[partition]\nclients = 3', "serve needs a table [data] with sites"),
        ('sites = ["a"]\n[[baseline]]\nname = "x"\nmethod = "central KPCA"', "baseline has no meaning with data.sites"),
        ('sites = ["a"]\n[partition]\nclients = 3', "partition has no meaning with data.sites"),
    ],
)
def test_configurations_that_cannot_be_served(place, tls, monkeypatch, data, text):
    monkeypatch.chdir(place)
    (place / "run.toml").write_text(CONFIG.replace('sites = ["a", "b", "c"]\nshare_model = true', data))
    assert text in told("serve", "run.toml", "--tls", tls / "server", "--listen", "127.0.0.1:0")


def test_a_width_that_needs_the_data(place, tls, monkeypatch):
    monkeypatch.chdir(place)
    (place / "run.toml").write_text(CONFIG.replace("gamma = 0.05", 'width = "median"'))
    text = told("serve", "run.toml", "--tls", tls / "server", "--listen", "127.0.0.1:0")
    assert "width = 'median' needs the data, which sites hold; allowed: gamma or sigma" in text


def test_run_says_that_sites_are_to_be_served(place, monkeypatch):
    monkeypatch.chdir(place)
    assert "`fedkernel serve run.toml` waits for them" in told("run", "run.toml")
