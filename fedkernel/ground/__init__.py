"""Errors, validation, files, threads and seeds for all other packages."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.ground.archives import MEMORY, SMALL, TIMES, UNREADABLE, header_of, open_npz, read_header
    from fedkernel.ground.arrays import (
        BLOCK_ROWS,
        EPS,
        READING,
        AnyArray,
        Divided,
        FloatArray,
        Positions,
        Precision,
        Rows,
        all_finite,
        brief,
        check_finite,
        frozen,
        row_blocks,
        stack_rows,
        sum_in_order,
    )
    from fedkernel.ground.disk_list import DiskList
    from fedkernel.ground.errors import (
        SHOWN,
        EngineError,
        FedkernelError,
        InputError,
        LetterError,
        OwnFileError,
        ProtocolError,
        QuorumError,
        RefusedError,
        TellableError,
        and_more,
        called,
        lasting,
        one_line,
        row_of_file,
        shortened,
        shown,
        some,
        words,
    )
    from fedkernel.ground.import_paths import (
        Group,
        address,
        address_of,
        find,
        find_function,
        loaded,
        named,
        names,
        own_names,
        short,
    )
    from fedkernel.ground.installation_check import HOME, check_packages, installed_version
    from fedkernel.ground.lazy_imports import lazily
    from fedkernel.ground.noise import noise_on
    from fedkernel.ground.parallel import at_work, computing_seconds, each, in_order
    from fedkernel.ground.seeds import derived, generator
    from fedkernel.ground.storage import (
        NUMBERS,
        Parts,
        check_folder,
        load_parts,
        owner_only,
        read_secret,
        rows_as_csv,
        save_parts,
        synchronise,
        under,
        write_new,
        write_rows,
        write_whole,
    )
    from fedkernel.ground.threads import blas_threads, openmp_threads, steps_within
    from fedkernel.ground.toml import parse_toml
    from fedkernel.ground.validation import check_at_most, explain, read_table, unknown_name, value_object
else:
    __getattr__, __all__ = lazily(__name__)
