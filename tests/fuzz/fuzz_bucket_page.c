/* libFuzzer target of the lists that object stores send. What is taken begins with the prefix, and ends. */

#include "towers/data/remote/bucket_list.h"
#include "towers/files/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    BucketList list = {0};
    char next[BUCKET_TOKEN_BYTES], *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    Status st = bucket_page_parse(text, "a/", &list, next);
    if (strnlen(next, sizeof next) == sizeof next) abort();
    for (int i = 0; i < list.objects.count; i++)
        if (!*list.objects.name[i] || strlen(list.objects.name[i]) >= PATH_BYTES) abort();
    if (st == OK && !strstr(text, "</ListBucketResult>")) abort();
    bucket_list_free(&list);
    free(text);
    return 0;
}
