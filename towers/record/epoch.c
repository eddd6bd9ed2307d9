/* The line of an epoch; see epoch.h. */
#include "towers/record/epoch.h"

#include "kernels/text.h"

#include <inttypes.h>
#include <math.h>

const char *epoch_header(bool several)
{
    return several ? "epoch,step,train_loss,train_exact,test_loss,test_map,test_exact,lr,images_per_sec,seconds,"
                     "wasserstein,kid"
                   : "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds,"
                     "wasserstein,kid";
}

void epoch_text(const EpochRecord *epoch, char text[EPOCH_TEXT])
{
    Text t = text_start(text, EPOCH_TEXT);
    text_add(&t, "Epoch %" PRId64 ", Loss: %.5f", epoch->epoch, epoch->train_loss);
    const char *train = epoch->several ? "Exact" : "Accuracy", *test = epoch->several ? "mAP" : "Accuracy";
    if (!isnan(epoch->train_top1)) text_add(&t, ", %s: %.3f", train, 100 * epoch->train_top1);
    if (!isnan(epoch->test_top1))
        text_add(&t, ", Test Loss: %.5f, Test %s: %.2f", epoch->test_loss, test, 100 * epoch->test_top1);
    if (!isnan(epoch->kid)) text_add(&t, ", KID: %.5f", epoch->kid);
    text_add(&t, "  (%.1f s, %.0f img/s)", epoch->seconds, epoch->images_per_sec);
}
