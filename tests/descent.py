"""Theorem 2 of the ADMM paper, that the augmented Lagrangian decreases, taken apart: what each step of its proof says.

``cd tests && ../.venv/bin/python -m descent`` counts in how many random networks it fails.
"""

import naive
import numpy as np

from fedkernel.clients.admm_state import penalty_bound

ROUNDING = 1e-9
"""Share of the Lagrangian."""


def ring(X, J, gamma, factor=1.0):
    """Return a ring of J nodes that share rows X, with an RBF kernel, not centred, and their matrices' eigenvalues.

    rho is ``factor`` times assumption 2's bound. No node's rows span what the others' do, as in the paper's.
    """
    values, V = np.linalg.eigh(naive.kernel_matrix(X, X, "rbf", gamma))
    phi = np.split((V * np.sqrt(np.maximum(values, 0))).T, J, axis=1)  # vectors with these inner products
    cells = [sorted({(j - 1) % J, j, (j + 1) % J}) for j in range(J)]
    spectra = [np.linalg.eigvalsh(P.T @ P)[::-1] for P in phi]
    bound = max(penalty_bound(own, len(cell)) for own, cell in zip(spectra, cells, strict=True))
    return naive.ADMM(phi, cells, factor * bound), spectra


def random_ring(seed, factor=1.0):
    """Return one of 3 to 5 nodes with 5 to 15 rows of 2 to 6 columns."""
    rng = np.random.default_rng(seed)
    J, n, d = (int(rng.integers(*ends)) for ends in ((3, 6), (5, 16), (2, 7)))
    X = rng.standard_normal((J * n, d)) * rng.uniform(0.5, 2, d)
    return ring(X, J, 10 ** rng.uniform(-1.5, 0.5) / d, factor)


def iterations(steps, spectra, T, dual=True):
    """Yield what each iteration after the first z does: L and U before, and of each step the change and what is said.

    ``said``: the proof's bounds, lemma 3's, lemma 4's with the line that it follows from, and equation 15's with the
    paper's c_j. ``true``: those that hold.
    """
    rho, edges = steps.rho, [(j, q) for j, cell in enumerate(steps.cells) for q in cell]
    steps.update_z()
    for _ in range(T):
        before, w, eta = (steps.lagrangian(), steps.relaxed()), list(steps.w), dict(steps.eta)
        steps.update_w()
        after_a = steps.lagrangian()
        if dual:
            steps.update_eta()
        after_eta, z, outside = steps.lagrangian(), list(steps.z), steps.relaxed() - steps.lagrangian()
        steps.update_z()
        da = [np.linalg.pinv(P, rcond=1e-9) @ (new - old) for P, new, old in zip(steps.phi, steps.w, w, strict=True)]
        nodes = list(zip(steps.phi, spectra, steps.cells, da, strict=True))
        deta = {edge: steps.eta[edge] - eta[edge] for edge in edges}
        dz = [new - old for new, old in zip(steps.z, z, strict=True)]
        columns = [sum(deta[j, q] for q in cell) for j, cell in enumerate(steps.cells)]
        yield {
            "before": before,
            "change": {"z": steps.lagrangian() - after_eta, "eta": after_eta - after_a, "a": after_a - before[0]},
            "said": {
                "z": -rho / 2 * sum(np.square(steps.span[j] @ dz[q]).sum() for j, q in edges),
                "eta": 4 / rho * sum((own**3).sum() * a @ a for _, own, _, a in nodes),
                "line of eta": sum(np.square(column).sum() for column in columns) / rho,
                "a": -sum((rho * len(cell) - own[0]) * own[0] / 2 * a @ a for _, own, cell, a in nodes),
            },
            "true": {
                "z": outside
                - (steps.relaxed() - steps.lagrangian())
                - rho / 2 * sum(np.square(dz[q]).sum() for _, q in edges),
                "eta": sum(np.square(change).sum() for change in deta.values()) / rho,
                "a": -sum(
                    rho * len(cell) / 2 * np.square(P @ a).sum() - np.square(P.T @ P @ a).sum()
                    for P, _, cell, a in nodes
                ),
            },
        }


def failures(seed, factor=1.0, T=12, dual=True):
    """Return which parts of the proof fail somewhere in a run, and by how much of its size L rises after the first."""
    steps = list(iterations(*random_ring(seed, factor), T, dual))
    L = np.array([step["before"][0] for step in steps])
    small = ROUNDING * abs(L).max()
    fails = {  # 14, of which eta's bound is, needs t > 0
        name: any(step["change"][name] > step["said"][name] + small for step in steps[name == "eta" :])
        for name in ("z", "eta", "a")
    }
    fails["line of eta"] = any(step["change"]["eta"] > step["said"]["line of eta"] + small for step in steps)
    return fails, max(np.diff(L)[1:].max() / abs(L).max(), 0.0)


def main():
    """Print in how many networks L rises, by how much at most, and in how many each step fails."""
    for factor, dual, networks in ((1, True, 150), (3, True, 60), (10, True, 60), (100, True, 60), (1, False, 150)):
        trials = [failures(seed, factor, dual=dual) for seed in range(networks)]
        rises = [rise for _, rise in trials]
        counts = ", ".join(f"{name} {sum(fails[name] for fails, _ in trials)}" for name in trials[0][0])
        title = f"rho {factor} x the bound{'' if dual else ', no multipliers'}"
        risen = f"rises in {sum(rise > ROUNDING for rise in rises)} of {networks}, by up to {max(rises):.2f} of it"
        print(f"{title}: {risen}; fails: {counts}")


if __name__ == "__main__":
    main()
