"""Certificates for mutual TLS: a private authority, and one certificate for the server and for each site.

`make_certificates` writes a folder for each process, to be copied to its machine; ``ca.key`` is copied nowhere::

    DIR/ca.crt  DIR/ca.key                                    the authority, for later certificates, too
    DIR/ca.issued                                             serial numbers and names of the signed certificates
    DIR/server/  ca.crt  tls.crt  tls.key                     for the server
    DIR/NAME/    ca.crt  tls.crt  tls.key                     for the site of that name, which is its identity
"""

import datetime
import ipaddress
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedkernel.engines.grpc.defaults import AUTHORITY_DAYS, DAYS
from fedkernel.ground import InputError, read_secret, write_atomic

SERVER = "server"  # name of the server's certificate and folder

ISSUED = "ca.issued"

CLOCK_SKEW = datetime.timedelta(minutes=5)
"""Time by which a certificate's start is backdated, for machines whose clocks are late."""

_ROLES = {SERVER: ExtendedKeyUsageOID.SERVER_AUTH, "site": ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True)
class TLS:
    """Certificate, key and trusted authority of a process, as PEM. `name`: its common name. `folder`: the files'."""

    authority: bytes
    certificate: bytes
    key: bytes
    name: str
    folder: Path


def check_name(name: str) -> str:
    """Return a site's name if it is valid for a certificate and a folder; InputError otherwise."""
    if not re.fullmatch(r"\w[\w.-]{0,62}", name, re.ASCII):
        raise InputError(
            f"name = {name!r}, but must be 1 to 63 letters, digits, '.', '_' or '-', and begin with a letter or digit"
        )
    return name


def check_days(days: float) -> float:
    """Return a certificate's lifetime in days; InputError unless it is positive and at most an authority's."""
    if not 0 < days <= AUTHORITY_DAYS:
        raise InputError(f"days = {days:g}, but must be greater than 0 and at most {AUTHORITY_DAYS}, an authority's")
    return days


def make_certificates(
    folder: Path, servers: Sequence[str] = (), clients: Sequence[str] = (), *, days: float = DAYS, renew: bool = False
) -> list[Path]:
    """Write certificates for a server and sites, signed by the folder's authority (created if missing).

    `servers`: host names and addresses of the server; empty: no certificate for a server. `clients`: the sites' names.
    `renew`: replace existing certificates, which are an error otherwise. Returns the written folders. Raises
    InputError: a name that is invalid, repeated or has a certificate; a damaged authority.
    """
    check_days(days)
    for name in clients:
        if check_name(name) == SERVER:
            raise InputError(f"name = {name!r}, but that is the server's; choose a different name for the site")
    names = [*([SERVER] if servers else []), *clients]
    if not names:
        raise InputError("no server and no client is named, but at least one is needed")
    if again := [name for place, name in enumerate(names) if name in names[:place]]:
        raise InputError(f"client {again[0]!r} is listed twice")
    hosts = [_host(server) for server in servers]
    if not renew and (issued := [name for name in names if (folder / name / "tls.crt").exists()]):
        raise InputError(f"{folder / issued[0]} already holds a certificate; --renew writes a new one")
    own_authority(folder)  # its faults come before any key is replaced
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / name / "tls.key", _pem(key), 0o600)
        issue(folder, name, key.public_key(), hosts if name == SERVER else (), days)
    return [folder / name for name in names]


def issue(
    folder: Path, name: str, key: ec.EllipticCurvePublicKey, hosts: Sequence[x509.GeneralName], days: float
) -> None:
    """Write a certificate signed by the folder's authority, and record its serial number. `hosts`: of a server only."""
    authority, signer = own_authority(folder)
    usage, issuer = _ROLES[SERVER if name == SERVER else "site"], signer.public_key()
    certificate = (
        _builder(name, authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )
    if hosts:
        certificate = certificate.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    signed, path = certificate.sign(signer, hashes.SHA256()), folder / name / "tls.crt"
    before = []
    if path.exists():
        with suppress(ValueError):  # a damaged one is replaced
            # one signed before `ca.issued` existed, still valid beside the new one
            before.append(x509.load_pem_x509_certificate(path.read_bytes()))
    with (folder / ISSUED).open("a", encoding="ascii") as file:
        file.writelines(f"{listed.serial_number:x} {name}\n" for listed in (*before, signed))
    _write(folder / name / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    _write(path, signed.public_bytes(serialization.Encoding.PEM))


def issued_serials(folder: Path, name: str) -> set[int]:
    """Return the serial numbers of all certificates that a folder's authority has signed for a name."""
    try:
        lines = (folder / ISSUED).read_text(encoding="ascii").splitlines()
        return {int(serial, 16) for serial, owner in (line.split(" ") for line in lines) if owner == name}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / ISSUED} is not a list of certificates ({type(error).__name__})") from None


def hosts_of(certificate: x509.Certificate) -> Sequence[x509.GeneralName]:
    """Return the host names and addresses that a certificate is valid for. A site's certificate has none."""
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return ()


def read_tls(folder: Path, role: str) -> TLS:
    """Read a process's certificates; InputError if missing, damaged, expired, or of a wrong authority, key or role."""
    parts = {name: _read(folder / name) for name in ("ca.crt", "tls.crt", "tls.key")}
    try:
        authority, own = (x509.load_pem_x509_certificate(parts[name]) for name in ("ca.crt", "tls.crt"))
        key = serialization.load_pem_private_key(parts["tls.key"], None)
    except (ValueError, TypeError):
        raise InputError(f"{folder} does not hold certificates and a key that `fedkernel certs` wrote") from None
    if own.public_key() != key.public_key():
        raise InputError(f"{folder / 'tls.key'} is not the key of the certificate in the same folder")
    try:
        own.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise InputError(f"{folder / 'tls.crt'} is not signed by the authority in the same folder, ca.crt") from None
    for what, certificate in (("certificate", own), ("authority", authority)):
        now = datetime.datetime.now(datetime.UTC)
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not first <= now <= last:
            state = "has expired" if now > last else "is not valid yet"
            valid = f"it is valid from {first:%Y-%m-%d %H:%M} UTC to {last:%Y-%m-%d %H:%M} UTC"
            raise InputError(f"the {what} in {folder} {state}: {valid}")
    try:
        name = str(own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        usage = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (IndexError, x509.ExtensionNotFound):
        raise InputError(
            f"{folder / 'tls.crt'} must have an owner (CN) and a role (extendedKeyUsage), like those that "
            "`fedkernel certs` writes"
        ) from None
    if _ROLES[role] not in usage:
        raise InputError(f"the certificate in {folder} is of {name!r}, which is not a {role}")
    return TLS(parts["ca.crt"], parts["tls.crt"], parts["tls.key"], name, folder)


def existing_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and key of the folder's authority; InputError if there is none."""
    if not (folder / "ca.key").exists():  # else one would be made
        raise InputError(f"there is no authority in {folder} (ca.key); allowed: the folder that `fedkernel certs` made")
    return own_authority(folder)


def own_certificate(path: Path, authority: x509.Certificate, verb: str) -> x509.Certificate:
    """Read a certificate; InputError unless this authority signed it. `verb`: the caller's action, for the error."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(authority)
    except Exception as error:  # of the file, of PEM, of the signature
        of = f"the authority in {path.parent.parent} ({type(error).__name__})"
        raise InputError(f"{path} is not a certificate of {of}, which {verb} only its own") from None
    return certificate


def own_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and key of the folder's authority, created if missing."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if certificate.exists() != key.exists():
        present, absent = (certificate, key) if certificate.exists() else (key, certificate)
        raise InputError(f"{folder} holds {present.name} but not {absent.name}: an authority needs both")
    if certificate.exists():
        try:
            signer = serialization.load_pem_private_key(_read(key), None)
            authority = x509.load_pem_x509_certificate(_read(certificate))
        except (ValueError, TypeError):
            raise InputError(f"{folder} does not hold an authority that `fedkernel certs` wrote") from None
        if not isinstance(signer, ec.EllipticCurvePrivateKey) or authority.public_key() != signer.public_key():
            raise InputError(f"{key} is not the key of the authority in the same folder")
        return authority, signer
    signer = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name("fedkernel authority")
    authority = (
        _builder("fedkernel authority", subject, signer.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(key, _pem(signer), 0o600)
    _write(certificate, authority.public_bytes(serialization.Encoding.PEM))
    return authority, signer


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    if not re.fullmatch(r"[A-Za-z0-9*]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", text):
        raise InputError(f"server = {text!r}, but must be a host name or an address, without a port")
    return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path) -> bytes:
    try:
        return read_secret(path) if path.suffix == ".key" else path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; `fedkernel certs` writes it") from None


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    write_atomic(path, lambda file: file.write(data), mode)
