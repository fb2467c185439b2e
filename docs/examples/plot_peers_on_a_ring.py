"""
Peers on a ring
===============

Eight nodes hold 100 digits each, and trust no coordinator. By `fedkernel.strategies.ADMMKPCA` each finds the first
direction of kernel PCA as a combination of its own rows, and talks only to its neighbours, in sealed letters. The
coordinator forwards these and cannot read them. A node's neighbours see its rows: it runs only with
``share_rows=True``.
"""

import matplotlib.pyplot as plt
import networkx as nx
from sklearn.datasets import load_digits

from fedkernel import ADMMKPCA, RBF

X = load_digits().data[:800]
nodes = [X[node::8] for node in range(8)]
results = {}
for neighbors in (2, 4):
    strategy = ADMMKPCA(kernel=RBF(gamma=0.0005), neighbors=neighbors, iterations=4, share_rows=True)
    results[neighbors] = strategy.fit(nodes, seed=0, reference="central")
    print(neighbors, "neighbours:", results[neighbors].ledger.peer_to_peer)

# %%
# The similarity is the cosine of a node's direction and that of all 800 rows, in the mean over the nodes. A node on its
# own has 100 rows; by letters it comes near to the best that any combination of these rows could be.

edges = results[4].ledger.edges
graph = nx.circulant_graph(8, [1, 2])
floats = edges[0, 1].floats + edges[1, 0].floats
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
nx.draw_circular(graph, ax=left, node_color="white", edgecolors="C0", edge_color="0.5", with_labels=True)
left.set(title=f"4 neighbours: {floats:,} floats cross each edge")
left.set_aspect("equal")
bars = {"alone": results[4].metrics["similarity_alone"]}
bars |= {f"{neighbors}\nneighbours": result.metrics["similarity"] for neighbors, result in results.items()}
bars |= {"the best of\n100 rows": results[4].metrics["similarity_ceiling"]}
drawn = right.bar(list(bars), list(bars.values()), color=["0.75", "C0", "C0", "0.75"], edgecolor="0.2")
right.bar_label(drawn, fmt="%.2f")
right.set(ylabel="similarity to the direction of all rows", ylim=(0, 1.1))
plt.show()

# %%
# Four neighbours bring the nodes near their best, for twice the floats of two. ``exchange="features"`` sends random
# features in place of rows; `fedkernel.strategies.PeerVFedPCA` is for peers whose columns are divided. Findings warn of
# what leaves:
for finding in results[4].findings:
    print("-", finding)

# %%
# What neighbours and coordinator can recover: :doc:`/explanation/privacy`.
