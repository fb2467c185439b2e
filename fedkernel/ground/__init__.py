"""Errors, validation, files, threads and seeds for all other packages."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .archives import (
        MACHINE_BYTES,
        READ_ERRORS,
        UNPACKED_BYTES,
        UNPACKED_RATIO,
        header_of,
        load_npy,
        load_sparse,
        open_npz,
        read_header,
    )
    from .arrays import (
        BLOCK_ROWS,
        EPS,
        AnyArray,
        Division,
        FloatArray,
        Positions,
        Precision,
        Rows,
        Sums,
        all_finite,
        check_finite,
        read_only,
        row_blocks,
        short_repr,
        stack_rows,
        sum_in_order,
    )
    from .disk_list import DiskList
    from .errors import (
        MOST_SHOWN,
        EngineError,
        FedkernelError,
        InputError,
        LetterError,
        OwnFileError,
        ProtocolError,
        QuorumError,
        RefusedError,
        ShareableError,
        and_more,
        client_label,
        distinct_names,
        format_duration,
        listed,
        one_line,
        printable,
        quoted,
        row_of_file,
        shortened,
    )
    from .import_paths import (
        PACKAGES_FOLDER,
        FormerNames,
        Group,
        checked_address,
        class_address,
        imported,
        installed_version,
        load_class,
        load_function,
        own_short_names,
        resolve_address,
        short_name,
        short_names,
    )
    from .lazy_imports import lazily
    from .noise import noise_on
    from .parallel import computing_seconds, for_each, map_in_order, reserve_core
    from .seeds import derive_key, generator
    from .storage import (
        NUMBER_KINDS,
        ModelParts,
        ensure_writable_folder,
        load_parts,
        locked_folder,
        open_for_owner,
        read_secret,
        rows_as_csv,
        save_parts,
        sync_folder,
        without_prefix,
        write_atomic,
        write_new,
        write_rows,
    )
    from .threads import blas_threads, limit_steps, openmp_threads
    from .toml import parse_toml, toml_value
    from .validation import (
        accept_former_names,
        check_at_most,
        explain,
        read_json,
        read_table,
        unknown_name,
        value_object,
    )
else:
    __getattr__, __all__ = lazily(__name__)
