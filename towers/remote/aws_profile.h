/* Profiles of AWS's tools: ~/.aws/credentials and ~/.aws/config, as "AWS SDKs and Tools Reference Guide" describes them. */
#pragma once

#include "kernels/base/status.h"

enum { AWS_NAME_BYTES = 256, AWS_SECRET_BYTES = 512, AWS_TOKEN_BYTES = 8192 };

/* Keys of an account. No message, record or print of this program takes anything out of it: transport.c alone hands it to libcurl. */
typedef struct AwsKeys {
    char id[AWS_SECRET_BYTES], secret[AWS_SECRET_BYTES], token[AWS_TOKEN_BYTES];
} AwsKeys;

/* What a profile says; "": nothing. */
typedef struct AwsProfile {
    bool found; /* there is such a section */
    AwsKeys keys;
    char region[AWS_NAME_BYTES], endpoint[AWS_NAME_BYTES];
    char style[16];        /* how S3 is addressed: "path", "virtual", "auto" */
    const char *elsewhere; /* static: the setting by which the keys come from elsewhere, as "role_arn"; or NULL */
    bool services;         /* endpoints stand in a section of their own, which is not read */
    const char *overlong;  /* static: a setting whose value does not fit, and which is not taken; or NULL */
} AwsProfile;

/* Adds to `profile` what the section of this name says, "NAME" or "profile NAME"; what is there stays. The keys, with their token, are those
 * of one file: none are added to a profile that has one. Any bytes are taken. */
void aws_profile_parse(const char *text, size_t bytes, const char *name, AwsProfile *profile);
