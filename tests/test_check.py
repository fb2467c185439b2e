"""What is wrong with a site's file, all at once."""

from messy_files import COLUMNS, FACTOR, MISSING, OTHER_UNIT, SITES, truth, write_messy_files
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler


def test_what_stands_in_the_messy_files_decides_the_answer(tmp_path):
    """Clean, the clusters are the cultivars; with one column of one site in another unit they are not."""
    everything = truth()

    def agreement(X):
        labels = KMeans(2, n_init=10, random_state=0).fit_predict(StandardScaler().fit_transform(X))
        return adjusted_rand_score(everything.cultivars, labels)

    assert agreement(everything.X) == 1
    other = everything.X.copy()
    other[everything.sites == "c", COLUMNS.index(OTHER_UNIT)] *= FACTOR
    assert agreement(other) < 0.6
    paths = write_messy_files(tmp_path)
    assert [len(paths[site].read_bytes().splitlines()) for site in SITES] == [37, 37, 36]
    assert sum(map(len, MISSING.values())) == 5
    assert sum(id_.startswith("0") for id_ in everything.of("b").ids) > 0
