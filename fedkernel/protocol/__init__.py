"""What a pair is written in: runs and rounds, requests and replies, the client, what a run will take."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.protocol.client import Answers, KernelClient
    from fedkernel.protocol.forecast import ENGINE_COSTS, FLOAT, TYPICAL, Forecast, largest, seconds
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
    from fedkernel.protocol.plan import AtMost, Plan, Step, any_width, ask, instead, once, repeated
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
    from fedkernel.protocol.work import (
        CALLS_OF_A_STEP,
        Computing,
        Speeds,
        Work,
        all_eigenpairs,
        assigned,
        centred,
        clustering,
        cosines,
        kernel_matrix,
        leading,
        leading_bytes,
        letter,
        multiplied,
        orthonormalised,
        singular,
        whole_kernel_matrix,
    )
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "BESIDE",
    "CALLS_OF_A_STEP",
    "COORDINATE",
    "ENGINE_COSTS",
    "ENTRY",
    "FLOAT",
    "ROUNDING",
    "SEMIDEFINITE",
    "TYPICAL",
    "Answers",
    "AtMost",
    "CarriesRows",
    "Computing",
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
    "Speeds",
    "State",
    "Step",
    "Summed",
    "Within",
    "Work",
    "all_eigenpairs",
    "any_width",
    "ask",
    "assigned",
    "centred",
    "check_share",
    "clustering",
    "cosines",
    "distributed",
    "instead",
    "kernel_matrix",
    "largest",
    "leading",
    "leading_bytes",
    "letter",
    "lost_to_rounding",
    "multiplied",
    "once",
    "orthonormalised",
    "repeated",
    "seconds",
    "singular",
    "to_all",
    "to_each",
    "to_sum",
    "whole_kernel_matrix",
]
