/* Completion scripts for bash, zsh and fish, generated from options.def: commands, their options, choices or files as
 * option values, and model names. */

#include "inception/models/models.h"
#include "inception/options/help.h"
#include "inception/options/recipe.h"

static bool takes_file(const OptionInfo *info)
{
    return info->metavar &&
           (!strcmp(info->metavar, "FILE") || !strcmp(info->metavar, "DIR") || !strncmp(info->metavar, "PATH", 4));
}

/* What may stand for the first argument: names of models, commands, or the words that the table has ("info|check"). */
static void put_words(FILE *to, Verb verb)
{
    const char *arguments = verb_info(verb)->arguments;
    if (strstr(arguments, "MODEL"))
        for (const Model *const *m = all_models; *m; m++) fprintf(to, "%s%s", *m == *all_models ? "" : " ", (*m)->name);
    for (Verb of = VERB_NONE + 1; strstr(arguments, "COMMAND") && of < VERB_COUNT; of++)
        if (!verb_info(of)->hidden) fprintf(to, "%s%s", of == VERB_NONE + 1 ? "" : " ", verb_info(of)->name);
    for (const char *p = arguments; *p >= 'a' && *p <= 'z'; p++) {
        int bytes = (int)strcspn(p, "| ");
        fprintf(to, "%s%.*s", p == arguments ? "" : " ", bytes, p);
        p += bytes;
        if (*p != '|') break;
    }
}

/* A file FILE.onnx stands where a model does. */
static bool takes_model(Verb verb)
{
    return strstr(verb_info(verb)->arguments, "MODEL") && verb != VERB_FETCH;
}

static bool has_words(Verb verb)
{
    const char *arguments = verb_info(verb)->arguments;
    return (*arguments >= 'a' && *arguments <= 'z') || strstr(arguments, "MODEL") || strstr(arguments, "COMMAND");
}

static bool has_choices(OptionId id)
{
    return option_info(id)->choices || id == OPTION_ID_recipe;
}

static void put_choices(FILE *to, OptionId id)
{
    const char *const *choices = option_info(id)->choices;
    for (int k = 0; choices && choices[k]; k++) fprintf(to, "%s%s", k ? " " : "", choices[k]);
    for (int k = 0; id == OPTION_ID_recipe && recipes[k].name; k++) fprintf(to, "%s%s", k ? " " : "", recipes[k].name);
}

/* Write `text`, to stand inside '...', with a backslash before each character of `special`. */
static void put_quoted(FILE *to, const char *text, const char *special)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            fputs("'\\''", to);
        else
            fprintf(to, strchr(special, *p) ? "\\%c" : "%c", *p);
    }
}

/* ---- bash */

static void put_bash_value(FILE *to, OptionId id)
{
    const OptionInfo *info = option_info(id);
    if (info->type == OPTION_IS_FLAG) return;
    fprintf(to, "    --%s", info->flag);
    if (info->letter) fprintf(to, " | -%c", info->letter);
    fputs(") ", to);
    if (has_choices(id)) {
        fputs("mapfile -t COMPREPLY < <(compgen -W '", to);
        put_choices(to, id);
        fputs("' -- \"$word\"); ", to);
    } else if (takes_file(info)) {
        fputs("compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); ", to);
    }
    fputs("return ;;\n", to);
}

static void put_bash(FILE *to)
{
    fputs("# bash completion of towers; written by 'towers completion bash'\n_towers() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flags= words= networks=\n    "
          "COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n        mapfile -t COMPREPLY < <(compgen -W '",
          to);
    bool first = true;
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        if (verb_info(verb)->hidden) continue;
        fprintf(to, "%s%s", first ? "" : " ", verb_info(verb)->name);
        first = false;
    }
    fputs(" --help --help-all --version' -- \"$word\")\n        return\n    fi\n    case $before in\n", to);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) put_bash_value(to, id);
    fputs("    esac\n    case ${COMP_WORDS[1]} in\n", to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        fprintf(to, "    %s) flags='", verb_info(verb)->name);
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
            if (!option_belongs(id, verb)) continue;
            fprintf(to, " --%s", option_info(id)->flag);
            if (option_info(id)->type == OPTION_IS_FLAG) fprintf(to, " --no-%s", option_info(id)->flag);
        }
        fputs("' words='", to);
        put_words(to, verb);
        fputs(takes_model(verb) ? "' networks='!*.onnx' ;;\n" : "' ;;\n", to);
    }
    fputs("    esac\n    if [[ $word == -* ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$word\")\n"
          "    elif ((COMP_CWORD == 2)) && [[ $words ]]; then\n"
          "        compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -W \"$words\" -- \"$word\"\n"
          "            [[ $networks ]] && compgen -f -X \"$networks\" -- \"$word\")\n"
          "    else\n"
          "        compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n    fi\n}\n"
          "complete -F _towers towers\n",
          to);
}

/* ---- zsh */

static void put_zsh_value(FILE *to, OptionId id)
{
    const OptionInfo *info = option_info(id);
    if (info->type == OPTION_IS_FLAG) return;
    fputc(':', to);
    put_quoted(to, info->metavar ? info->metavar : "NAME", ":[]\\");
    fputc(':', to);
    if (has_choices(id)) {
        fputc('(', to);
        put_choices(to, id);
        fputc(')', to);
    } else {
        fputs(takes_file(info) ? "_files" : " ", to);
    }
}

static void put_zsh_spec(FILE *to, const char *dashes, const char *name, OptionId id, const char *attach)
{
    const OptionInfo *info = option_info(id);
    fprintf(to, "            '%s%s%s[", dashes, name, info->type == OPTION_IS_FLAG ? "" : attach);
    put_quoted(to, info->help, ":[]\\");
    fputc(']', to);
    put_zsh_value(to, id);
    fputs("'\n", to);
}

static void put_zsh(FILE *to)
{
    fputs("#compdef towers\n# zsh completion of towers; written by 'towers completion zsh'\n_towers() {\n"
          "    local -a commands options\n    commands=(\n",
          to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        if (verb_info(verb)->hidden) continue;
        fprintf(to, "        '%s:", verb_info(verb)->name);
        put_quoted(to, verb_info(verb)->summary, ":\\");
        fputs("'\n", to);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
          "    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n",
          to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        fprintf(to, "    %s)\n        options=(\n", verb_info(verb)->name);
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
            const OptionInfo *info = option_info(id);
            char letter[2] = {info->letter, 0};
            if (!option_belongs(id, verb)) continue;
            put_zsh_spec(to, "--", info->flag, id, "=");
            if (info->type == OPTION_IS_FLAG) put_zsh_spec(to, "--no-", info->flag, id, "");
            if (info->letter) put_zsh_spec(to, "-", letter, id, "");
        }
        if (has_words(verb)) {
            fputs(takes_model(verb) ? "            '1:model:{_alternative \"model:model:(" : "            '1:word:(",
                  to);
            put_words(to, verb);
            fputs(takes_model(verb) ? ")\" \"network:network:_files -g \\*.onnx\"}'\n" : ")'\n", to);
        }
        fputs("        ) ;;\n", to);
    }
    fputs("    esac\n    _arguments $options '*:file:_files'\n}\n_towers \"$@\"\n", to);
}

/* ---- fish */

static void put_fish_option(FILE *to, Verb verb, OptionId id)
{
    const OptionInfo *info = option_info(id);
    fprintf(to, "complete -c towers -n '__fish_seen_subcommand_from %s' -l %s", verb_info(verb)->name, info->flag);
    if (info->letter) fprintf(to, " -s %c", info->letter);
    if (info->type != OPTION_IS_FLAG) fputs(takes_file(info) ? " -r -F" : " -x", to);
    if (has_choices(id)) {
        fputs(" -a '", to);
        put_choices(to, id);
        fputc('\'', to);
    }
    fputs(" -d '", to);
    for (const char *p = info->help; *p; p++) fprintf(to, *p == '\'' || *p == '\\' ? "\\%c" : "%c", *p);
    fputs("'\n", to);
    if (info->type == OPTION_IS_FLAG)
        fprintf(to, "complete -c towers -n '__fish_seen_subcommand_from %s' -l no-%s\n", verb_info(verb)->name,
                info->flag);
}

static void put_fish(FILE *to)
{
    fputs("# fish completion of towers; written by 'towers completion fish'\n", to);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        if (verb_info(verb)->hidden) continue;
        fprintf(to, "complete -c towers -f -n '__fish_use_subcommand' -a %s -d '", verb_info(verb)->name);
        for (const char *p = verb_info(verb)->summary; *p; p++) fprintf(to, *p == '\'' ? "\\%c" : "%c", *p);
        fputs("'\n", to);
        if (has_words(verb)) {
            fprintf(to, "complete -c towers -n '__fish_seen_subcommand_from %s' -a '", verb_info(verb)->name);
            put_words(to, verb);
            fputs("'\n", to);
        }
        for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
            if (option_belongs(id, verb)) put_fish_option(to, verb, id);
    }
}

Status completion_print(FILE *to, const char *shell)
{
    static const struct {
        const char *name;
        void (*put)(FILE *to);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};
    if (!shell || !*shell) return FAIL(ERR_ARG, "no shell given; use one of bash, zsh, fish");
    for (size_t k = 0; k < sizeof shells / sizeof shells[0]; k++) {
        if (strcmp(shell, shells[k].name)) continue;
        shells[k].put(to);
        return OK;
    }
    return FAIL(ERR_ARG, "no completion script for '%s'; use one of bash, zsh, fish", shell);
}
