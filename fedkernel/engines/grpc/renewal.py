"""Certificates that are valid for days and are renewed: by the authority, at a server that runs and at a site.

``fedkernel certs DIR --renew-expiring DAYS`` writes ``DIR/NAME/tls.crt`` anew for each whose certificate ends within so
many days: the same name, hosts and life, and the same key, so that what is to be carried to its owner is that file
alone, which is no secret. Both ends read their folders again, the server at each handshake, a site as it connects. A
stream that stands stays so when a certificate ends: certificates are looked at as a connection begins.
"""

import datetime
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
from cryptography import x509

from fedkernel.engines.grpc.certificates import (
    CLOCK_SKEW,
    TLS,
    check_days,
    existing_authority,
    hosts_of,
    issue,
    own_certificate,
    read_tls,
)
from fedkernel.engines.grpc.defaults import AUTHORITY_DAYS
from fedkernel.engines.grpc.revocation import LIST, revoked_serials
from fedkernel.ground import InputError


class ExpiredError(InputError):
    """A certificate has ended, and no other has come."""


SOON = datetime.timedelta(days=3)
"""A certificate that ends within so long, or a tenth of its life, is warned of: once half its life is over."""


def renew_expiring(folder: Path, within: float, *, days: float | None = None) -> tuple[list[Path], list[str]]:
    """Write the certificates of a folder of `make_certificates` anew that end within some days, or have ended.

    `within`: days. `days`: how long the new ones are valid; by default as long as the old ones were. Returns the
    certificates that were written; the names whose certificates end as soon, but are revoked: they need another key.
    Raises InputError: a folder without an authority; a certificate that is not of that authority, or damaged.
    """
    authority, _ = existing_authority(folder)
    if not 0 <= within <= AUTHORITY_DAYS:
        raise InputError(f"within = {within:g} days; allowed: 0 to {AUTHORITY_DAYS}")
    if days is not None:
        check_days(days)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=within)
    revoked, renewed, left = revoked_serials(folder / LIST, authority), [], []
    for path in sorted(folder.glob("*/tls.crt")):
        old = own_certificate(path, authority, "renews")
        if old.not_valid_after_utc > soon:
            continue
        name = path.parent.name
        if old.serial_number in revoked:
            left.append(name)
            continue
        life = old.not_valid_after_utc - old.not_valid_before_utc - CLOCK_SKEW
        lasting = life / datetime.timedelta(days=1) if days is None else days
        issue(folder, name, old.public_key(), hosts_of(old), lasting)  # type: ignore[arg-type] # ours have such a key
        renewed.append(path)
    return renewed, left


def ending(tls: TLS) -> str:
    """Return the sentence that warns of a certificate's end; empty: it is far."""
    own = x509.load_pem_x509_certificate(tls.certificate)
    life, now = own.not_valid_after_utc - own.not_valid_before_utc, datetime.datetime.now(datetime.UTC)
    left = own.not_valid_after_utc - now
    if left > max(life / 10, min(SOON, life / 2)):
        return ""
    days = left / datetime.timedelta(days=1)
    return (
        f"the certificate in {tls.folder} ends in {days:.1f} days, at {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; "
        f"fedkernel certs DIR --renew-expiring {max(1, round(days + 0.5))} renews it, and it is read as it is there"
    )


class Renewing:
    """A process's certificate, read again where its files have changed.

    What cannot be used is looked at again until it can: files that are still being copied, that nobody has let this
    process read yet, or whose time begins by a clock that is late.

    `tell`: told in a sentence of what was taken, or could not be.
    """

    def __init__(self, tls: TLS, role: str, tell: Callable[[str], object]) -> None:
        self._tls, self._role, self._tell = tls, role, tell
        self._state: tuple[tuple[int, int], ...] = ()  # whatever has become of the files since they were read
        self._told = self._fault = ""
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
        """Return the certificate if it is another than before; None: it is not, or what is there cannot be used."""
        with self._lock:
            if (state := self._state_now()) == self._state:
                return None
            try:
                tls = read_tls(self._tls.folder, self._role)
                if tls.name != self._tls.name:
                    raise InputError(f"the certificate in {tls.folder} is that of {tls.name!r}, not {self._tls.name!r}")
            except InputError as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    self._tell(f"{error}; the one before it is still used")
                return None
            self._state, self._fault = state, ""
            if tls == self._tls:
                return None
            self._tls = tls
            until = x509.load_pem_x509_certificate(tls.certificate).not_valid_after_utc
            self._tell(f"the certificate in {tls.folder} was renewed: it is valid to {until:%Y-%m-%d %H:%M} UTC")
            return tls

    def current(self) -> TLS:
        """Return the certificate as it is now; ExpiredError where it has ended, told once."""
        self.fresh()
        with self._lock:
            own = x509.load_pem_x509_certificate(self._tls.certificate)
            if (end := own.not_valid_after_utc) > datetime.datetime.now(datetime.UTC):
                return self._tls
            text = f"the certificate in {self._tls.folder} has expired, at {end:%Y-%m-%d %H:%M} UTC; a renewed one is "
            text += "waited for there"
            if text != self._told:
                self._told = text
                self._tell(text)
            raise ExpiredError(text)


def server_credentials(tls: TLS, tell: Callable[[str], object]) -> grpc.ServerCredentials:
    """Return the credentials of a server that wants certificates, whose own is read anew as it is renewed."""
    own = Renewing(tls, "server", tell)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        return None if (fresh := own.fresh()) is None else _configuration(fresh)

    return grpc.dynamic_ssl_server_credentials(_configuration(tls), fetch, require_client_authentication=True)


def _configuration(tls: TLS) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.certificate)], tls.authority)
