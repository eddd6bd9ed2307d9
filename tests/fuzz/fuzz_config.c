/* libFuzzer target of the configuration file, with arbitrary bytes. Accepted input must print and read back to the same
 * values. */

#include "inception/options/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const Options *options)
{
    Options again;
    char *text = NULL, first[OPTION_FORMAT_BYTES], second[OPTION_FORMAT_BYTES];
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) abort();
    options_print_config(options, to);
    fclose(to);
    options_init(&again);
    again.verb = options->verb;
    if (options_apply_bytes(&again, text, bytes, ORIGIN_CONFIG, "again") != OK) abort();
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (strcmp(option_format(options, id, first, sizeof first), option_format(&again, id, second, sizeof second)))
            abort();
    options_close(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Options options;
    options_init(&options);
    options.verb = VERB_TRAIN;
    if (options_apply_bytes(&options, data, size, ORIGIN_CONFIG, "fuzz") == OK) check_again(&options);
    options_close(&options);
    return 0;
}
