"""What the job's tests stand on: a fake TMS that answers by a script, the job as a process, and the tables."""
import http.server
import json
import os
import shutil
import subprocess
import threading
import time

TOKEN = "tok-3f9a-must-not-show"
# Longest time that one job may take in a test, and that a reader may take to answer. Seconds.
JOB_SECS_MAX = 600
READ_SECS_MAX = 600

LOCKS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.expire": "1",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.conflict.resolution.strategy":
        "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy",
    "hoodie.clean.automatic": "false",
}


class Tms:
    """A fake TMS. `leave` is a list of answers, one per ask; the last one repeats. An answer is (status, body)."""

    def __init__(self, leave, progress=None):
        self.leave, self.progress = list(leave), progress or (lambda body: {"stop": False})
        self.asked, self.beats, self.ends, self.wrong_tokens = [], [], [], 0
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                route = self.path.rsplit("/", 1)[1]
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    fake.wrong_tokens += 1
                status, answer = fake.answer(route, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, route, body):
        if route == "leave":
            self.asked.append(body)
            given = self.leave.pop(0) if len(self.leave) > 1 else self.leave[0]
            return given(body) if callable(given) else given
        if route == "progress":
            self.beats.append(body)
            return 200, self.progress(body)
        if route == "end":
            self.ends.append(body)
            return 200, {}
        return 404, {}

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def work(action, table, **changes):
    """A `leave: true` answer for this table."""
    answer = {"leave": True, "action": action, "base_path": "file://" + table["path"], "table_name": "t1",
              "instant": table["instant"], "expected": "requested" if table["instant"] else "none",
              "options": dict(LOCKS, **table["pinned"]), "session": {}, "run_timeout_secs": 3600,
              "progress_every_secs": 1}
    options = changes.pop("options", {})
    answer.update(changes)
    answer["options"].update(options)
    return 200, answer


class Lab:
    """One Hudi release: its tables, a reader, and jobs that run with its bundle."""

    def __init__(self, release, spark_home, python, bundles, jar, folder):
        self.release, self.spark_home, self.python, self.jar = release, spark_home, python, jar
        self.bundle = f"{bundles}/hudi-spark3.5-bundle_2.12-{release}.jar"
        self.folder = f"{folder}/{release}"
        self.n_jobs = 0
        self.reader = None

    def open(self):
        env = self.env(PYSPARK_SUBMIT_ARGS="--driver-memory 1g --conf spark.ui.showConsoleProgress=false "
                                           f"--jars {self.bundle} pyspark-shell")
        here = os.path.dirname(os.path.abspath(__file__))
        os.makedirs(self.folder, exist_ok=True)
        log = open(f"{self.folder}/tables.log", "ab")
        self.reader = subprocess.Popen([self.python, f"{here}/tables.py", self.release, self.folder], env=env,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                       cwd=self.folder)
        self.line("READY")
        with open(f"{self.folder}/tables.json", encoding="utf-8") as made:
            self.tables = json.load(made)

    def close(self):
        if self.reader:
            self.reader.stdin.close()
            self.reader.wait(READ_SECS_MAX)

    def line(self, word):
        for line in self.reader.stdout:
            if line.startswith(word):
                return line[len(word):].strip()
        raise AssertionError(f"the reader ended without {word}: see {self.folder}/tables.log")

    def env(self, **more):
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "JAVA_HOME", "LANG")}
        # Without it a JVM in the C locale writes every non-ASCII path as `?`.
        kept.setdefault("LANG", "C.UTF-8")
        # The JVMs of the tests live for seconds: the second compiler would not pay for itself.
        kept["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        return dict(kept, SPARK_HOME=self.spark_home, SPARK_LOCAL_IP="127.0.0.1", **more)

    def table(self, case):
        """The case's table as it was made, put back to its place."""
        shutil.rmtree(f"{self.folder}/{case}", ignore_errors=True)
        shutil.copytree(f"{self.folder}/pristine/{case}", f"{self.folder}/{case}", symlinks=True)
        table = dict(self.tables[case])
        table["pinned"] = {"hoodie.write.table.version": properties(table["path"])["hoodie.table.version"],
                           "hoodie.write.auto.upgrade": "false", "hoodie.metadata.index.column.stats.enable": "false"}
        return table

    def read(self, table):
        self.reader.stdin.write(json.dumps(table["path"]) + "\n")
        self.reader.stdin.flush()
        return json.loads(self.line("READ"))

    def job(self, tms, tag="tms-test-1", conf=(), spark=True, env=None, arguments=(), expect_late=False):
        return Job(self, tms, tag, conf, spark, env or {}, arguments)


class Job:
    """The job as a process: by spark-submit, or its main class alone where no Spark is needed."""

    def __init__(self, lab, tms, tag, conf, spark, env, arguments):
        lab.n_jobs += 1
        self.folder = f"{lab.folder}/jobs/{lab.n_jobs}"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        if tms is not None:
            env = dict({"TMS_JOB_URL": tms if isinstance(tms, str) else tms.url, "TMS_JOB_TAG": tag,
                        "TMS_JOB_TOKEN": TOKEN}, **env)
        if spark:
            line = [f"{lab.spark_home}/bin/spark-submit", "--master", "local[2]", "--driver-memory", "1g",
                    "--conf", "spark.ui.enabled=false", "--driver-class-path", lab.bundle, *conf,
                    "--class", "io.tms.job.TmsSparkJob", lab.jar]
        else:
            line = ["java", "-Xmx128m", "-cp", f"{lab.jar}:{lab.spark_home}/jars/*", "io.tms.job.TmsSparkJob"]
        self.out_path = f"{self.folder}/out"
        with open(self.out_path, "wb") as out:
            self.process = subprocess.Popen(line + list(arguments), env=lab.env(**env), stdout=out,
                                            stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True)

    def end(self):
        try:
            code = self.process.wait(JOB_SECS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the job did not end in {JOB_SECS_MAX} s: {self.out_path}")
        out = self.text()
        assert TOKEN not in out, "the token shows in the output"
        return code, out

    def text(self):
        with open(self.out_path, encoding="utf-8", errors="replace") as out:
            return out.read()


def properties(path):
    with open(f"{path}/.hoodie/hoodie.properties", encoding="utf-8") as lines:
        return dict(line.strip().split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def timeline(path):
    """(folder, names) of the active timeline."""
    folder = f"{path}/.hoodie" + ("/timeline" if properties(path)["hoodie.timeline.layout.version"] == "2" else "")
    return folder, sorted(n for n in os.listdir(folder) if n[0].isdigit())


def completed(path, instant, word):
    """The completed files of one instant: one is right, two are damage."""
    return [n for n in timeline(path)[1] if n.split(".", 1)[1] == word and n.split(".")[0].split("_")[0] == instant]


def snapshot(path):
    """Size and time of each file below: equal means untouched."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            stat = os.stat(os.path.join(folder, name))
            found[os.path.relpath(os.path.join(folder, name), path)] = (stat.st_size, stat.st_mtime_ns)
    return found


def wait_for(what, condition, secs):
    end = time.monotonic() + secs
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"did not happen in {secs} s: {what}")
