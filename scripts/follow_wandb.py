#!/usr/bin/env python3
"""Bring a live or finished run to Weights & Biases: settings as the configuration, every number of metrics.jsonl and results.csv,
at the end pictures and report as files and the best weights as an artifact. Called again it continues behind the last step that
RUN/follow-wandb.json names. WANDB_MODE=offline works, too; `wandb sync` sends it later.

    pip install wandb                              # tested: scripts/requirements/wandb.txt
    python3 scripts/follow_wandb.py runs/NAME      # --once: do not wait for the run's end
"""
import json
import os

import follow_run

try:
    import wandb
except ImportError:
    wandb = None

STATE = "follow-wandb.json"


def state_read(run):
    try:
        with open(os.path.join(run, STATE), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {"step": 0, "epoch": 0, "ended": None}


def state_write(run, state):
    path = os.path.join(run, STATE)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(path + ".new", path)


def main():
    args = follow_run.arguments(__doc__, "project", wandb, "wandb")
    state = state_read(args.run)
    if state["ended"] and state["ended"] == follow_run.ended(args.run):
        return # it has not been continued since
    mark = args.mark[:16]
    run = wandb.init(project=args.project, id=mark, name=os.path.basename(args.path), config=follow_run.settings(args.run), resume="allow")
    run.define_metric("epoch/*", step_metric="epoch/epoch")
    for kind, step, values in follow_run.follow(args.run, state["step"], state["epoch"], not args.once):
        if kind == "step":
            run.log(values, step=step)
            state["step"] = step
        else:
            run.log(values, step=max(step, state["step"]))
            state["epoch"] = int(values["epoch/epoch"])
        state_write(args.run, state)
    outcome = follow_run.ended(args.run)
    if outcome:
        for path in follow_run.existing(args.path, *follow_run.FILES):
            run.save(path, base_path=args.path, policy="now")
        for path in follow_run.weights(args.path):
            artifact = wandb.Artifact(f"towers-{mark}", type="model")
            artifact.add_file(path)
            run.log_artifact(artifact)
    run.finish(exit_code=1 if outcome and outcome["outcome"] == "failed" else 0)
    state["ended"] = outcome
    state_write(args.run, state)


if __name__ == "__main__":
    main()
