"""Data: named tables (`load`) and their division among clients (`split`)."""

from fedkernel.arrays import FloatArray
from fedkernel.data.datasets import Available, Dataset, DataSpec, available, load
from fedkernel.data.matrix import check_matrix
from fedkernel.data.partition import Partition, PartitionSpec, split

__all__ = [
    "Available",
    "DataSpec",
    "Dataset",
    "FloatArray",
    "Partition",
    "PartitionSpec",
    "available",
    "check_matrix",
    "load",
    "split",
]
