"""Data: named tables (`load`), their division among clients (`split`), and a site's own (`as_table`, `open_table`)."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.arrays import Divided, FloatArray, Rows
    from fedkernel.data.datasets import Available, Dataset, DataSpec, available, load
    from fedkernel.data.matrix import check_matrix, check_rows
    from fedkernel.data.partition import Partition, PartitionSpec, split
    from fedkernel.data.preparation import Preparation, Prepare
    from fedkernel.data.raw import RawTable
    from fedkernel.data.raw_files import read_raw
    from fedkernel.data.rows import rows_from_arrays, rows_to_arrays
    from fedkernel.data.site_files import SiteData, SiteFile, listed
    from fedkernel.data.tables import (
        ArrayTable,
        GeneratedTable,
        ParquetTable,
        SparseTable,
        Table,
        TableLike,
        as_table,
        open_table,
    )
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "ArrayTable",
    "Available",
    "DataSpec",
    "Dataset",
    "Divided",
    "FloatArray",
    "GeneratedTable",
    "ParquetTable",
    "Partition",
    "PartitionSpec",
    "Preparation",
    "Prepare",
    "RawTable",
    "Rows",
    "SiteData",
    "SiteFile",
    "SparseTable",
    "Table",
    "TableLike",
    "as_table",
    "available",
    "check_matrix",
    "check_rows",
    "listed",
    "load",
    "open_table",
    "read_raw",
    "rows_from_arrays",
    "rows_to_arrays",
    "split",
]
