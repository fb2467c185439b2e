"""A job says plainly what to run; the coordinator runs it, or leaves one sentence about why not."""

import json

import pytest
from cases import PAIRS
from refusals import refusing

from fedkernel.data import DataSpec, SiteFile
from fedkernel.engines import ENGINES
from fedkernel.flower_apps import APPS
from fedkernel.ground import FedkernelError, InputError
from fedkernel.wire import Apps, Job, RunSpec

IRIS = {"data": {"name": "iris"}, "partition": {"clients": 2}}
DKPCA = {"id": "one", "strategy": "DKPCA", "parameters": {"n_components": 2}, "clients": 2}


def test_a_job_survives_the_way_to_the_coordinator():
    job = Job(runs=[RunSpec(**DKPCA, **IRIS), RunSpec(id="two", strategy="VFedPCA", shards=["a.npy"])], threads=2)
    assert Job.from_json(job.model_dump_json()) == job
    assert job.run("two") is job.runs[1]
    with pytest.raises(InputError, match="the job has no run 'three'"):
        job.run("three")
    there = Job(runs=[RunSpec(id="one", strategy="DKPCA", sites=["b", "a"])])
    assert there.runs[0].clients == 2
    assert Job.from_json(there.model_dump_json()) == there


def test_paths_mean_the_same_in_every_folder(tmp_path, monkeypatch):
    """As the apps of an engine, which work in folders of their own, are told them."""
    monkeypatch.chdir(tmp_path)
    mine = {"id": "mine", "strategy": "DKPCA", "data": {"name": "npz:a.npz"}, "partition": {"clients": 2}}
    files = ["a.npy", SiteFile("b/../b.csv", id="patient")]
    job = Job(runs=[RunSpec(**mine), RunSpec(id="files", strategy="DKPCA", shards=files)], out="out")
    assert job.runs[0].data == DataSpec(f"npz:{tmp_path}/a.npz")
    assert job.runs[1].shards == [f"{tmp_path}/a.npy", SiteFile(f"{tmp_path}/b.csv", id="patient")]
    assert job.out == str(tmp_path / "out")
    assert Job.from_json(job.model_dump_json()) == job


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"data": None, "partition": None}, "run one needs data and partition, or shards, or sites"),
        ({"data": None}, "run one needs data and partition, or shards"),
        ({"shards": ["a.npy"]}, "run one needs data and partition, or shards"),
        ({"sites": ["a", "b"]}, "run one needs data and partition, or shards, or sites"),
        ({"data": None, "partition": None, "sites": ["a", "a"]}, "sites = ['a', 'a'], but must be different names"),
        ({"data": None, "partition": None, "sites": ["a"]}, "clients = 2, but must be the number of sites, 1"),
        ({"data": None, "partition": None, "clients": None, "sites": []}, "sites = []: input should have at least 1"),
        ({"missing": "ask"}, "missing = 'ask': input should be 'drop' or 'refuse'"),
        ({"id": "../one"}, "id = '../one': string should match"),
        ({"id": "1" * 241}, "string should have at most 240 characters"),
        ({"seed": -1}, "seed = -1: input should be greater than or equal to 0"),
        ({"colour": "red"}, "colour is not a known name here"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_sentence(changed, says):
    with refusing(says, start="the job is not valid: "):
        Job.from_json(json.dumps({"runs": [{**DKPCA, **IRIS, **changed}]}))


def test_what_is_no_job_is_refused():
    apps = json.dumps({"runs": [{**DKPCA, **IRIS}], "apps": {"server": "nowhere", "client": APPS.client}})
    for text, says in (
        *((text, r"\S") for text in ("", "{}", '{"runs": []}', "[1]")),
        (apps, "apps.server = 'nowhere': string should match"),
    ):
        with pytest.raises(InputError, match=rf"^the job is not valid: {says}"):
            Job.from_json(text)


@pytest.mark.parametrize(
    ("apps", "says"),
    [
        (None, "apps = None, but an engine needs the addresses of the job's server and client apps"),
        (Apps(server="nowhere:app", client=APPS.client), "apps.server = 'nowhere:app': there is no module nowhere"),
        (Apps(server=APPS.client, client=APPS.client), f"apps.server = '{APPS.client}', but must be a ServerApp"),
    ],
)
def test_an_engine_starts_the_apps_that_the_job_names(apps, says):
    with refusing(start=says):
        list(ENGINES["local"](Job(runs=[RunSpec(**DKPCA, **IRIS)], apps=apps)))


@pytest.mark.parametrize(
    ("changed", "kind", "says"),
    [
        ({"strategy": "PCA"}, "InputError", f"strategy = 'PCA', but must be one of {', '.join(PAIRS)}"),
        ({"parameters": {}}, "InputError", "n_components is required"),
        ({"parameters": {"n_components": 151}}, "InputError", "at most the number of rows, 150"),
        ({"clients": 3}, "ProtocolError", "clients = 2 but clients (the caller's) = 3"),
    ],
)
def test_the_cause_of_a_failure_is_left_for_whoever_waits(tmp_path, changed, kind, says):
    runs = [RunSpec(**DKPCA | changed, **IRIS), RunSpec(**DKPCA | {"id": "two"}, **IRIS)]
    job = Job(runs=runs, apps=APPS, out=str(tmp_path))
    with pytest.raises(FedkernelError) as caught:
        list(ENGINES["local"](job))
    cause = json.loads((tmp_path / "error.json").read_text(encoding="utf-8"))
    assert cause == {"kind": kind, "text": str(caught.value)}
    assert type(caught.value).__name__ == kind
    assert says in cause["text"]
    assert not (tmp_path / "two").exists()
