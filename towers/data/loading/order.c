/* Tables and the keyed permutation of order.h. */
#include "towers/data/loading/order.h"

#include "kernels/philox.h"
#include "towers/data/loading/shuffle.h"

enum { ROUNDS = 6, NOBODY = -1, FEW = 64 };

static const uint64_t SHARD_KEY = 0x7368617264730000u, WINDOW_KEY = 0x9e3779b97f4a7c15u;
static const uint64_t BALANCE_KEY = 0x62616c616e636500u;
static const uint64_t PERMUTE_KEY = 0x7065726d75746500u; /* separates these draws from other uses of the seed */

Status order_init(Order *order, uint64_t seed, int64_t count, bool shuffle)
{
    *order = (Order){.seed = seed, .count = count, .shuffle = shuffle, .epoch = {NOBODY, NOBODY}};
    if (!shuffle || count > ORDER_TABLE_MAX) return OK;
    for (int i = 0; i < 2; i++) {
        order->ids[i] = calloc((size_t)count + 1, sizeof **order->ids);
        if (!order->ids[i]) {
            order_free(order);
            return FAIL(ERR_MEMORY, "no memory for the order of %" PRId64 " samples", count);
        }
    }
    return OK;
}

Status order_init_window(Order *order, uint64_t seed, const int64_t *shard_first, int shards, int window)
{
    *order = (Order){.seed = seed,
                     .count = shard_first[shards],
                     .shuffle = true,
                     .epoch = {NOBODY, NOBODY},
                     .shard_first = shard_first,
                     .shards = shards,
                     .window = window};
    for (int i = 0; i < 2; i++) {
        order->begins[i] = calloc((size_t)shards + 1, sizeof **order->begins);
        if (!order->begins[i]) {
            order_free(order);
            return FAIL(ERR_MEMORY, "no memory for the order of %d shards", shards);
        }
    }
    return OK;
}

Status order_init_balanced(Order *order, uint64_t seed, const Source *source)
{
    const SourceInfo *info = source_info(source);
    *order = (Order){.seed = seed, .count = info->count, .shuffle = true, .epoch = {NOBODY, NOBODY}};
    order->members = calloc((size_t)info->count + 1, sizeof *order->members);
    order->class_first = calloc((size_t)info->classes + 1, sizeof *order->class_first);
    int64_t *next = calloc((size_t)info->classes + 1, sizeof *next), first = 0;
    if (!order->members || !order->class_first || !next) {
        free(next);
        order_free(order);
        return FAIL(ERR_MEMORY, "no memory for the order of %" PRId64 " samples", info->count);
    }
    source_classes_count(source, next);
    for (int k = 0; k < info->classes; k++) {
        int64_t count = next[k];
        next[k] = first;
        first += count;
        if (count > 0) order->class_first[++order->classes] = first;
    }
    for (int64_t i = 0; i < info->count; i++) order->members[next[source_label(source, i)]++] = i;
    free(next);
    return OK;
}

void order_free(Order *order)
{
    free(order->members);
    free(order->class_first);
    order->members = order->class_first = NULL;
    for (int i = 0; i < 2; i++) {
        free(order->begins[i]);
        order->begins[i] = NULL;
    }
    free(order->ids[0]);
    free(order->ids[1]);
    order->ids[0] = order->ids[1] = NULL;
}

bool order_is_ready(const Order *order, int64_t epoch)
{
    return (!order->ids[0] && !order->window) || order->epoch[epoch & 1] == epoch;
}

int order_shard(const Order *order, int64_t epoch, int place)
{
    return (int)order_permute(order->seed ^ SHARD_KEY, epoch, order->shards, place);
}

static void begins_fill(Order *order, int64_t epoch)
{
    int64_t *begins = order->begins[epoch & 1];
    for (int place = 0; place < order->shards; place++) {
        int shard = order_shard(order, epoch, place);
        begins[place + 1] = begins[place] + order->shard_first[shard + 1] - order->shard_first[shard];
    }
}

void order_prepare(Order *order, int64_t epoch)
{
    if (order_is_ready(order, epoch)) return;
    if (order->window)
        begins_fill(order, epoch);
    else
        epoch_order(order->seed, epoch, order->count, order->ids[epoch & 1]);
    order->epoch[epoch & 1] = epoch;
}

/* The place in [least, end) of the shard that holds a position. */
static int place_of(const int64_t *begins, int least, int end, int64_t position)
{
    while (end - least > 1) {
        int middle = least + (end - least) / 2;
        if (begins[middle] <= position)
            least = middle;
        else
            end = middle;
    }
    return least;
}

int order_window(const Order *order, int64_t epoch, int64_t position)
{
    return place_of(order->begins[epoch & 1], 0, order->shards, position) / order->window;
}

static int64_t window_at(const Order *order, int64_t epoch, int64_t position)
{
    const int64_t *begins = order->begins[epoch & 1];
    int window = order_window(order, epoch, position), first = window * order->window;
    int end = order->shards - first < order->window ? order->shards : first + order->window;
    uint64_t seed = order->seed + WINDOW_KEY * (uint64_t)(window + 1);
    int64_t inside = order_permute(seed, epoch, begins[end] - begins[first], position - begins[first]);
    int place = place_of(begins, first, end, begins[first] + inside);
    return order->shard_first[order_shard(order, epoch, place)] + begins[first] + inside - begins[place];
}

static int64_t balanced_at(const Order *order, int64_t epoch, int64_t position)
{
    Philox words = philox(order->seed ^ BALANCE_KEY, (uint32_t)position, (uint32_t)((uint64_t)position >> 32),
                          (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32));
    const int64_t *first = order->class_first + ((uint64_t)words.v[0] * (uint64_t)order->classes >> 32);
    uint64_t draw = (uint64_t)words.v[1] << 32 | words.v[2];
    return order->members[first[0] + (int64_t)((unsigned __int128)draw * (uint64_t)(first[1] - first[0]) >> 64)];
}

int64_t order_at(const Order *order, int64_t epoch, int64_t position)
{
    if (order->members) return balanced_at(order, epoch, position);
    if (!order->shuffle) return position;
    if (order->window) return window_at(order, epoch, position);
    if (order->ids[0]) return order->ids[epoch & 1][position];
    return order_permute(order->seed, epoch, order->count, position);
}

/* Rounds change the upper and the lower half alternately; the halves may differ in size. */
static uint64_t feistel(uint64_t seed, int64_t epoch, int bits, uint64_t value)
{
    int low_bits = bits / 2, high_bits = bits - low_bits;
    uint64_t low = value & ((UINT64_C(1) << low_bits) - 1), high = value >> low_bits;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t from = round & 1 ? high : low;
        uint32_t mixed =
            philox(seed ^ PERMUTE_KEY, (uint32_t)from, round, (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32)).v[0];
        if (round & 1)
            low ^= mixed & ((UINT64_C(1) << low_bits) - 1);
        else
            high ^= mixed & ((UINT64_C(1) << high_bits) - 1);
    }
    return high << low_bits | low;
}

int64_t order_permute(uint64_t seed, int64_t epoch, int64_t count, int64_t position)
{
    int bits = 1;
    if (count <= FEW) {
        int32_t table[FEW];
        epoch_order(seed ^ PERMUTE_KEY, epoch, count, table);
        return table[position];
    }
    while (bits < 62 && (INT64_C(1) << bits) < count) bits++;
    uint64_t value = (uint64_t)position;
    do value = feistel(seed, epoch, bits, value);
    while (value >= (uint64_t)count);
    return (int64_t)value;
}
