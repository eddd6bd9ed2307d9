/* Object stores with the interface of S3: which one, and with which keys. Requests are signed by libcurl (AWS's Signature
 * Version 4), some by s3_signature.h.
 *
 * Keys come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), else from the profile AWS_PROFILE, or
 * "default", in ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE). Without any, requests are not signed,
 * which public buckets take. The region is AWS_REGION, AWS_DEFAULT_REGION or the profile's, else us-east-1; the endpoint
 * AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's, else AWS's own. */
#pragma once

#include "kernels/base/text.h"
#include "towers/files/files.h"
#include "towers/remote/address.h"
#include "towers/remote/aws_profile.h"

typedef struct S3Access {
    char endpoint[AWS_NAME_BYTES]; /* "https://HOST", without a slash at its end; "": AWS's of the region */
    char region[AWS_NAME_BYTES];
    bool hosted;  /* a bucket is a host below the endpoint; else it is the first part of the path */
    AwsKeys keys; /* .id "": none */
    /* Not OK: the keys are not to be had, as keys_why says. It counts when a request is signed, since what is in a cache needs no keys. */
    Status keys_found;
    StatusText keys_why;
    char whose[AWS_NAME_BYTES + 64]; /* for messages: "signed with the keys of the profile 'default'" */
} S3Access;

/* `endpoint`: given in place of that of the environment; NULL: not. ERR_ARG if endpoint or region are none; nothing is repeated that may
 * be a secret. Give it back with s3_access_free, which wipes the keys; NULL is fine. */
NODISCARD Status s3_access_find(const char *endpoint, S3Access **access);
void s3_access_free(S3Access *access);
/* Whether an endpoint is http://HOST[:PORT] or https://HOST[:PORT], without what may be a secret: ERR_ARG. */
NODISCARD Status s3_endpoint_check(const char *endpoint);

/* The address on the web of "s3://BUCKET/KEY". */
NODISCARD Status s3_url(const S3Access *access, const char *address, char url[PATH_BYTES]);
/* That of the list of what is in "s3://BUCKET/PREFIX/" (ListObjectsV2), from where a page before it said that it goes on; "": from the
 * beginning. */
NODISCARD Status s3_list_url(const S3Access *access, const char *folder, const char *from, char url[PATH_BYTES]);
/* Whose buckets these are, for names of files: "amazonaws.com", "127.0.0.1:9000". */
void s3_store(const S3Access *access, char store[AWS_NAME_BYTES]);

/* What a refusal by S3 may come from: the keys, the region, the clock. `region` and `date` are the headers x-amz-bucket-region and Date of the
 * answer, or NULL; `now` is in seconds of the epoch. */
void s3_refusal_print(const S3Access *access, long answer, const char *region, const char *date, int64_t now, Text *to);
