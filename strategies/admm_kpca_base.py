"""Signs of the ADMMKPCA nodes' starts, and quality measures of the components stored at the nodes."""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkernel.clients.admm_kpca import INVERSE_CUTOFF, CompareStarts, MeasureNodeVariance
from fedkernel.data import check_matrix
from fedkernel.ground import FloatArray, InputError, ProtocolError
from fedkernel.models import Directions, KernelPCA, NodeComponents, PeerComponents, kept_variance, normalised_kernel_pca
from fedkernel.numerics import Embeddable, SubspaceEmbedding
from fedkernel.peers import Mail, spanning_tree
from fedkernel.protocol import Plan, Protocol, Run, once, to_sum
from fedkernel.run import Result
from fedkernel.strategy import KernelStrategy


def agreed_signs(mail: Mail, peers: list[tuple[int, ...]]) -> Protocol[list[FloatArray]]:
    """Return each node's signs for the starts in its cell. They agree along a tree of similar nodes. One round."""
    replies = yield from mail.to_all(CompareStarts())
    for j, (others, reply) in enumerate(zip(peers, replies, strict=True)):
        if len(reply.cosines) != len(others):
            raise ProtocolError(f"client {j} sent {len(reply.cosines)} cosines; allowed: {len(others)}, its neighbours")
    cosines = {
        (j, q): float(x) for j, others in enumerate(peers) for q, x in zip(others, replies[j].cosines, strict=True)
    }
    likeness = {(j, q): abs(x) for (j, q), x in cosines.items() if j < q}
    signs = np.ones(len(peers))
    for parent, child in itertools.chain(*spanning_tree(peers, likeness)):
        signs[child] = -signs[parent] if cosines[parent, child] < 0 else signs[parent]
    return [signs[sorted((node, *others))] for node, others in enumerate(peers)]


class ADMMKPCABase(KernelStrategy[PeerComponents]):
    """Base of `ADMMKPCA` with quality measures of the nodes' components, which the coordinator does not see."""

    n_components: int
    kernel: Embeddable
    center: bool

    @abstractmethod
    def _features(self, kernel: Embeddable, seed: int) -> SubspaceEmbedding | None:
        """Return the random features that nodes exchange, or None if they exchange rows."""

    def evaluation(self, run: Run, model: PeerComponents) -> Protocol[dict[str, float]]:
        """Measure the share of the nodes' rows that the nodes' components keep: one round, 2 floats each.

        The rows are normalised, centred in feature space if the method centres, and have their noise.
        """
        variances = yield from to_sum(MeasureNodeVariance())
        return kept_variance(variances.captured, variances.total, run.rows)

    def evaluation_plan(self) -> Plan:
        """Return the plan of `evaluation`: one request."""
        return (once(MeasureNodeVariance),)

    def at_node(self, rows: Any, alpha: FloatArray, *, seed: int = 0) -> NodeComponents:
        """Return a node's components as a model, for projecting new rows there.

        `rows` (n, d): its own. `alpha` (n, k): output, ``result.outputs[j]["alpha"]`` if simulated. `seed`: of the run.
        """
        X = check_matrix(rows, "rows")
        if alpha.ndim != 2 or len(alpha) != len(X):
            raise InputError(f"alpha has shape {alpha.shape}, but must be (rows, components), with {len(X)} rows")
        kernel = self.kernel.settled(X.shape[1])
        return NodeComponents(kernel, X, alpha, self.center, self._features(kernel, seed))

    def central(self, shards: Sequence[Any]) -> KernelPCA:  # type: ignore[override]
        """Return normalised and, if asked, centred kernel PCA of all rows in one place. It forms an (N, N) array."""
        X = np.vstack(list(shards))
        return normalised_kernel_pca(X, self.kernel.settled(X.shape[1]), self.n_components, center=self.center)

    def judge(self, result: Result[Any], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return the mean similarity of the nodes' components to the reference's, and three others to compare it with.

        Means over the nodes: of their own result, of what they find alone, of the part on their rows of the components
        of their and their neighbours' pooled rows, and of the best combination of their rows. Simulated nodes only.
        """
        if reference is None:
            return {}
        if result.model is reference:
            return {"similarity": 1.0}
        tables = [np.asarray(shard) for shard in shards]
        truth = Directions(np.vstack(tables), reference)
        cells = zip(tables, self.peers(len(tables)), strict=True)
        pooled = [np.vstack([tables[peer] for peer in peers] or [X[:0]]) for X, peers in cells]
        similarities = {
            "similarity": [truth.similarity(X, result.outputs[node]["alpha"]) for node, X in enumerate(tables)],
            "similarity_alone": [truth.local_similarity(X) for X in tables],
            "similarity_pooled": [truth.local_similarity(X, others) for X, others in zip(tables, pooled, strict=True)],
            "similarity_ceiling": [truth.largest_similarity(X, INVERSE_CUTOFF) for X in tables],
        }
        return {name: float(np.mean(values)) for name, values in similarities.items()}

    def judge_alone(self, models: Sequence[Any], shards: Sequence[Any], reference: Any = None) -> dict[str, float]:
        """Return the mean similarity of separately fitted models to the reference, each on its node's own rows."""
        if reference is None:
            return {}
        truth = Directions(np.vstack(list(shards)), reference)
        own = zip(shards, models, strict=True)
        return {"similarity": float(np.mean([truth.similarity(X, at.eigenvectors_[: len(X)]) for X, at in own]))}

    def judge_steps(self, result: Result[Any], shards: Sequence[Any], reference: Any) -> dict[str, list[float]]:
        """Return the nodes' mean similarity after each iteration of the first component, if recorded."""
        tables = [np.asarray(shard) for shard in shards]
        steps = [result.outputs[node]["iterates"] for node in range(len(tables)) if "iterates" in result.outputs[node]]
        if len(steps) < len(tables):
            return {}
        truth = Directions(np.vstack(tables), reference)
        courses = [truth.iteration_cosines(X, iterates) for X, iterates in zip(tables, steps, strict=True)]
        return {"similarity": np.mean(courses, axis=0).tolist()}
