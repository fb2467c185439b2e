"""Import of the client classes that a site may run: those its operator allows, or fedkernel's own."""

from collections.abc import Iterable

from fedkernel.ground import InputError, load_class, own_short_names, short_names
from fedkernel.numerics import Kernel
from fedkernel.protocol import KernelClient
from fedkernel.wire import RunSpec


def allowed(listed: Iterable[str]) -> dict[str, type[KernelClient]]:
    """Import the client and kernel classes that an operator allows; return the clients by class name.

    Raises InputError if a name is that of no client or kernel, or two clients have the same class name.
    """
    clients: dict[str, type[KernelClient]] = {}
    for name in filter(None, (name.strip() for name in listed)):
        kind = load_class(name, object, "kernels" if name in short_names("kernels") else "clients", "allow")
        if not (isinstance(kind, type) and issubclass(kind, KernelClient | Kernel)):
            raise InputError(f"allow = {name!r}, but must be a client or a kernel")
        if issubclass(kind, KernelClient) and clients.setdefault(kind.__name__, kind) is not kind:
            raise InputError(f"allow = {name!r}, but another allowed client also has the class name {kind.__name__}")
    return clients


def own_clients(runs: Iterable[RunSpec]) -> list[str]:
    """Return the sorted addresses of fedkernel's own clients that the runs name."""
    ours = own_short_names("clients")
    addresses = {ours.get(run.pair, run.pair) for run in runs if run.pair is not None}
    return sorted(addresses & set(ours.values()))
