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
from refusals import refusing

from fedkernel.ground import InputError, ProtocolError
from fedkernel.peers import KeyPair, read_pins, sealing
from fedkernel.peers.sealing import HEADER_BYTES, Header, fingerprint, seal, unseal

RUN = "a run"
HEAD = Header(sender=3, receiver=5, round=7, sequence=2)
KEY = bytes(range(64))


class Party:
    """One end of an agreement."""

    def __init__(self, client, identity=None):
        self.client, self.identity, self.ephemeral = client, identity or KeyPair.new(), KeyPair.new()

    @property
    def shown(self):
        return sealing.PublishedKeys(self.client, self.identity.public, self.ephemeral.public)

    def keys(self, shown, run=RUN):
        return sealing.letter_keys(run, self.client, self.identity, self.ephemeral, shown)


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


def test_an_identity_signs_by_a_key_that_hkdf_derives_and_a_study_lists_both():
    own, form = KeyPair(KEY[:32]), b"fedkernel receipts 1: Ed25519 HKDF-SHA256"
    derived = hmac.digest(hmac.digest(bytes(32), own.private, "sha256"), form + b"\x01", "sha256")
    signing = Ed25519PrivateKey.from_private_bytes(derived).public_key()
    assert own.listed == (own.public + signing.public_bytes_raw()).hex()


def test_keys_are_those_of_noise_kk_with_all_that_was_agreed_on():
    """So they depend on the run, on both clients and on all four keys, and nobody finds them without es, ss, ee and se.

    Who has stolen a's identity lacks es; a coordinator that hands out its own ephemeral keys lacks ss.
    """
    a, b = Party(3), Party(5)
    agreed = bytes([3, 0, 0, 0]) + a.identity.public + a.ephemeral.public
    agreed += bytes([5, 0, 0, 0]) + b.identity.public + b.ephemeral.public + RUN.encode()
    es, ss = shared(a.ephemeral, b.identity.public), shared(a.identity, b.identity.public)
    ee, se = shared(a.ephemeral, b.ephemeral.public), shared(b.ephemeral, a.identity.public)
    keys, theirs = a.keys(b.shown), b.keys(a.shown)
    assert keys == theirs[::-1] == mixed([es, ss, ee, se], agreed)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("public", [bytes(32), (1).to_bytes(32, "little"), b"short", b""])
@pytest.mark.parametrize("which", ["identity", "ephemeral"])
def test_keys_that_force_the_result_or_are_none_are_refused(which, public):
    a, b = Party(3), Party(5)
    with pytest.raises(ProtocolError, match="the keys of client 5 are no X25519 public keys"):
        a.keys(b.shown._replace(**{which: public}))


@pytest.mark.parametrize("content", [b"x", os.urandom(100_000)])
def test_a_letter_is_opened_as_it_was_sealed(content):
    letter = seal(KEY, RUN, HEAD, content)
    assert len(letter) == HEADER_BYTES + len(content) + sealing.TAG_BYTES == len(content) + 32
    assert Header.of(letter) == HEAD
    assert unseal(KEY, RUN, letter) == content


def test_the_form_is_aes_siv_with_header_and_run_beside():
    clear = bytes([3, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0])
    assert seal(KEY, RUN, HEAD, b"content") == clear + AESSIV(KEY).encrypt(b"content", [clear, b"a run"])


def test_no_byte_can_be_changed_none_is_missing_and_no_other_key_or_run_opens_it():
    letter = seal(KEY, RUN, HEAD, b"some content")
    for place in range(len(letter)):
        for bit in (1, 128):
            changed = bytearray(letter)
            changed[place] ^= bit
            with pytest.raises(ProtocolError, match="altered, or sealed with other keys or in a different run"):
                unseal(KEY, RUN, bytes(changed))
    others = [(bytes(64), RUN, letter), (KEY, "a ru", letter), (KEY, "a run2", letter), (KEY, "", letter)]
    others += [(KEY, RUN, shorter) for shorter in (letter[:-1], letter[:HEADER_BYTES], letter + b"x")]
    for key, run, sealed in others:
        with pytest.raises(ProtocolError, match="altered, or sealed with other keys or in a different run"):
            unseal(key, run, sealed)


def test_a_key_pair_survives_its_file_and_is_not_shown_and_pins_are_its_fingerprints(tmp_path):
    pair = KeyPair.new()
    pair.write(tmp_path / "identity.pem")
    assert KeyPair.read(tmp_path / "identity.pem") == pair
    assert stat.S_IMODE((tmp_path / "identity.pem").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        KeyPair.new().write(tmp_path / "identity.pem")
    assert KeyPair.new() != pair
    pair = KeyPair(b"\x01" * 32)
    assert str(pair) == repr(pair) == "KeyPair()"
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair.private = b""
    assert fingerprint(b"") == "e3b0c44298fc1c149afbf4c8996fb924"
    pair = KeyPair.new()
    assert pair.fingerprint == fingerprint(pair.public) != KeyPair.new().fingerprint
    pins = {"0": KeyPair.new().fingerprint, "north": KeyPair.new().fingerprint}
    path = tmp_path / "peers.toml"
    path.write_text("# peers\n" + "".join(f'{client} = "{pin}"\n' for client, pin in pins.items()))
    assert read_pins(path) == pins


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
    with pytest.raises(InputError, match="holds a key of a different kind than X25519"):
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('0 = "ab"', "the pin of client 0 is 'ab', but a fingerprint is 32 digits from 0-9a-f"),
        ('0 = "E3B0C44298FC1C149AFBF4C8996FB924"', "the pin of client 0 is"),
        ('0 = "e3b0c44298fc1c149afbf4c8996fb9240"', "the pin of client 0 is"),
        ('bob = "e3b0c44298fc1c149afbf4c8996fb9"', "the pin of client bob is"),
        ("", "there is no pin in it; allowed: a line name ="),
        ("# peers", "there is no pin in it"),
        ("0 =", "is not valid TOML"),
    ],
)
def test_pins_that_are_none_are_refused(tmp_path, text, sentence):
    (tmp_path / "peers.toml").write_text(text)
    with refusing(sentence):
        read_pins(tmp_path / "peers.toml")
    with pytest.raises(InputError, match="there is no file of pins"):
        read_pins(tmp_path / "none.toml")
    with pytest.raises(InputError, match="the pin of client 1 is 'x'"):
        sealing.check_pins({1: "x"})
