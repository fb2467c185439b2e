# /// script
# dependencies = ["numpy==2.4.6", "substrafl==1.0.0", "torch==2.13.0"]
# ///
"""substrafl FedPCA: subspace iteration (Hartebrodt, Roettger 2022) with TorchFedPCAAlgo, by simulate_experiment.

The library's rounds are the setting: a site sends d means, then k d numbers in each, and once more after the last sum.
Registering tables with Substra clients (mode subprocess) is not counted. It computes in float32.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from serve import Answer, Job, program, serve
from substra import BackendType, Client
from substra.sdk.schemas import DataSampleSpec, DatasetSpec, Permissions
from substrafl.algorithms.pytorch import TorchFedPCAAlgo
from substrafl.experiment import simulate_experiment
from substrafl.nodes import AggregationNode, TrainDataNode
from substrafl.strategies import FedPCA

OPENER = """import pathlib, numpy, substratools
class Rows(substratools.Opener):
    fake_data = None
    def get_data(self, folders):
        return numpy.load(pathlib.Path(folders[0]) / "rows.npy")
"""


class Table(torch.utils.data.TensorDataset):
    """Rows, and the labels that the library unpacks."""

    def __init__(self, data_from_opener: np.ndarray, is_inference: bool) -> None:
        rows = torch.from_numpy(data_from_opener.astype(np.float32))
        super().__init__(rows, torch.zeros(len(rows)))


def register(job: Job) -> list[tuple[Client, TrainDataNode]]:
    os.chdir(tempfile.mkdtemp())  # where the clients, while they live, keep their data
    all_may, nodes = Permissions(public=True, authorized_ids=[]), []
    Path("opener.py").write_text(OPENER)
    Path("about.md").touch()
    about = {"permissions": all_may, "logs_permission": all_may, "description": Path("about.md")}
    for number, rows in enumerate(np.split(job["X"], job["cuts"][1:-1])):
        client, folder = Client(backend_type=BackendType.LOCAL_SUBPROCESS), Path(f"site-{number}").resolve()
        key = client.add_dataset(DatasetSpec(name="rows", data_opener=Path("opener.py"), **about))
        folder.mkdir()
        np.save(folder / "rows.npy", rows)
        sample = client.add_data_sample(DataSampleSpec(data_manager_keys=[key], path=folder))
        nodes.append((client, TrainDataNode(client.organization_info().organization_id, key, [sample])))
    return nodes


@program("federated PCA, rows", "substrafl FedPCA", prepare=register, settings=[{"num_rounds": r} for r in (6, 12, 24)])
def fed_pca(job: Job) -> Answer:
    clients, nodes = zip(*job["prepared"], strict=True)
    d, k = job["X"].shape[1], job["k"]
    algorithm = TorchFedPCAAlgo(in_features=d, out_features=k, dataset=Table, seed=job["seed"], disable_gpu=True)
    places = {"train_data_nodes": nodes, "aggregation_node": AggregationNode(nodes[0].organization_id)}
    run = {"strategy": FedPCA(algo=algorithm), "experiment_folder": Path.cwd(), **places, **job["setting"]}
    vectors = simulate_experiment(client=clients[0], **run)[1].state[-1].algo.eigen_vectors
    floats = len(nodes) * d * (1 + k * job["setting"]["num_rounds"])
    counts = {"floats": floats, "floats_down": floats, "rounds": job["setting"]["num_rounds"] + 1, "rows": 0}
    return {"components": vectors.numpy().astype(float), **counts}


if __name__ == "__main__":
    serve()
