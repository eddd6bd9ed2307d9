#!/usr/bin/env python3
"""Bring a live or finished run into MLflow: settings as parameters, every number of metrics.jsonl and results.csv, at the end
the report, pictures and the best weights as artifacts. Called again, also after it was killed, it continues without duplicates:
what MLflow has already is asked of MLflow.

    pip install mlflow-skinny                      # tested: scripts/requirements/mlflow.txt
    export MLFLOW_TRACKING_URI=http://HOST:5000    # a server; without one it takes the whole package: pip install mlflow
    python3 scripts/follow_mlflow.py runs/NAME     # --once: do not wait for the run's end
"""
import glob
import os
import sys
import time
import urllib.parse

import follow_run

try:
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
except ImportError:
    MlflowClient = None

MADE_SECONDS = 5 # a file that is still empty after that has lost its writer
BATCH = 900 # metrics of a request; MLflow takes 1000


def store_mend(uri):
    """MLflow's store of files cannot be read while the file of a metric is empty: as a writer leaves it that is killed between making and
    filling it. It holds nothing, and goes."""
    place = urllib.parse.urlparse(uri)
    if place.scheme not in ("", "file"):
        return
    for path in glob.glob(urllib.parse.unquote(place.path) + "/*/*/metrics/**", recursive=True):
        while os.path.isfile(path) and os.path.getsize(path) == 0:
            if time.time() - os.path.getmtime(path) > MADE_SECONDS:
                os.remove(path)
            else:
                time.sleep(0.1)


def run_find(client, args):
    """The run in MLflow that follows this directory, which is made if there is none."""
    found = client.get_experiment_by_name(args.experiment)
    number = found.experiment_id if found else client.create_experiment(args.experiment)
    runs = client.search_runs([number], f"tags.`towers.mark` = '{args.mark}'")
    if runs:
        return runs[0].info.run_id
    tags = {"towers.mark": args.mark, "towers.run": args.path, "towers.model": follow_run.environment(args.run).get("model", "")}
    return client.create_run(number, run_name=os.path.basename(args.path), tags=tags).info.run_id


def steps_known(client, number):
    """The last step of each metric."""
    return {key: max(m.step for m in client.get_metric_history(number, key)) for key in client.get_run(number).data.metrics}


def bring(client, number, run, wait):
    known, pending = steps_known(client, number), []

    def send():
        if pending:
            client.log_batch(number, metrics=pending)
            pending.clear()

    sent = time.monotonic()
    for kind, step, values in follow_run.follow(run, wait=wait):
        for key, value in values.items():
            key = key if kind == "epoch" else f"step/{key}"
            if step > known.get(key, 0):
                pending.append(Metric(key, value, int(time.time() * 1000), step))
                known[key] = step
        if len(pending) > BATCH - 200 or time.monotonic() - sent > 2:
            send()
            sent = time.monotonic()
    send()


def main():
    args = follow_run.arguments(__doc__, "experiment", MlflowClient, "mlflow-skinny")
    try:
        client = MlflowClient()
    except MlflowException as problem:
        sys.exit(f"follow_mlflow: {str(problem).strip().split('; ')[0]}: name a server by MLFLOW_TRACKING_URI=http://HOST:5000, or pip install "
                 "mlflow, which keeps runs in this folder")
    store_mend(client.tracking_uri)
    number = run_find(client, args)
    known = client.get_run(number).data.params # MLflow keeps the first value of one that a resumed run has changed
    settings = {key: value[:500] for key, value in follow_run.settings(args.run).items() if key not in known}
    client.log_batch(number, params=[Param(key, value) for key, value in settings.items()])
    client.update_run(number, status="RUNNING")
    bring(client, number, args.run, not args.once)
    outcome = follow_run.ended(args.run)
    if not outcome:
        return
    for path in follow_run.existing(args.run, *follow_run.FILES) + follow_run.weights(args.run):
        client.log_artifact(number, path)
    status = {"finished": "FINISHED", "ended early": "FINISHED", "failed": "FAILED"}.get(outcome["outcome"], "KILLED")
    client.set_terminated(number, status)


if __name__ == "__main__":
    main()
