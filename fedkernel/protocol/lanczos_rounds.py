"""Distributed Lanczos algorithm: an eigenvalue search whose matrix products the clients compute in rounds."""

from collections.abc import Callable

from fedkernel.ground import FloatArray
from fedkernel.numerics import Eigenpairs, Search
from fedkernel.protocol.run_types import Protocol


def distributed_lanczos(
    search: Search, multiply: Callable[[FloatArray, int], Protocol[FloatArray]]
) -> Protocol[Eigenpairs]:
    """Run an eigenvalue search with matrix products by the clients, as a sub-protocol of rounds.

    `search`: `block_krylov` or `block_krylov_above`. `multiply`: sub-protocol for the product with a block; its second
    argument is the product's number, from 1. Source: Penna and Stańczak, Decentralized Eigenvalue Algorithms for
    Distributed Signal Detection in Wireless Networks, IEEE Transactions on Signal Processing 63 (2014).
    """
    block, number = next(search), 1
    while True:
        product = yield from multiply(block, number)
        try:
            block, number = search.send(product), number + 1
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
