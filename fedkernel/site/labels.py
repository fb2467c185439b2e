"""Labels of a site's rows, read from its file for clients that its operator names."""

from fnmatch import fnmatchcase
from functools import lru_cache

from fedkernel.data import SiteFile, Version, read_labels
from fedkernel.ground import AnyArray, RefusedError
from fedkernel.site.policy import Policy


@lru_cache(maxsize=8)
def labels_of_file(file: SiteFile, version: Version) -> AnyArray | None:
    """Return the labels of a file's rows, None without any; cached until the file changes."""
    return read_labels(file)


def check_labels_may_be_used(file: SiteFile, policy: Policy, who: str) -> None:
    """Raise RefusedError unless the operator lists the allowed clients and does not hide the labels."""
    if policy.study.pairs is None:
        raise RefusedError("study.pairs", f"{who}: labels are released only to clients listed in --allow (study.pairs)")
    if any(fnmatchcase(label, pattern) for label in file.labels for pattern in file.hidden):
        raise RefusedError("table.hidden", f"{who} hides its labels (table.hidden)")
