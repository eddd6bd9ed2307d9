/* The tables of options and commands as one JSON object, for programs that make something of them, such as the package for
 * Python:
 *
 *   version                          of this program
 *   commands                         name, arguments, summary
 *   options                          flag; letter, aliases, metavar if there are any; choices, and abouts: what each of them is;
 *                                    type: int, real, flag, choice, list or text; default as it could be typed ("" if not set);
 *                                    group, level: basic, advanced or debug; the names of its commands; story: the sentence of
 *                                    the help; more, example
 *   exits                            code, meaning
 *   by_signal                        what 128 + n means */
#include "inception/options/help.h"
#include "towers/files/json.h"

static const char *const type_names[] = {"int", "real", "flag", "choice", "list", "text"};
static const char *const level_names[] = {"advanced", "basic", "debug"};

static json_t *commands_json(void)
{
    json_t *list = json_array();
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        const VerbInfo *info = verb_info(verb);
        if (info->hidden) continue;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", info->name, "arguments", info->arguments,
                                              "summary", info->summary));
    }
    return list;
}

static json_t *commands_of(OptionId id)
{
    json_t *list = json_array();
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++)
        if (!verb_info(verb)->hidden && option_belongs(id, verb))
            json_array_append_new(list, json_string(verb_info(verb)->name));
    return list;
}

static void text_set(json_t *object, const char *key, const char *text)
{
    if (text) json_object_set_new(object, key, json_string(text));
}

static json_t *option_json(OptionId id)
{
    char value[OPTION_FORMAT_BYTES], story[STORY_BYTES], letter[2] = {option_info(id)->letter};
    const OptionInfo *info = option_info(id);
    option_story(id, story, sizeof story);
    json_t *option =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s}", "flag", info->flag, "type", type_names[info->type], "default",
                  option_format(&option_defaults, id, value, sizeof value), "group", group_title(info->group), "level",
                  level_names[info->level], "commands", commands_of(id), "story", story);
    text_set(option, "letter", *letter ? letter : NULL);
    text_set(option, "aliases", info->aliases);
    text_set(option, "metavar", info->metavar);
    text_set(option, "more", info->more);
    text_set(option, "example", info->example);
    if (!info->choices) return option;
    json_t *choices = json_array(), *abouts = json_array();
    for (int k = 0; info->choices[k]; k++) {
        json_array_append_new(choices, json_string(info->choices[k]));
        json_array_append_new(abouts, json_string(info->abouts[k]));
    }
    json_object_set_new(option, "choices", choices);
    json_object_set_new(option, "abouts", abouts);
    return option;
}

static json_t *options_json(void)
{
    json_t *list = json_array();
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (option_visible(id) && !(option_info(id)->verbs & OPTION_ONLY_TYPED))
            json_array_append_new(list, option_json(id));
    return list;
}

static json_t *exits_json(void)
{
    json_t *list = json_array();
    for (int code = 0; exit_meaning(code); code++)
        json_array_append_new(list, json_pack("{s:i, s:s}", "code", code, "meaning", exit_meaning(code)));
    return list;
}

Status manual_json(FILE *to)
{
    return json_emit(json_pack("{s:s, s:o, s:o, s:o, s:s}", "version", TOWERS_VERSION, "commands", commands_json(),
                               "options", options_json(), "exits", exits_json(), "by_signal", exit_by_signal),
                     JSON_COMPACT, to);
}
