/* libFuzzer target of profiles of AWS's tools. What is taken are texts that end, and stand in the file. */

#include "towers/remote/aws_profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void value_check(const char *value, size_t room, const uint8_t *data, size_t size)
{
    size_t bytes = strnlen(value, room);
    if (bytes == room || (bytes && !memmem(data, size, value, bytes)) || memchr(value, '\n', bytes)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static AwsProfile p;
    static const char *const names[] = {"default", "team", "profile"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        p = (AwsProfile){0};
        aws_profile_parse((const char *)data, size, names[i], &p);
        value_check(p.keys.id, sizeof p.keys.id, data, size);
        value_check(p.keys.secret, sizeof p.keys.secret, data, size);
        value_check(p.keys.token, sizeof p.keys.token, data, size);
        value_check(p.region, sizeof p.region, data, size);
        value_check(p.endpoint, sizeof p.endpoint, data, size);
        value_check(p.style, sizeof p.style, data, size);
        if (!p.found && (*p.keys.id || *p.keys.secret || *p.region || p.elsewhere || p.overlong)) abort();
    }
    return 0;
}
