# A table of the test accuracies of several kinds of runs with the same seeds, then the difference of each kind from the first, which
# must be within three standard errors or half a point: else the word DIFFERENT.
# Input: "KIND SEED ACCURACY LOSS IMAGES_PER_SECOND" for each run. Variables: what (head of the first column), steps, kinds, and
# titles, of which the last two are lists separated by ";".
{ n[$1]++; sum[$1] += $3; square[$1] += $3 * $3; list[$1] = list[$1] sprintf(" %.2f", $3); loss[$1] += $4; speed[$1] += $5 }
END {
    count = split(kinds, kind, ";")
    split(titles, title, ";")
    printf "| %s | steps | test accuracy, %d seeds | mean | standard deviation | mean training loss | images/s |\n", what, n[kind[1]]
    print "|---|---|---|---|---|---|---|"
    for (k = 1; k <= count; k++) {
        name = kind[k]
        mean[k] = sum[name] / n[name]
        variance[k] = (square[name] - sum[name] * mean[k]) / (n[name] - 1)
        if (variance[k] < 0) variance[k] = 0
        printf "| %s | %d |%s | %.2f | %.2f | %.4f | %.0f |\n", title[k], steps, list[name], mean[k], sqrt(variance[k]),
            loss[name] / n[name], speed[name] / n[name]
    }
    print ""
    for (k = 2; k <= count; k++) {
        gap = mean[k] - mean[1]
        error = sqrt((variance[1] + variance[k]) / n[kind[1]])
        bound = 3 * error > 0.5 ? 3 * error : 0.5
        equal = (gap > -bound && gap < bound)
        printf "%s minus %s: %+.2f points, standard error %.2f: %s.\n", title[k], title[1], gap, error,
            (equal ? "equal within noise" : "DIFFERENT")
    }
}
