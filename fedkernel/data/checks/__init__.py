"""What is wrong with a site's file (`look_at`), and whether it is as the sites agreed (`Schema`, `compare`)."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.data.checks.against import compare, compare_schemas
    from fedkernel.data.checks.checking import look_at
    from fedkernel.data.checks.findings import Finding, counted
    from fedkernel.data.checks.schemas import Schema, read_schema, schema_of
else:
    __getattr__ = lazily(__name__)

__all__ = ["Finding", "Schema", "compare", "compare_schemas", "counted", "look_at", "read_schema", "schema_of"]
