"""A stock Hudi writer and reader in one long-lived Spark session, driven by one JSON object a line on standard input.

Each answer is one line on standard output, `LAB {"ok": ...}`. It knows nothing of TMS: every Hudi option comes with the
command, so that a test shows what a user would set. Operations:

  write  path, name, options, mode, sets = [[first_id, last_id, ts, partition | null], ...]
         rows (id, part, ts, val); a null partition spreads ids over `a` and `b`
  read   path, mdt (true | false)        count, distinct ids, sum of ts, min and max ts, order-free checksum of the rows
  sql    text                            rows as lists of strings
  exit
"""

import json
import os
import sys
import tempfile

from pyspark.sql import SparkSession


def session(bundle, master):
    builder = (
        SparkSession.builder.master(master)
        .appName("lab")
        .config("spark.jars", bundle)
        .config("spark.driver.extraClassPath", bundle)
        .config("spark.ui.enabled", "false")
        # Nothing is written there; by default it would be made in the checkout.
        .config("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), "tms-test-warehouse"))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    )
    return builder.getOrCreate()


def frame(spark, sets):
    parts = []
    for first, last, ts, partition in sets:
        part = f"'{partition}'" if partition is not None else "if(id % 2 = 0, 'a', 'b')"
        parts.append(
            f"select cast(id as string) id, {part} part, cast({ts} as bigint) ts,"
            f" concat('v', id, '-', {ts}) val from range({first}, {last + 1}, 1, 2)"
        )
    return spark.sql(" union all ".join(parts))


def write(spark, command):
    data = frame(spark, command["sets"])
    options = {
        "hoodie.table.name": command["name"],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.insert.shuffle.parallelism": "2",
        "hoodie.bulkinsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.embed.timeline.server": "false",
        **command["options"],
    }
    data.write.format("hudi").options(**options).mode(command.get("mode", "append")).save(command["path"])
    return {}


def read(spark, command):
    rows = spark.read.format("hudi").option("hoodie.metadata.enable", str(command["mdt"]).lower()).load(command["path"])
    rows.select("id", "part", "ts", "val").createOrReplaceTempView("lab_rows")
    one = spark.sql(
        "select count(*) c, count(distinct id) d, coalesce(sum(ts), 0) s, coalesce(min(ts), 0) lo,"
        " coalesce(max(ts), 0) hi, coalesce(sum(cast(xxhash64(id, part, ts, val) as decimal(38, 0))), 0) h from lab_rows"
    ).collect()[0]
    return {"count": one.c, "distinct": one.d, "sum_ts": one.s, "min_ts": one.lo, "max_ts": one.hi, "checksum": str(one.h)}


def sql(spark, command):
    return {"rows": [[str(v) for v in row] for row in spark.sql(command["text"]).collect()]}


def main():
    spark = session(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    operations = {"write": write, "read": read, "sql": sql}
    print('LAB {"ok": true}', flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "exit":
            break
        try:
            spark.catalog.clearCache()
            answer = {"ok": True, **operations[command["op"]](spark, command)}
        except Exception as error:  # every failure of the writer is an answer: tests expect some
            answer = {"ok": False, "error": str(error)[:4000]}
        print("LAB " + json.dumps(answer), flush=True)
    spark.stop()


main()
