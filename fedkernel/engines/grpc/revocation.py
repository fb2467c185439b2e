"""Certificate revocation list (RFC 5280): signed by the authority, read by the server.

``fedkernel certs DIR --revoke NAME`` writes ``DIR/ca.crl``, and a copy into the server's folder if there is one.
``fedkernel serve`` reads the copy whenever a site connects, without a restart. A connected site stays so until its
stream ends.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from fedkernel.engines.grpc import certificates
from fedkernel.engines.grpc.defaults import AUTHORITY_DAYS
from fedkernel.ground import InputError, write_atomic

REVOCATION_LIST = "ca.crl"


def revoke(folder: Path, names: Sequence[str]) -> list[Path]:
    """Revoke all certificates that a folder's authority has signed for these names.

    Returns the written lists. Raises InputError: a folder without an authority; a name without certificates of this
    authority, or with one of a different authority; a damaged list.
    """
    authority, signer = certificates.existing_authority(folder)
    serials = revoked_serials(folder / REVOCATION_LIST, authority)
    for name in names:
        path = folder / certificates.check_name(name) / "tls.crt"
        serials |= (issued := certificates.issued_serials(folder, name))  # renewed ones stay valid, too
        if issued and not path.exists():  # its folder was moved away
            continue
        certificate = certificates.own_certificate(path, authority, "revokes")
        serials |= {certificate.serial_number}
    now, life = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=AUTHORITY_DAYS)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    builder = builder.last_update(now - certificates.CLOCK_SKEW).next_update(now + life)
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    content = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    paths = [place / REVOCATION_LIST for place in (folder, folder / certificates.SERVER) if place.is_dir()]
    for path in paths:
        write_atomic(path, lambda file: file.write(content))
    return paths


def revoked_serials(path: Path, authority: x509.Certificate) -> frozenset[int]:
    """Return an authority's revoked serial numbers, none without a list. InputError: a damaged or foreign list."""
    try:
        revoked = x509.load_pem_x509_crl(path.read_bytes())
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a list of revoked certificates ({type(error).__name__})") from None
    if not revoked.is_signature_valid(authority.public_key()):  # type: ignore[arg-type] # ours have such a key
        raise InputError(f"{path} is not signed by the authority in the same folder, ca.crt")
    return frozenset(entry.serial_number for entry in revoked)


class RevocationCheck:
    """Check of certificates against a server folder's revocation list. InputError: a damaged or foreign list."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / REVOCATION_LIST
        self._authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        revoked_serials(self._path, self._authority)

    def __call__(self, certificate: bytes) -> bool:
        """Return whether a certificate (PEM) is revoked; InputError if the list has become unreadable."""
        serial = x509.load_pem_x509_certificate(certificate).serial_number
        return serial in revoked_serials(self._path, self._authority)
