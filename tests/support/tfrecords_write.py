"""Write a folder of images as the TFRecords of the original Inception trainer's builders: tfrecords_write.py FOLDER RECORDS [SHARDS [BOXES]].
FOLDER/{train,val}/CLASS/*; RECORDS/train-00000-of-0000N, validation-..., labels from 1, names of the classes in image/class/text.
Every other image has bounding boxes, which are made up from its number: one around its middle, or two smaller ones; BOXES 0: none."""
import os, random, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from shards_write import example, record


def boxes(number):  # (ymin, xmin, ymax, xmax) of each
    draw = random.Random(number)
    if number % 2:
        return []
    if number % 4:
        edge = 0.1 + 0.2 * draw.random()
        return [(edge, edge, 1 - edge, 1 - edge)]
    return [(0.05, 0.1, 0.4, 0.6), (0.5 + 0.2 * draw.random(), 0.3, 1.0, 0.9)]


def features(number, path, label, text, boxed):
    with open(path, "rb") as image:
        data = image.read()
    found = {"image/encoded": data, "image/class/label": label, "image/class/text": text.encode(), "image/filename": os.path.basename(path).encode(),
             "image/colorspace": b"RGB", "image/channels": 3, "image/format": b"JPEG"}
    sides = list(zip(*boxes(number) if boxed else []))
    for name, side in zip(("ymin", "xmin", "ymax", "xmax"), sides):
        found["image/object/bbox/" + name] = [float(value) for value in side]
    if sides:
        found["image/object/bbox/label"] = [label] * len(sides[0])
    return found


def write(folder, root, shards=2, boxed=1):
    os.makedirs(root)
    for split, name in (("train", "train"), ("val", "validation")):
        classes = sorted(os.listdir(os.path.join(folder, split)))
        images = [(os.path.join(folder, split, text, image), label, text) for label, text in enumerate(classes, 1)
                  for image in sorted(os.listdir(os.path.join(folder, split, text)))]
        random.Random(12345).shuffle(images)
        for shard in range(shards):
            with open("%s/%s-%05d-of-%05d" % (root, name, shard, shards), "wb") as to:
                for number in range(shard, len(images), shards):
                    to.write(record(example(features(number, *images[number], boxed))))


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
