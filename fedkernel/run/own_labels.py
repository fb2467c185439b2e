"""A site's own labels: read from its file where a client needs them that its operator names."""

from fnmatch import fnmatchcase
from functools import lru_cache

from fedkernel.arrays import AnyArray
from fedkernel.data.labels import read_labels
from fedkernel.data.site_files import SiteFile
from fedkernel.data.versions import Version
from fedkernel.errors import RefusedError
from fedkernel.run.policy import Policy


@lru_cache(maxsize=8)
def labels_of_file(file: SiteFile, version: Version) -> AnyArray | None:
    """Return the labels of a file's rows; cached until the file is changed."""
    return read_labels(file)


def check_labels_may_be_used(file: SiteFile, policy: Policy, who: str) -> None:
    """Raise RefusedError unless the operator names the clients that the site runs, and does not hide the labels."""
    if policy.study.pairs is None:
        raise RefusedError(
            "study.pairs", f"{who} gives labels to clients only that its operator names: join --allow (study.pairs)"
        )
    if any(fnmatchcase(label, pattern) for label in file.labels for pattern in file.hidden):
        raise RefusedError("table.hidden", f"{who} hides its labels (table.hidden)")
