"""Entry point of a local client's process, which `run_job` starts with address, folder and waiting time."""

import sys
from pathlib import Path

from fedkernel.engines.grpc.certificates import read_tls
from fedkernel.engines.grpc.node import Node
from fedkernel.ground import FedkernelError, blas_threads
from fedkernel.site import site_of_job
from fedkernel.site.client_app import client_app


def main(address: str, folder: str, patience: str) -> None:
    """Run the client that has the folder's name. It uses the certificate there, except with a Unix socket."""
    tls = None if address.startswith("unix:") else read_tls(Path(folder), "site")
    with blas_threads(1):  # most runs' number, so that requests need not set and reset it
        Node(client_app({}, site_of_job), Path(folder).name, {}).serve(address, tls, float(patience))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FedkernelError as error:
        sys.exit(str(error))
