"""Files are written whole, where they are meant to be, and what is a site's own is for its owner only."""

import gc
import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedkernel.engines.grpc.certificates import make_certificates, read_tls
from fedkernel.experiments.commands.logging_setup import site_log
from fedkernel.ground import load_npy, write_atomic
from fedkernel.peers import KeyPair
from fedkernel.site.keys import own_secret, read_key
from fedkernel.site.result_files import write_results


def test_a_link_in_the_place_of_an_unfinished_file_leads_nowhere(tmp_path):
    """Whoever else may write into the folder plants it, and would have another file written, or read what is secret."""
    victim, path = tmp_path / "victim", tmp_path / "model.npz"
    victim.write_bytes(b"before")
    (tmp_path / ".model.npz.partial").symlink_to(victim)
    write_atomic(path, lambda file: file.write(b"content"), 0o600)
    assert (victim.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"before", b"content", False)
    assert path.stat().st_mode & 0o777 == 0o600


def test_threads_load_arrays_at_once(tmp_path):
    """Two parses of a header at once end in SystemError before CPython 3.11.8, if one pauses for the garbage."""
    np.save(tmp_path / "rows.npy", np.ones(3))
    limits, turn, pause = gc.get_threshold(), sys.getswitchinterval(), lambda *_: sum(range(50))
    gc.callbacks.append(pause)
    gc.set_threshold(5)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            loaded = list(pool.map(lambda _: load_npy(tmp_path / "rows.npy"), range(400)))
    finally:
        sys.setswitchinterval(turn)
        gc.set_threshold(*limits)
        gc.callbacks.remove(pause)
    assert np.array_equal(loaded, np.ones((400, 3)))


def test_what_a_site_keeps_is_for_its_owner_only(tmp_path):
    own = tmp_path / "own"
    for _ in range(2):  # the second puts what the first has kept aside
        key = str(np.random.default_rng().random())
        write_results(own / "run.npz", {"labels": np.arange(3)}, own / "run.csv", key)
    with site_log(tmp_path / "log", "north", as_json=False) as tell:
        tell("it has begun")
    kept = [own, *own.rglob("*"), tmp_path / "log"]
    assert {path.name for path in kept} == {"own", "earlier", "run.npz", "run.csv", "log"}
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600, 0o700}


@pytest.mark.parametrize("read", ["tls", "identity", "ids", "secret"])
def test_a_key_that_others_can_read_is_warned_of(read, tmp_path, caplog):
    make_certificates(tmp_path / "tls", ["localhost"], ["north"])
    KeyPair.new().write(tmp_path / "own.pem")
    (tmp_path / "ids").write_bytes(b"0123456789abcdef")
    (tmp_path / "ids").chmod(0o600)
    own_secret(tmp_path)
    place, use = {
        "tls": (tmp_path / "tls" / "north" / "tls.key", lambda: read_tls(tmp_path / "tls" / "north", "site")),
        "identity": (tmp_path / "own.pem", lambda: KeyPair.read(tmp_path / "own.pem")),
        "ids": (tmp_path / "ids", lambda: read_key(str(tmp_path / "ids"))),
        "secret": (tmp_path / "secret", lambda: own_secret(tmp_path)),
    }[read]
    with caplog.at_level(logging.WARNING):
        use()
        assert caplog.text == ""
        place.chmod(0o640)
        use()
    assert f"{place} can be read or written by other users (mode 640): chmod 600 {place}" in caplog.text
