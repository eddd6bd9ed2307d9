/* Single numbers of a file that a node adds or multiplies: parameters, such as the gains of branches (Bachlechner et al. 2020,
 * arXiv:2003.04887; De & Smith 2020, arXiv:2002.10444), or constants of a formula. A file does not say which; where it has them and what
 * they are called does. What is no parameter by its name and no constant by its place stays as it is, and is said. */
#include "inception/networks/onnx_walk.h"

#include <ctype.h>

#include "kernels/base/array.h"

/* The last part of a name: "alpha" of "block/alpha/read:0". */
static const char *last_part(const char *name, size_t *length)
{
    size_t end = strlen(name);
    const char *colon = strrchr(name, ':');
    if (colon && !strchr(colon, '/')) end = (size_t)(colon - name);
    if (end > 5 && !strncmp(name + end - 5, "/read", 5)) end -= 5;
    size_t begin = end;
    while (begin > 0 && !strchr("/.", name[begin - 1])) begin--;
    *length = end - begin;
    return name + begin;
}

/* Whether one of its words, which are separated by what is no letter, names what layers train. */
static bool has_word_of_parameters(const char *part, size_t length)
{
    static const char *const words[] = {"alpha",  "beta",  "bias", "gain",        "gains",  "gamma",
                                        "lambda", "scale", "temp", "temperature", "weight", "resweight"};
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && isalpha((unsigned char)part[end])) end++;
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (strlen(words[k]) == end - at && !strncasecmp(words[k], part + at, end - at)) return true;
        at = end + 1;
    }
    return false;
}

/* "stages.0.0.gain": the modules of PyTorch that a parameter is in. */
static bool is_path_of_modules(const char *name, const char *last)
{
    if (last == name || last[-1] != '.' || !strncmp(last, "tmp_", 4)) return false;
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_' && *at != '.') return false;
    return true;
}

/* Constants of a formula in a graph that this program wrote when it did not mark them: "scale_7", or "_scale_7" beside such a parameter. A
 * parameter that is called so is taken for one, too. */
static bool is_unmarked_constant(const OnnxFile *file, const char *name)
{
    static const char *const words[] = {"cube", "exponent", "half",  "least", "mean", "most",        "one",
                                        "ones", "root",     "scale", "shift", "std",  "temperature", "white"};
    const char *number = strrchr(name, '_');
    if (!file->unmarked || !number || !isdigit((unsigned char)number[1])) return false;
    while (*name == '_' && name < number) name++;
    size_t length = (size_t)(number - name);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k]) == length && !strncmp(words[k], name, length)) return true;
    return false;
}

/* tf2onnx puts such a number behind each name that it makes up: "Relu6_max__194". Other exporters may call a parameter so. */
static bool is_numbered_by_tf2onnx(const char *name)
{
    const char *end = name + strlen(name), *number = end;
    while (number > name && isdigit((unsigned char)number[-1])) number--;
    return number < end && number > name + 2 && number[-1] == '_' && number[-2] == '_';
}

/* What exporters call the constants of a formula: "val_12", "lifted_tensor_0", "onnx::Mul_7", "const_fold_opt__9", "mul/y:0". */
static bool is_made_up(const OnnxFile *file, const char *name, const char *last, size_t length)
{
    bool numbered =
        (!strncmp(last, "val_", 4) && isdigit((unsigned char)last[4])) || !strncmp(last, "lifted_tensor_", 14);
    bool letter = length <= 1 && last > name && last[-1] == '/'; /* "gain.0" is one of a list of parameters */
    return is_unmarked_constant(file, name) || numbered || letter || strstr(name, "onst") || strstr(name, "::");
}

Scalar scalar_of(const OnnxWalk *w, const Fixed *f)
{
    if (!f->from.proto || (f->number && !f->curve) || f->integer || f->count != 1) return SCALAR_LITERAL;
    if (f->from.absent) return SCALAR_PARAMETER; /* the run of this file trains it, whatever its name says today */
    int writer = w->file->value[onnx_value(w->file, f->name)].writer;
    size_t length;
    const char *last = last_part(f->name, &length);
    if (writer >= 0 && !strcmp(w->file->node[writer].type, "Constant")) return SCALAR_LITERAL;
    bool variable = strstr(f->name, "ReadVariableOp") != NULL;
    if (!variable && is_made_up(w->file, f->name, last, length)) return SCALAR_LITERAL;
    bool modules = is_path_of_modules(f->name, last), word = has_word_of_parameters(last, length);
    if (!variable && !modules && is_numbered_by_tf2onnx(f->name)) return word ? SCALAR_UNKNOWN : SCALAR_LITERAL;
    if (w->file->structure) return SCALAR_UNKNOWN; /* the run of this file has it so */
    return variable || modules || word ? SCALAR_PARAMETER : SCALAR_UNKNOWN;
}

const char *scalar_source(const OnnxWalk *w, const Fixed *f)
{
    Fixed one = *f; /* of several */
    one.count = 1;
    if (f->source) return f->source;
    return scalar_of(w, &one) != SCALAR_LITERAL ? f->name : NULL;
}

bool scalar_stays(OnnxWalk *w, const OnnxNode *node, const Fixed *f)
{
    OnnxSurvey *s = w->survey;
    bool said = f->source || scalar_of(w, f) != SCALAR_LITERAL;
    const char *name = f->source ? f->source : f->name;
    if (!w->first || !said) return true;
    if (!walk_name_stays(w, node, name)) {
        w->lost = true;
        return false;
    }
    ValueNotes *notes = walk_notes(w, name);
    if (!notes->held && ARRAY_ADD(s->held, s->held_count, "the constants of a network", name) != OK)
        walk_fail(w, ERR_MEMORY, "no memory for the constants of a network");
    notes->held = true;
    return true;
}
