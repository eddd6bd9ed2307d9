/* The line of an epoch; see epoch.h. */
#include "towers/record/epoch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void epoch_text(const EpochRecord *epoch, char text[EPOCH_TEXT])
{
    char test[EPOCH_TEXT / 2] = "", accuracy[40] = "", kid[40] = "";
    if (!isnan(epoch->train_top1)) snprintf(accuracy, sizeof accuracy, ", Accuracy: %.3f", 100 * epoch->train_top1);
    if (!isnan(epoch->test_top1))
        snprintf(test, sizeof test, ", Test Loss: %.5f, Test Accuracy: %.2f", epoch->test_loss, 100 * epoch->test_top1);
    if (epoch->has_kid) snprintf(kid, sizeof kid, ", KID: %.5f", epoch->kid);
    snprintf(text, EPOCH_TEXT, "Epoch %" PRId64 ", Loss: %.5f%s%s%s  (%.1f s, %.0f img/s)", epoch->epoch,
             epoch->train_loss, accuracy, test, kid, epoch->seconds, epoch->images_per_sec);
}
