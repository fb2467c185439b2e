"""Sealing: both ends find the same keys, nobody else does, and whatever is changed on a letter is noticed."""

import dataclasses
import hashlib
import hmac
import os
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from fedkernel.errors import InputError, ProtocolError
from fedkernel.peers.sealing import (
    HEADER,
    TAG,
    Header,
    KeyPair,
    Published,
    check_pins,
    fingerprint,
    letter_keys,
    read_pins,
    seal,
    unseal,
)

RUN = "a run"
HEAD = Header(sender=3, receiver=5, round=7, sequence=2)
KEY = bytes(range(64))


class Party:
    """One end of an agreement."""

    def __init__(self, client, identity=None):
        self.client, self.identity, self.ephemeral = client, identity or KeyPair.new(), KeyPair.new()

    @property
    def shown(self):
        return Published(self.client, self.identity.public, self.ephemeral.public)

    def keys(self, shown, run=RUN):
        return letter_keys(run, self.client, self.identity, self.ephemeral, shown)


# Keys


def test_both_ends_find_the_same_keys_one_for_each_direction():
    a, b = Party(3), Party(5)
    ours, theirs = a.keys(b.shown), b.keys(a.shown)
    assert (ours.writing, ours.reading) == (theirs.reading, theirs.writing)
    assert ours.writing != ours.reading
    assert len(ours.writing) == len(ours.reading) == 64


def shared(own, public):
    return X25519PrivateKey.from_private_bytes(own.private).exchange(X25519PublicKey.from_public_bytes(public))


def mixed(secrets, agreed):
    """Written again from the standards' parts: HMAC of RFC 5869 as Noise's section 4.3 has it."""
    form = b"fedkernel letters 2: KK 25519 AES-256-SIV SHA256"
    chain = hashlib.sha256(form).digest()
    for secret in secrets:
        chain = hmac.digest(hmac.digest(chain, secret, "sha256"), b"\x01", "sha256")
    key, blocks = hmac.digest(chain, hashlib.sha256(form + agreed).digest(), "sha256"), [b""]
    for place in range(1, 5):
        blocks.append(hmac.digest(key, blocks[-1] + bytes([place]), "sha256"))
    keys = b"".join(blocks)
    return keys[:64], keys[64:]


def agreed_on(a, b):
    info = bytes([3, 0, 0, 0]) + a.identity.public + a.ephemeral.public
    return info + bytes([5, 0, 0, 0]) + b.identity.public + b.ephemeral.public + RUN.encode()


def test_keys_are_those_of_noise_kk_with_all_that_was_agreed_on():
    a, b = Party(3), Party(5)
    es, ss = shared(a.ephemeral, b.identity.public), shared(a.identity, b.identity.public)
    ee, se = shared(a.ephemeral, b.ephemeral.public), shared(b.ephemeral, a.identity.public)
    assert tuple(a.keys(b.shown)) == mixed([es, ss, ee, se], agreed_on(a, b))


@pytest.mark.parametrize("stolen", ["first", "second"])
def test_who_has_a_site_s_identity_cannot_write_to_it_in_the_name_of_another(stolen):
    """Key compromise impersonation: it computes ss, and what its own key for the run gives, but not se of the other."""
    a, b = (Party(3), Party(5)) if stolen == "first" else (Party(5), Party(3))
    evil = KeyPair.new()
    forged = Published(b.client, b.identity.public, evil.public)
    reading = a.keys(forged).reading
    known = {
        "ss": shared(a.identity, b.identity.public),
        "of a's identity": shared(evil, a.identity.public),
        "ee": shared(evil, a.ephemeral.public),
    }
    needed = shared(a.ephemeral, b.identity.public)  # of b's identity, with a key that only a has
    assert needed not in known.values()
    first, second = (a, forged) if a.client < b.client else (forged, a)
    shows = [p.shown if isinstance(p, Party) else p for p in (first, second)]
    agreed = b"".join(bytes([p.client, 0, 0, 0]) + p.identity + p.ephemeral for p in shows) + RUN.encode()

    def with_last(cross):
        es, se = (cross, known["of a's identity"]) if a.client < b.client else (known["of a's identity"], cross)
        return mixed([es, known["ss"], known["ee"], se], agreed)

    assert reading in with_last(needed), "with it, these are the keys"
    guesses = [*known.values(), shared(evil, b.identity.public), bytes(32)]
    assert not any(reading in with_last(guess) for guess in guesses)


@pytest.mark.parametrize("changed", ["run", "client", "peer", "identity", "ephemeral", "own identity", "own ephemeral"])
def test_keys_depend_on_the_run_both_clients_and_all_four_keys(changed):
    a, b = Party(3), Party(5)
    before, shown, run = a.keys(b.shown), b.shown, RUN
    match changed:
        case "run":
            run = "another"
        case "client":
            a.client = 4
        case "peer":
            shown = shown._replace(client=6)
        case "identity" | "ephemeral":
            shown = shown._replace(**{changed: KeyPair.new().public})
        case "own identity":
            a.identity = KeyPair.new()
        case "own ephemeral":
            a.ephemeral = KeyPair.new()
    assert not set(a.keys(shown, run)) & set(before)


def test_a_coordinator_that_hands_out_its_own_ephemeral_keys_does_not_find_the_key():
    """It shares the ephemeral half with each end, but not the half of the identities."""
    a, b, evil = Party(3), Party(5), Party(5)
    between = Published(5, b.identity.public, evil.ephemeral.public)
    keys = evil.keys(a.shown)  # with its own identity, since it has none of b's
    assert not set(a.keys(between)) & set(keys)
    assert not set(a.keys(between)) & set(b.keys(a.shown))


@pytest.mark.parametrize("public", [bytes(32), (1).to_bytes(32, "little"), b"short", b""])
@pytest.mark.parametrize("which", ["identity", "ephemeral"])
def test_keys_that_force_the_result_or_are_none_are_refused(which, public):
    a, b = Party(3), Party(5)
    with pytest.raises(ProtocolError, match="what came as the keys of client 5 are no X25519 public keys"):
        a.keys(b.shown._replace(**{which: public}))


# Letters


@pytest.mark.parametrize("content", [b"x", os.urandom(100_000)])
def test_a_letter_is_opened_as_it_was_sealed(content):
    letter = seal(KEY, RUN, HEAD, content)
    assert len(letter) == HEADER + len(content) + TAG == len(content) + 32
    assert Header.of(letter) == HEAD
    assert unseal(KEY, RUN, letter) == content


def test_the_form_is_aes_siv_with_header_and_run_beside():
    clear = bytes([3, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0])
    assert seal(KEY, RUN, HEAD, b"content") == clear + AESSIV(KEY).encrypt(b"content", [clear, b"a run"])


def test_what_is_sealed_again_under_its_number_is_the_same_or_tells_only_that_it_is_another():
    """As a site does that was restarted: a cipher with nonces would show how both differ, and could be forged."""
    first, again, other = (seal(KEY, RUN, HEAD, bytes(64) + end) for end in (b"0", b"0", b"1"))
    assert first == again
    assert all(first[n : n + 8] != other[n : n + 8] for n in range(HEADER, len(first) - 8))


def test_no_byte_can_be_changed_and_none_is_missing():
    letter = seal(KEY, RUN, HEAD, b"some content")
    for place in range(len(letter)):
        for bit in (1, 128):
            changed = bytearray(letter)
            changed[place] ^= bit
            with pytest.raises(ProtocolError, match="altered, or sealed with other keys or in another run"):
                unseal(KEY, RUN, bytes(changed))
    for shorter in (letter[:-1], letter[:HEADER], letter + b"x"):
        with pytest.raises(ProtocolError, match="altered"):
            unseal(KEY, RUN, shorter)


@pytest.mark.parametrize(("key", "run"), [(bytes(64), RUN), (KEY, "a ru"), (KEY, "a run2"), (KEY, "")])
def test_another_key_or_run_does_not_open_a_letter(key, run):
    with pytest.raises(ProtocolError, match="altered, or sealed with other keys or in another run"):
        unseal(key, run, seal(KEY, RUN, HEAD, b"some content"))


def test_the_same_content_is_never_sealed_alike():
    heads = [HEAD, HEAD._replace(sequence=3)]
    first, second = [seal(KEY, RUN, head, bytes(64))[HEADER:] for head in heads]
    assert all(first[n : n + 8] != second[n : n + 8] for n in range(len(first) - 8))


# Identities and pins


def test_a_key_pair_survives_its_file_which_only_the_owner_may_read(tmp_path):
    pair = KeyPair.new()
    pair.write(tmp_path / "identity.pem")
    assert KeyPair.read(tmp_path / "identity.pem") == pair
    assert stat.S_IMODE((tmp_path / "identity.pem").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        KeyPair.new().write(tmp_path / "identity.pem")
    assert KeyPair.new() != pair


def test_a_private_key_is_not_shown():
    pair = KeyPair(b"\x01" * 32)
    assert str(pair) == repr(pair) == "KeyPair()"
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair.private = b""


def test_openssl_makes_identities(tmp_path):
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "x25519", "-out", tmp_path / "id.pem"], check=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    assert len(KeyPair.read(tmp_path / "id.pem").fingerprint) == 32


def test_files_that_are_no_identity_are_refused(tmp_path):
    path = tmp_path / "identity.pem"
    with pytest.raises(InputError, match="there is no identity file"):
        KeyPair.read(path)
    pem = Encoding.PEM, PrivateFormat.PKCS8
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(*pem, NoEncryption()))
    with pytest.raises(InputError, match="holds another key than X25519"):
        KeyPair.read(path)
    for content in (
        b"",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        X25519PrivateKey.generate().private_bytes(*pem, BestAvailableEncryption(b"word")),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is no X25519 key as PEM without a password"):
            KeyPair.read(path)
    with pytest.raises(InputError, match="a private X25519 key has 32 bytes, not 31"):
        KeyPair(bytes(31))


def test_a_fingerprint_is_the_first_128_bits_of_sha256():
    # echo -n "" | sha256sum
    assert fingerprint(b"") == "e3b0c44298fc1c149afbf4c8996fb924"
    pair = KeyPair.new()
    assert pair.fingerprint == fingerprint(pair.public) != KeyPair.new().fingerprint


def test_pins_are_read_from_toml(tmp_path):
    pins = {"0": KeyPair.new().fingerprint, "north": KeyPair.new().fingerprint}
    path = tmp_path / "peers.toml"
    path.write_text("# peers\n" + "".join(f'{client} = "{pin}"\n' for client, pin in pins.items()))
    assert read_pins(path) == pins


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('0 = "ab"', "the pin of client 0 is 'ab', but a fingerprint is 32 digits from 0-9a-f"),
        ('0 = "E3B0C44298FC1C149AFBF4C8996FB924"', "the pin of client 0 is"),
        ('0 = "e3b0c44298fc1c149afbf4c8996fb9240"', "the pin of client 0 is"),
        ('bob = "e3b0c44298fc1c149afbf4c8996fb9"', "the pin of client bob is"),
        ("", "there is no pin in it; allowed: a line name ="),
        ("# peers", "there is no pin in it"),
        ("0 =", 'must have lines name = "fingerprint"'),
    ],
)
def test_pins_that_are_none_are_refused(tmp_path, text, sentence):
    (tmp_path / "peers.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_pins(tmp_path / "peers.toml")
    assert sentence in str(caught.value)
    with pytest.raises(InputError, match="there is no file of pins"):
        read_pins(tmp_path / "none.toml")
    with pytest.raises(InputError, match="the pin of client 1 is 'x'"):
        check_pins({1: "x"})
