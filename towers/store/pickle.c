/* The stack machine of pickle.h. Values are numbered in the order in which they are made and never copied, so memory is
 * bounded by the pickle's length; a container may hold itself, and readers must not follow it without end. */
#include "towers/store/pickle.h"
#include "kernels/base/array.h"

/* ---- what a pickle may name */

typedef enum PickleRole { MAKES_DICT, MAKES_TENSOR, MAKES_PARAMETER, IS_STORAGE, IS_OPAQUE } PickleRole;

static const struct {
    const char *module, *name;
    PickleRole role;
    StDtype dtype;
} callables[] = {
    {"collections", "OrderedDict", MAKES_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", MAKES_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor", MAKES_TENSOR, 0}, /* before version 0.4 */
    {"torch._utils", "_rebuild_parameter", MAKES_PARAMETER, 0},
    {"torch._utils", "_rebuild_parameter_with_state", MAKES_PARAMETER, 0},
    {"torch", "DoubleStorage", IS_STORAGE, ST_F64},
    {"torch", "FloatStorage", IS_STORAGE, ST_F32},
    {"torch", "HalfStorage", IS_STORAGE, ST_F16},
    {"torch", "BFloat16Storage", IS_STORAGE, ST_BF16},
    {"torch", "LongStorage", IS_STORAGE, ST_I64},
    {"torch", "IntStorage", IS_STORAGE, ST_I32},
    {"torch", "ShortStorage", IS_STORAGE, ST_I16},
    {"torch", "CharStorage", IS_STORAGE, ST_I8},
    {"torch", "ByteStorage", IS_STORAGE, ST_U8},
    {"torch", "BoolStorage", IS_STORAGE, ST_BOOL},
    {"argparse", "Namespace", IS_OPAQUE, 0}, /* torchvision and timm keep the command line */
    {"pathlib", "PosixPath", IS_OPAQUE, 0},
    {"collections", "defaultdict", IS_OPAQUE, 0},
    {"collections", "Counter", IS_OPAQUE, 0},     /* learning-rate schedules */
    {"copy_reg", "_reconstructor", IS_OPAQUE, 0}, /* objects of protocols 0 and 1 */
    {"builtins", "object", IS_OPAQUE, 0},
    {"__builtin__", "object", IS_OPAQUE, 0},
    {"builtins", "dict", IS_OPAQUE, 0},
    {"__builtin__", "dict", IS_OPAQUE, 0},
    {"builtins", "set", IS_OPAQUE, 0},
    {"__builtin__", "set", IS_OPAQUE, 0},
    {"torch", "Size", IS_OPAQUE, 0},
    {"torch", "device", IS_OPAQUE, 0},
    {"torch", "float32", IS_OPAQUE, 0},
    {"torch", "float16", IS_OPAQUE, 0},
    {"torch", "bfloat16", IS_OPAQUE, 0},
    {"torch.torch_version", "TorchVersion", IS_OPAQUE, 0},
    {"numpy", "dtype", IS_OPAQUE, 0},
    {"numpy.core.multiarray", "scalar", IS_OPAQUE, 0}, /* best scores */
    {"numpy._core.multiarray", "scalar", IS_OPAQUE, 0},
    {"_codecs", "encode", IS_OPAQUE, 0},
};
enum { CALLABLES = sizeof callables / sizeof *callables };

typedef struct Machine {
    const unsigned char *bytes;
    size_t count, at, op_at;
    const char *label;
    Pickle *pickle;
    uint32_t *stack, *mark, *memo; /* owned */
    int32_t depth, marks, memos;
} Machine;

static Status refuse(const Machine *m, const char *what)
{
    return FAIL(ERR_CHECKPOINT, "'%s': its pickle has %s at offset %zu: not weights as torch.save writes them",
                m->label, what, m->op_at);
}

/* ---- bytes */

static Status take(Machine *m, size_t count, const unsigned char **from)
{
    if (count > m->count - m->at) return refuse(m, "an instruction that is cut off");
    *from = m->bytes + m->at;
    m->at += count;
    return OK;
}

static Status take_number(Machine *m, int bytes, uint64_t *number)
{
    const unsigned char *from = NULL;
    TRY(take(m, (size_t)bytes, &from));
    *number = 0;
    for (int i = bytes - 1; i >= 0; i--) *number = *number << 8 | from[i];
    return OK;
}

/* Up to a newline, which is taken but not counted. */
static Status take_line(Machine *m, const char **line, size_t *count)
{
    const unsigned char *from = m->bytes + m->at, *end = memchr(from, '\n', m->count - m->at);
    if (!end) return refuse(m, "a line without an end");
    *line = (const char *)from;
    *count = (size_t)(end - from);
    m->at += *count + 1;
    return OK;
}

/* The decimal number of a line; false if it is another thing or needs more than 64 bits. */
static bool line_number(const char *line, size_t count, int64_t *number)
{
    char text[24], *end;
    if (count == 0 || count >= sizeof text || !(line[0] == '-' || (line[0] >= '0' && line[0] <= '9'))) return false;
    memcpy(text, line, count);
    text[count] = 0;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return !*end && errno == 0;
}

/* ---- the stack */

static Status push_number(Machine *m, uint32_t number)
{
    return ARRAY_ADD(m->stack, m->depth, "the stack of a pickle", number);
}

static Status push(Machine *m, PickleValue value)
{
    Pickle *p = m->pickle;
    if (p->values == PICKLE_MAX_VALUES) return refuse(m, "more values than a state dict needs");
    TRY(ARRAY_ADD(p->value, p->values, "the values of a pickle", value));
    return push_number(m, (uint32_t)p->values - 1);
}

static int32_t floor_of(const Machine *m)
{
    return m->marks ? (int32_t)m->mark[m->marks - 1] : 0;
}

static Status pop(Machine *m, uint32_t *number)
{
    if (m->depth <= floor_of(m)) return refuse(m, "an instruction that takes more than there is");
    *number = m->stack[--m->depth];
    return OK;
}

static Status top(Machine *m, PickleValue **value)
{
    if (m->depth <= floor_of(m)) return refuse(m, "an instruction without its object");
    *value = &m->pickle->value[m->stack[m->depth - 1]];
    return OK;
}

/* The values behind the last mark, which is taken away: m->stack[*first .. *first + *count). */
static Status pop_mark(Machine *m, int32_t *first, int32_t *count)
{
    if (!m->marks) return refuse(m, "the end of a list that has not begun");
    *first = (int32_t)m->mark[--m->marks];
    *count = m->depth - *first;
    m->depth = *first;
    return OK;
}

/* ---- containers */

static Status append(PickleValue *to, uint32_t number)
{
    return ARRAY_ADD(to->item, to->count, "a list of a pickle", number);
}

/* A value of these items, to which others may be appended later. */
static Status push_items(Machine *m, PickleKind kind, const uint32_t *items, int32_t count)
{
    PickleValue value = {.kind = kind};
    Status st = OK;
    for (int32_t i = 0; i < count && st == OK; i++) st = append(&value, items[i]);
    if (st == OK) st = push(m, value);
    if (st != OK) free(value.item);
    return st;
}

static Status push_tuple(Machine *m, int32_t first, int32_t count)
{
    return push_items(m, PICKLE_TUPLE, count ? m->stack + first : NULL, count);
}

static Status push_top_tuple(Machine *m, int32_t count)
{
    if (m->depth - floor_of(m) < count) return refuse(m, "a tuple of more than there is");
    m->depth -= count;
    return push_tuple(m, m->depth, count);
}

/* Adds the values m->stack[first .. first + count) to the object on top. */
static Status add_items(Machine *m, int32_t first, int32_t count, PickleKind kind)
{
    PickleValue *to = NULL;
    TRY(top(m, &to));
    if (to->kind == PICKLE_OPAQUE) return OK;
    if (to->kind != kind) return refuse(m, "items for an object that takes none");
    if (kind == PICKLE_DICT && count % 2) return refuse(m, "a key without a value");
    for (int32_t i = 0; i < count; i++) TRY(append(to, m->stack[first + i]));
    return OK;
}

/* The last `count` values are added to the object below them. */
static Status add_top_items(Machine *m, int32_t count, PickleKind kind)
{
    if (m->depth - floor_of(m) < count) return refuse(m, "an instruction that takes more than there is");
    m->depth -= count;
    return add_items(m, m->depth, count, kind);
}

/* ---- names and calls */

static bool is_text(const char *text, size_t count, const char *wanted)
{
    return count == strlen(wanted) && memcmp(text, wanted, count) == 0;
}

static Status push_callable(Machine *m, const char *module, size_t module_bytes, const char *name, size_t name_bytes)
{
    for (int i = 0; i < CALLABLES; i++)
        if (is_text(module, module_bytes, callables[i].module) && is_text(name, name_bytes, callables[i].name))
            return push(m, (PickleValue){.kind = PICKLE_CALLABLE, .number = i});
    if (module_bytes > 9 && !memcmp(module, "__torch__", 9))
        return FAIL(ERR_CHECKPOINT,
                    "'%s' is a TorchScript module (torch.jit.save), but weights are read from state dicts: "
                    "torch.save(torch.jit.load(...).state_dict(), 'weights.pth')",
                    m->label);
    return FAIL(ERR_CHECKPOINT,
                "'%s': its pickle wants %.*s.%.*s at offset %zu, which no state dict needs, so nothing of it is run; "
                "save the weights alone: torch.save(model.state_dict(), 'weights.pth')",
                m->label, (int)(module_bytes < 64 ? module_bytes : 64), module,
                (int)(name_bytes < 64 ? name_bytes : 64), name, m->op_at);
}

static Status push_stack_callable(Machine *m)
{
    uint32_t module = 0, name = 0;
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    const PickleValue *a = pickle_at(m->pickle, module), *b = pickle_at(m->pickle, name);
    if (a->kind != PICKLE_TEXT || b->kind != PICKLE_TEXT) return refuse(m, "a name that is no text");
    return push_callable(m, a->text, (size_t)a->number, b->text, (size_t)b->number);
}

static const PickleValue *argument(const Machine *m, const PickleValue *args, int index, PickleKind kind)
{
    if (args->count <= index) return NULL;
    const PickleValue *value = pickle_at(m->pickle, args->item[index]);
    return value->kind == kind ? value : NULL;
}

static bool are_ints(const Machine *m, const PickleValue *tuple)
{
    for (int32_t i = 0; i < tuple->count; i++)
        if (pickle_at(m->pickle, tuple->item[i])->kind != PICKLE_INT) return false;
    return true;
}

/* _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata): the last is there
 * only of a lazy view, whose numbers are the negative or the conjugate of those in its storage. */
static Status push_tensor(Machine *m, const PickleValue *args)
{
    const PickleValue *storage = argument(m, args, 0, PICKLE_STORAGE), *offset = argument(m, args, 1, PICKLE_INT);
    const PickleValue *sizes = argument(m, args, 2, PICKLE_TUPLE), *strides = argument(m, args, 3, PICKLE_TUPLE);
    if (!storage || !offset || !sizes || !strides || sizes->count != strides->count || sizes->count > ST_MAX_RANK ||
        !are_ints(m, sizes) || !are_ints(m, strides))
        return refuse(m, "a tensor whose storage, sizes or strides make no sense");
    if (args->count > 6)
        return FAIL(ERR_CHECKPOINT,
                    "'%s': its pickle has a lazily negated or conjugated tensor at offset %zu: save it after "
                    "resolve_neg() or resolve_conj()",
                    m->label, m->op_at);
    return push_items(m, PICKLE_TENSOR, args->item, 4);
}

/* OrderedDict(), or as Python 2 wrote it: OrderedDict([[key, value], ...]). */
static Status push_ordered(Machine *m, const PickleValue *args)
{
    const PickleValue *pairs = argument(m, args, 0, PICKLE_LIST);
    if (args->count > 1 || (args->count && !pairs)) return refuse(m, "an OrderedDict of something else than pairs");
    PickleValue dict = {.kind = PICKLE_DICT};
    Status st = OK;
    for (int32_t i = 0; pairs && i < pairs->count; i++) {
        const PickleValue *pair = pickle_at(m->pickle, pairs->item[i]);
        bool is_pair = pair->count == 2 && (pair->kind == PICKLE_LIST || pair->kind == PICKLE_TUPLE);
        if (!is_pair) TRY_OUT(refuse(m, "an OrderedDict of something else than pairs"));
        for (int k = 0; k < 2; k++) TRY_OUT(append(&dict, pair->item[k]));
    }
    st = push(m, dict);
out:
    if (st != OK) free(dict.item);
    return st;
}

/* `made` = callable(*args): what the result is, never a call. */
static Status call(Machine *m)
{
    uint32_t args_number = 0, callable = 0;
    TRY(pop(m, &args_number));
    TRY(pop(m, &callable));
    const PickleValue *args = pickle_at(m->pickle, args_number), *what = pickle_at(m->pickle, callable);
    if (args->kind != PICKLE_TUPLE || what->kind != PICKLE_CALLABLE)
        return refuse(m, "a call of something that is no function");
    switch (callables[what->number].role) {
    case MAKES_DICT: return push_ordered(m, args);
    case MAKES_TENSOR: return push_tensor(m, args);
    case MAKES_PARAMETER:
        if (!argument(m, args, 0, PICKLE_TENSOR)) return refuse(m, "a parameter without a tensor");
        return push_number(m, args->item[0]);
    case IS_OPAQUE: return push(m, (PickleValue){.kind = PICKLE_OPAQUE});
    case IS_STORAGE: break;
    }
    return refuse(m, "a call of a storage's type");
}

/* `type` is a class such as torch.FloatStorage, `key` names the storage in the file. */
static Status push_storage(Machine *m, const PickleValue *type, const char *key, size_t key_bytes, int64_t elements)
{
    if (type->kind != PICKLE_CALLABLE || callables[type->number].role != IS_STORAGE || key_bytes > 64 || elements < 0)
        return refuse(m, "a storage of an unknown kind");
    return push(m, (PickleValue){.kind = PICKLE_STORAGE,
                                 .dtype = callables[type->number].dtype,
                                 .text = key,
                                 .text_bytes = (int32_t)key_bytes,
                                 .number = elements});
}

/* The persistent id ("storage", torch.FloatStorage, "0", "cpu", 1024). Before version 1.6 a last None said that the storage is
 * no view of another one. */
static Status push_persistent(Machine *m)
{
    uint32_t number = 0;
    TRY(pop(m, &number));
    const PickleValue *id = pickle_at(m->pickle, number);
    const PickleValue *kind = id->kind == PICKLE_TUPLE ? argument(m, id, 0, PICKLE_TEXT) : NULL;
    if (!kind || !is_text(kind->text, (size_t)kind->number, "storage")) return refuse(m, "a reference to no storage");
    const PickleValue *type = argument(m, id, 1, PICKLE_CALLABLE), *key = argument(m, id, 2, PICKLE_TEXT);
    const PickleValue *elements = argument(m, id, 4, PICKLE_INT);
    if (!type || !key || !elements) return refuse(m, "a storage of an unknown kind");
    if (id->count > 5 && !argument(m, id, 5, PICKLE_NONE)) return refuse(m, "a storage that is a view of another one");
    return push_storage(m, type, key->text, (size_t)key->number, elements->number);
}

/* Moves *at behind `wanted`, if it is there. */
static bool line_passes(const char **at, const char *end, const char *wanted)
{
    size_t count = strlen(wanted);
    bool is = (size_t)(end - *at) >= count && !memcmp(*at, wanted, count);
    if (is) *at += count;
    return is;
}

/* The text up to the next `mark`, behind which *at moves. */
static bool line_takes(const char **at, const char *end, char mark, const char **text, size_t *count)
{
    const char *found = memchr(*at, mark, (size_t)(end - *at));
    if (!found) return false;
    *text = *at;
    *count = (size_t)(found - *at);
    *at = found + 1;
    return true;
}

/* The same as protocol 0 writes it, which torch.load cannot read: ('storage', <class 'torch.FloatStorage'>, '0', 'cpu', 1024). */
static Status push_persistent_line(Machine *m)
{
    const char *at = NULL, *module = NULL, *type = NULL, *key = NULL, *unused = NULL, *elements = NULL;
    size_t count = 0, module_bytes = 0, type_bytes = 0, key_bytes = 0, unused_bytes = 0, elements_bytes = 0;
    uint32_t callable = 0;
    int64_t number = 0;
    TRY(take_line(m, &at, &count));
    const char *end = at + count;
    bool good =
        line_passes(&at, end, "('storage', <class '") && line_takes(&at, end, '.', &module, &module_bytes) &&
        line_takes(&at, end, '\'', &type, &type_bytes) && line_passes(&at, end, ">, '") &&
        line_takes(&at, end, '\'', &key, &key_bytes) && line_passes(&at, end, ", '") &&
        line_takes(&at, end, '\'', &unused, &unused_bytes) && line_passes(&at, end, ", ") &&
        line_takes(&at, end, at < end && memchr(at, ',', (size_t)(end - at)) ? ',' : ')', &elements, &elements_bytes) &&
        (at == end || (line_passes(&at, end, " None)") && at == end));
    if (!good || !line_number(elements, elements_bytes, &number)) return refuse(m, "a storage of an unknown kind");
    TRY(push_callable(m, module, module_bytes, type, type_bytes));
    TRY(pop(m, &callable));
    return push_storage(m, pickle_at(m->pickle, callable), key, key_bytes, number);
}

/* ---- the memo */

static Status memo_put(Machine *m, uint64_t index)
{
    if (m->depth <= floor_of(m)) return refuse(m, "an instruction without its object");
    if (index > m->count) return refuse(m, "a memo with a number larger than the pickle");
    while ((uint64_t)m->memos <= index) TRY(ARRAY_ADD(m->memo, m->memos, "the memo of a pickle", UINT32_MAX));
    m->memo[index] = m->stack[m->depth - 1];
    return OK;
}

static Status memo_get(Machine *m, uint64_t index)
{
    if (index >= (uint64_t)m->memos || m->memo[index] == UINT32_MAX) return refuse(m, "a memo that was never made");
    return push_number(m, m->memo[index]);
}

/* ---- instructions */

static Status push_text(Machine *m, int length_bytes)
{
    uint64_t count = 0;
    const unsigned char *from = NULL;
    TRY(take_number(m, length_bytes, &count));
    TRY(take(m, count, &from));
    return push(m, (PickleValue){.kind = PICKLE_TEXT, .text = (const char *)from, .number = (int64_t)count});
}

/* Two's complement of up to 8 bytes, or a number that nothing here needs. */
static Status push_long(Machine *m, int length_bytes)
{
    uint64_t count = 0;
    const unsigned char *from = NULL;
    TRY(take_number(m, length_bytes, &count));
    TRY(take(m, count, &from));
    if (count > 8) return push(m, (PickleValue){.kind = PICKLE_OPAQUE});
    uint64_t number = count && from[count - 1] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = count; i-- > 0;) number = number << 8 | from[i];
    return push(m, (PickleValue){.kind = PICKLE_INT, .number = (int64_t)number});
}

static Status push_int(Machine *m, int bytes)
{
    uint64_t number = 0;
    TRY(take_number(m, bytes, &number));
    return push(m, (PickleValue){.kind = PICKLE_INT, .number = bytes == 4 ? (int32_t)number : (int64_t)number});
}

static Status push_of(Machine *m, PickleKind kind, int64_t number)
{
    return push(m, (PickleValue){.kind = kind, .number = number});
}

/* INT and LONG of protocol 0, whose `end` is "" or "L": a number that nothing here needs has no value, as in push_long. */
static Status push_number_line(Machine *m, const char *end)
{
    const char *line = NULL;
    size_t count = 0, mark = strlen(end);
    int64_t number = 0;
    TRY(take_line(m, &line, &count));
    if (count < mark || memcmp(line + count - mark, end, mark)) return refuse(m, "a number without its end");
    if (!mark && count == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1')) /* as it writes False and True */
        return push_of(m, PICKLE_BOOL, line[1] - '0');
    bool fits = line_number(line, count - mark, &number);
    return push_of(m, fits ? PICKLE_INT : PICKLE_OPAQUE, number);
}

/* UNICODE of protocol 0, and its STRING in quotes. One with escapes, which no name of a tensor needs, has no value. */
static Status push_text_line(Machine *m, bool quoted)
{
    const char *line = NULL;
    size_t count = 0;
    TRY(take_line(m, &line, &count));
    if (quoted) {
        if (count < 2 || (line[0] != '\'' && line[0] != '"') || line[count - 1] != line[0])
            return refuse(m, "a string without quotes");
        line++;
        count -= 2;
    }
    for (size_t i = 0; i < count; i++)
        if (line[i] == '\\' || (line[i] & 0x80)) return push_of(m, PICKLE_OPAQUE, 0);
    return push(m, (PickleValue){.kind = PICKLE_TEXT, .text = line, .number = (int64_t)count});
}

static Status push_float_line(Machine *m)
{
    const char *line = NULL;
    size_t count = 0;
    TRY(take_line(m, &line, &count));
    return push_of(m, PICKLE_FLOAT, 0);
}

static Status skip(Machine *m, size_t bytes)
{
    const unsigned char *unused = NULL;
    return take(m, bytes, &unused);
}

static Status take_protocol(Machine *m)
{
    uint64_t protocol = 0;
    TRY(take_number(m, 1, &protocol));
    return protocol <= 5 ? OK : refuse(m, "an unknown protocol");
}

static Status push_global(Machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t module_bytes = 0, name_bytes = 0;
    TRY(take_line(m, &module, &module_bytes));
    TRY(take_line(m, &name, &name_bytes));
    return push_callable(m, module, module_bytes, name, name_bytes);
}

static Status set_mark(Machine *m)
{
    return ARRAY_ADD(m->mark, m->marks, "the marks of a pickle", (uint32_t)m->depth);
}

static Status pop_items(Machine *m, PickleKind kind)
{
    int32_t first = 0, count = 0;
    TRY(pop_mark(m, &first, &count));
    return kind == PICKLE_TUPLE ? push_tuple(m, first, count) : add_items(m, first, count, kind);
}

/* A dict or list of what lies behind the mark: protocol 0 makes them so. */
static Status push_marked(Machine *m, PickleKind kind)
{
    int32_t first = 0, count = 0;
    TRY(pop_mark(m, &first, &count));
    if (kind == PICKLE_DICT && count % 2) return refuse(m, "a key without a value");
    return push_items(m, kind, count ? m->stack + first : NULL, count);
}

/* An object's state: the attributes of an OrderedDict or of something opaque, which are not needed. */
static Status build(Machine *m)
{
    uint32_t state = 0;
    PickleValue *object = NULL;
    TRY(pop(m, &state));
    TRY(top(m, &object));
    if (object->kind == PICKLE_OPAQUE || object->kind == PICKLE_DICT) return OK;
    return refuse(m, "a state for an object that has none");
}

static Status memo_at(Machine *m, int bytes, Status (*use)(Machine *m, uint64_t index))
{
    uint64_t index = 0;
    TRY(take_number(m, bytes, &index));
    return use(m, index);
}

static Status memo_at_line(Machine *m, Status (*use)(Machine *m, uint64_t index))
{
    const char *line = NULL;
    size_t count = 0;
    int64_t index = 0;
    TRY(take_line(m, &line, &count));
    if (!line_number(line, count, &index) || index < 0) return refuse(m, "a memo without a number");
    return use(m, (uint64_t)index);
}

static Status step(Machine *m, unsigned char op)
{
    uint32_t unused;
    switch (op) {
    case 0x80: return take_protocol(m);
    case 0x95: return skip(m, 8); /* FRAME: its length */
    case '(': return set_mark(m);
    case '0': return pop(m, &unused);
    case 'N': return push_of(m, PICKLE_NONE, 0);
    case 0x88: return push_of(m, PICKLE_BOOL, 1);
    case 0x89: return push_of(m, PICKLE_BOOL, 0);
    case 'J': return push_int(m, 4);
    case 'K': return push_int(m, 1);
    case 'M': return push_int(m, 2);
    case 0x8a: return push_long(m, 1);
    case 0x8b: return push_long(m, 4);
    case 'G': TRY(skip(m, 8)); return push_of(m, PICKLE_FLOAT, 0);
    case 'X': return push_text(m, 4);
    case 0x8c: return push_text(m, 1);
    case 0x8d: return push_text(m, 8);
    case 'T': return push_text(m, 4); /* strings and bytes: looked at by nobody */
    case 'U': return push_text(m, 1);
    case 'B': return push_text(m, 4);
    case 'C': return push_text(m, 1);
    case ')': return push_of(m, PICKLE_TUPLE, 0);
    case 0x85: return push_top_tuple(m, 1);
    case 0x86: return push_top_tuple(m, 2);
    case 0x87: return push_top_tuple(m, 3);
    case 't': return pop_items(m, PICKLE_TUPLE);
    case ']': return push_of(m, PICKLE_LIST, 0);
    case 'a': return add_top_items(m, 1, PICKLE_LIST);
    case 'e': return pop_items(m, PICKLE_LIST);
    case '}': return push_of(m, PICKLE_DICT, 0);
    case 's': return add_top_items(m, 2, PICKLE_DICT);
    case 'u': return pop_items(m, PICKLE_DICT);
    case 0x8f: return push_of(m, PICKLE_OPAQUE, 0); /* EMPTY_SET */
    case 0x90: return pop_items(m, PICKLE_OPAQUE);
    case 'q': return memo_at(m, 1, memo_put);
    case 'r': return memo_at(m, 4, memo_put);
    case 0x94: return memo_put(m, (uint64_t)m->memos);
    case 'h': return memo_at(m, 1, memo_get);
    case 'j': return memo_at(m, 4, memo_get);
    case 'c': return push_global(m);
    case 0x93: return push_stack_callable(m);
    case 'R': return call(m);
    case 0x81: return call(m); /* NEWOBJ: the class made without its initialization */
    case 'b': return build(m);
    case 'Q': return push_persistent(m);
    /* protocol 0 */
    case 'P': return push_persistent_line(m);
    case 'I': return push_number_line(m, "");
    case 'L': return push_number_line(m, "L");
    case 'F': return push_float_line(m);
    case 'V': return push_text_line(m, false);
    case 'S': return push_text_line(m, true);
    case 'd': return push_marked(m, PICKLE_DICT);
    case 'l': return push_marked(m, PICKLE_LIST);
    case 'p': return memo_at_line(m, memo_put);
    case 'g': return memo_at_line(m, memo_get);
    default: break;
    }
    char what[40];
    snprintf(what, sizeof what, "the instruction 0x%02x", op);
    return refuse(m, what);
}

Status pickle_parse(const void *bytes, size_t count, const char *label, Pickle *made)
{
    Status st = OK;
    *made = (Pickle){0};
    Machine m = {.bytes = bytes, .count = count, .label = label, .pickle = made};
    if (count > PICKLE_MAX_BYTES) m.count = PICKLE_MAX_BYTES; /* it ends before, or is refused as cut off */
    for (;;) {
        const unsigned char *op = NULL;
        m.op_at = m.at;
        TRY_OUT(take(&m, 1, &op));
        if (*op == '.') break;
        TRY_OUT(step(&m, *op));
    }
    if (m.marks) TRY_OUT(refuse(&m, "its end in a list"));
    TRY_OUT(pop(&m, &made->root));
    made->bytes = m.at;
out:
    free(m.stack);
    free(m.mark);
    free(m.memo);
    if (st != OK) pickle_clear(made);
    return st;
}

void pickle_clear(Pickle *pickle)
{
    for (int32_t i = 0; i < pickle->values; i++) free(pickle->value[i].item);
    free(pickle->value);
    *pickle = (Pickle){0};
}

const PickleValue *pickle_get(const Pickle *pickle, const PickleValue *dict, const char *key)
{
    const PickleValue *found = NULL;
    for (int32_t i = 0; dict->kind == PICKLE_DICT && i + 1 < dict->count; i += 2) {
        const PickleValue *name = pickle_at(pickle, dict->item[i]);
        if (name->kind == PICKLE_TEXT && is_text(name->text, (size_t)name->number, key))
            found = pickle_at(pickle, dict->item[i + 1]);
    }
    return found;
}
