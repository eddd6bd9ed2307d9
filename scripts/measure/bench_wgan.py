#!/usr/bin/env python3
"""Time critic updates of wgan_gp beside PyTorch, in turns; see scripts/measure/bench_wgan.sh.

usage: bench_wgan.py [--repetitions N] [--updates N] [--widths 16,64] [--check] [--processor-time]
       bench_wgan.py --serve --peer torch|tensorflow --width W --batch N --layout nchw|nhwc --updates N [--compile]    a peer, run by the first

A critic update draws noise, generates a batch without keeping its gradient, scores real and generated images, takes the gradient
penalty at points between them (torch.autograd.grad with create_graph=True; in TensorFlow two nested GradientTapes, compiled by
tf.function), goes back through all of it and applies Adam. PyTorch pads by 2 on all sides, which needs no operation of its own and
costs it as much as TensorFlow's 1 and 2 or less.

With --processor-time every side has one thread, and the time is that of the processor instead of the clock: other programs on the
machine disturb it little. That of Towers is the difference between a long and a short run.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from bench_cpu import Server, kind_of, machine

TABLE, BATCH = "docs/results/cpu.md", 50
WANTED = {16: 2.5, 64: 1.5}


# ---- the peers


def networks(width, torch):
    nn = torch.nn

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(128, 64 * width)
            self.up = nn.ModuleList([nn.ConvTranspose2d(a * width, b, 5, 2, 2, 1) for a, b in [(4, 2 * width), (2, width), (1, 1)]])

        def forward(self, z):
            x = torch.relu(self.fc(z)).view(len(z), -1, 4, 4)
            x = torch.relu(self.up[0](x))[:, :, :7, :7]
            return torch.sigmoid(self.up[2](torch.relu(self.up[1](x))))

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([nn.Conv2d(a, b * width, 5, 2, 2) for a, b in [(1, 1), (width, 2), (2 * width, 4)]])
            self.score = nn.Linear(64 * width, 1)

        def forward(self, x):
            for conv in self.convs:
                x = nn.functional.leaky_relu(conv(x), 0.2)
            return self.score(x.flatten(1))

    return Generator(), Critic()


def torch_update(options):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    form = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
    generator, critic = [net.to(memory_format=form).train() for net in networks(options.width, torch)]
    adam = torch.optim.Adam(critic.parameters(), 1e-4, (0.5, 0.9), fused=True)
    images = torch.rand(2048, 1, 28, 28)

    def losses(x, z, alpha):
        with torch.no_grad():
            fake = generator(z)
        between = (x + alpha * (fake - x)).requires_grad_(True)
        score = critic(between)
        slope, = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True)
        norm = (slope.flatten(1).square().sum(1) + 1e-12).sqrt()
        score = critic(torch.cat([fake, x]))  # in one pass, as Towers does
        return score[:len(x)].mean() - score[len(x):].mean() + 10 * (norm - 1).square().mean()

    step = torch.compile(losses) if options.compile else losses

    def update():
        ids = torch.randint(0, len(images), (options.batch,))
        x = images[ids].contiguous(memory_format=form)
        adam.zero_grad(set_to_none=True)
        step(x, torch.randn(options.batch, 128), torch.rand(options.batch, 1, 1, 1)).backward()
        adam.step()

    return update, f"PyTorch {torch.__version__.split('+')[0]}"


def tensorflow_update(options):
    import tensorflow as tf

    layers, width = tf.keras.layers, options.width
    tf.random.set_seed(0)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    up = [layers.Conv2DTranspose(n, 5, 2, "same", activation=how) for n, how in [(2 * width, "relu"), (width, "relu"), (1, "sigmoid")]]
    generator = tf.keras.Sequential([tf.keras.Input((128,)), layers.Dense(64 * width, activation="relu"), layers.Reshape((4, 4, 4 * width)),
                                     up[0], layers.Cropping2D(((0, 1), (0, 1))), *up[1:]])
    down = [layer for n in (1, 2, 4) for layer in (layers.Conv2D(n * width, 5, 2, "same"), layers.LeakyReLU(negative_slope=0.2))]
    critic = tf.keras.Sequential([tf.keras.Input((28, 28, 1)), *down, layers.Flatten(), layers.Dense(1)])
    adam = tf.keras.optimizers.Adam(1e-4, 0.5, 0.9)
    images = tf.random.uniform((2048, 28, 28, 1))

    @tf.function
    def update():
        n = options.batch
        x = tf.gather(images, tf.random.uniform((n,), 0, len(images), tf.int32))
        fake = generator(tf.random.normal((n, 128)), training=True)
        between = x + tf.random.uniform((n, 1, 1, 1)) * (fake - x)
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(between)
                score = critic(between, training=True)
            slope = inner.gradient(score, between)
            norm = tf.sqrt(tf.reduce_sum(tf.square(slope), (1, 2, 3)) + 1e-12)
            score = critic(tf.concat([fake, x], 0), training=True)
            loss = tf.reduce_mean(score[:n]) - tf.reduce_mean(score[n:]) + 10 * tf.reduce_mean(tf.square(norm - 1))
        adam.apply_gradients(zip(outer.gradient(loss, critic.trainable_variables), critic.trainable_variables))

    return update, f"TensorFlow {tf.__version__}"


def serve(options):
    update, version = {"torch": torch_update, "tensorflow": tensorflow_update}[options.peer](options)
    for _ in range(10):
        update()
    print(json.dumps({"version": version}), flush=True)
    clock = time.process_time if options.processor_time else time.perf_counter
    while sys.stdin.readline():
        start = clock()
        for _ in range(options.updates):
            update()
        print(json.dumps({"ms": 1e3 * (clock() - start) / options.updates}), flush=True)


# ---- both sides in turns


def towers_ms(width, updates, threads):
    run = subprocess.run([os.environ.get("TOWERS", "build/towers"), "bench", "wgan_gp", "--width", str(width), "--device", "cpu",
                          "--threads", str(threads), "--batch-size", str(BATCH), "--critic-steps", "1000", "--warmup-batches", "10",
                          "--batches", str(updates), "--opt", "adam", "--json"],
                         capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode:
        sys.exit("bench_wgan: towers bench: " + run.stderr[-500:])
    return 1e3 * BATCH / json.loads(run.stdout)["images_per_sec"]


def towers_processor_ms(width, updates):
    used = []
    for more in (0, updates):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        towers_ms(width, 2 + more, 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1e3 * (used[1] - used[0]) / updates


def peer_command(peer, width, updates, options, *more):
    python = os.environ.get(f"{peer.upper()}_PYTHON", "/usr/bin/python3")
    return [python, __file__, "--peer", peer, "--width", str(width), "--batch", str(BATCH), "--updates", str(updates), "--threads",
            str(options.threads), *more] + ["--processor-time"] * options.processor_time


def compare(width, options, refused):
    """Rows (side, times in ms); the versions of the peers. `refused`: why compiled sides do not run, asked once."""
    updates = max(4, options.updates * 16 // width)
    sides = {f"PyTorch {'compiled' if compiled else 'eager'}, {layout}": ("torch", "--layout", layout, *["--compile"] * compiled)
             for compiled in (False, True) for layout in ("nchw", "nhwc")}
    if "TENSORFLOW_PYTHON" in os.environ:
        sides["TensorFlow"] = ("tensorflow",)
    servers, times = {}, {"towers": []}
    for name, (peer, *more) in sides.items():
        if "--compile" in more and refused:
            continue
        try:
            servers[name], times[name] = Server({"command": peer_command(peer, width, updates, options, *more)}), []
        except RuntimeError as error:
            if "--compile" not in more:
                raise
            refused.append(str(error).splitlines()[-1])
    for _ in range(options.repetitions):
        times["towers"].append(towers_processor_ms(width, updates) if options.processor_time
                               else towers_ms(width, updates, options.threads))
        for name, server in servers.items():
            times[name].append(server.measure("ms"))
    version = ", ".join(sorted({server.version for server in servers.values()})) or "no peer"
    for server in servers.values():
        server.close()
    return times, version


def table(width, times):
    ours = statistics.median(times["towers"])
    lines = [f"**Width {width}**", "", "| side | ms an update, median | range | to Towers |", "|---|---:|---:|---:|"]
    for name, runs in times.items():
        median = statistics.median(runs)
        lines.append(f"| {name} | {median:.2f} | {min(runs):.2f}-{max(runs):.2f} | {median / ours:.2f} |")
    best = min(statistics.median(runs) for name, runs in times.items() if name != "towers")
    return lines + [""], best / ours


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--peer", choices=["torch", "tensorflow"])
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--widths", default="16,64")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    if options.processor_time:
        options.threads = 1
    if options.serve:
        return serve(options)
    commit = subprocess.run(["git", "log", "-1", "--format=%h, %ad", "--date=format:%Y-%m-%d"], capture_output=True, text=True).stdout.strip()
    lines, low, refused = [], [], []
    for width in map(int, options.widths.split(",")):
        times, version = compare(width, options, refused)
        rows, ratio = table(width, times)
        lines += rows
        print("\n".join(rows), flush=True)
        if ratio < WANTED.get(width, 0):
            low.append(f"width {width}: {ratio:.2f} times the best peer, wanted {WANTED[width]}")
    how = "1 thread, processor time" if options.processor_time else f"{options.threads} threads"
    kind = kind_of({"machine": machine(options.threads)})
    head = f"One critic update of `wgan_gp`{kind}, batch {BATCH}, f32, {how}, commit {commit}, {version}."
    lines += [f"PyTorch compiled does not run: {why}" for why in refused] + [""]
    filled = subprocess.run(["scripts/pages/fill_section.sh", TABLE, "wgan"], input="\n".join([head, ""] + lines[:-1]) + "\n", text=True)
    for line in low:
        print("bench_wgan: " + line, file=sys.stderr)
    sys.exit(1 if filled.returncode or (options.check and low) else 0)


if __name__ == "__main__":
    main()
