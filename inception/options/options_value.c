/* Convert an option's value from text, with its range or choices in error messages, and back to text. */
#include "inception/options/options_internal.h"
#include "kernels/base/text.h"
#include "towers/remote/address.h"

#include <ctype.h>
#include <strings.h>

#include "inception/models/near_name.h"
#include "inception/options/values.h"

enum { TEXT_MOST = 3000 /* a path to which names are appended */ };

/* ---- from text */

/* Whether the metavar offers this word instead of a number: "N|max", "RATE|auto". */
static bool takes_word(const OptionInfo *info, const char *word)
{
    const char *bar = info->metavar ? strrchr(info->metavar, '|') : NULL;
    return bar && !strcmp(bar + 1, word);
}

static Status read_int(const OptionInfo *info, const char *text, const char *label, int64_t *value)
{
    char range[64];
    if (takes_word(info, "max") && !strcmp(text, "max")) {
        *value = OPTION_MAX;
        return OK;
    }
    ValueVerdict verdict = text_to_int(text, value);
    snprintf(range, sizeof range, "%" PRId64 " to %" PRId64 "%s", info->least, info->most,
             takes_word(info, "max") ? ", or max" : "");
    if (verdict == VALUE_MALFORMED) return FAIL(ERR_ARG, "%s: '%s' is not a whole number (%s)", label, text, range);
    if (verdict == VALUE_TOO_LARGE || *value < info->least || *value > info->most)
        return FAIL(ERR_ARG, "%s: %s is out of range (%s)", label, text, range);
    return OK;
}

static Status read_real(const OptionInfo *info, const char *text, const char *label, double *value)
{
    char least[32], most[32];
    if (takes_word(info, "auto") && !strcmp(text, "auto")) {
        *value = NAN;
        return OK;
    }
    ValueVerdict verdict = text_to_real(text, value);
    real_to_text(info->real_least, least, sizeof least);
    real_to_text(info->real_most, most, sizeof most);
    if (verdict == VALUE_MALFORMED)
        return FAIL(ERR_ARG, "%s: '%s' is not a number (%s to %s, e.g. 0.1 or 1e-3%s)", label, text, least, most,
                    takes_word(info, "auto") ? ", or auto" : "");
    if (verdict == VALUE_TOO_LARGE || *value < info->real_least || *value > info->real_most)
        return FAIL(ERR_ARG, "%s: %s is out of range (%s to %s)", label, text, least, most);
    return OK;
}

/* Case-insensitive: PyTorch writes SGD and AdamW. */
static bool same_choice(const char *typed, const char *name)
{
    for (; *typed && *name; typed++, name++)
        if ((*typed == '_' ? '-' : tolower((unsigned char)*typed)) != *name) return false;
    return *typed == *name;
}

/* Alternative spellings: flag, spelling, the choice that it means. */
static const char *const choice_aliases[][3] = {
#define CHOICE_ALIAS(flag, alias, name) {flag, alias, name},
#include "inception/options/options.def"
};
enum { CHOICE_ALIASES = sizeof choice_aliases / sizeof *choice_aliases, CHOICES_MAX = 16 };

/* Choices of other programs that none of these equals: flag, choice, what to use. */
static const char *const choices_refused[][3] = {
#define CHOICE_REFUSED(flag, choice, instead) {flag, choice, instead},
#include "inception/options/options.def"
};

/* The choice or alias with the most similar name; NULL if none is similar. */
static const char *nearest_choice(const OptionInfo *info, const char *typed)
{
    const char *names[CHOICES_MAX + CHOICE_ALIASES];
    int count = 0;
    for (; info->choices[count] && count < CHOICES_MAX; count++) names[count] = info->choices[count];
    for (int k = 0; k < CHOICE_ALIASES; k++)
        if (!strcmp(choice_aliases[k][0], info->flag)) names[count++] = choice_aliases[k][1];
    return nearest_name(typed, names, count);
}

static Status read_choice(const OptionInfo *info, const char *text, const char *label, int *value)
{
    char names[LABEL_BYTES];
    Text list = text_start(names, sizeof names);
    const char *wanted = text;
    for (int k = 0; k < CHOICE_ALIASES && wanted == text; k++)
        if (!strcmp(choice_aliases[k][0], info->flag) && same_choice(text, choice_aliases[k][1]))
            wanted = choice_aliases[k][2];
    for (int k = 0; info->choices[k]; k++) {
        if (same_choice(wanted, info->choices[k])) {
            *value = k;
            return OK;
        }
        text_add(&list, "%s%s", k ? ", " : "", info->choices[k]);
    }
    for (size_t k = 0; k < sizeof choices_refused / sizeof *choices_refused; k++)
        if (!strcmp(choices_refused[k][0], info->flag) && same_choice(text, choices_refused[k][1]))
            return FAIL(ERR_ARG, "%s: no choice equals '%s': %s", label, text, choices_refused[k][2]);
    const char *near = nearest_choice(info, text);
    return FAIL(ERR_ARG, "%s: unknown choice '%s'%s%s%s; choose one of %s", label, text, near ? "; did you mean " : "",
                near ? near : "", near ? "?" : "", names);
}

static Status read_list(const OptionInfo *info, const char *text, const char *label, IntList *list)
{
    *list = (IntList){0};
    if (takes_word(info, "all") && !strcmp(text, "all")) return OK; /* as if it were not given */
    for (const char *p = text;; p++) {
        char element[32];
        size_t bytes = strcspn(p, ",");
        if (bytes >= sizeof element) return FAIL(ERR_ARG, "%s: '%s' is not a list of numbers, e.g. 1,2", label, text);
        snprintf(element, sizeof element, "%.*s", (int)bytes, p);
        if (list->count == OPTION_LIST_MAX)
            return FAIL(ERR_ARG, "%s: the list has more than %d numbers", label, OPTION_LIST_MAX);
        TRY(read_int(info, element, label, &list->value[list->count]));
        list->count++;
        p += bytes;
        if (!*p) return OK;
    }
}

Status address_check(const char *text, const char *label)
{
    size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    if (!isalpha((unsigned char)text[0]) || strncmp(text + scheme, "://", 3) != 0) return OK;
    bool loud = !is_address(text) && (!strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8) ||
                                      !strncasecmp(text, "s3://", 5));
    if (loud) return FAIL(ERR_ARG, "%s: %.*s:// is expected in small letters", label, (int)scheme, text);
    return FAIL(ERR_ARG,
                "%s: %.*s://... is the address of a store, but only files and folders are read and written here: mount "
                "it, or copy it with the tools of %.*s",
                label, (int)scheme, text, (int)scheme, text);
}

/* Shells replace '~' at the beginning of a word alone, so files, variables and --flag=~/... keep it, and a folder of this name would
 * be made. */
static Status home_check(const char *text, const char *label)
{
    return *text != '~' || (text[1] && text[1] != '/')
               ? OK
               : FAIL(ERR_ARG,
                      "%s: nobody has replaced the '~' of '%s' by your home folder: write the whole path (./~ for a "
                      "folder of this name)",
                      label, text);
}

Status read_value(const OptionInfo *info, const char *text, const char *label, OptionValue *value)
{
    switch (info->type) {
    case OPTION_IS_INT: return read_int(info, text, label, &value->integer);
    case OPTION_IS_REAL: return read_real(info, text, label, &value->real);
    case OPTION_IS_FLAG:
        if (text_to_flag(text, &value->flag) == VALUE_OK) return OK;
        return FAIL(ERR_ARG, "%s: '%s' is neither true nor false (nor yes, no, on, off, 1, 0)", label, text);
    case OPTION_IS_CHOICE: return read_choice(info, text, label, &value->choice);
    case OPTION_IS_LIST: return read_list(info, text, label, &value->list);
    case OPTION_IS_TEXT: break;
    }
    if (!*text) return FAIL(ERR_ARG, "%s: the value is empty", label);
    if (strlen(text) > TEXT_MOST) return FAIL(ERR_ARG, "%s: the value is longer than %d bytes", label, TEXT_MOST);
    bool place = strstr(info->metavar, "PATH") || strstr(info->metavar, "FILE") || strstr(info->metavar, "DIR");
    if (strstr(info->metavar, "ADDRESS") && address_may_hide(text))
        return FAIL(ERR_ARG,
                    "%s: an address with a user name, a password or a query is not taken, because messages repeat it: "
                    "leave that out",
                    label);
    if (place && !(info->remote && is_address(text))) TRY(address_check(text, label));
    if (place) TRY(home_check(text, label));
    value->text = text;
    return OK;
}

/* ---- to text */

const char *option_format(const Options *options, OptionId id, char *buffer, size_t bytes)
{
    const OptionInfo *info = option_info(id);
    OptionValue value = {0};
    Text list = text_start(buffer, bytes);
    memcpy(&value, (const char *)options + info->offset, info->bytes);
    switch (info->type) {
    case OPTION_IS_INT:
        if (value.integer >= info->least && value.integer <= info->most)
            snprintf(buffer, bytes, "%" PRId64, value.integer);
        else if (value.integer == OPTION_MAX && takes_word(info, "max"))
            snprintf(buffer, bytes, "max");
        break;
    case OPTION_IS_REAL:
        if (value.real >= info->real_least && value.real <= info->real_most)
            real_to_text(value.real, buffer, bytes);
        else if (isnan(value.real) && takes_word(info, "auto"))
            snprintf(buffer, bytes, "auto");
        break;
    case OPTION_IS_FLAG: snprintf(buffer, bytes, "%s", value.flag ? "true" : "false"); break;
    case OPTION_IS_CHOICE: snprintf(buffer, bytes, "%s", info->choices[value.choice]); break;
    case OPTION_IS_LIST:
        for (int k = 0; k < value.list.count; k++) text_add(&list, "%s%" PRId64, k ? "," : "", value.list.value[k]);
        break;
    case OPTION_IS_TEXT: return value.text ? value.text : buffer;
    }
    return buffer;
}
