"""Tests of the Spark job against a fake TMS, real Spark, real bundles and real tables.

Usage: python run.py --spark-home DIR --python PYTHON --bundles DIR --jar FILE --tables DIR
                     [--release V]... [--only WORD] [--quick | --smoke]

PYTHON is one that can import pyspark. --quick runs only what needs no Spark; --smoke adds, for each release, the runs
on odd paths and one stop. Ends with `N passed, N failed, N skipped`.
"""
import argparse
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import harness
from harness import LOCKS, Tms, completed, properties, snapshot, timeline, wait_for, work

REFUSED = (200, {"leave": False, "reason": "held", "detail": "another driver holds leave"})
# Stale after 2 missed beats: 2 s instead of 2 minutes.
BEATS = {"hoodie.client.heartbeat.interval_in_ms": "1000"}
ALL = ("1.2.0", "1.0.2", "0.15.0")


def table_without_files(instant="20261130120000000", path="/nowhere/t"):
    return {"path": path, "instant": instant, "pinned": {}}


# ---- no Spark needed ------------------------------------------------------------------------------------------------

def environment_and_arguments_that_are_unusable_end_with_2(lab):
    for env, arguments in (({}, ()), ({"TMS_JOB_URL": "http://127.0.0.1:1", "TMS_JOB_TAG": "t-1"}, ()),
                           ({"TMS_JOB_URL": "ftp://h", "TMS_JOB_TAG": "t-1", "TMS_JOB_TOKEN": harness.TOKEN}, ()),
                           ({"TMS_JOB_URL": "http://h:99999", "TMS_JOB_TAG": "t-1", "TMS_JOB_TOKEN": harness.TOKEN}, ()),
                           ({"TMS_JOB_URL": "http://h", "TMS_JOB_TAG": "T`1", "TMS_JOB_TOKEN": harness.TOKEN}, ()),
                           ({"TMS_JOB_URL": "http://h", "TMS_JOB_TAG": "t-1", "TMS_JOB_TOKEN": harness.TOKEN},
                            ("--token", "x"))):
        code, out = lab.job(None, spark=False, env=env, arguments=arguments).end()
        assert code == 2, (code, out)


def properties_file_is_read_when_private_and_refused_when_not(lab):
    tms = Tms([REFUSED])
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.write(f"url={tms.url}\ntag=tms-file\ntoken={harness.TOKEN}\n")
            file.flush()
            os.chmod(file.name, 0o600)
            code, out = lab.job(None, spark=False, arguments=("--properties", file.name)).end()
            assert code == 10 and tms.wrong_tokens == 0 and len(tms.asked) == 1, (code, out)
            os.chmod(file.name, 0o640)
            code, out = lab.job(None, spark=False, arguments=("--properties", file.name)).end()
            assert code == 2 and len(tms.asked) == 1, (code, out)
    finally:
        tms.close()


def leave_refused_at_start_ends_with_10_and_reports_no_end(lab):
    for refusal in (REFUSED, (401, {}), (403, {}), (404, {}), (410, {})):
        tms = Tms([refusal])
        code, out = lab.job(tms, spark=False).end()
        tms.close()
        assert code == 10 and len(tms.asked) == 1 and not tms.ends, (refusal, code, out)
        ask = tms.asked[0]
        assert ask["stage"] == "start" and len(ask["run_id"]) == 32 and ask["pid"] > 0 and ask["host"], ask


def nobody_answering_ends_with_11_after_the_limit(lab):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    start = time.monotonic()
    code, out = lab.job(url, spark=False, env={"TMS_JOB_LEAVE_WAIT_SECS": "3"}).end()
    assert code == 11 and 3 <= time.monotonic() - start < 20, (code, out)


def answers_that_are_none_are_asked_again(lab):
    bad = [(503, {}), (429, {}), (302, {}), (200, b"<html>login</html>"), (200, b'{"leave":true,"leave":false}')]
    tms = Tms(bad + [REFUSED])
    code, out = lab.job(tms, spark=False, env={"TMS_JOB_LEAVE_WAIT_SECS": "60"}).end()
    tms.close()
    assert code == 10 and len(tms.asked) == len(bad) + 1, (code, out)
    assert len({ask["run_id"] for ask in tms.asked}) == 1


def work_that_cannot_be_done_whole_is_refused_with_2(lab):
    ok = table_without_files()
    for leave, key in ((work("compaction", dict(ok, instant=None)), "instant"),
                       (work("clustering", dict(ok, instant=None)), "instant"),
                       (work("compaction", dict(ok, instant="1 or 1")), "instant"),
                       (work("compaction", dict(ok, instant="00000000000000010")), "instant"),
                       (work("logcompaction", ok), "action"), (work("compaction", ok, base_path=""), "base_path"),
                       (work("compaction", ok, expected="perhaps"), "expected"),
                       (work("compaction", ok, expected="none"), "expected"),
                       (work("compaction", ok, options={"spark.executor.memory": "1g"}), "spark.executor.memory"),
                       (work("compaction", ok, options={"hoodie.a,b": "1"}), "hoodie.a,b"),
                       (work("compaction", ok, options={"hoodie.n": 7}), "hoodie.n"),
                       (work("compaction", ok, options={"hoodie.write.lock.provider": "a.B,C"}), "lock.provider"),
                       (work("clean", dict(ok, instant=None), options={"hoodie.cleaner.policy": "a b"}), "policy"),
                       (work("compaction", ok, session={"spark.master": "local"}), "spark.master"),
                       (work("compaction", ok, run_timeout_secs=0), "seconds")):
        tms = Tms([leave])
        code, out = lab.job(tms, spark=False).end()
        tms.close()
        assert code == 2 and key in out, (key, code, out)
        assert [end["outcome"] for end in tms.ends] == ["untouched"], (key, tms.ends)


def sigterm_while_waiting_for_an_answer_ends_with_143(lab):
    tms = Tms([(503, {})])
    job = lab.job(tms, spark=False)
    wait_for("an ask", lambda: tms.asked, 30)
    job.process.send_signal(signal.SIGTERM)
    code, out = job.end()
    tms.close()
    assert code == 143 and not tms.ends, (code, out)


# ---- each release ---------------------------------------------------------------------------------------------------

def run(lab, leave, tag="tms-test-1", **more):
    tms = Tms(leave if isinstance(leave, list) else [leave], more.pop("progress", None))
    try:
        code, out = lab.job(tms, tag, **more).end()
    finally:
        tms.close()
    return code, out, tms


def completes(lab, case, action, word):
    table = lab.table(case)
    before = properties(table["path"])
    folder = f"{table['path']}/.hoodie/metadata"
    before_metadata = properties(folder)
    code, out, tms = run(lab, work(action, table))
    assert code == 0, (code, out)
    assert len(completed(table["path"], table["instant"], word)) == 1, timeline(table["path"])
    assert [ask["stage"] for ask in tms.asked] == ["start", "call"] and len({a["run_id"] for a in tms.asked}) == 1
    assert tms.wrong_tokens == 0
    end, = tms.ends
    assert end["outcome"] == "returned" and end["exit_code"] == 0 and end["app_id"], end
    assert any(table["instant"] in row and "COMPLETED" in row for row in end["rows"]), end
    assert tms.beats and {beat["run_id"] for beat in tms.beats} == {tms.asked[0]["run_id"]}
    percents = [beat["percent"] for beat in tms.beats]
    assert percents == sorted(percents) and percents[-1] <= 99, percents
    for key in ("hoodie.table.version", "hoodie.timeline.layout.version", "hoodie.table.metadata.partitions"):
        assert properties(table["path"]).get(key) == before.get(key), key
        assert properties(folder).get(key) == before_metadata.get(key), key
    assert lab.read(table) == table["read"], (lab.read(table), table["read"])
    for value in LOCKS.values():
        assert len(value) < 6 or value not in out, "an option's value shows"


def compaction_completes_and_rows_stay(lab):
    completes(lab, "compaction", "compaction", "commit")


def compaction_on_an_odd_path_completes(lab):
    completes(lab, "compaction_odd", "compaction", "commit")


def clustering_completes_and_rows_stay(lab):
    completes(lab, "clustering", "clustering", "replacecommit")


def clustering_on_an_odd_path_completes(lab):
    completes(lab, "clustering_odd", "clustering", "replacecommit")


def cleans(lab, case):
    table = lab.table(case)
    n_files = len(glob.glob(f"{glob.escape(table['path'])}/[0-9]/*.parquet"))
    code, out, tms = run(lab, work("clean", table, options={"hoodie.cleaner.commits.retained": "1"}))
    assert code == 0 and tms.ends[0]["outcome"] == "returned", (code, out)
    assert len([n for n in timeline(table["path"])[1] if n.endswith(".clean")]) == 1, timeline(table["path"])
    assert len(glob.glob(f"{glob.escape(table['path'])}/[0-9]/*.parquet")) < n_files
    assert lab.read(table) == table["read"]


def clean_completes_and_rows_stay(lab):
    cleans(lab, "clean")


def clean_on_an_odd_path_completes(lab):
    cleans(lab, "clean_odd")


def settings_reach_the_client_whole_and_secrets_are_not_shown(lab):
    # Names that do not exist make Hudi name them in its exception: proof that the value arrived, comma and all.
    secret = "s3cr3t-value-77"
    for case, action in (("compaction", "compaction"), ("clustering", "clustering"), ("clean", "clean")):
        for key, value in (("hoodie.write.lock.provider", "no.such.Provider"),
                           ("hoodie.write.concurrency.mode", f"A,{secret} B=C")):
            if action == "clean" and key.endswith("mode") and lab.release == "0.15.0":
                continue  # Its cleaner never looks at the mode.
            table = lab.table(case)
            options = {key: value, "hoodie.some.secret.key": secret, "hoodie.cleaner.commits.retained": "1"}
            code, out, tms = run(lab, work(action, table, options=options))
            said = "\n".join(tms.ends[0]["error"])
            assert code == 3 and tms.ends[0]["outcome"] == "threw", (action, code, out)
            assert value.replace(secret, "***").upper() in said.upper(), (action, said)
            assert secret.upper() not in said.upper().replace(value.upper(), ""), said
            assert secret not in out, out


def lock_settings_of_leave_rule_over_those_that_the_procedures_bring(lab):
    """Without the provider in the call, the procedures take any lock that is older than a minute."""
    for case, action in (("compaction", "compaction"), ("clustering", "clustering"), ("clean", "clean")):
        table = lab.table(case)
        lock = f"{table['path']}/.hoodie/lock"
        open(lock, "w", encoding="utf-8").close()
        os.utime(lock, (time.time() - 300, time.time() - 300))
        code, out, tms = run(lab, work(action, table, options={
            "hoodie.write.lock.filesystem.expire": "30", "hoodie.write.lock.client.num_retries": "1",
            "hoodie.write.lock.client.wait_time_ms_between_retry": "100", "hoodie.cleaner.commits.retained": "1",
            "hoodie.write.lock.wait_time_ms": "100", "hoodie.write.lock.num_retries": "1"}))
        assert code == 3 and "Unable to acquire" in str(tms.ends[0]["error"]), (action, code, out)


# ---- one release ----------------------------------------------------------------------------------------------------

def untouched(lab, leave, code, outcome, case="compaction", change=None, **more):
    table = lab.table(case)
    if change:
        change(table)
    before = snapshot(table["path"])
    answers = [answer(table) for answer in leave]
    got, out, tms = run(lab, answers, **more)
    assert got == code, (got, out)
    assert snapshot(table["path"]) == before, "the table was touched"
    assert tms.ends[0]["outcome"] == outcome and tms.ends[0]["exit_code"] == code, tms.ends
    return out, tms


def of(action, **changes):
    return lambda table: work(action, table, **changes)


def second_leave_refused_ends_with_10_untouched(lab):
    out, tms = untouched(lab, [of("compaction"), lambda t: REFUSED], 10, "untouched")
    assert [ask["stage"] for ask in tms.asked] == ["start", "call"]


def second_leave_for_other_work_ends_with_10_untouched(lab):
    untouched(lab, [of("compaction"), of("compaction", instant="20200101000000000")], 10, "untouched")


def nobody_answering_the_second_ask_ends_with_11_untouched(lab):
    untouched(lab, [of("compaction"), lambda t: (503, {})], 11, "untouched", env={"TMS_JOB_LEAVE_WAIT_SECS": "2"})


def completed_instant_ends_with_12_untouched(lab):
    def finish(table):
        folder, names = timeline(table["path"])
        stem = table["instant"] + ("_20991231000000000" if folder.endswith("timeline") else "")
        with open(f"{folder}/{stem}.commit", "w", encoding="utf-8") as out:
            out.write("{}")
    untouched(lab, [of("compaction")], 12, "untouched", change=finish)
    untouched(lab, [of("compaction", expected="inflight_of_ours")], 12, "untouched", change=finish)


def unknown_instant_ends_with_12_untouched(lab):
    untouched(lab, [of("compaction", instant="20200101000000000")], 12, "untouched")


def foreign_inflight_ends_with_12_untouched(lab):
    def start(table):
        open(f"{timeline(table['path'])[0]}/{table['instant']}.compaction.inflight", "w", encoding="utf-8").close()
    untouched(lab, [of("compaction")], 12, "untouched", change=start)


def foreign_pending_clean_ends_with_12_untouched(lab):
    for state in ("requested", "inflight"):
        def plan(table):
            open(f"{timeline(table['path'])[0]}/20990101000000000.clean.{state}", "w", encoding="utf-8").close()
        untouched(lab, [of("clean")], 12, "untouched", case="clean", change=plan)


def other_table_version_than_leave_names_ends_with_12_untouched(lab):
    untouched(lab, [of("compaction", options={"hoodie.write.table.version": "7"})], 12, "untouched")


def unreadable_timeline_ends_with_3_untouched(lab):
    def lose(table):
        os.remove(f"{table['path']}/.hoodie/hoodie.properties")
    out, tms = untouched(lab, [of("compaction")], 3, "threw", change=lose)
    assert "timeline could not be read; nothing was touched" in str(tms.ends), tms.ends
    assert not os.path.exists("/nowhere"), "a folder was made for a table that does not exist"
    code, out, tms = run(lab, work("clean", table_without_files(None)))
    assert code == 3 and not os.path.exists("/nowhere"), (code, out)


def stop_before_the_call_ends_with_10_untouched(lab):
    untouched(lab, [of("compaction")], 10, "untouched", progress=lambda body: {"stop": True})


def spark_that_does_not_start_ends_with_3_untouched(lab):
    lab, bundle = lab, lab.bundle
    try:
        lab.bundle = lab.jar
        out, tms = untouched(lab, [of("compaction")], 3, "threw")
    finally:
        lab.bundle = bundle
    assert "nothing was touched" in str(tms.ends), tms.ends


def two_jobs_of_one_attempt_let_only_the_holder_run(lab):
    table = lab.table("compaction")
    holder = []

    def one_holder(body):
        holder.append(body["run_id"])
        return work("compaction", table) if body["run_id"] == holder[0] else REFUSED
    tms = Tms([one_holder])
    jobs = [lab.job(tms), lab.job(tms)]
    codes = sorted(job.end()[0] for job in jobs)
    tms.close()
    assert codes == [0, 10] and len(tms.ends) == 1, (codes, tms.ends)
    assert len(completed(table["path"], table["instant"], "commit")) == 1 and lab.read(table) == table["read"]


def inflight(table):
    return lambda: os.path.exists(f"{timeline(table['path'])[0]}/{table['instant']}.compaction.inflight")


def is_stopped_and_completes_when_run_again(lab, stop, code, outcome, seen=None, **changes):
    table = lab.table("compaction_big")
    told = []
    tms = Tms([work("compaction", table, options=BEATS, **changes)], lambda body: {"stop": bool(told)})
    job = lab.job(tms)
    if stop:
        wait_for("the call's beginning", (seen or inflight)(table), 120)
        stop(job, told)
    asked_at = time.monotonic()
    got, out = job.end()
    tms.close()
    assert got == code and tms.ends[0]["outcome"] == outcome, (got, out)
    assert not stop or time.monotonic() - asked_at < 30, "it took long to stop"
    assert not os.path.exists(f"{table['path']}/.hoodie/lock"), "the table lock was left behind"
    assert not completed(table["path"], table["instant"], "commit")
    retry = work("compaction", table, expected="inflight_of_ours", options=BEATS)
    # 1.2.0 refuses a retry until the heartbeat of the stopped call has gone stale, about 2 minutes with Hudi's defaults.
    time.sleep(5)
    got, out, tms = run(lab, retry, tag="tms-test-2")
    assert got == 0, (got, out)
    assert len(completed(table["path"], table["instant"], "commit")) == 1
    assert lab.read(table) == table["read"], (lab.read(table), table["read"])


def stop_during_the_call_cancels_it_and_the_retry_completes(lab):
    is_stopped_and_completes_when_run_again(lab, lambda job, told: told.append(1), 3, "stopped")


def sigterm_during_the_call_unwinds_and_ends_with_143(lab):
    is_stopped_and_completes_when_run_again(lab, lambda job, told: job.process.send_signal(signal.SIGTERM), 143, "stopped")


def sigterm_with_the_lock_in_hand_gives_it_back(lab):
    """The lock is seen in the commit; the call may also win the race and complete, which is as good."""
    table = lab.table("compaction_big")
    lock = f"{table['path']}/.hoodie/lock"
    tms = Tms([work("compaction", table, options=BEATS)])
    job = lab.job(tms)
    wait_for("the call's beginning", inflight(table), 120)
    wait_for("the lock", lambda: os.path.exists(lock), 60)
    job.process.send_signal(signal.SIGTERM)
    code, out = job.end()
    tms.close()
    n_completed = len(completed(table["path"], table["instant"], "commit"))
    assert (code, n_completed) in ((143, 0), (0, 1)), (code, n_completed, out)
    assert not os.path.exists(lock), "the table lock was left behind"
    if code:
        time.sleep(5)
        code, out, _ = run(lab, work("compaction", table, expected="inflight_of_ours", options=BEATS))
        assert code == 0, out
    assert lab.read(table) == table["read"]


def own_time_limit_before_the_call_ends_with_3_untouched(lab):
    untouched(lab, [of("compaction", run_timeout_secs=1)], 3, "timed_out")


def sigterm_while_it_waits_for_a_foreign_lock_leaves_that_lock(lab):
    table = lab.table("compaction_big")
    lock = f"{table['path']}/.hoodie/lock"
    tms = Tms([work("compaction", table, options={"hoodie.write.lock.filesystem.expire": "30"})])
    job = lab.job(tms)
    wait_for("the call's beginning", inflight(table), 120)
    open(lock, "w", encoding="utf-8").close()
    wait_for("waiting", lambda: sleeping_before_lock(job), 90)
    job.process.send_signal(signal.SIGTERM)
    code, out = job.end()
    tms.close()
    assert code == 143, (code, out)
    assert os.path.exists(lock), "a lock of somebody else was deleted"


def sleeping_before_lock(job):
    dump = subprocess.run(["jstack", str(job.process.pid)], capture_output=True, text=True, check=False).stdout
    main = dump.partition('"main"')[2].partition("\n\n")[0]
    return "LockManager.lock" in main and "sleep" in main.lower()


def sql_literals_survive_both_parsers(lab):
    here = os.path.dirname(os.path.abspath(__file__))
    classes = f"{lab.folder}/roundtrip"
    shutil.rmtree(classes, ignore_errors=True)
    os.makedirs(classes)
    subprocess.run(["javac", "-nowarn", "--release", "8", "-Xlint:none", "-cp", f"{lab.jar}:{lab.spark_home}/jars/*",
                    "-d", classes, f"{here}/SqlTextRoundTrip.java"], check=True, capture_output=True)
    done = subprocess.run([f"{lab.spark_home}/bin/spark-submit", "--master", "local[1]", "--conf",
                           "spark.ui.enabled=false", "--jars", f"{lab.bundle},{lab.jar}", "--driver-class-path",
                           f"{lab.jar}:{classes}", "--class", "io.tms.job.SqlTextRoundTrip", lab.jar],
                          env=lab.env(), capture_output=True, text=True, timeout=harness.JOB_SECS_MAX, check=False)
    assert done.returncode == 0 and "ROUNDTRIP ok" in done.stdout, done.stdout + done.stderr[-3000:]


QUICK = [environment_and_arguments_that_are_unusable_end_with_2, properties_file_is_read_when_private_and_refused_when_not,
         leave_refused_at_start_ends_with_10_and_reports_no_end, nobody_answering_ends_with_11_after_the_limit,
         answers_that_are_none_are_asked_again, work_that_cannot_be_done_whole_is_refused_with_2,
         sigterm_while_waiting_for_an_answer_ends_with_143]
EACH = [compaction_completes_and_rows_stay, compaction_on_an_odd_path_completes, clustering_completes_and_rows_stay,
        clustering_on_an_odd_path_completes, clean_completes_and_rows_stay, clean_on_an_odd_path_completes,
        settings_reach_the_client_whole_and_secrets_are_not_shown,
        lock_settings_of_leave_rule_over_those_that_the_procedures_bring, sql_literals_survive_both_parsers,
        completed_instant_ends_with_12_untouched, foreign_inflight_ends_with_12_untouched,
        foreign_pending_clean_ends_with_12_untouched, stop_during_the_call_cancels_it_and_the_retry_completes,
        sigterm_while_it_waits_for_a_foreign_lock_leaves_that_lock]
SMOKE = [compaction_on_an_odd_path_completes, clustering_on_an_odd_path_completes, clean_on_an_odd_path_completes,
         stop_during_the_call_cancels_it_and_the_retry_completes]
ONE = [second_leave_refused_ends_with_10_untouched, second_leave_for_other_work_ends_with_10_untouched,
       nobody_answering_the_second_ask_ends_with_11_untouched, unknown_instant_ends_with_12_untouched,
       other_table_version_than_leave_names_ends_with_12_untouched, unreadable_timeline_ends_with_3_untouched,
       stop_before_the_call_ends_with_10_untouched, spark_that_does_not_start_ends_with_3_untouched,
       two_jobs_of_one_attempt_let_only_the_holder_run, sigterm_during_the_call_unwinds_and_ends_with_143,
       sigterm_with_the_lock_in_hand_gives_it_back, own_time_limit_before_the_call_ends_with_3_untouched]


def main():
    options = argparse.ArgumentParser()
    for name in ("--spark-home", "--python", "--bundles", "--jar", "--tables"):
        options.add_argument(name, required=True)
    options.add_argument("--release", action="append")
    options.add_argument("--only", default="")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--smoke", action="store_true")
    given = options.parse_args()
    n_passed = n_failed = n_skipped = 0
    for n, release in enumerate(given.release or ALL):
        cases = QUICK if n == 0 else []
        if given.smoke:
            cases = cases + SMOKE
        elif not given.quick:
            cases = cases + EACH + (ONE if release == "1.2.0" else [])
        cases = [case for case in cases if given.only in case.__name__]
        lab = harness.Lab(release, given.spark_home, given.python, given.bundles, given.jar, given.tables)
        if not os.path.exists(lab.bundle) and not given.quick:
            print(f"SKIPPED {release}: {lab.bundle} is missing", flush=True)
            n_skipped += len(cases)
            continue
        try:
            if any(case not in QUICK for case in cases):
                lab.open()
            for case in cases:
                start = time.monotonic()
                try:
                    case(lab)
                    n_passed += 1
                    print(f"ok {release} {case.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
                except Exception:  # Each case is judged alone.
                    n_failed += 1
                    print(f"FAILED {release} {case.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
                    traceback.print_exc(file=sys.stdout)
        finally:
            lab.close()
    print(f"{n_passed} passed, {n_failed} failed, {n_skipped} skipped", flush=True)
    return 1 if n_failed or (n_skipped and os.environ.get("CI") == "true") else 0


if __name__ == "__main__":
    sys.exit(main())
