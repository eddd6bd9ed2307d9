/* TFRecords: records of u64 length, u32 masked CRC-32C of the length's bytes, data, u32 masked CRC-32C of the data,
 * all little-endian (tensorflow/core/lib/io/record_writer.h). The data are tf.Examples (example.h) with these keys:
 *     image/encoded, image/class/label, image/class/text, image/filename    of the original Inception trainer, and TPU models
 *     image, label, file_name                                               of TensorFlow Datasets
 *     image/object/bbox/{ymin,xmin,ymax,xmax}                               lists of floats, a bounding box of each object
 * tfrecord_list is declared in shard.h. */
#pragma once

#include "towers/data/images/pixels.h"

enum { TFRECORD_HEAD = 12, TFRECORD_FOOT = 4 };

/* True if these are the first bytes of a record: the CRC of its length is right. */
bool tfrecord_begins(const uint8_t head[TFRECORD_HEAD]);

/* `bytes` holds the data of a record, whose masked CRC is `crc`; keep its image and its boxes only. `where` is for
 * messages. ERR_FORMAT. */
NODISCARD Status tfrecord_image(Bytes *bytes, uint32_t crc, const char *where);
