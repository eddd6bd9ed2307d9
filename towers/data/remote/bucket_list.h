/* What lies directly below a folder of a bucket, "s3://BUCKET/PREFIX/": the answers to S3's ListObjectsV2, page by page. */
#pragma once

#include "towers/data/listing/names.h"
#include "towers/remote/transport.h"

enum { BUCKET_TOKEN_BYTES = 2048 };

typedef struct BucketList {
    Names objects, folders; /* without the prefix, in the order of the bucket; folders without their slash */
} BucketList;

/* Errors: ERR_IO of the network and of a refusal, ERR_FORMAT of an answer that is no list. `watch`: what is said of tries alone. */
NODISCARD Status bucket_list(Transport *transport, const TransferWatch *watch, const char *folder, BucketList *list);
void bucket_list_free(BucketList *list);

/* Adds what one answer lists, of which each name begins with `prefix`. `next`: from where the next page goes on, "" behind the last one.
 * `text` may hold anything. ERR_FORMAT. */
NODISCARD Status bucket_page_parse(const char *text, const char *prefix, BucketList *list,
                                   char next[BUCKET_TOKEN_BYTES]);
