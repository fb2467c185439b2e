"""Claims of a paper about its figures, checked against an experiment's runs."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .checks import AnyCheck
    from .verdicts import Claim, Verdict, check_claims
else:
    __getattr__, __all__ = lazily(__name__)
