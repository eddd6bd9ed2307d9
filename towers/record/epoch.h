/* One epoch's results: a row of results.csv, a line of log.txt and of the console. */
#ifndef TOWERS_RECORD_EPOCH_H
#define TOWERS_RECORD_EPOCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers that were not measured are NaN. */
typedef struct EpochRecord {
    int64_t epoch, step; /* epochs from 1; the last step of this one */
    double train_loss, train_top1, test_loss, test_top1, test_top5, lr, images_per_sec, seconds;
    double wasserstein, kid; /* of GANs: the mean of the term of this name; of the generator's images */
    /* Samples have any number of classes: train_top1 and test_top5 are the share of samples with exactly the right
     * ones, test_top1 is mAP. */
    bool several;
} EpochRecord;

enum { EPOCH_TEXT = 200 };
/* The first line of results.csv, without its end; older versions did not write the last two columns. */
const char *epoch_header(bool several);
#define EPOCH_HEADER_OLDER "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds"
/* The tf.distribute tutorial's five fields, then ours. */
void epoch_text(const EpochRecord *epoch, char text[EPOCH_TEXT]);

#endif
