/* The line of an epoch; see epoch.h. */
#include "towers/record/epoch.h"

#include "kernels/base/text.h"

const EpochColumn epoch_column[EPOCH_COLUMNS] = {
#define EPOCH(key, multi_label, tag, multi_label_tag)                                                                  \
    {#key, #multi_label, tag, multi_label_tag, offsetof(EpochRecord, key)},
#include "towers/record/epoch.def"
};

const char *const epoch_term[EPOCH_TERMS] = {
#define EPOCH_TERM(key) #key,
#include "towers/record/epoch.def"
};

void epoch_clear(EpochRecord *epoch)
{
    *epoch = (EpochRecord){0};
    for (int i = 0; i < EPOCH_COLUMNS; i++) *epoch_number(epoch, i) = ABSENT;
}

void epoch_header(bool multi_label, char text[EPOCH_TEXT])
{
    Text t = text_start(text, EPOCH_TEXT);
    text_add(&t, "epoch,step");
    for (int i = 0; i < EPOCH_COLUMNS; i++)
        text_add(&t, ",%s", multi_label ? epoch_column[i].multi_label : epoch_column[i].name);
}

bool epoch_header_known(const char *line, bool multi_label)
{
    char now[EPOCH_TEXT];
    size_t length = strlen(line);
    epoch_header(multi_label, now);
    return length > strlen("epoch,step") && !strncmp(line, now, length) && (!now[length] || now[length] == ',');
}

void epoch_text(const EpochRecord *epoch, const char *loss, char text[EPOCH_TEXT])
{
    Text t = text_start(text, EPOCH_TEXT);
    text_add(&t, "Epoch %" PRId64 ", %s: %.5f", epoch->epoch, loss, epoch->train_loss);
    const char *train = epoch->multi_label ? "Exact" : "Accuracy", *test = epoch->multi_label ? "mAP" : "Accuracy";
    if (!is_absent(epoch->train_top1)) text_add(&t, ", %s: %.3f", train, 100 * epoch->train_top1);
    if (!is_absent(epoch->test_top1))
        text_add(&t, ", Test Loss: %.5f, Test %s: %.2f", epoch->test_loss, test, 100 * epoch->test_top1);
    else if (!is_absent(epoch->test_loss))
        text_add(&t, ", Test Loss: %.5f", epoch->test_loss);
    if (!is_absent(epoch->kid)) text_add(&t, ", KID: %.5f", epoch->kid);
    text_add(&t, "  (%.1f s, %.0f img/s)", epoch->seconds, epoch->images_per_sec);
}

bool score_better(Score score, double value, double best)
{
    static const bool higher[SCORES] = {
#define SCORE(id, key, json, multi_label_json, up) up,
#include "towers/record/epoch.def"
    };
    return isfinite(value) && (is_absent(best) || (higher[score] ? value > best : value < best));
}
