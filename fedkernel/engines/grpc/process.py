"""The process of one client that `run_job` starts: ``python -m`` this module, address, folder and patience."""

import sys
from pathlib import Path

from fedkernel.engines.grpc.certificates import read_tls
from fedkernel.engines.grpc.node import Node
from fedkernel.ground import FedkernelError, blas_threads
from fedkernel.site import site_of_job
from fedkernel.site.client_app import client_app


def main(address: str, folder: str, patience: str) -> None:
    """Be the client after which the folder is named until the server ends the work; with its certificate off a socket.

    A Unix socket is in a folder that only this user may enter.
    """
    tls = None if address.startswith("unix:") else read_tls(Path(folder), "site")
    with blas_threads(1):  # as runs mostly have it: else each request sets it and puts it back
        Node(client_app({}, site_of_job), Path(folder).name, {}).attend(address, tls, float(patience))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FedkernelError as error:
        sys.exit(str(error))
