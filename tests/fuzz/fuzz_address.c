/* libFuzzer target of addresses of data. One that is accepted has nothing that may be a secret, and its object lies in the folder of its
 * host in the cache. */

#include "towers/remote/address.h"
#include "towers/remote/cache.h"
#include "towers/remote/s3.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const S3Access access = {.endpoint = "http://store:9000"};
    static const CacheConfig config = {.dir = "/cache", .patience.s3 = &access};
    Address a;
    char text[2 * PATH_BYTES], place[PATH_BYTES], start[PATH_BYTES];
    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (address_parse(text, &a) != OK) return 0;
    bool s3 = is_address_of_s3(text);
    if (a.host_bytes <= 0 || (!*a.path && !s3) || strpbrk(text, "?# \\{}") || memchr(a.host, '@', (size_t)a.host_bytes))
        abort();
    if (*a.path == '.' || strstr(a.path, "/.") || strstr(a.path, "//")) abort();
    if (cache_place(&config, text, place) != OK) return 0;
    snprintf(start, sizeof start, "/cache/%.*s/%s%.*s/data%s", a.scheme_bytes, a.scheme, s3 ? "store:9000/" : "",
             a.host_bytes, a.host, *a.path ? "/" : "");
    if (strncmp(place, start, strlen(start)) != 0) abort();
    if (!*a.path && strcmp(place, start) != 0) abort();
    for (const char *at = place + strlen(start) - 1; *at; at++)
        if ((*at > 0 && *at < ' ') || *at == 127 || !strncmp(at, "/.", 2) || !strncmp(at, "//", 2)) abort();
    return 0;
}
