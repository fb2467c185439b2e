"""Import of the client classes that a site may run: those its operator allows, or fedkernel's own."""

from collections.abc import Iterable

from fedkernel.ground import InputError, load_class, own_short_names, short_names
from fedkernel.numerics import Kernel
from fedkernel.protocol import KernelClient
from fedkernel.wire import RunSpec


def allowed(listed: Iterable[str]) -> dict[str, type[KernelClient]]:
    """Import the allowed clients and kernels, and return the clients by class name.

    Raises InputError if a name is that of no client or kernel, or two clients have the same class name.
    """
    willing: dict[str, type[KernelClient]] = {}
    for name in filter(None, (name.strip() for name in listed)):
        kind = load_class(name, object, "kernels" if name in short_names("kernels") else "clients", "allow")
        if not (isinstance(kind, type) and issubclass(kind, KernelClient | Kernel)):
            raise InputError(f"allow = {name!r} is no client and no kernel")
        if issubclass(kind, KernelClient) and willing.setdefault(kind.__name__, kind) is not kind:
            raise InputError(f"allow = {name!r}, but another client that is allowed is called {kind.__name__}, too")
    return willing


def own_pairs(runs: Iterable[RunSpec]) -> list[str]:
    """Return the sorted addresses of fedkernel's own clients that the runs name."""
    ours = own_short_names("clients")
    wholes = {ours.get(run.pair, run.pair) for run in runs if run.pair is not None}
    return sorted(wholes & set(ours.values()))
