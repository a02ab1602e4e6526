"""Makes the tables of the job's tests with one Hudi release (a stock Spark datasource writer, no TMS), then reads them.

Usage: python tables.py RELEASE FOLDER   (the bundle is on the class path by PYSPARK_SUBMIT_ARGS)

FOLDER/<case>/<table>, a copy in FOLDER/pristine, and FOLDER/tables.json: per case the base path, the pending instant
and what a read answers. A clustering plan holds absolute paths, so a copy goes back to the place where it was made.
After `READY`, each line on stdin is a path as JSON, answered by one line `READ …`.
"""
import glob
import json
import os
import shutil
import sys
import tempfile

from pyspark.sql import SparkSession

# A base folder that careless quoting or decoding breaks. No glob characters: clustering of 0.15.0 cannot read those.
ODD = "od%41d ä b'q\"s$HOME"

CASES = ("compaction", "compaction_odd", "compaction_big", "clustering", "clustering_odd", "clean", "clean_odd")

LOCKS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.expire": "1",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.conflict.resolution.strategy":
        "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy",
}

WRITER = {
    "hoodie.table.name": "t1",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.clean.automatic": "false",
    "hoodie.table.service.manager.enabled": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.metadata.index.column.stats.enable": "false",
}


def session():
    return (SparkSession.builder.master("local[2]").appName("make-tables")
            .config("spark.ui.enabled", "false")
            # Nothing is written there; by default it would be made in the checkout.
            .config("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), "tms-test-warehouse"))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
            .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
            .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
            .getOrCreate())


def write(spark, path, kind, ts, n_rows, extra, first=0, operation="upsert"):
    frame = spark.range(first, first + n_rows).selectExpr("id", f"cast({ts} as bigint) as ts", "id % 2 as p",
                                           f"repeat(cast(id * {ts} as string), 20) as txt")
    options = dict(WRITER)
    options["hoodie.datasource.write.table.type"] = kind
    options["hoodie.datasource.write.operation"] = operation
    options.update(LOCKS)
    options.update(extra)
    frame.write.format("hudi").options(**options).mode("append").save("file://" + path)


def pending(path, words):
    """The instants that `.requested` files of these actions name, without a completed file."""
    found = []
    for folder in (".hoodie", ".hoodie/timeline"):
        for word in words:
            for name in glob.glob(f"{glob.escape(path)}/{folder}/*.{word}.requested"):
                found.append(os.path.basename(name).split(".")[0])
    return sorted(found)


def make(spark, folder, case):
    """Writes one table; what is known about it."""
    kind, _, odd = case.partition("_")
    path = f"{folder}/{case}/{ODD if odd == 'odd' else 't'}"
    shutil.rmtree(f"{folder}/{case}", ignore_errors=True)
    if kind == "compaction":
        plan = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
        n_rows = 60000 if odd == "big" else 200
        write(spark, path, "MERGE_ON_READ", 1, n_rows, plan)
        write(spark, path, "MERGE_ON_READ", 2, n_rows, plan)
        write(spark, path, "MERGE_ON_READ", 3, n_rows, {})
    elif kind == "clustering":
        # `async.max.commits` is what counts with `schedule.inline`; `inline.max.commits` does nothing there.
        plan = {"hoodie.clustering.schedule.inline": "true", "hoodie.clustering.async.max.commits": "2",
                "hoodie.parquet.small.file.limit": "0", "hoodie.clustering.plan.strategy.sort.columns": "id"}
        write(spark, path, "COPY_ON_WRITE", 1, 100, plan, 0, "insert")
        write(spark, path, "COPY_ON_WRITE", 2, 100, plan, 100, "insert")
    else:
        for ts in (1, 2, 3, 4):
            write(spark, path, "COPY_ON_WRITE", ts, 200, {})
    instants = pending(path, ["compaction", "clustering", "replacecommit"])
    assert len(instants) == (0 if kind == "clean" else 1), f"{case}: pending {instants}"
    return {"path": path, "instant": instants[0] if instants else None, "read": read(spark, path)}


def main():
    release, folder = sys.argv[1], sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    list_file = f"{folder}/tables.json"
    if not os.path.exists(list_file):
        made = {"release": release}
        for case in CASES:
            made[case] = make(spark, folder, case)
            shutil.copytree(f"{folder}/{case}", f"{folder}/pristine/{case}", symlinks=True)
        with open(list_file, "w", encoding="utf-8") as out:
            json.dump(made, out, indent=1, ensure_ascii=False)
    print("READY", flush=True)
    for line in sys.stdin:
        path = json.loads(line)
        spark.catalog.clearCache()
        try:
            answer = read(spark, path)
        except Exception as error:  # A table that cannot be read is an answer, too.
            answer = str(error).split("\n")[0]
        print("READ " + json.dumps(answer), flush=True)
    spark.stop()


def read(spark, path):
    """Row count, distinct keys and a sum over all rows, with and without the metadata table."""
    answers = []
    for metadata in ("true", "false"):
        frame = spark.read.format("hudi").option("hoodie.metadata.enable", metadata).load("file://" + path)
        row = frame.selectExpr("count(*)", "count(distinct id)", "sum(hash(id, ts, p, txt))", "min(ts)").collect()[0]
        answers.append([int(value) for value in row])
    return answers


if __name__ == "__main__":
    main()
