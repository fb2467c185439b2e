"""Check of a connecting process: version, certificates and site name, before it gets the site's slot."""

from collections.abc import Callable, Container

from fedkernel.engines.grpc.frames import INSTANCE, TRANSPORT, VERSION
from fedkernel.engines.grpc.streams import Caller, RefusedError
from fedkernel.ground import InputError, printable


def check_caller(name: str, caller: Caller, names: Container[str], is_revoked: Callable[[bytes], bool]) -> None:
    """Raise RefusedError unless a connecting process may have the slot of the site that it names.

    `names`: of the job's sites. `is_revoked`: decides whether a certificate (PEM) is revoked.
    """
    if (spoken := caller.metadata.get(TRANSPORT)) != str(VERSION):
        text = f"it has transport version {printable(spoken or '')}, the server {VERSION}"
        raise RefusedError("FAILED_PRECONDITION", text)
    if caller.names and list(caller.names) != [name]:
        raise RefusedError("PERMISSION_DENIED", f"its certificate names {printable(', '.join(caller.names))!r}")
    for certificate in caller.certificates:
        try:
            revoked = is_revoked(certificate)
        except InputError as error:  # fail closed
            raise RefusedError("UNAVAILABLE", f"the list of revoked certificates cannot be read: {error}") from None
        if revoked:
            raise RefusedError("PERMISSION_DENIED", "its certificate is revoked")
    if name not in names or not caller.metadata.get(INSTANCE):
        raise RefusedError("PERMISSION_DENIED", f"no site of this run is called {printable(name)!r}")
