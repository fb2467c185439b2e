"""Flower app: federated kernel PCA and kernel k-means by fedkernel."""
