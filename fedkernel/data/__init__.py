"""Data sets by name (`load`), partitions among clients (`split`), and sites' tables (`as_table`, `open_table`)."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.data.checks.table_schema import MOST_LEVELS

    from .block_tables import (
        ArrayTable,
        GeneratedTable,
        OpenedTables,
        ParquetTable,
        SparseTable,
        Table,
        TableLike,
        as_table,
        file_errors,
        open_table,
        open_tables,
    )
    from .datasets import Available, Dataset, DataSpec, available, load
    from .frame_alignment import aligned_arrays, column_names, is_frame, labels_in_order, rows_in_order
    from .generated import GENERATED
    from .labels import NO_LABEL, as_classes, contingency, has_label, label_texts, read_labels, sorted_classes
    from .matrix import check_matrix, check_rows
    from .partition import Partition, PartitionSpec, split
    from .preparation import LARGEST, Preparation, Prepare
    from .raw import RawTable, is_text, missing_cells, raw_table, read_raw, write_raw
    from .row_arrays import ROW_ARRAYS, rows_from_arrays, rows_to_arrays
    from .site_files import SiteData, SiteFile, Version, file_hash, split_names, version_of
    from .sources import FOLDER_VARIABLE, SOURCES, named_path
else:
    __getattr__, __all__ = lazily(__name__)
