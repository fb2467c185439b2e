"""Clients and engines take tables of all kinds, and a pair of dense rows says that it takes no sparse ones."""

import dataclasses
from typing import Annotated

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse

from fedkernel import DKPCA, InputError, Linear
from fedkernel.clients.dkpca import DKPCAClient
from fedkernel.data import ArrayTable, GeneratedTable, Table, as_table, open_table, open_tables
from fedkernel.engines import ENGINES
from fedkernel.flower_apps import APPS
from fedkernel.protocol import KernelClient, Reply, Request, Shape, encode, to_all
from fedkernel.run import Result, RunSettings
from fedkernel.strategy import KernelStrategy, check_tables
from fedkernel.strategy.simulation import as_file
from fedkernel.wire import Job, RunSpec

pytestmark = pytest.mark.usefixtures("folder")


class Sums(Reply):
    values: Annotated[float, Shape()]


class Sum(Request[Sums]):
    """Asks for the sum of the table."""


class TableClient(KernelClient):
    answers = (Sum,)

    @staticmethod
    def table(X, what):
        return as_table(X, what)

    def sum(self, ask: Sum) -> Sums:
        return Sums(values=float(sum(self.X.block(k, k + 1).sum() for k in range(len(self.X)))))


@dataclasses.dataclass
class Total(KernelStrategy[float]):
    client = TableClient
    partition = "horizontal"

    def protocol(self, run):
        replies = yield from to_all(Sum())
        return sum(reply.values for reply in replies)


def every_kind(folder, X):
    np.save(folder / "X.npy", X)
    sparse.save_npz(folder / "X.npz", sparse.csr_array(X))
    return [
        X,
        X.tolist(),
        sparse.csc_matrix(X),
        ArrayTable(X.astype(np.float32)),
        folder / "X.npy",
        str(folder / "X.npz"),
        GeneratedTable(X.shape, lambda number: X[2 * number : 2 * number + 2], 2),
    ]


def test_a_pair_that_takes_tables_takes_all_kinds_and_what_is_checked_once_as_it_is(folder):
    X = np.arange(20.0).reshape(5, 4)
    shards = every_kind(folder, X)
    result = Total().fit(shards)
    assert result.model == len(shards) * X.sum()
    new = Total().simulate(Total().protocol, shards, shards, RunSettings())[0]
    assert new == result.model
    with pytest.raises(InputError, match=r"^shards\[1\] has shape \(3,\)"):
        Total().fit([X, np.zeros(3)])
    with pytest.raises(InputError, match=r"^there is no file .*none\.npy$"):
        Total().fit([X, folder / "none.npy"])
    for table in check_tables(every_kind(folder, np.eye(4)), "shards", TableClient.table):
        assert isinstance(table, Table)
        assert TableClient(table, new=table).X is table
        assert TableClient(table).get_properties({})["rows"] == 4
        assert TableClient(table).fit(*encode(Sum()))[1] == 4
    # a number that is not finite is told by the client that reads it
    X[3, 1] = np.nan
    with pytest.raises(Exception, match=r"client 1.*the value in row 3, column 1 \(counted from 0\) is nan"):
        Total().fit([np.ones((5, 4)), X])


def test_a_client_of_dense_rows_reads_a_dense_table_whole_and_refuses_a_sparse_one(folder):
    X = np.random.default_rng(0).standard_normal((6, 4))
    np.save(folder / "X.npy", X)
    tables = [ArrayTable(X), open_table(folder / "X.npy"), GeneratedTable((6, 4), lambda k: X[3 * k : 3 * k + 3], 3)]
    for table in tables:
        client = DKPCAClient(table, new=table)
        assert type(client.X) is type(client.new) is np.ndarray
        np.testing.assert_array_equal(client.X, X)
    result = DKPCA(2, Linear()).fit(tables)
    expected = DKPCA(2, Linear()).fit([X] * 3)
    np.testing.assert_array_equal(result.model.eigenvectors_, expected.model.eigenvectors_)
    for shard in (sparse.csr_array(np.eye(4)), as_table(sparse.csr_array(np.eye(4)), "mine")):
        with pytest.raises(InputError, match=r"^shards\[1\](: mine)? is a sparse (matrix|table); allowed: a dense"):
            DKPCA(2, Linear()).fit([np.eye(4), shard])


def test_tables_as_files(folder):
    X = np.diag(np.arange(1.0, 5.0))
    stem = folder / "client-0"
    np.save(folder / "own.npy", X)
    files = {
        "dense": (X, "client-0.npy"),
        "array": (ArrayTable(X.astype(np.float32)), "client-0.npy"),
        "sparse": (as_table(sparse.csr_array(X), "X"), "client-0.npz"),
        "own": (as_table(folder / "own.npy", "X"), "own.npy"),
    }
    for kind, (table, name) in files.items():
        path = as_file(table, stem)
        assert path == str(folder / name)
        rows, new = open_tables(path)
        assert new is None
        assert rows.sparse == (kind == "sparse")
        whole = rows.block(0, 4)
        np.testing.assert_array_equal(whole.toarray() if rows.sparse else whole, X)
    with pytest.raises(InputError, match=r"^rows of mine can be read in this process only"):
        as_file(GeneratedTable((4, 4), lambda number: X, 4, "rows of mine"), stem)


def test_a_job_takes_files_of_all_kinds(folder):
    X = np.random.default_rng(0).standard_normal((12, 3))
    np.save(folder / "a.npy", X)
    np.savez(folder / "b.npz", X=X)
    parquet.write_table(pa.table({f"c{j}": X[:, j] for j in range(3)}), folder / "c.parquet", row_group_size=5)
    sparse.save_npz(folder / "s.npz", sparse.csr_array(X))
    parameters = {"n_components": 2, "kernel": {"type": "linear"}}

    def run(name, files):
        shards = [str(folder / file) for file in files]
        job = Job(apps=APPS, runs=[RunSpec(id=name, strategy="DKPCA", parameters=parameters, shards=shards, clients=3)])
        list(ENGINES["local"](job.model_copy(update={"out": str(folder / "out")})))
        return Result.load(folder / "out" / name).model.eigenvectors_

    np.testing.assert_array_equal(run("mixed", ["a.npy", "b.npz", "c.parquet"]), run("same", ["a.npy"] * 3))
    with pytest.raises(Exception, match=r"^DKPCAClient, joining: node 3: .the data of client 2: .* is a sparse table"):
        run("sparse", ["a.npy", "b.npz", "s.npz"])
