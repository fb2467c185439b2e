"""Engine of separate processes: Flower's messages over gRPC streams, with mutual certificates.

`serve` coordinates processes that join from other machines; `run_job` starts all of them on this one. With five
clients, a round costs about 5 ms beyond computing, and starting some seconds (`benchmarks/grpc_rounds.py`).
"""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .address import check_address, is_loopback
    from .certificates import TLS, check_name, make_certificates, read_tls
    from .connections import report_failed_handshakes
    from .coordinator import LOOPBACK, hand_out, run_job, serve
    from .defaults import AUTHORITY_DAYS, DAYS, MAX_MESSAGE_BYTES, REPAIR_SECONDS, SERVER_PATIENCE, SITE_PATIENCE
    from .node import Node
    from .renewal import expiry_warning, renew_expiring
    from .revocation import revoke
else:
    __getattr__, __all__ = lazily(__name__)
