"""Renewal of expiring certificates by the authority, and use of the new ones by a running server or site.

``fedkernel certs DIR --renew-expiring DAYS`` rewrites ``DIR/NAME/tls.crt`` for each certificate that ends within so
many days, with the same name, hosts, lifetime and key: only that file, which is no secret, must be copied to its owner.
The server reads its folder again at each handshake, a site as it connects. Certificates are checked only then: an open
stream outlives its certificate.
"""

import datetime
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
from cryptography import x509

from fedkernel.engines.grpc import certificates
from fedkernel.engines.grpc.certificates import TLS
from fedkernel.engines.grpc.defaults import AUTHORITY_DAYS
from fedkernel.engines.grpc.revocation import REVOCATION_LIST, revoked_serials
from fedkernel.ground import InputError


class ExpiredError(InputError):
    """Error of a process whose own certificate has expired and was not renewed."""


WARNING_TIME = datetime.timedelta(days=3)
"""Time before a certificate's end from which it is warned of: at most half, at least a tenth of its life."""


def renew_expiring(folder: Path, within: float, *, days: float | None = None) -> tuple[list[Path], list[str]]:
    """Renew a folder's certificates that have expired, or will within `within` days.

    `days`: lifetime of the new ones; by default that of the old ones. Returns the written certificates, and the names
    whose expiring certificates are revoked: they need a new key. Raises InputError: a folder without an authority; a
    certificate that is damaged or of a different authority.
    """
    authority, _ = certificates.existing_authority(folder)
    if not 0 <= within <= AUTHORITY_DAYS:
        raise InputError(f"within = {within:g} days; allowed: 0 to {AUTHORITY_DAYS}")
    if days is not None:
        certificates.check_days(days)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=within)
    revoked, renewed, left = revoked_serials(folder / REVOCATION_LIST, authority), [], []
    for path in sorted(folder.glob("*/tls.crt")):
        old = certificates.own_certificate(path, authority, "renews")
        if old.not_valid_after_utc > soon:
            continue
        name = path.parent.name
        if old.serial_number in revoked:
            left.append(name)
            continue
        life = old.not_valid_after_utc - old.not_valid_before_utc - certificates.CLOCK_SKEW
        lasting = life / datetime.timedelta(days=1) if days is None else days
        hosts, key = certificates.hosts_of(old), old.public_key()
        certificates.issue(folder, name, key, hosts, lasting)  # type: ignore[arg-type] # ours have such a key
        renewed.append(path)
    return renewed, left


def expiry_warning(tls: TLS) -> str:
    """Return a warning if a process's certificate expires soon; else an empty text."""
    own = x509.load_pem_x509_certificate(tls.certificate)
    life, now = own.not_valid_after_utc - own.not_valid_before_utc, datetime.datetime.now(datetime.UTC)
    left = own.not_valid_after_utc - now
    if left > max(life / 10, min(WARNING_TIME, life / 2)):
        return ""
    days = left / datetime.timedelta(days=1)
    return (
        f"the certificate in {tls.folder} ends in {days:.1f} days, at {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; "
        f"fedkernel certs DIR --renew-expiring {max(1, round(days + 0.5))} renews it, without a restart"
    )


class RenewedCertificate:
    """Current certificate of a process, read again whenever its files change. `report`: gets a sentence on each change.

    Unusable files are read again until they are valid: copies in progress, files without read permission yet, or a
    certificate that is not valid yet by a late clock.
    """

    def __init__(self, tls: TLS, role: str, report: Callable[[str], object]) -> None:
        self._tls, self._role, self._report = tls, role, report
        self._state: tuple[tuple[int, int], ...] = ()  # as of the last successful read
        self._reported = self._fault = ""
        self._lock = threading.Lock()

    def _state_now(self) -> tuple[tuple[int, int], ...]:
        states = []
        for name in ("ca.crt", "tls.crt", "tls.key"):
            try:
                state = (self._tls.folder / name).stat()
                states.append((state.st_mtime_ns, state.st_ino))
            except OSError:
                states.append((0, 0))
        return tuple(states)

    def fresh(self) -> TLS | None:
        """Return the new certificate if it has changed and is usable, else None."""
        with self._lock:
            if (state := self._state_now()) == self._state:
                return None
            try:
                tls = certificates.read_tls(self._tls.folder, self._role)
                if tls.name != self._tls.name:
                    raise InputError(f"the certificate in {tls.folder} is that of {tls.name!r}, not {self._tls.name!r}")
            except InputError as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    self._report(f"{error}; the previous certificate is still used")
                return None
            self._state, self._fault = state, ""
            if tls == self._tls:
                return None
            self._tls = tls
            until = x509.load_pem_x509_certificate(tls.certificate).not_valid_after_utc
            self._report(f"the certificate in {tls.folder} was renewed: it is valid to {until:%Y-%m-%d %H:%M} UTC")
            return tls

    def current(self) -> TLS:
        """Return the present certificate. If it has expired, report that once and raise ExpiredError."""
        self.fresh()
        with self._lock:
            own = x509.load_pem_x509_certificate(self._tls.certificate)
            if (end := own.not_valid_after_utc) > datetime.datetime.now(datetime.UTC):
                return self._tls
            expired = f"the certificate in {self._tls.folder} expired at {end:%Y-%m-%d %H:%M} UTC"
            text = f"{expired}; waiting for a renewed one"
            if text != self._reported:
                self._reported = text
                self._report(text)
            raise ExpiredError(text)


def server_credentials(tls: TLS, report: Callable[[str], object]) -> grpc.ServerCredentials:
    """Return server credentials that require client certificates and use the server's renewed certificate."""
    own = RenewedCertificate(tls, "server", report)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        return None if (fresh := own.fresh()) is None else _configuration(fresh)

    return grpc.dynamic_ssl_server_credentials(_configuration(tls), fetch, require_client_authentication=True)


def _configuration(tls: TLS) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.certificate)], tls.authority)
