"""Data sets by name (`load`), partitions among clients (`split`), and site tables (`as_table`, `open_table`)."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from fedkernel.data.checks.table_schema import MOST_LEVELS
    from fedkernel.data.datasets import Available, Dataset, DataSpec, available, load
    from fedkernel.data.frame_alignment import is_frame, labels_in_order, rows_in_order, without_names
    from fedkernel.data.generated import GENERATED
    from fedkernel.data.labels import (
        NO_LABEL,
        as_classes,
        contingency,
        kinds_in_order,
        label_texts,
        labelled,
        read_labels,
    )
    from fedkernel.data.matrix import check_matrix, check_rows
    from fedkernel.data.numeric_columns import column_names
    from fedkernel.data.partition import Partition, PartitionSpec, split
    from fedkernel.data.preparation import Preparation, Prepare
    from fedkernel.data.raw import RawTable, is_text, missing_in
    from fedkernel.data.raw_frames import raw_table
    from fedkernel.data.raw_table_files import read_raw, write_raw
    from fedkernel.data.row_arrays import PARTS, rows_from_arrays, rows_to_arrays
    from fedkernel.data.site_files import SiteData, SiteFile, listed
    from fedkernel.data.sources import FOLDER_VARIABLE, SOURCES, named_path
    from fedkernel.data.tables import (
        ArrayTable,
        GeneratedTable,
        Opened,
        ParquetTable,
        SparseTable,
        Table,
        TableLike,
        as_table,
        open_table,
        open_tables,
        readable,
    )
    from fedkernel.data.versions import Version, version_of
else:
    __getattr__, __all__ = lazily(__name__)
