/* What the file of a network settles; see own_network.h. */
#include "inception/job/own_network.h"

#include "inception/job/named_model.h"
#include "inception/job/notes.h"
#include "inception/options/settle.h"

static Status input_ask(const Model *model)
{
    return FAIL(ERR_ARG, "%s does not say how its images are normalized: give both, --mean and --std; %s", model->name,
                model->channels == 1 ? "--mean 0 --std 1 leaves pixels in [0, 1]"
                                     : "those of torchvision's and timm's networks are mostly --mean 0.485,0.456,0.406 "
                                       "--std 0.229,0.224,0.225");
}

/* A network that was trained elsewhere expects its input as there, and no ONNX file has a place to say how that was. Training bears
 * another normalization; an answer would be wrong without a sign of it. */
static Status input_settle(Options *o, const Model *model, JobFiles *files)
{
    static const char mean[] = "0.485,0.456,0.406", std[] = "0.229,0.224,0.225";
    bool gray = model->channels == 1, answers = options_use(o) == USE_EVALUATE || options_use(o) == USE_PREDICT;
    if (network_knows_input(model) || (o->mean && o->std)) return OK;
    if (o->mean || o->std || answers) return input_ask(model);
    TRY(option_settle_text(o, OPTION_ID_mean, gray ? "0" : mean));
    TRY(option_settle_text(o, OPTION_ID_std, gray ? "1" : std));
    settled_note(
        files, "%s does not say how its images are normalized: %s; --mean and --std say otherwise", model->name,
        gray ? "pixels are left in [0, 1]"
             : "mean 0.485,0.456,0.406 and deviation 0.229,0.224,0.225 are taken, as for networks of ImageNet");
    return OK;
}

Status own_network_restore(const Options *o, const JobFiles *files, const Model **model)
{
    const Model *restored, *given = *model;
    if (o->norms != NORMS_RESTORE) return OK;
    TRY(network_restore(given, &restored));
    if (restored) *model = restored;
    if (restored || job_resumes(files) || option_origin(o, "norms") <= ORIGIN_RUN) return OK;
    if (!network_facts(given).convolves)
        return FAIL(ERR_ARG, "--norms restore: %s has no convolutions, behind which norms stand; leave the option out",
                    given->name);
    return FAIL(ERR_ARG,
                "--norms restore: no convolution of %s can have had a batch norm that was folded into it: expected one "
                "with a bias and no norm directly behind it, which neither gives the classes nor is computed from "
                "means of the whole image; leave the option out",
                given->name);
}

Status own_network_described(const Options *o, const Model *model)
{
    bool guessed = !network_knows_input(model) && option_origin(o, "mean") == ORIGIN_DEFAULT;
    return guessed ? input_ask(model) : OK;
}

void own_network_say(const Options *o, JobFiles *files)
{
    const Model *model = files->job.program.model;
    NetFacts facts = network_facts(model);
    if (options_use(o) != USE_LEARN || job_resumes(files)) return;
    if (facts.outputs > 1)
        job_note(files, "%s has %d outputs: the first is taken for the logits, %s (--aux-weight, --no-aux)",
                 model->name, facts.outputs,
                 facts.outputs == 2 ? "the other for those of an auxiliary head"
                                    : "the others for those of auxiliary heads");
    if (facts.shared)
        job_note(
            files,
            "%d parameter%s of several layers each, trained as one, as in the file; if your network does not share "
            "them, export it with optimize=False: otherwise PyTorch's exporter merges equal values, such as those "
            "of a network that was not trained yet",
            facts.shared, facts.shared == 1 ? " is that" : "s are those");
    if (facts.scalars.count)
        job_note(
            files,
            "trained, being named like parameters: %d single number%s of %s (%s); --freeze NAME keeps one as it is",
            facts.scalars.count, facts.scalars.count == 1 ? "" : "s", model->name, facts.scalars.list);
    if (facts.held.count)
        job_note(files, "held constant, though your network may have trained them: %d single number%s of %s (%s)",
                 facts.held.count, facts.held.count == 1 ? "" : "s", model->name, facts.held.list);
    if (facts.filled.count)
        job_note(
            files,
            "trained, though the file has them as constants: %d parameter%s of %s (%s), as an exporter writes ones and "
            "zeros for a batch norm without, or numbers of a formula; --freeze NAME keeps one as it is",
            facts.filled.count, facts.filled.count == 1 ? "" : "s", model->name, facts.filled.list);
    if (facts.momenta)
        job_note(
            files,
            "the batch norms of %s keep different parts of their running averages; here all keep that of the last one "
            "(--bn-decay)",
            model->name);
    if (facts.restored)
        job_note(files, "%s: a batch norm behind each of %d convolutions that had none (--norms restore)", model->name,
                 facts.restored);
    if (!facts.norms && facts.convolves)
        job_note(
            files,
            "%s has no batch norms and trains without; if your network has some, its exporter has folded them into "
            "the convolutions: PyTorch's keeps them with optimize=False, and --norms restore puts new ones there",
            model->name);
}

static Status start_settle(Options *o, const Model *model, JobFiles *files)
{
    if (options_use(o) != USE_LEARN || job_resumes(files) || o->pretrained || o->from_scratch) return OK;
    if (network_has_values(model)) return option_settle_text(o, OPTION_ID_pretrained, model->file);
    settled_note(files, "%s has no trained values: the weights are drawn", model->name);
    return OK;
}

/* A Sigmoid at the end gives each class a probability of its own, which is what this loss trains. What answers for a run has the
 * run's loss. */
static void loss_settle(Options *o, const Model *model, JobFiles *files)
{
    bool learns = options_use(o) == USE_LEARN;
    if (!network_facts(model).sigmoid || option_is_set(o, "loss") || !(learns || network_has_values(model))) return;
    option_settle_choice(o, OPTION_ID_loss, LOSS_BCE);
    settled_note(files,
                 "%s ends in a Sigmoid, which gives each class a probability of its own: --loss bce; --loss "
                 "softmax says otherwise",
                 model->name);
}

Status own_network_settle(Options *o, const Model *model, JobFiles *files)
{
    TRY(input_settle(o, model, files));
    loss_settle(o, model, files);
    return start_settle(o, model, files);
}

void own_network_head(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    const Model *model = job->program.model;
    bool own = model->file && o->pretrained && is_same_file(o->pretrained, model->file);
    if (!own || job->reset_head || job_resumes(files) || job->program.options.classes == model->classes) return;
    job->reset_head = true;
    job_note(files,
             "the classifier of %s has %d classes, the data %d: a new one begins at random, as with --reset-head",
             model->name, model->classes, job->program.options.classes);
}
