"""Checks of a site's file for faults (`check_file`) and against the agreed schema (`Schema`, `compare`)."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from .file_check import check_file
    from .findings import Finding, plural
    from .schema_comparison import compare, compare_schemas, compare_with_prepare
    from .table_schema import Schema, read_schema, schema_of
else:
    __getattr__, __all__ = lazily(__name__)
