"""Errors that are told once more, in other words."""

import json
from pathlib import Path

import pytest

from fedkernel import FedkernelError, InputError, ProtocolError
from fedkernel.engines.grpc.run_attempts import raise_for
from fedkernel.ground import OwnFileError, RefusedError, distinct_names, errors
from fedkernel.ground.validation import read_table
from fedkernel.run import FailedRun

ERRORS = [
    ProtocolError("client 1 is silent").at([2], mendable=True),
    RefusedError("study.min_sites", "there are 2 sites"),
    OwnFileError("the site cannot read its table", "table.csv is empty"),
]


def test_every_kind_of_error_stands_among_those_that_are_reworded():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FedkernelError)}
    own = {kind for kind in kinds if "__init__" in vars(kind)}
    assert own == {type(error) for error in ERRORS} - {ProtocolError}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_in_other_words_is_what_it_was(error):
    again = error.reworded("run one: it failed")
    assert type(again) is type(error)
    assert str(again) == "run one: it failed"
    assert vars(again) == vars(error)
    assert str(error) != str(again), "the cause stays as it is"
    with pytest.raises(type(error)) as caught:  # of runs that failed the first one's is raised
        raise_for([FailedRun.of("one", error), FailedRun.of("two", InputError("k = 0"))])
    assert str(caught.value) == f"{error} (and 1 more)"


@pytest.mark.parametrize("wide", [{"a": [0] * 10_001}, {str(number): 0 for number in range(10_001)}])
def test_a_table_with_more_entries_than_can_be_checked_is_refused_at_any_depth(wide):
    for table in (wide, {"list": [wide]}, {"table": {"inner": wide}}):
        with pytest.raises(InputError, match="has 10,001 entries; allowed are 10,000"):
            read_table(json.dumps(table))
    assert read_table(json.dumps({"texts": ["a"] * 10_001}))


def test_files_of_one_name_are_told_apart_by_their_folders():
    assert distinct_names([]) == []
    assert distinct_names(["/data/a.csv", "/data/b.csv"]) == ["a.csv", "b.csv"]
    assert distinct_names(["/x/north/t.csv", "/x/south/t.csv", "/x/south/u.csv"]) == [
        str(Path("north", "t.csv")),
        str(Path("south", "t.csv")),
        str(Path("south", "u.csv")),
    ]
    assert distinct_names(["/x/t.csv", "/x/t.csv"]) == [str(Path("/x/t.csv"))] * 2
