"""Strategy of the paper: algorithm 1 (DSPGD with CEM), section 4.1 (without CEM) and appendix B (distributed Lanczos).

The loop is `fedkernel.strategies.fk_kmeans.FKKMeans`; the module's docstring lists where it departs from the paper.
"""

from fedkernel import FKKMeans

__all__ = ["FKKMeans"]
