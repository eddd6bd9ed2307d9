#!/usr/bin/env python3
"""TensorFlow's side of scripts/measure/time_to_accuracy.sh: fashion_cnn on Fashion-MNIST.

usage: train_tensorflow.py [--epochs N] [--batch N] [--seed N] [--threads N] [--images N] [--rate RATE] [--in-graph]

Without --in-graph the loop is the tutorial's, as bench_tensorflow.py has it: Adam with a constant rate, a tf.data.Dataset, a call of the
compiled step for each batch. With it the rate rises and falls in one cycle, and an epoch is one call: the images are a tensor, the loop is
compiled, too. Tracing ends before the clock starts. Prints a line of JSON with the number of parameters before training, and one after each epoch.
"""
import argparse
import json
import math
import sys

import numpy
import tensorflow as tf

from bench_tensorflow import Trainer, read_idx

RISE = 0.3  # towers/replica/schedule.c


def one_cycle(rate, step, steps):
    top = RISE * steps
    return rate * min(1, (step + 1) / top) if step < top else rate * (1 + math.cos(math.pi * (step - top) / (steps - top))) / 2


def say(**values):
    print(json.dumps(values), flush=True)
    sys.stdin.readline()  # the clock is read between a line and its answer


def part_read(name, count):
    images = read_idx(f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)[:count] / numpy.float32(255)
    return tf.constant(images), tf.constant(read_idx(f"{name}-labels-idx1-ubyte.gz", 8)[:count].astype(numpy.int32))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--in-graph", action="store_true")
    options = parser.parse_args()
    tf.keras.utils.set_random_seed(options.seed)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    trainer = Trainer(argparse.Namespace(model="fashion_cnn", replicas=1, batch=options.batch))
    model, optimizer = trainer.model, trainer.optimizer
    (images, labels), (test, truth) = part_read("train", options.images), part_read("t10k", options.images)
    whole, rest = divmod(options.images, options.batch)
    count = whole + (rest > 0)

    @tf.function
    def correct():
        return tf.add_n([tf.reduce_sum(tf.cast(tf.argmax(model(test[at:at + 500]), 1, tf.int32) == truth[at:at + 500], tf.int32))
                         for at in range(0, len(test), 500)])

    @tf.function
    def epoch_in_graph(order, rates):
        first = 0.0
        for at in tf.range(whole):
            optimizer.learning_rate.assign(rates[at])
            ids = order[at * options.batch:(at + 1) * options.batch]
            loss, _ = trainer.replica_step(tf.gather(images, ids), tf.gather(labels, ids))
            first = loss if at == 0 else first
        if rest:
            optimizer.learning_rate.assign(rates[whole])
            trainer.replica_step(tf.gather(images, order[-rest:]), tf.gather(labels, order[-rest:]))
        return first

    correct.get_concrete_function()
    if options.in_graph:
        epoch_in_graph.get_concrete_function(tf.TensorSpec(options.images, tf.int32), tf.TensorSpec(count, tf.float32))
    else:
        trainer.step.get_concrete_function(*next(trainer.data))
    say(parameters=model.count_params(), version=tf.__version__)
    first = None
    for epoch in range(options.epochs):
        if options.in_graph:
            rates = [one_cycle(options.rate, epoch * count + at, options.epochs * count) for at in range(count)]
            loss = epoch_in_graph(tf.random.shuffle(tf.range(options.images)), tf.constant(rates, tf.float32))
        else:
            for at in range(count):
                loss_of_step, _ = trainer.step(*next(trainer.data))  # a data set without a smaller last batch
                loss = loss_of_step if at == 0 else loss
        first = float(loss) if epoch == 0 else first
        say(epoch=epoch + 1, accuracy=100 * int(correct()) / len(truth), first_loss=first)


if __name__ == "__main__":
    main()
