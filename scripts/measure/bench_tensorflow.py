#!/usr/bin/env python3
"""TensorFlow's side of scripts/measure/bench_cpu.sh: its own programs, timed inside the process.

usage: bench_tensorflow.py fashion_cnn|inception_v3 [--batch N] [--steps N] [--warmup N] [--threads N] [--replicas N] [--bf16] [--serve]
                           [--losses]

fashion_cnn is the custom training loop of the tutorial "Custom training with tf.distribute.Strategy": its network, data set and steps.
inception_v3 is keras.applications.InceptionV3, which has no auxiliary head, on two synthetic batches alternately. With --replicas,
MirroredStrategy divides the batch over as many logical CPU devices; without, there is no strategy. All steps are compiled by
tf.function; with --bf16 the policy is mixed_bfloat16. Prints one JSON object, or serves as bench_torch.py does. --losses prints what
the loop prints of each step, and the losses and means of the replicas behind it.
"""
import argparse
import gzip
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy
import tensorflow as tf

DATA = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")


def read_idx(name, skip):
    with gzip.open(os.path.join(DATA, name)) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=skip)


def fashion_mnist(batch):
    images = read_idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1) / numpy.float32(255)
    labels = read_idx("train-labels-idx1-ubyte.gz", 8)
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels)).batch(batch, drop_remainder=True).repeat()


def synthetic(batch):
    images, labels = tf.random.normal((2 * batch, 299, 299, 3)), tf.random.uniform((2 * batch,), 0, 1000, tf.int32)
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch).cache().repeat()


def fashion_cnn():
    layers = tf.keras.layers
    return tf.keras.Sequential([tf.keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
                                layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
                                layers.Dense(64, activation="relu"), layers.Dense(10)])


def inception_v3():
    return tf.keras.applications.InceptionV3(weights=None, classes=1000, classifier_activation=None)


class Trainer:
    def __init__(self, options):
        devices = [f"/cpu:{k}" for k in range(options.replicas)]
        self.strategy = tf.distribute.MirroredStrategy(devices) if options.replicas > 1 else tf.distribute.get_strategy()
        small = options.model == "fashion_cnn"
        data = (fashion_mnist if small else synthetic)(options.batch)
        self.data = iter(self.strategy.experimental_distribute_dataset(data) if options.replicas > 1 else data.prefetch(tf.data.AUTOTUNE))
        with self.strategy.scope():
            self.model = fashion_cnn() if small else inception_v3()
            self.optimizer = tf.keras.optimizers.Adam(1e-3) if small else tf.keras.optimizers.SGD(0.01, 0.9)
            self.optimizer.build(self.model.trainable_variables)  # not inside the compiled step, where MirroredStrategy fails
            self.each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        self.batch = options.batch

    def replica_step(self, images, labels):
        with tf.GradientTape() as tape:
            each = self.each(labels, tf.cast(self.model(images, training=True), tf.float32))
            loss = tf.nn.compute_average_loss(each, global_batch_size=self.batch)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.model.trainable_variables), self.model.trainable_variables))
        return loss, tf.reduce_mean(each)

    @tf.function
    def step(self, images, labels):
        return self.strategy.run(self.replica_step, (images, labels))

    def run(self, steps):
        """The loss is read at the end alone, as the tutorial does."""
        total = 0.0
        for _ in range(steps):
            loss, _ = self.step(*next(self.data))
            total += self.strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
        return float(total) / steps

    def losses(self, steps):
        for step in range(steps):
            loss, own = self.step(*next(self.data))
            parts, means = self.strategy.experimental_local_results(loss), self.strategy.experimental_local_results(own)
            print(f"step {step}: the loop prints {sum(float(x) for x in parts):.6f}; each replica's loss "
                  f"{' '.join(f'{float(x):.6f}' for x in parts)}, and mean {' '.join(f'{float(x):.6f}' for x in means)}")


def measure(options, trainer):
    cpu, start = time.process_time(), time.perf_counter()
    loss = trainer.run(options.steps)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"images_per_sec": options.steps * options.batch / seconds, "seconds": seconds, "cpu_seconds": cpu, "loss": loss,
                      "version": tf.__version__}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["fashion_cnn", "inception_v3"])
    parser.add_argument("--batch", type=int, default=64, help="of all replicas")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--losses", action="store_true")
    options = parser.parse_args()
    tf.random.set_seed(0)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * options.replicas)
    if options.bf16:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    trainer = Trainer(options)
    if options.losses:
        return trainer.losses(options.steps)
    trainer.run(options.warmup)
    if not options.serve:
        return measure(options, trainer)
    print(json.dumps({"ready": True, "version": tf.__version__}), flush=True)
    for _ in sys.stdin:
        measure(options, trainer)


if __name__ == "__main__":
    main()
