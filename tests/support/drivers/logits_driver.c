/* Logits of an evaluation, for comparison with other programs: logits_driver MODEL SIDE CLASSES VARIANT WEIGHTS N OUT
 * writes OUT.pixels (u8 NHWC, synthetic) and OUT.logits (f32). MODEL may be an ONNX file; SIDE and CLASSES 0 are its own, WEIGHTS "-" its
 * own, too, which then are in OUT.safetensors. Its ops are printed. */
#include "inception/models/models.h"
#include "inception/networks/net_file.h"
#include "towers/files/files.h"
#include "towers/replica/replica.h"
#include "towers/store/pretrained.h"

static Status file_write(const char *out, const char *ending, const void *bytes, size_t count)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", out, ending);
    FILE *to = fopen(path, "wb");
    if (!to || fwrite(bytes, 1, count, to) != count || fclose(to) != 0) return FAIL(ERR_IO, "cannot write %s", path);
    return OK;
}

/* Into the arenas that evaluation reads. */
static Status weights_put(Replica *r, const ProgramConfig *config, const char *path)
{
    WeightMap map = weight_map(r->layout);
    return pretrained_read(&map, config, path, HEAD_READ, r->arena[ARENA_PARAM], r->eval_running, NULL);
}

static Status logits_write(Replica *r, const Batch *batch, const char *out)
{
    Program *program = &r->eval[0];
    int softmax = 0;
    while (graph_op_at(program->graph, softmax)->kind != OP_SOFTMAX_LOSS) softmax++;
    TRY(replica_feed(r, program, batch, 0, &(RandomKey){0}, 0));
    TRY(plan_run(program->plan, 0, softmax));
    Tensor logits = plan_tensor(program->plan, graph_op_at(program->graph, softmax)->in[0]);
    return file_write(out, "logits", logits.data, (size_t)shape_count(logits.shape) * sizeof(float));
}

/* The file's own values as a file of weights. */
static Status weights_write(const NetFile *network, const char *path)
{
    int count;
    const NetTensor *from = net_file_tensors(network, &count);
    StTensor *to = calloc((size_t)count + 1, sizeof *to);
    if (!to) return FAIL(ERR_MEMORY, "%d tensors", count);
    for (int i = 0; i < count; i++) {
        to[i] = (StTensor){
            .name = from[i].name, .dtype = ST_F32, .rank = from[i].rank, .data = from[i].data, .bytes = sizeof(float)};
        for (int k = 0; k < from[i].rank; k++) to[i].bytes *= (size_t)(to[i].dims[k] = from[i].dims[k]);
    }
    Status st = safetensors_replace(path, to, count, NULL, 0);
    free(to);
    return st;
}

static Status run(char **argv)
{
    const Model *model;
    NetFile *network = NULL;
    Replica *replica;
    ReplicaConfig config = {.device = {DEVICE_USUAL, .threads = 2}, .local = 1};
    char weights[PATH_BYTES];
    snprintf(weights, sizeof weights, "%s", argv[5]);
    if (ends_with(argv[1], ".onnx")) {
        TRY(net_file_open(argv[1], &network));
        model = net_file_model(network);
        if (!strcmp(weights, "-")) {
            snprintf(weights, sizeof weights, "%s.safetensors", argv[7]);
            TRY(weights_write(network, weights));
        }
    } else {
        TRY(model_find(argv[1], &model));
    }
    int32_t side = atoi(argv[2]) ? atoi(argv[2]) : model->side, n = atoi(argv[6]);
    int classes = atoi(argv[3]) ? atoi(argv[3]) : model->classes;
    TRY(backend_find("cpu", &config.backend, NULL, 0));
    config.eval_n = (const int32_t[]){n, 0};
    config.program = (ProgramConfig){.model = model,
                                     .options = {classes, side, model->channels, 0, false, argv[4]},
                                     .data_channels = model->channels,
                                     .canvas = side,
                                     .fuse_siblings = true,
                                     .pool_behind_conv = true};
    TRY(replica_create(&config, &replica));
    if (network) graph_print(replica->eval[0].graph, stdout);
    TRY(weights_put(replica, &config.program, weights));
    size_t bytes = (size_t)n * (size_t)side * (size_t)side * (size_t)model->channels;
    uint8_t *pixels = malloc(bytes);
    int32_t *labels = calloc((size_t)n, sizeof *labels);
    if (!pixels || !labels) return FAIL(ERR_MEMORY, "%zu pixels", bytes);
    for (size_t i = 0; i < bytes; i++) pixels[i] = (uint8_t)((i * 2654435761u) >> 13);
    Batch batch = {.n = n, .canvas = side, .c = model->channels, .pixels = pixels, .labels = labels};
    TRY(file_write(argv[7], "pixels", pixels, bytes));
    TRY(logits_write(replica, &batch, argv[7]));
    free(pixels);
    free(labels);
    replica_destroy(replica);
    net_file_close(network);
    return OK;
}

int main(int argc, char **argv)
{
    Status st = argc == 8 ? run(argv) : FAIL(ERR_ARG, "usage: %s MODEL SIDE CLASSES VARIANT WEIGHTS N OUT", argv[0]);
    if (st != OK) status_print(stderr, st, true);
    return st == OK ? 0 : 1;
}
