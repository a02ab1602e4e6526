"""A stock Hudi writer, as any user has one: a merge-on-read table whose compactions it plans and never runs.

`cargo xtask quickstart` starts it. Nothing here is special to TMS except the callback's address. It prints one
JSON object a line, or with `--by-hand` sentences; after the plan it keeps its Spark session and waits on standard
input: `read` reads the table once more, and the end of the input ends it.

    python quickstart_writer.py --base-path PATH --jar BUNDLE [--callback-url URL] [--lock-expire-minutes N]
                                [--warehouse PATH] [--by-hand]
"""

import argparse
import json
import os
import sys
import time
import zlib

from pyspark.sql import SparkSession

CITIES = ["berlin", "lima", "osaka"]
ROWS = 1200
ROWS_UPDATED = 400
DELTA_COMMITS = 3
WRITES_MAX = 12
COLUMNS = ["id", "city", "fare_cents", "updated"]
SCHEMA = "id string, city string, fare_cents bigint, updated bigint"


# What a person reads of each event.
SENTENCES = {
    "started": "Spark {spark} is up; it writes until the next compaction is planned",
    "commit": "write {number}: {rows} rows, {seconds} s",
    "planned": "Compaction {instant} is planned. TMS runs it now, when its server is up: see `tms instance list`.\n"
               "Ctrl-D ends this writer; `read` and Enter reads the table once more.",
    "read": "a reader sees {without_metadata_table[rows]} rows, checksum {without_metadata_table[checksum]:x}",
}


def say_as_json(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def say_by_hand(event, **fields):
    print(SENTENCES[event].format(**fields), flush=True)


def writer_options(arguments):
    options = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "updated",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.upsert.shuffle.parallelism": "2",
        # The writer plans compactions and leaves them to TMS.
        "hoodie.compact.inline": "false",
        "hoodie.compact.schedule.inline": "true",
        "hoodie.compact.inline.max.delta.commits": str(DELTA_COMMITS),
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.clustering.inline": "false",
        "hoodie.clustering.async.enabled": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.table.service.manager.enabled": "false",
        # Writer and job share one lock; these five lines are the same on both sides.
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider":
            "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
        "hoodie.write.lock.filesystem.expire": arguments.lock_expire_minutes,
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        "hoodie.write.lock.conflict.resolution.strategy":
            "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy",
    }
    if arguments.callback_url:
        # After each commit the writer tells TMS that there may be work.
        options["hoodie.write.commit.callback.on"] = "true"
        options["hoodie.write.commit.callback.http.url"] = arguments.callback_url
    return options


def session(jar, warehouse):
    builder = SparkSession.builder.appName("quickstart-writer").master("local[2]")
    if warehouse:
        # Spark makes this folder where it is started, unless it is named.
        builder = builder.config("spark.sql.warehouse.dir", warehouse)
    return (
        builder.config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .getOrCreate()
    )


def batch(number):
    """Rows of one write: all of them first, then a different part of them each time."""
    if number == 0:
        chosen = range(ROWS)
    else:
        chosen = [(number * 97 + i * 7) % ROWS for i in range(ROWS_UPDATED)]
    rows = {}
    for i in chosen:
        rows[i] = (f"trip-{i:05d}", CITIES[i % len(CITIES)], 1000 + i + 100_000 * number, number)
    return rows


def checksum_of(rows):
    """Sum of the CRC-32 of each row: the same whatever the order, and not computed by Spark."""
    return sum(zlib.crc32("|".join(str(value) for value in row).encode()) for row in rows)


def pending_compaction(base_path):
    """The oldest planned compaction on the timeline, in the layout of any release."""
    suffix = ".compaction.requested"
    local = base_path[len("file://"):] if base_path.startswith("file://") else base_path
    for folder in (os.path.join(local, ".hoodie", "timeline"), os.path.join(local, ".hoodie")):
        if os.path.isdir(folder):
            planned = [name[: -len(suffix)] for name in os.listdir(folder) if name.endswith(suffix)]
            # `<instant>.commit` up to 0.15, `<instant>_<completion time>.commit` from 1.0 on.
            done = {name.split(".")[0].split("_")[0] for name in os.listdir(folder) if name.endswith(".commit")}
            planned = [instant for instant in planned if instant.isdigit() and instant not in done]
            if planned:
                return min(planned)
    return None


def write_until_planned(spark, arguments, say):
    options = writer_options(arguments)
    expected = {}
    for number in range(WRITES_MAX):
        started = time.monotonic()
        rows = batch(number)
        expected.update(rows)
        frame = spark.createDataFrame(list(rows.values()), SCHEMA)
        frame.write.format("hudi").options(**options).mode("append").save(arguments.base_path)
        say("commit", number=number + 1, rows=len(rows), seconds=round(time.monotonic() - started, 1))
        instant = pending_compaction(arguments.base_path)
        if instant:
            say("planned", instant=instant, rows=len(expected), checksum=checksum_of(expected.values()))
            return
    sys.exit(f"no compaction was planned after {WRITES_MAX} writes")


def read(spark, base_path, when, say):
    """Counts the rows as a reader sees them, with and without the metadata table."""
    seen = {}
    for metadata in ("true", "false"):
        frame = spark.read.format("hudi").option("hoodie.metadata.enable", metadata).load(base_path)
        row = f"concat_ws('|', {', '.join(COLUMNS)})"
        answer = frame.selectExpr("count(*) as n", f"sum(crc32({row})) as c").collect()[0]
        seen[metadata] = {"rows": answer["n"], "checksum": answer["c"] or 0}
    say("read", when=when, with_metadata_table=seen["true"], without_metadata_table=seen["false"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-path", required=True)
    parser.add_argument("--jar", required=True)
    parser.add_argument("--callback-url", default="")
    parser.add_argument("--lock-expire-minutes", default="30")
    parser.add_argument("--warehouse", default="")
    parser.add_argument("--by-hand", action="store_true")
    arguments = parser.parse_args()
    say = say_by_hand if arguments.by_hand else say_as_json
    spark = session(arguments.jar, arguments.warehouse)
    if arguments.by_hand:
        # Hudi warns of much that is as it must be here.
        spark.sparkContext.setLogLevel("ERROR")
    say("started", spark=spark.version)
    try:
        write_until_planned(spark, arguments, say)
        read(spark, arguments.base_path, "before", say)
        for line in sys.stdin:
            if line.strip() == "read":
                read(spark, arguments.base_path, "after", say)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
