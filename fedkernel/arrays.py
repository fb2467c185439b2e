"""Names that everything numerical shares."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
