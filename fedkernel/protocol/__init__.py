"""Base classes of a method's protocol: runs and rounds, requests and replies, clients, plans and forecasts."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .client import Answers, KernelClient
    from .client_state import CACHE_PREFIX, State
    from .constraints import (
        MAX_COORDINATE,
        MAX_ENTRY,
        MAX_ENTRY_RATIO,
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
    from .encoding import WIRE_VERSION, ConfigValue, Scalar, decode, encode, wire_of
    from .forecast import (
        FLOAT,
        LIMIT_ADVICE,
        TABLE_SHARE,
        Forecast,
        ForecastMeaning,
        allowed_numbers,
        forecast_share,
        largest_forecast,
        leading_bytes,
        pooled_floats,
        rounded_up,
        share_text,
        whole_table_text,
    )
    from .guards import Guards, blocks_of, known_requests
    from .lanczos_rounds import distributed_lanczos
    from .messages import (
        MAX_NUMBER,
        NOISY,
        CarriesRows,
        Count,
        Done,
        Iterations,
        Message,
        MessageT,
        Reply,
        ReplyT,
        Request,
        Shape,
        Size,
        Summed,
    )
    from .plan import (
        AT_MOST,
        AtMost,
        Plan,
        PlannedRequest,
        PlanPosition,
        Step,
        advance,
        any_width,
        ask,
        check_plan,
        instead,
        is_seeded,
        once,
        planned_limit,
        repeated,
        reveals,
    )
    from .privacy import (
        ADJACENCY,
        Privacy,
        basis_of_privacy,
        bounded_rows,
        check_covered,
        count_releases,
        draw_noise,
        each_alone,
        step_of,
    )
    from .run_types import Member, Protocol, Round, Run, to_all, to_each, to_sum
else:
    __getattr__, __all__ = lazily(__name__)
