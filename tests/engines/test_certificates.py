"""Certificates: who is signed by whom, for what and how long, and what is refused before the other end would."""

import datetime
import math
import shutil
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from refusals import refusing

from fedkernel.engines.grpc.certificates import hosts_of, make_certificates, read_tls
from fedkernel.engines.grpc.renewal import RenewedCertificate, expiry_warning, renew_expiring
from fedkernel.engines.grpc.revocation import revoke, revoked_serials
from fedkernel.ground import InputError


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, ["localhost", "127.0.0.1", "10.0.0.1"], ["a", "b"])
    return folder


@pytest.fixture
def copy(certified, tmp_path):
    shutil.copytree(certified, tmp_path / "certs")
    return tmp_path / "certs"


def test_each_gets_its_own_key_which_is_its_owner_s_only_and_all_one_authority(certified):
    for key in certified.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    tls = [read_tls(certified / name, kind) for name, kind in (("server", "server"), ("a", "site"), ("b", "site"))]
    assert [end.name for end in tls] == ["server", "a", "b"]
    assert len({end.authority for end in tls}) == 1
    assert len({end.key for end in tls}) == 3
    server = x509.load_pem_x509_certificate(tls[0].certificate)
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in hosts.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.0.0.1"]


def sign_bare(folder):
    """Put a certificate there as another program may write it, without what it may be used for."""
    signer = serialization.load_pem_private_key((folder.parent / "ca.key").read_bytes(), None)
    old = loaded(folder / "tls.crt")
    builder = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), 1)
    builder = builder.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc)
    bare = builder.sign(signer, hashes.SHA256())
    (folder / "tls.crt").write_bytes(bare.public_bytes(serialization.Encoding.PEM))


def test_a_later_site_is_signed_by_the_same_authority(copy):
    before = (copy / "a" / "tls.crt").read_bytes()
    assert make_certificates(copy, [], ["c"], days=1) == [copy / "c"]
    later = read_tls(copy / "c", "site")
    assert later.authority == read_tls(copy / "a", "site").authority
    life = x509.load_pem_x509_certificate(later.certificate)
    assert life.not_valid_after_utc - life.not_valid_before_utc == datetime.timedelta(days=1, minutes=5)
    assert (copy / "a" / "tls.crt").read_bytes() == before
    (copy / "a" / "tls.crt").write_bytes(before[:100])
    make_certificates(copy, [], ["a"], renew=True)
    assert read_tls(copy / "a", "site").certificate != before
    (copy / "ca.key").write_text("no key")
    with pytest.raises(InputError, match="does not hold an authority"):
        make_certificates(copy, [], ["d"])
    (copy / "ca.key").unlink()
    with pytest.raises(InputError, match=r"holds ca\.crt but not ca\.key"):
        make_certificates(copy, [], ["d"])


NO_DAYS = (0, -1, math.nan, math.inf, 1e9, 3651)
DAYS = "days = .*, but must be greater than 0 and at most 3650"
WITHIN = "within = .* days; allowed: 0 to 3650$"


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        (lambda folder: make_certificates(folder, [], ["a"]), "a already holds a certificate; --renew writes a new"),
        (lambda folder: make_certificates(folder, [], []), "no server and no client is named"),
        (lambda folder: make_certificates(folder, [], ["c", "c"]), "client 'c' is listed twice"),
        (lambda folder: make_certificates(folder, [], ["server"]), "name = 'server', but that is the server's; choose"),
        (lambda folder: make_certificates(folder, [], ["../x"]), "name = '../x', but must be 1 to 63 letters"),
        (lambda folder: make_certificates(folder, [], ["a b"]), "name = 'a b', but must be"),
        (lambda folder: make_certificates(folder, ["host:80"], []), "server = 'host:80', but must be a host name or"),
        *((lambda folder, days=days: make_certificates(folder, [], ["c"], days=days), DAYS) for days in NO_DAYS),
        *((lambda folder, days=days: renew_expiring(folder, 400, days=days), DAYS) for days in NO_DAYS),
        *((lambda folder, days=days: renew_expiring(folder, days), WITHIN) for days in (-1, math.nan, math.inf, 1e12)),
    ],
)
def test_names_and_times_that_cannot_be(copy, sign, text):
    with pytest.raises(InputError, match=text):
        sign(copy)
    assert not (copy / "c").exists()
    assert not (copy.parent / "x").exists()


def sign_by_another(folder):
    """Let the authority beside a certificate be another than that which signed it."""
    make_certificates(folder.parents[1] / "others", [], ["a"])
    shutil.copy(folder.parents[1] / "others" / "ca.crt", folder / "ca.crt")


@pytest.mark.parametrize(
    ("spoil", "role", "text"),
    [
        (lambda a: (a / "tls.key").unlink(), "site", "tls.key cannot be read: No such file"),
        (lambda a: (a / "tls.crt").write_text("x"), "site", "does not hold certificates and a key"),
        (lambda a: shutil.copy(a.parent / "b" / "tls.key", a), "site", "is not the key of the certificate in the"),
        (lambda a: make_certificates(a.parent, [], ["a"], days=1e-9, renew=True), "site", "has expired: it is valid"),
        (lambda a: None, "server", "is of 'a', which is not a server"),
        (sign_by_another, "site", "tls.crt is not signed by the authority in the same folder, ca.crt"),
        (sign_bare, "site", "tls.crt must have an owner (CN) and a role (extendedKeyUsage)"),
    ],
)
def test_what_the_other_end_would_refuse(copy, spoil, role, text):
    spoil(copy / "a")
    with refusing(text):
        read_tls(copy / "a", role)


def test_the_list_of_revoked_certificates_grows_and_is_the_authority_s(copy, tmp_path):
    serials = {loaded(copy / name / "tls.crt").serial_number for name in "ab"}
    authority = loaded(copy / "ca.crt")
    assert revoked_serials(copy / "ca.crl", authority) == set()
    revoke(copy, ["a"])
    revoke(copy, ["b"])
    assert revoked_serials(copy / "server" / "ca.crl", authority) == serials
    with pytest.raises(InputError, match=r"c.tls.crt is not a certificate of the .* in .* \(FileNotFoundError\)"):
        revoke(copy, ["c"])
    with pytest.raises(InputError, match=r"there is no authority in .*nowhere \(ca.key\)"):
        revoke(tmp_path / "nowhere", ["a"])
    assert not (tmp_path / "nowhere").exists()
    make_certificates(tmp_path / "others", ["localhost"], ["a"])
    shutil.copy(tmp_path / "others" / "a" / "tls.crt", copy / "a")
    with pytest.raises(InputError, match=r"a.tls.crt is not a certificate of the authority in .* \(InvalidSignature\)"):
        revoke(copy, ["a"])
    revoke(tmp_path / "others", [])
    shutil.copy(tmp_path / "others" / "ca.crl", copy)
    with pytest.raises(InputError, match=r"ca.crl is not signed by the authority in the same folder"):
        revoke(copy, ["b"])


def loaded(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_certificates_that_end_soon_are_renewed_for_the_keys_that_their_owners_have(copy):
    make_certificates(copy, ["localhost", "10.0.0.1"], ["a", "c"], days=2, renew=True)
    make_certificates(copy, [], ["lost"], days=1)
    revoke(copy, ["lost"])
    before = {path.parent.name: loaded(path) for path in copy.glob("*/tls.crt")}
    key, far = (copy / "a" / "tls.key").read_bytes(), (copy / "b" / "tls.crt").read_bytes()
    (copy / "a" / "tls.key").unlink()  # which the owner took with it
    assert renew_expiring(copy, 3) == ([copy / name / "tls.crt" for name in ("a", "c", "server")], ["lost"])
    assert (copy / "b" / "tls.crt").read_bytes() == far
    (copy / "a" / "tls.key").write_bytes(key)
    for name, role in (("a", "site"), ("c", "site"), ("server", "server")):
        read_tls(copy / name, role)
        new, old = loaded(copy / name / "tls.crt"), before[name]
        assert new.public_key() == old.public_key()
        assert new.serial_number != old.serial_number
        assert abs(new.not_valid_after_utc - old.not_valid_after_utc) < datetime.timedelta(minutes=10)
        assert hosts_of(new) == hosts_of(old)
    assert [str(host.value) for host in hosts_of(before["server"])] == ["localhost", "10.0.0.1"]
    renew_expiring(copy, 3, days=30)
    longer = loaded(copy / "a" / "tls.crt").not_valid_after_utc - before["a"].not_valid_after_utc
    assert abs(longer - datetime.timedelta(days=28)) < datetime.timedelta(minutes=10)
    assert renew_expiring(copy, 3) == ([], ["lost"])
    with pytest.raises(InputError, match="there is no authority in"):
        renew_expiring(copy / "a", 3)


def test_who_is_revoked_is_so_with_all_certificates_that_were_signed_for_it(copy):
    """One that was renewed is valid beside the one after it, and both are of one key."""
    first = loaded(copy / "a" / "tls.crt").serial_number
    (copy / "ca.issued").unlink()  # as of an authority from before there was this list
    renew_expiring(copy, 1000)
    renew_expiring(copy, 1000)
    revoke(copy, ["a"])
    revoked = revoked_serials(copy / "ca.crl", loaded(copy / "ca.crt"))
    assert len(revoked) == 3
    assert {first, loaded(copy / "a" / "tls.crt").serial_number} < revoked
    second = loaded(copy / "b" / "tls.crt").serial_number
    assert second not in revoked
    (copy / "b").rename(copy.parent / "carried away")
    revoke(copy, ["b"])
    assert second in revoked_serials(copy / "ca.crl", loaded(copy / "ca.crt"))


def test_what_cannot_be_used_yet_is_looked_at_until_it_can(copy, monkeypatch):
    """Its files need not change for that: their owner is, or a clock that is late goes on. It is told once."""
    sentences, old, now = [], read_tls(copy / "a", "site"), datetime.datetime.now(datetime.UTC)
    renew_expiring(copy, 1000)  # before it is looked at, as while a table is read
    own = RenewedCertificate(old, "site", sentences.append)
    assert own.current() == read_tls(copy / "a", "site") != old
    renew_expiring(copy, 1000)

    class Late(datetime.datetime):
        now = staticmethod(lambda zone: now - datetime.timedelta(hours=1))

    with monkeypatch.context() as late:
        late.setattr("fedkernel.engines.grpc.certificates.datetime.datetime", Late)
        assert own.fresh() is own.fresh() is None
    assert own.fresh() == read_tls(copy / "a", "site")
    assert own.fresh() is None
    first, refused, second = sentences
    assert "is not valid yet" in refused
    assert all("was renewed" in text for text in (first, second))


@pytest.mark.parametrize(("days", "past", "warns"), [(365, 0.8, ""), (365, 0.95, "18."), (7, 0.4, ""), (7, 0.6, "2.")])
def test_a_certificate_that_ends_soon_is_warned_of(copy, days, past, warns, monkeypatch):
    make_certificates(copy, [], ["a"], days=days, renew=True)
    tls = read_tls(copy / "a", "site")
    assert expiry_warning(tls) == ""
    later = datetime.datetime.now(datetime.UTC) + past * datetime.timedelta(days=days)

    class Later(datetime.datetime):
        now = staticmethod(lambda zone: later)

    monkeypatch.setattr("fedkernel.engines.grpc.renewal.datetime.datetime", Later)
    assert expiry_warning(tls).startswith(f"the certificate in {copy / 'a'} ends in {warns}" if warns else "")
    assert bool(expiry_warning(tls)) == bool(warns)
