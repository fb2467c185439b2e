"""What a paper claims of its figure, checked against the runs."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from experiments.claims.checks import AnyCheck
    from experiments.claims.verdicts import Claim, Verdict, check_claims
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "AnyCheck",
    "Claim",
    "Verdict",
    "check_claims",
]
