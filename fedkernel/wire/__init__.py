"""Messages and job descriptions that pass between the coordinator and the sites."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .content import (
        ANSWERS,
        REPEAT_ACTION,
        answer_bundle,
        answer_hash,
        bundle_requests,
        content_digest,
        digest,
        from_content,
        header_of,
        identity_of,
        records_of,
        to_content,
    )
    from .error_codes import DISCONNECTED, ENGINE_CODES, FAILED, INVALID_REPLY, REFUSED, UNFIT_LETTER, UNFIT_TABLE
    from .job import HASH_DIGITS, MOST_SITES, Apps, Job, Projecting, RunSpec, Study, shares_rows
    from .joining import (
        BEGINNING,
        CommonRows,
        HashedIds,
        HashIds,
        Introduce,
        Introduction,
        Share,
        ShowShare,
        TakeRows,
        TakeShares,
    )
    from .masked_sums import ALIKE, UNASKED_BY, MaskedSum, MaskKeys, mask_label, simulated_keys, sum_masked
    from .quorum import Deadlines, Losses, Quorum, Seconds, check_quorum
    from .row_id_hashes import HASH_BYTES, Hashes, Missing, are_hashes, as_keys, hash_ids, key_check, order_id
    from .seed_agreement import JOINT_SEED_RULE, check_commitments, check_shares, commitment, joint_seed
else:
    __getattr__, __all__ = lazily(__name__)
