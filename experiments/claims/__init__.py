"""What a paper claims of its figure, checked against the runs."""

from experiments.claims.checks import AnyCheck
from experiments.claims.verdicts import Claim, check_claims

__all__ = [
    "AnyCheck",
    "Claim",
    "check_claims",
]
