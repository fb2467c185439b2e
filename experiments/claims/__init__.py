"""What a paper claims of its figure, checked against the runs."""

from experiments.claims.checks import AnyCheck
from experiments.claims.verdicts import Claim, Verdict, check_claims

__all__ = [
    "AnyCheck",
    "Claim",
    "Verdict",
    "check_claims",
]
