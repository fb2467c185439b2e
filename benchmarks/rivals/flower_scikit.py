# /// script
# dependencies = ["numpy==2.4.6", "scikit-learn==1.9.1", "flwr==1.41.0", "threadpoolctl==3.6.0"]
# ///
"""Flower with scikit-learn: k-means as a ClientApp under FedAvg, the app called in this process.

"averages": sites run KMeans from the last centres, whose averages by rows FedAvg takes, as in Flower's example. "sums":
sites send sums and numbers of rows by nearest centre. The first site's centres are the start, k d numbers and a round.
Flower's simulation gave the same quality, and took 79 seconds for 3 rounds, most of them to start Ray.
"""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity  # set as the simulation does
from serve import Answer, Job, program, serve
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
SETTINGS = [{"rounds": 3, "local": 1}, {"rounds": 10, "local": 1}, {"rounds": 10, "local": 20}]


class Sites(dict[int, Context]):
    """Flower's Grid, as far as FedAvg uses it: contexts by node, and the app."""

    get_node_ids = dict.keys

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return [self.app(message, self[message.metadata.dst_node_id]) for message in messages]


@program("federated k-means", "Flower + scikit-learn, averages", settings=SETTINGS)
@program("federated k-means", "Flower + scikit-learn, sums", settings=[{"rounds": 3}, {"rounds": 10}])
def k_means(job: Job) -> Answer:
    tables, k = np.split(job["X"], job["cuts"][1:-1]), job["k"]
    n, rounds, local = len(tables), job["setting"]["rounds"], job["setting"].get("local")
    sites = Sites({node: Context(1, node, {}, RecordDict(), {}) for node in range(1, n + 1)})
    sites.app = ClientApp()

    @sites.app.train()
    def train(message: Message, context: Context) -> Message:
        rows, (sums, counts) = tables[context.node_id - 1], message.content["arrays"].to_numpy_ndarrays()
        centers = sums / counts[:, None]
        if local:
            sent = [KMeans(k, init=centers, n_init=1, max_iter=local).fit(rows).cluster_centers_, np.ones(k)]
        else:
            member = np.eye(k)[pairwise_distances_argmin(rows, centers)]
            sent = [member.T @ rows + 1e-9 * centers, member.sum(axis=0) + 1e-9]  # a centre without rows stays
        weight = MetricRecord({"num-examples": len(rows) if local else 1})
        return Message(RecordDict({"arrays": ArrayRecord(sent), "metrics": weight}), reply_to=message)

    with threadpool_limits(1):  # tables are small, and two threads take longer
        first = KMeans(k, n_init=4, random_state=job["seed"]).fit(tables[0]).cluster_centers_
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)
        arrays = strategy.start(sites, ArrayRecord([first, np.ones(k)]), num_rounds=rounds).arrays
    sums, counts = arrays.to_numpy_ndarrays()
    labels, down = pairwise_distances_argmin(job["X"], sums / counts[:, None]), rounds * n * first.size
    floats = first.size + down + (0 if local else rounds * n * k)
    return {"labels": labels, "floats": floats, "floats_down": down, "rounds": rounds + 1, "rows": 0}


if __name__ == "__main__":
    serve()
