"""Flower baseline: a communication efficient federated kernel k-means."""
