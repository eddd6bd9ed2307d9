/* Signature Version 4 of AWS, for the requests to S3 that libcurl signs wrongly.
 *
 * libcurl signs all others (CURLOPT_AWS_SIGV4). Its 8.14, of Debian 13, takes a "+" in a query for a blank when it signs (curl's issue
 * 20543), and tokens by which lists go on are full of them. By
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, of which a test takes the examples. */
#pragma once

#include <time.h>

#include "towers/remote/s3.h"

typedef struct S3Request {
    const char *method; /* "GET" */
    const char *url;    /* encoded as s3_url does; the names of its query are sorted, each has a "=" */
    const char *sha256; /* of the body, in hexadecimal digits */
    time_t when;
} S3Request;

/* Headers, of which the second holds what the keys prove. */
typedef struct S3Signature {
    char date[64], authorization[1024];
} S3Signature;

/* Whether the query has what libcurl does not sign as S3 reads it. */
bool s3_signs(const char *url);
/* For a request with the headers Host, x-amz-content-sha256 and, if the keys have a token, x-amz-security-token. */
NODISCARD Status s3_sign(const S3Access *access, const S3Request *request, S3Signature *made);
