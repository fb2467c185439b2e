# /// script
# dependencies = ["numpy==2.4.6", "pyspark==4.3.0"]
#
# [tool.fedkernel]
# apt = ["openjdk-17-jre-headless"]
# ///
"""Spark's MLlib: PCA and k-means of a data frame of 2 partitions, by two threads of one Java process.

The data frame is cached and counted before the clock starts; the start of Java and its compiler's first runs are not
counted either. Labels are collected to NumPy within the clock. Of k-means there is one start, by k-means||.
"""

import os
import shutil
from functools import cache
from typing import Any

import numpy as np
from pyspark.ml.clustering import KMeans
from pyspark.ml.feature import PCA
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from serve import Answer, Job, program, serve

SETTINGS = [{"maxIter": 100}, {"maxIter": 100, "initMode": "random"}]

OPTIONS = {"driver.memory": "4g", "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1", "ui.enabled": "false"}
OPTIONS |= {"ui.showConsoleProgress": "false", "sql.shuffle.partitions": "2"}


@cache
def session() -> Any:
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise RuntimeError("Spark needs Java 17, but there is neither JAVA_HOME nor java on the path")
    options = {f"spark.{name}": value for name, value in OPTIONS.items()}
    return SparkSession.builder.master("local[2]").config(map=options).getOrCreate()


def frame(job: Job) -> Any:
    rows = session().sparkContext.parallelize([(Vectors.dense(row),) for row in job["X"]], 2)
    cached = session().createDataFrame(rows, ["features"]).cache()
    cached.count()
    return cached


@program("PCA", "MLlib PCA", prepare=frame)
def pca(job: Job) -> Answer:
    return {"components": PCA(k=job["k"], inputCol="features").fit(job["prepared"]).pc.toArray().T}


@program("k-means", "MLlib KMeans", prepare=frame, settings=SETTINGS)
def k_means(job: Job) -> Answer:
    model = KMeans(k=job["k"], seed=job["seed"], **job["setting"]).fit(job["prepared"])
    return {"labels": np.array([row.prediction for row in model.summary.predictions.select("prediction").collect()])}


if __name__ == "__main__":
    serve()
