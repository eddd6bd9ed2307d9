/* libFuzzer target of the metadata of weights as settings: arbitrary texts in every key. Whatever is accepted must set nothing but how
 * images become the input of the network. */
#include <jansson.h>

#include "inception/job/facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"img_size",  "mean", "std",     "interpolation",  "eval_resize",
                                       "eval_crop", "exif", "variant", "several_classes"};
    Options options;
    char *texts = calloc(size + 1, 1);
    json_t *facts = json_object();
    if (!texts || !facts) abort();
    memcpy(texts, data, size);
    for (size_t k = 0, at = 0; k < sizeof keys / sizeof *keys && at < size; k++) {
        facts_put(facts, keys[k], texts + at);
        at += strlen(texts + at) + 1;
    }
    options_init(&options);
    options.verb = VERB_EVAL;
    if (facts_apply(facts, "fuzz", &options) == OK)
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
            if (options.origin[id] != ORIGIN_DEFAULT && option_info(id)->group != GROUP_DATA &&
                option_info(id)->group != GROUP_NETWORK && id != OPTION_ID_loss)
                abort();
    options_close(&options);
    json_decref(facts);
    free(texts);
    return 0;
}
