#!/usr/bin/env bash
# Files of this project, read by the usual Python programs: safetensors, TensorBoard's EventAccumulator, json and csv. The packages
# are installed once into a virtual environment in the user's cache.
. "$1/tests/support/check.sh"
needs_python
python_of readers

"$(dirname "$towers")/tests/record_driver" "$work/run" || exit 1
"$python" - "$work/run" "$1/docs/records.md" <<'PYTHON'
import csv, json, math, re, sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = sys.argv[1]

# safetensors (numpy has no bfloat16: that tensor is looked at through its shape)
with safe_open(run + "/sample.safetensors", framework="np") as f:
    assert f.metadata() == {"format": "pt", "model": 'sample "quoted" \u00fc'}, f.metadata()
    assert set(f.keys()) == {"stem.conv.weight", "stem.bn.running_mean", "stem.bn.num_batches_tracked", "head.half", "head.empty"}
    weight = f.get_tensor("stem.conv.weight")
    assert weight.shape == (4, 2, 3, 3) and weight.dtype == np.float32
    assert (weight.ravel() == np.float32(5) + np.arange(72, dtype=np.float32) / 128).all()
    assert f.get_tensor("stem.bn.num_batches_tracked").shape == () and f.get_tensor("stem.bn.num_batches_tracked") == 5
    assert f.get_tensor("head.empty").shape == (0, 2)
    assert f.get_slice("head.half").get_shape() == [3] and f.get_slice("head.half").get_dtype() == "BF16"

# metrics.jsonl: strict JSON, every step once
def refuse(word):
    raise ValueError(word)
rows = [json.loads(line, parse_constant=refuse) for line in open(run + "/metrics.jsonl")]
assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6], rows
page = open(sys.argv[2]).read()
documented = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
sometimes = {"phase", "weight", "sums", "sum_begin_us", "backward_end_us", "sum_end_us", "sum_busy_us", "slow_tower", "slow_activity", "loss_scale", "overflow",
             "restarts"} | {key for key in documented if key.startswith("gpu_")} # of them this run has slow_*, in step 5
documented = documented[:len(rows[0]) + len(sometimes)]
assert list(rows[0]) == [key for key in documented if key not in sometimes], (list(rows[0]), documented)
assert rows[0]["copy_us"] == [3, 4] and rows[0]["backward_us"] == []
assert rows[4]["slow_tower"] == 1 and rows[4]["slow_activity"] == "forward"
assert rows[2]["finite"] == [True, False] and rows[2]["total_loss"] is None and rows[2]["tower_grad_norm"] == [0.1, None]
assert rows[0]["grad_norm"] == 1 / 3
assert (rows[3]["main_loss"], rows[3]["aux_loss"], rows[3]["l2_loss"]) == (4, [None], 0.25), rows[3]
assert [row["last_tower_loss"] for row in rows] == [3, 6, 9, 12, 16, 19]

# results.csv
table = list(csv.DictReader(open(run + "/results.csv")))
assert len(table) == 1 and table[0]["step"] == "6" and float(table[0]["test_top1"]) == 0.75, table
assert len(open(run + "/log.txt").read().splitlines()) == 4 # of each process an epoch and a line

# events: the first process was killed in the middle of one; its steps after 4 are forgotten
events = EventAccumulator(run, size_guidance={"scalars": 0, "tensors": 0, "histograms": 0, "images": 0})
events.Reload()
tags = events.Tags()
print(tags)
wanted = {"mean_loss", "last_tower_loss", "tower_0/loss", "tower_1/loss", "learning_rate", "images_per_sec",
          "base_loss", "base_loss (raw)", "total_loss", "total_loss (raw)", "losses/main", "losses/aux_0", "losses/l2",
          "train/loss", "train/accuracy", "test/accuracy", "test/loss"}
assert set(tags["scalars"]) == wanted, tags
points = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in wanted}
assert points["mean_loss"] == [(2, 4), (4, 8), (6, 12)], points
assert points["tower_1/loss"] == [(2, 6), (4, 12), (6, 19)], points
assert points["test/accuracy"] == [(6, 0.75)], points
assert points["base_loss"] == [(2, 3), (4, 6), (6, 9)] and points["base_loss (raw)"] == [(2, 4), (4, 8), (6, 12)], points
assert points["total_loss"] == [(2, 6), (4, 12), (6, 18)] and points["total_loss (raw)"][0] == (2, float("inf")), points
assert points["losses/main"] == [(2, 2), (4, 4), (6, 6)] and points["losses/l2"] == [(2, 0.25), (4, 0.25), (6, 0.25)], points
assert [step for step, value in points["losses/aux_0"] if math.isnan(value)] == [2, 4, 6], points
assert abs(points["learning_rate"][0][1] - 0.1) < 1e-6
(histogram,) = events.Histograms("weights")
value = histogram.histogram_value
assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (-1, 2, 5, 3.5, 9.25), value
assert sum(value.bucket) == 5 and len(value.bucket) == len(value.bucket_limit)
limit = {l: n for l, n in zip(value.bucket_limit, value.bucket) if n}
assert sorted(limit.values()) == [1, 1, 1, 2] and all(a < b for a, b in zip(value.bucket_limit, value.bucket_limit[1:])), limit
(image,) = events.Images("first")
assert (image.step, image.width, image.height) == (6, 3, 2) and image.encoded_image_string[:8] == b"\x89PNG\r\n\x1a\n", image
text = events.Tensors("options")[-1] # TensorBoard does not forget tensors
assert text.tensor_proto.string_val[0] == b"lr: 0.1"
assert events.SummaryMetadata("options").plugin_data.plugin_name == "text"

# docs/records.md knows every key, column and tag
words = {key for row in rows for key in row} | set(table[0]) | {re.sub(r"_\d", "_#", tag) for tag in wanted}
assert not [word for word in words if f"`{word}`" not in page], [word for word in words if f"`{word}`" not in page]
print("ok")
PYTHON
