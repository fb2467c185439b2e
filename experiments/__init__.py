"""Experiments with fedkernel's methods: configuration, runs, reports and the command line."""

import os

# Read when gRPC is first imported; Flower would set "error", which leaves out why a TLS handshake has failed.
os.environ.setdefault("GRPC_VERBOSITY", "")

import fedkernel
