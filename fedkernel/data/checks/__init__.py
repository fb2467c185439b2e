"""Checks of a site's file for faults (`check_file`) and against the agreed schema (`Schema`, `compare`)."""

from typing import TYPE_CHECKING

from fedkernel.ground import lazily

if TYPE_CHECKING:
    from fedkernel.data.checks.file_check import check_file
    from fedkernel.data.checks.findings import Finding, plural
    from fedkernel.data.checks.schema_comparison import compare, compare_schemas, compare_with_prepare
    from fedkernel.data.checks.table_schema import Schema, read_schema, schema_of
else:
    __getattr__, __all__ = lazily(__name__)
