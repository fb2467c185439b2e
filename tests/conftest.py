"""What all tests share, and which of them `make check` runs."""

import gc
import os
import zlib
from collections import Counter

import pytest
from hypothesis import settings

# Two test processes on two cores: a second BLAS thread in each would only spin.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
gc.disable()  # until all is imported and collected, which is then never looked through again

# Shared by several files, and they assert.
pytest.register_assert_rewrite("cases", "configs", "counting", "federation", "gossip", "model_files", "spectra")


# No test fails because the machine is busy.
settings.register_profile("whole", deadline=None, max_examples=40)
settings.register_profile("quick", deadline=None, max_examples=10)


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="one case of every test, none that is slow or starts processes"
    )


def pytest_configure(config):
    settings.load_profile("quick" if config.getoption("quick") else "whole")
    config.option.loadscopereorder = False  # by pytest-xdist, which would begin with the groups of most tests


def pytest_collection_modifyitems(config, items):
    """Put the long groups first; choose the quick tests by a rule, so that there is no list to keep."""
    # one process runs a group from end to end, and mostly waits: begun last, it would leave the others nothing to do
    groups, sizes = ["superlink", "sites", "ray"], Counter(item.path for item in items)

    def place(item):
        rank = groups.index(group) if (group := _group(item)) in groups else 4 - _is_long(item)
        return rank, -sizes[item.path] * (rank == 4)  # of the others the files of most tests come first

    items.sort(key=place)
    if not config.getoption("quick"):
        return
    cases = {}
    for item in items:
        if not item.get_closest_marker("drill"):
            cases.setdefault(_test(item), []).append(item)
    # by a test's name, so that those that share a table of cases do not all take the same one
    chosen = [those[zlib.crc32(name.encode()) % len(those)] for name, those in cases.items()]
    quick = [item for item in chosen if not _is_long(item)]
    config.hook.pytest_deselected(items=list(set(items).difference(quick)))
    items[:] = quick


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def _test(item):
    """The name of a test without its case; each property of `fedkernel.testing` is a test of its own."""
    check = item.callspec.params.get("check") if hasattr(item, "callspec") else None
    return item.nodeid.partition("[")[0] + getattr(check, "__name__", "")


def _group(item):
    """The name of the group that a test belongs to."""
    mark = item.get_closest_marker("xdist_group")
    return mark and mark.args[0]


def _is_long(item):
    """Whether it is not of the quick tests: those that are kept together start processes."""
    return not {"slow", "ray", "drill", "xdist_group"}.isdisjoint(mark.name for mark in item.iter_markers())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Neither the real folder nor scikit-learn's cache has a say, except where a test asks for it."""
    monkeypatch.setenv("FEDKERNEL_DATA", str(tmp_path))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A folder with certificates for a server on this machine and three sites."""
    from federation import NAMES  # noqa: PLC0415 - after the environment is set

    from fedkernel.engines.grpc.certificates import make_certificates  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder, ["127.0.0.1"], NAMES)
    return folder


@pytest.fixture
def place(tmp_path):
    """A folder with a configuration and three sites' files."""
    from federation import furnish  # noqa: PLC0415

    return furnish(tmp_path)
