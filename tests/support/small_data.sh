# shellcheck shell=bash
# Source this: small_data DIR TRAIN TEST copies the first samples of Fashion-MNIST into an IDX data set of its own, so that a whole run
# takes a second; idx_cut does one file. Returns 77 if the data set is not installed.

fashion_mnist=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}

# idx_cut FROM.gz TO HEADER_BYTES SAMPLE_BYTES COUNT: the count is the second big-endian word of the header
idx_cut() {
    local from=$1 to=$2 header=$3 sample=$4 count=$5
    {
        printf '\0\0\010'
        if ((header == 16)); then printf '\003'; else printf '\001'; fi
        printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((count >> 24)) $((count >> 16 & 255)) $((count >> 8 & 255)) $((count & 255)))"
        zcat "$from" 2>/dev/null | head -c $((header + sample * count)) | tail -c +9
    } >"$to"
}

small_data() {
    local dir=$1 train=$2 test=$3
    if [[ ! -r $fashion_mnist/train-images-idx3-ubyte.gz ]]; then
        echo "SKIPPED: no Fashion-MNIST in $fashion_mnist (package dataset-fashion-mnist)" >&2
        return 77
    fi
    mkdir -p "$dir"
    idx_cut "$fashion_mnist/train-images-idx3-ubyte.gz" "$dir/train-images-idx3-ubyte" 16 784 "$train"
    idx_cut "$fashion_mnist/train-labels-idx1-ubyte.gz" "$dir/train-labels-idx1-ubyte" 8 1 "$train"
    idx_cut "$fashion_mnist/t10k-images-idx3-ubyte.gz" "$dir/t10k-images-idx3-ubyte" 16 784 "$test"
    idx_cut "$fashion_mnist/t10k-labels-idx1-ubyte.gz" "$dir/t10k-labels-idx1-ubyte" 8 1 "$test"
}
