"""Messages and job descriptions that pass between the coordinator and the sites."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.wire.content import (
        answer_hash,
        content_digest,
        digest,
        from_content,
        header_of,
        identity_of,
        records_of,
        to_content,
    )
    from fedkernel.wire.error_codes import CARRIERS, FAILED, GONE, REFUSED, UNFIT, UNFIT_LETTER, UNFIT_TABLE
    from fedkernel.wire.job import MOST_SITES, SHORT, Apps, Job, Projecting, RunSpec, Study, shares_rows
    from fedkernel.wire.joining import (
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
    from fedkernel.wire.quorum import Deadlines, Losses, Quorum, Seconds, check_quorum
    from fedkernel.wire.request_bundles import AGAIN, ANSWERS, answer_again, bundled
    from fedkernel.wire.row_id_hashes import SIZE, Hashes, Missing, are_hashes, as_keys, hash_ids, key_check, order_of
    from fedkernel.wire.seed_agreement import RULE, check_commitments, check_shares, commitment, joint_seed
else:
    __getattr__, __all__ = lazily(__name__)
