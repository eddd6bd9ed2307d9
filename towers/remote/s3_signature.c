/* Signatures for S3; see s3_signature.h. */
#include "towers/remote/s3_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

enum { DIGEST_BYTES = 32, REQUEST_BYTES = PATH_BYTES + AWS_TOKEN_BYTES + 4096 };

bool s3_signs(const char *url)
{
    const char *query = strchr(url, '?');
    return query && strstr(query, "%2B");
}

/* The host as libcurl sends it: without the port that a scheme has anyway. */
static void host_print(const char *url, Text *to)
{
    const char *host = strstr(url, "://") + 3, *usual = !strncmp(url, "https", 5) ? ":443" : ":80";
    size_t bytes = strcspn(host, "/?"), port = strlen(usual);
    if (bytes > port && !strncmp(host + bytes - port, usual, port)) bytes -= port;
    text_add(to, "%.*s", (int)bytes, host);
}

static void signed_names(const S3Access *access, Text *to)
{
    text_add(to, "host;x-amz-content-sha256;x-amz-date%s", *access->keys.token ? ";x-amz-security-token" : "");
}

/* Task 1 of the document: the canonical request. */
static void canonical_print(const S3Access *access, const S3Request *request, const char *date, Text *to)
{
    const char *path = strchr(strstr(request->url, "://") + 3, '/');
    size_t bytes = strcspn(path, "?");
    text_add(to, "%s\n%.*s\n%s\nhost:", request->method, (int)bytes, path, path[bytes] ? path + bytes + 1 : "");
    host_print(request->url, to);
    text_add(to, "\nx-amz-content-sha256:%s\nx-amz-date:%s\n", request->sha256, date);
    if (*access->keys.token) text_add(to, "x-amz-security-token:%s\n", access->keys.token);
    text_add(to, "\n");
    signed_names(access, to);
    text_add(to, "\n%s", request->sha256);
}

static bool digest_print(const char *text, Text *to)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length;
    if (EVP_Digest(text, strlen(text), digest, &length, EVP_sha256(), NULL) != 1) return false;
    text_hex(to, digest, length);
    return true;
}

/* key = HMAC(key, text) */
static bool key_derive(unsigned char key[DIGEST_BYTES], size_t key_bytes, const char *text)
{
    unsigned length;
    return HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), key, &length) != NULL;
}

/* Task 3: the signature of a text under the key of a day, a region and S3. */
static bool signature_print(const S3Access *access, const char *day, const char *text, Text *to)
{
    unsigned char key[sizeof access->keys.secret + DIGEST_BYTES];
    int bytes = snprintf((char *)key, sizeof key, "AWS4%s", access->keys.secret);
    bool made = key_derive(key, (size_t)bytes, day) && key_derive(key, DIGEST_BYTES, access->region) &&
                key_derive(key, DIGEST_BYTES, "s3") && key_derive(key, DIGEST_BYTES, "aws4_request") &&
                key_derive(key, DIGEST_BYTES, text);
    if (made) text_hex(to, key, DIGEST_BYTES);
    explicit_bzero(key, sizeof key);
    return made;
}

Status s3_sign(const S3Access *access, const S3Request *request, S3Signature *made)
{
    char date[32], day[16], scope[AWS_NAME_BYTES + 64], canonical[REQUEST_BYTES], string[AWS_NAME_BYTES + 256];
    struct tm at;
    if (!gmtime_r(&request->when, &at)) return FAIL(ERR_INTERNAL, "no date of a request");
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &at);
    strftime(day, sizeof day, "%Y%m%d", &at);
    snprintf(scope, sizeof scope, "%s/%s/s3/aws4_request", day, access->region);
    snprintf(made->date, sizeof made->date, "x-amz-date: %s", date);
    Text text = text_start(canonical, sizeof canonical), to_sign = text_start(string, sizeof string),
         header = text_start(made->authorization, sizeof made->authorization);
    canonical_print(access, request, date, &text);
    text_add(&to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n", date, scope); /* task 2 */
    bool fine = digest_print(canonical, &to_sign);
    text_add(&header, "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", access->keys.id, scope);
    signed_names(access, &header);
    text_add(&header, ", Signature=");
    fine = fine && signature_print(access, day, string, &header);
    explicit_bzero(canonical, sizeof canonical);
    if (!fine) return FAIL(ERR_INTERNAL, "libcrypto cannot compute an HMAC of SHA-256");
    bool cut = text.truncated || to_sign.truncated || header.truncated;
    return cut ? FAIL(ERR_ARG, "'%s': the address is too long to be signed", request->url) : OK;
}
