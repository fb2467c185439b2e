"""What a site's record and its gate cost for each request of 1 KB, side by side: ``python benchmarks/gate.py``.

The gate holds request and reply to a plan and a policy, for which it reads the end of the record once more.
"""

import tempfile
import time

import numpy as np
from flwr.app import Message

from fedkernel import Linear
from fedkernel.clients.dkpca import FindLocalEigenpairs, LocalSpectrum
from fedkernel.protocol import ask, repeated
from fedkernel.site import Policy
from fedkernel.site.audit_log import Answer, admit, append_to_outbox
from fedkernel.site.gate import Gate
from fedkernel.site.raw_request import read_raw_request
from fedkernel.wire import RunSpec, flower_internals, to_content

TIMES = 500


def seconds(gate: Gate | None) -> float:
    """Return the mean over many requests, in a folder of their own."""
    request = FindLocalEigenpairs(kernel=Linear(), n_components=2)
    message = Message(to_content(request, {"run": "run", "round": 1}), 1, "train")
    reply = LocalSpectrum(vectors=np.ones((63, 2)), values=np.ones(2))
    with tempfile.TemporaryDirectory() as folder:
        node = {"data": "none.csv", "out": folder}
        began = time.perf_counter()
        for _ in range(TIMES):
            asking = read_raw_request(message)
            if gate is not None:
                admit(node, asking, gate)
            append_to_outbox(node, asking, Answer(to_content(reply), reply), gate=gate)
        return (time.perf_counter() - began) / TIMES


def main() -> None:
    """Time both, in turns."""
    flower_internals.ensure_task_identity()
    plan = (repeated(10**6, ask(FindLocalEigenpairs, kernel=Linear(), n_components=2)),)
    run = RunSpec(id="run", strategy="DKPCA", pair="DKPCAClient", sites=["a", "b", "c"], plan=plan)
    gate = Gate(Policy(), run, "0" * 64)
    alone, both = zip(*((seconds(None), seconds(gate)) for _ in range(3)), strict=True)
    print(f"record {1e3 * min(alone):.2f} ms, record and gate {1e3 * min(both):.2f} ms")


if __name__ == "__main__":
    main()
