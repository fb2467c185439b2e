"""Base classes of a method's protocol: runs and rounds, requests and replies, clients, plans and forecasts."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.protocol.client import Answers, KernelClient
    from fedkernel.protocol.client_state import PASSING, State
    from fedkernel.protocol.constraints import (
        BESIDE,
        COORDINATE,
        ENTRY,
        ROUNDING,
        SEMIDEFINITE,
        Eigenvalues,
        Orthonormal,
        PackedSemidefinite,
        Rule,
        Within,
        check_share,
        lost_to_rounding,
    )
    from fedkernel.protocol.disclosure_ratio import MORE, TABLE_SHARE, most_numbers, rounded_up, share_text
    from fedkernel.protocol.forecast import (
        FLOAT,
        Forecast,
        Meaning,
        forecast_share,
        largest,
        leading_bytes,
        pooled_floats,
        whole_table,
    )
    from fedkernel.protocol.guards import Guards, known_requests
    from fedkernel.protocol.lanczos_rounds import distributed
    from fedkernel.protocol.messages import (
        LARGEST,
        VERSION,
        CarriesRows,
        ConfigValue,
        Count,
        Iterations,
        Message,
        MessageT,
        Receipt,
        Reply,
        ReplyT,
        Request,
        Scalar,
        Shape,
        Size,
        Summed,
        decode,
        encode,
        wire_of,
    )
    from fedkernel.protocol.plan import (
        AT_MOST,
        AtMost,
        Place,
        Plan,
        PlannedRequest,
        Step,
        advance,
        any_width,
        ask,
        check_plan,
        instead,
        is_seeded,
        most_of,
        once,
        repeated,
        reveals,
    )
    from fedkernel.protocol.run_types import Member, Protocol, Round, Run, to_all, to_each, to_sum
else:
    __getattr__, __all__ = lazily(__name__)
