"""Engine of separate processes: Flower's messages over gRPC streams, with mutual certificates.

`serve` coordinates processes that join from other machines; `run_job` starts all of them on this one. With five
clients, a round costs about 5 ms beyond computing, and starting some seconds (`benchmarks/grpc_rounds.py`).
"""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.engines.grpc.address import check_address, is_loopback
    from fedkernel.engines.grpc.certificates import TLS, check_name, make_certificates, read_tls
    from fedkernel.engines.grpc.connections import report_failed_handshakes
    from fedkernel.engines.grpc.coordinator import LOOPBACK, hand_out, run_job, serve
    from fedkernel.engines.grpc.defaults import (
        AUTHORITY_DAYS,
        DAYS,
        MAX_MESSAGE_BYTES,
        REPAIR_SECONDS,
        SERVER_PATIENCE,
        SITE_PATIENCE,
    )
    from fedkernel.engines.grpc.node import Node
    from fedkernel.engines.grpc.renewal import expiry_warning, renew_expiring
    from fedkernel.engines.grpc.revocation import revoke
else:
    __getattr__, __all__ = lazily(__name__)
