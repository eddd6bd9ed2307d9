# %% [markdown]
# # Train with two towers, and look at what was recorded
#
# Written by `scripts/pages/notebook.py` from `notebook.py`. It needs a wheel of Towers, or the program and libtowers, and matplotlib.

# %%
import towers

run = towers.train("fashion_cnn", towers=2, max_steps=300, batch_size=32, log_interval=100, experiment="notebook")

# %% [markdown]
# `Ctrl-C`, or the square button, lets the program save a checkpoint and end; `towers.train(..., resume=run)` continues.
#
# ## The records
#
# Each step is a row, each key a column of NumPy. `tower_loss` has a column for each tower.

# %%
steps = run.steps
print(steps)
print(steps["tower_loss"].shape, steps["mean_loss"][-3:])
print(run.outcome["outcome"], {key: run.settings[key] for key in ("towers", "batch_size", "lr", "opt")})

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3.5))
for tower in range(steps["tower_loss"].shape[1]):
    axes.plot(steps["step"], steps["tower_loss"][:, tower], linewidth=0.6, alpha=0.6, label=f"tower {tower}")
axes.plot(steps["step"], steps["mean_loss"], color="black", linewidth=0.9, label="mean")
axes.set_xlabel("step")
axes.set_ylabel("loss")
axes.legend()
figure.tight_layout()
plt.show()

# %% [markdown]
# ## Which classes are hard
#
# The other commands are functions, too, and give the objects of `--json`.

# %%
scores = towers.evaluate(run)
print(f"{scores['top1']:.1%} of {scores['examples']} images")
for row in sorted(scores["classes"], key=lambda row: row["f1"])[:3]:
    print(row["name"], f"recall {row['recall']:.2f}, precision {row['precision']:.2f}")

# %% [markdown]
# ## Predictions
#
# A network takes paths of files, images of Pillow, and arrays.

# %%
import gzip

import numpy

with gzip.open("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz") as file:
    images = numpy.frombuffer(file.read()[16:], numpy.uint8).reshape(-1, 28, 28)
with run.network() as network:
    for found in network.predict(list(images[:3])):
        print(found.name, [f"{name} {probability:.2f}" for name, probability in found.top(3)])
