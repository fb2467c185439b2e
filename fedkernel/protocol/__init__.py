"""What a pair is written in: runs and rounds, requests and replies, the client, what a run will take."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.protocol.client import Answers, KernelClient
    from fedkernel.protocol.forecast import (
        FLOAT,
        Forecast,
        forecast_share,
        largest,
        leading_bytes,
        pooled_floats,
        whole_table,
    )
    from fedkernel.protocol.guards import Guards
    from fedkernel.protocol.lanczos import distributed
    from fedkernel.protocol.messages import (
        CarriesRows,
        Count,
        Iterations,
        Receipt,
        Reply,
        ReplyT,
        Request,
        Shape,
        Summed,
    )
    from fedkernel.protocol.plan import AT_MOST, AtMost, Plan, Step, any_width, ask, instead, once, repeated
    from fedkernel.protocol.rounds import Member, Protocol, Run, to_all, to_each, to_sum
    from fedkernel.protocol.rules import (
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
    from fedkernel.protocol.state import State
    from fedkernel.protocol.table_share import TABLE_SHARE, most_numbers, share_text
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "AT_MOST",
    "BESIDE",
    "COORDINATE",
    "ENTRY",
    "FLOAT",
    "ROUNDING",
    "SEMIDEFINITE",
    "TABLE_SHARE",
    "Answers",
    "AtMost",
    "CarriesRows",
    "Count",
    "Eigenvalues",
    "Forecast",
    "Guards",
    "Iterations",
    "KernelClient",
    "Member",
    "Orthonormal",
    "PackedSemidefinite",
    "Plan",
    "Protocol",
    "Receipt",
    "Reply",
    "ReplyT",
    "Request",
    "Rule",
    "Run",
    "Shape",
    "State",
    "Step",
    "Summed",
    "Within",
    "any_width",
    "ask",
    "check_share",
    "distributed",
    "forecast_share",
    "instead",
    "largest",
    "leading_bytes",
    "lost_to_rounding",
    "most_numbers",
    "once",
    "pooled_floats",
    "repeated",
    "share_text",
    "to_all",
    "to_each",
    "to_sum",
    "whole_table",
]
